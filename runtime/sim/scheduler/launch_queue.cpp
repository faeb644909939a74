#include "scheduler/launch_queue.h"

namespace ditron::sim {

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
  return resident[rank] < slots || next->isWait ? next : nullptr;
}

Fiber &LaunchQueue::startProgram(int32_t rank) {
  Launch &launch = *queued[rank].front();
  if (unused.empty()) {
    unused.push_back(&fibers.emplace_back());
  }
  Fiber &fiber = *unused.back();
  unused.pop_back();
  fiber = Fiber();
  fiber.launch = &launch;
  fiber.pid = launch.program(launch.started++);
  resident[rank] += !launch.isWait;
  if (launch.started == launch.programs()) {
    queued[rank].pop_front();
  }
  return fiber;
}

void LaunchQueue::takeWhole(int32_t rank) {
  Launch &launch = *queued[rank].front();
  launch.started = launch.programs();
  queued[rank].pop_front();
}

bool LaunchQueue::endProgram(Fiber &fiber) {
  Launch &launch = *fiber.launch;
  unused.push_back(&fiber);
  resident[launch.rank] -= !launch.isWait;
  return ++launch.finished == launch.programs();
}

} // namespace ditron::sim
