#include "scheduler/policy.h"

#include "scheduler/fiber.h"
#include "scheduler/launch.h"

namespace ditron::sim {

SchedulingPolicy::SchedulingPolicy(Random &random, int32_t numRanks)
    : random(random), isSlow(numRanks) {
  // Not never: a program may spin, in a way that is not recognised, on what is
  // in flight.
  constexpr uint64_t rates[] = {2, 8, 64, 1024};
  deliverOneIn = rates[random.below(4)];
  for (int32_t rank = 0; rank < numRanks; ++rank) {
    isSlow[rank] = random.oneIn(4);
  }
}

size_t SchedulingPolicy::pick(const std::deque<Fiber *> &ready) {
  if (timed) {
    return 0;
  }
  size_t index = random.below(ready.size());
  for (int attempt = 0;
       attempt < 3 && isSlow[ready[index]->launch->rank] && !random.oneIn(16);
       ++attempt) {
    index = random.below(ready.size());
  }
  return index;
}

} // namespace ditron::sim
