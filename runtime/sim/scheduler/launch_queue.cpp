#include "scheduler/launch_queue.h"

namespace ditron::sim {

LaunchQueue::LaunchQueue(int32_t numRanks, int32_t slots, uint64_t seed)
    : slots(slots), random(seed ^ 0x510757a7u), exchanges(random.oneIn(2)),
      queued(numRanks), resident(numRanks) {}

Launch &LaunchQueue::add(std::unique_ptr<Launch> launch) {
  uint64_t id = launch->id;
  Launch &added = *(launches[id] = std::move(launch));
  queued[added.rank].push_back(&added);
  return added;
}

Launch *LaunchQueue::startable(int32_t rank) const {
  if (queued[rank].empty()) {
    return nullptr;
  }
  Launch *next = queued[rank].front();
  bool fits = resident[rank] + next->weight() <= slots * Launch::smParts;
  return fits || next->isWait ? next : nullptr;
}

Fiber &LaunchQueue::startProgram(int32_t rank) {
  Launch &launch = *queued[rank].front();
  std::array<int32_t, 3> program = nextProgram(rank, 0);
  if (unused.empty()) {
    unused.push_back(&fibers.emplace_back());
  }
  Fiber &fiber = *unused.back();
  unused.pop_back();
  fiber = Fiber();
  fiber.launch = &launch;
  fiber.pid = program;
  resident[rank] += launch.weight();
  return fiber;
}

/// Take the next program of a queued launch.
std::array<int32_t, 3> LaunchQueue::nextProgram(int32_t rank, size_t index) {
  Launch &launch = *queued[rank][index];
  std::array<int32_t, 3> program;
  if (launch.returned.empty()) {
    program = launch.program(launch.started++);
  } else {
    program = launch.returned.back();
    launch.returned.pop_back();
  }
  if (launch.notStarted() == 0) {
    queued[rank].erase(queued[rank].begin() + ptrdiff_t(index));
  }
  return program;
}

void LaunchQueue::mayExchange(Fiber &fiber) {
  Launch &own = *fiber.launch;
  std::deque<Launch *> &waiting = queued[own.rank];
  if (!exchanges || own.isStream || own.isWait || waiting.empty()) {
    return;
  }
  Launch *other =
      waiting.front() == &own && waiting.size() > 1 ? waiting[1] : waiting[0];
  if (other == &own || other->isWait || random.oneIn(2)) {
    return;
  }
  size_t index = other == waiting[0] ? 0 : 1;
  bool isWaiting = own.notStarted() > 0;
  own.returned.push_back(fiber.pid);
  fiber.launch = other;
  fiber.pid = nextProgram(own.rank, index);
  if (!isWaiting) {
    waiting.push_front(&own);
  }
}

void LaunchQueue::takeWhole(int32_t rank) {
  Launch &launch = *queued[rank].front();
  launch.started = launch.programs();
  queued[rank].pop_front();
}

bool LaunchQueue::endProgram(Fiber &fiber) {
  Launch &launch = *fiber.launch;
  unused.push_back(&fiber);
  resident[launch.rank] -= launch.weight();
  return ++launch.finished == launch.programs();
}

} // namespace ditron::sim
