// Runs fibers one at a time on the calling thread. A fiber runs until it waits,
// is preempted in a call into the machine, or ends.
#pragma once

#include "scheduler/policy.h"
#include "scheduler/spin_detector.h"
#include "scheduler/wait.h"
#include "scheduler/wait_queue.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace ditron::sim {

class Clock;

class Scheduler {
public:
  Scheduler(Random &random, const Network &network, int32_t numRanks)
      : policy(random, numRanks), waitQueue(network, ready) {}

  SchedulingPolicy policy;
  SpinDetector spins;

  /// Time passes from here on.
  void setClock(Clock &timing) {
    clock = waitQueue.clock = &timing;
    policy.setTimed();
  }

  // For the machine's loop.
  void start(Fiber &fiber) { ready.push_back(&fiber); }
  bool hasReady() const { return !ready.empty(); }
  /// Take the fiber that runs next.
  Fiber &next();
  /// Run a fiber until it leaves.
  void switchTo(Fiber &fiber);
  // Each returns whether a fiber was woken.
  /// By a check of all waits.
  bool wakeSatisfied() { return waitQueue.wakeSatisfied(); }
  /// Let spinning programs read again, unless they have often enough.
  bool wakeSpinning();
  void wake(Fiber &fiber) { waitQueue.wake(fiber); }
  /// A transfer has been delivered.
  void wakeDelivered() { waitQueue.wakeDelivered(); }
  /// Whether all programs only spin, and have for long enough.
  bool isLivelocked();
  /// All in flight has been made visible: let programs read again.
  void retrySpinning();
  /// Whether all waits should be checked: ordinary stores give no notice.
  bool isRescanDue();

  // For the running fiber.
  /// Stop until the wait is satisfied.
  void block(const Wait &wait);
  /// Stop until memory that the fiber polls has changed.
  void blockSpinning();
  /// Let another fiber run, sometimes.
  void maybeYield(uint64_t oneIn = 4) {
    if (policy.preempts(oneIn)) {
      yield();
    }
  }
  void yield();
  /// Switch back to the scheduler, or to the fiber's worker thread.
  void leave(Fiber &fiber);

  /// Memory has changed that a fiber may wait for.
  void memoryChanged(const void *address, size_t bytes) {
    waitQueue.memoryChanged(address, bytes);
  }

  /// Equal for runs that took the same steps.
  uint64_t traceHash() const { return hash; }
  void addToHash(uint64_t event);
  uint64_t switches() const { return numSwitches; }
  const std::vector<Fiber *> &waitingFibers() const {
    return waitQueue.fibers();
  }
  const std::deque<Fiber *> &readyFibers() const { return ready; }

private:
  size_t numPrograms() const {
    return waitQueue.fibers().size() + ready.size();
  }

  Clock *clock = nullptr; ///< Null: none.
  std::deque<Fiber *> ready;
  WaitQueue waitQueue;
  void *context = nullptr; ///< The scheduler's while a fiber runs.
  uint64_t hash = 0;
  uint64_t numSwitches = 0;
  uint64_t nextRescan = 255; ///< In switches, with a clock.
};

} // namespace ditron::sim
