// The scheduling policy: a seed makes every choice, so that a run repeats and
// seeds explore interleavings. With a clock (timing/clock.h), which has ready
// only those that run at the time that it is, nothing is left to chance.
//
// The scheduler asks nothing else about order.
#pragma once

#include "scheduler/random.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace ditron::sim {

struct Fiber;

class SchedulingPolicy {
public:
  SchedulingPolicy(Random &random, int32_t numRanks);

  /// The index of the fiber that runs next; with a clock the first.
  size_t pick(const std::deque<Fiber *> &ready);
  /// Whether a fiber that calls the machine lets another one run.
  bool preempts(uint64_t oneIn) { return !timed && random.oneIn(oneIn); }
  /// Whether a transfer in flight is delivered before the next fiber runs.
  bool delivers() { return !timed && random.oneIn(deliverOneIn); }
  /// A clock says who is ready.
  void setTimed() { timed = true; }

private:
  Random &random;
  bool timed = false;
  uint64_t deliverOneIn;
  std::vector<bool> isSlow; ///< Per rank: runs seldom while others can.
};

} // namespace ditron::sim
