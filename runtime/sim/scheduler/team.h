// Teams of ranks, as in OpenSHMEM.
#pragma once

#include "races/vector_clock.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ditron::sim {

struct Fiber;

/// Ranks that are numbered together, and their barrier.
struct Team {
  std::vector<int32_t> ranks; ///< World rank of each member.
  std::vector<int32_t>
      indexOf; ///< Member's index of each world rank, -1 for the others.
  // The barrier.
  std::vector<Fiber *> inside; ///< Per member: the program that waits in it.
  uint64_t generation = 0;     ///< How often it has completed.
  int32_t arrived = 0;
  VectorClock clock; ///< Joined of those that have arrived.
};

class Teams {
public:
  explicit Teams(int32_t numRanks) : numRanks(numRanks) {}
  /// The team of these ranks. Barriers of teams with different names are
  /// independent.
  Team &get(std::vector<int32_t> ranks, const std::string &name = "");

private:
  int32_t numRanks;
  std::map<std::pair<std::vector<int32_t>, std::string>, std::unique_ptr<Team>>
      teams;
};

} // namespace ditron::sim
