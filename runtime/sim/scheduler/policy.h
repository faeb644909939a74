// The scheduling policy: a seed makes every choice, so that a run repeats and
// seeds explore interleavings.
//
// The scheduler asks nothing else about order, so another policy (one that
// takes the fiber or transfer with the earliest simulated time) has these three
// functions.
#pragma once

#include "scheduler/random.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ditron::sim {

struct Fiber;

class SeededPolicy {
public:
  SeededPolicy(Random &random, int32_t numRanks);

  /// The index of the fiber that runs next.
  size_t pick(const std::vector<Fiber *> &ready);
  /// Whether a fiber that calls the machine lets another one run.
  bool preempts(uint64_t oneIn) { return random.oneIn(oneIn); }
  /// Whether a transfer in flight is delivered before the next fiber runs.
  bool delivers() { return random.oneIn(deliverOneIn); }

private:
  Random &random;
  uint64_t deliverOneIn;
  std::vector<bool> isSlow; ///< Per rank: runs seldom while others can.
};

} // namespace ditron::sim
