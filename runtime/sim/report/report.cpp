#include "report/report.h"

#include "scheduler/fiber.h"
#include "scheduler/launch.h"
#include "streams/stream.h"

#include <utility>

namespace ditron::sim {

ProgramReport reportOf(const Fiber &fiber, std::string what, std::string hint) {
  const Launch &launch = *fiber.launch;
  ProgramReport report;
  report.kernel = launch.name;
  if (launch.stream) {
    report.stream = launch.stream->label();
  }
  if (fiber.loc >= 0 && size_t(fiber.loc) < launch.locations.size()) {
    report.location = launch.locations[fiber.loc];
  }
  report.rank = launch.rank;
  report.program = fiber.pid;
  report.what = std::move(what);
  report.hint = std::move(hint);
  return report;
}

} // namespace ditron::sim
