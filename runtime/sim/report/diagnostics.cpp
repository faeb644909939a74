#include "report/diagnostics.h"

#include "scheduler/fiber.h"

#include <algorithm>
#include <utility>

namespace ditron::sim {

void Diagnostics::fail(const Fiber &fiber, Failure failure) {
  std::lock_guard<std::mutex> guard(mutex);
  if (fiber.workerContext && failed &&
      !std::lexicographical_compare(fiber.pid.rbegin(), fiber.pid.rend(),
                                    report.program.rbegin(),
                                    report.program.rend())) {
    return;
  }
  report = reportOf(fiber, std::move(failure.what), std::move(failure.hint));
  report.kind = std::move(failure.kind);
  report.others = std::move(failure.others);
  failed = true;
}

void Diagnostics::fail(ProgramReport wrong) {
  report = std::move(wrong);
  failed = true;
}

void Diagnostics::warn(const Fiber &fiber, Failure warning) {
  std::lock_guard<std::mutex> guard(mutex);
  ProgramReport wrong =
      reportOf(fiber, std::move(warning.what), std::move(warning.hint));
  if (warned.insert(wrong.kernel + wrong.location).second) {
    warnings.push_back(std::move(wrong));
  }
}

std::vector<ProgramReport> Diagnostics::takeWarnings() {
  return std::exchange(warnings, {});
}

std::vector<std::string> Diagnostics::takePrinted() {
  return std::exchange(printed, {});
}

} // namespace ditron::sim
