// Launches of independent programs, on all cores.
//
// Each thread runs programs from beginning to end on one stack. They call only
// what does not involve another program: ranks, checks of addresses, products,
// failures, and atomics, whose order does not matter.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace ditron::sim {

class Machine;
struct Fiber;
struct Launch;

class ParallelLauncher {
public:
  explicit ParallelLauncher(Machine &machine) : machine(machine) {}

  void setCores(int32_t count) { cores = count; }
  bool accepts(const Launch &launch) const;
  void add(Launch &launch);
  bool hasLaunches() const { return !batches.empty(); }
  /// Run programs of the oldest launch; false when some are left.
  bool run();

private:
  using Time = std::chrono::steady_clock::time_point;
  struct Batch {
    explicit Batch(Launch &launch) : launch(launch) {}
    bool isOver() const;

    Launch &launch;
    std::atomic<int64_t> next{0}; ///< The first program that has not started.
    std::atomic<bool> failed{false};
  };
  struct Worker;
  void runOnThisThread(Batch &batch, Time until);

  Machine &machine;
  int32_t cores = 1;
  std::mutex mutex; ///< Of the machine's stacks.
  std::deque<std::unique_ptr<Batch>> batches;
};

} // namespace ditron::sim
