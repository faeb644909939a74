// The output of a run for the host: a failure, warnings, and printed lines.
#pragma once

#include "report/report.h"

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace ditron::sim {

struct Fiber;

class Diagnostics {
public:
  /// A program has failed, which ends the run. Of programs that run in parallel
  /// the first in the grid counts.
  void fail(const Fiber &fiber, Failure failure);
  void fail(ProgramReport report);
  bool hasFailed() const { return failed; }
  const ProgramReport &failure() const { return report; }

  /// Warn once per line of a kernel.
  void warn(const Fiber &fiber, Failure warning);
  std::vector<ProgramReport> takeWarnings();

  void print(std::string line) { printed.push_back(std::move(line)); }
  /// Whether the host should take the printed lines before programs continue.
  bool isFull() const { return printed.size() >= maxLines; }
  std::vector<std::string> takePrinted();

private:
  static constexpr size_t maxLines = 256;

  std::mutex mutex; ///< Programs that run in parallel may fail and warn.
  bool failed = false;
  ProgramReport report;
  std::vector<ProgramReport> warnings;
  std::set<std::string> warned; ///< Kernels and locations of `warnings`.
  std::vector<std::string> printed;
};

} // namespace ditron::sim
