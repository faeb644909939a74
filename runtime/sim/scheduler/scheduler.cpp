#include "scheduler/scheduler.h"

#include "scheduler/fiber.h"
#include "scheduler/launch.h"
#include "timing/clock.h"

#include <algorithm>

namespace ditron::sim {

/// How often, in switches, all waits are checked.
constexpr uint64_t rescanPeriod = 256;

static thread_local Fiber *currentFiber = nullptr;

Fiber *Fiber::current() { return currentFiber; }
void Fiber::setCurrent(Fiber *fiber) { currentFiber = fiber; }

Fiber &Scheduler::next() {
  size_t index = policy.pick(ready);
  Fiber *fiber = ready[index];
  if (clock) { // in their order
    ready.pop_front();
  } else {
    ready[index] = ready.back();
    ready.pop_back();
  }
  ++numSwitches;
  addToHash(((fiber->launch->id * 4096 + fiber->launch->rank) << 20) ^
            (uint64_t(fiber->pid[2]) << 40) ^ (uint64_t(fiber->pid[1]) << 20) ^
            fiber->pid[0]);
  return *fiber;
}

void Scheduler::switchTo(Fiber &fiber) {
  currentFiber = &fiber;
  switchContext(&context, fiber.stack.context);
  currentFiber = nullptr;
}

void Scheduler::leave(Fiber &fiber) {
  switchContext(&fiber.stack.context,
                fiber.workerContext ? *fiber.workerContext : context);
}

void Scheduler::yield() {
  ready.push_back(currentFiber);
  leave(*currentFiber);
}

void Scheduler::block(const Wait &wait) {
  Fiber &fiber = *currentFiber;
  fiber.wait = wait;
  bool stopped = false;
  double since = clock ? clock->now() : 0;
  while (!waitQueue.isSatisfied(fiber)) {
    stopped = true;
    waitQueue.add(fiber);
    leave(fiber);
  }
  if (stopped && !wait.isForDelivery()) {
    spins.progress();
  }
  if (stopped && clock) {
    clock->waited(fiber, since);
  }
  fiber.wait.kind = Wait::Kind::None;
}

void Scheduler::blockSpinning() {
  Fiber &fiber = *currentFiber;
  fiber.wait.kind = Wait::Kind::Spin;
  double since = clock ? clock->now() : 0;
  waitQueue.add(fiber);
  leave(fiber);
  if (clock) {
    clock->waited(fiber, since);
  }
  fiber.wait.kind = Wait::Kind::None;
}

bool Scheduler::isRescanDue() {
  if (!clock) {
    return numSwitches % rescanPeriod == rescanPeriod - 1;
  }
  // With a clock there may be many programs, and all waits are looked at.
  bool isDue = numSwitches >= nextRescan;
  if (isDue) {
    nextRescan = numSwitches +
                 std::max<uint64_t>(rescanPeriod, waitQueue.fibers().size());
  }
  return isDue;
}

bool Scheduler::wakeSpinning() {
  return !spins.limitReached(numPrograms()) && waitQueue.wakeSpinning();
}

bool Scheduler::isLivelocked() {
  bool livelocked =
      !waitQueue.wakeSatisfied() && spins.limitReached(numPrograms()) &&
      std::all_of(ready.begin(), ready.end(),
                  [&](const Fiber *fiber) { return spins.isSpinning(*fiber); });
  if (livelocked && !ready.empty()) {
    spins.progress(); // host code may continue
  }
  return livelocked;
}

void Scheduler::retrySpinning() {
  spins.startNewEpoch(numPrograms());
  wakeSpinning();
}

void Scheduler::addToHash(uint64_t event) {
  hash = (hash ^ event) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

} // namespace ditron::sim
