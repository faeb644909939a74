// Reports of a deadlock: what each program waits for, and what is known about
// why that does not happen.
#pragma once

#include "report/report.h"

#include <string>
#include <vector>

namespace ditron::sim {

class Machine;

/// What a fiber waits for: "waits for flags[0] >= 1 (it is 0)".
std::string describeWait(const Machine &machine, const Fiber &fiber);
/// Every program that waits or spins, by rank.
std::vector<ProgramReport> waitingPrograms(const Machine &machine);
/// A line per launch whose programs find no slot to start in.
std::vector<std::string> starvedLaunches(const Machine &machine);

} // namespace ditron::sim
