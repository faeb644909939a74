// The simulated machine: ranks with symmetric memory, a network between them,
// and programs that a deterministic scheduler runs.
#pragma once

#include "memory/heap.h"
#include "memory/weak_memory.h"
#include "network/network.h"
#include "races/race_detector.h"
#include "report/diagnostics.h"
#include "report/trace.h"
#include "scheduler/draws.h"
#include "scheduler/launch_queue.h"
#include "scheduler/parallel_launch.h"
#include "scheduler/random.h"
#include "scheduler/scheduler.h"
#include "scheduler/team.h"
#include "timing/clock.h"

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace ditron::sim {

class Stream;

struct Options {
  int32_t numRanks = 1;
  int32_t ranksPerNode = 1;
  size_t heapBytes = size_t(1) << 30;
  size_t stackBytes = size_t(64) << 20;
  int32_t resident = 132; ///< Programs of one rank that run at the same time,
                          ///< like blocks on SMs.
  uint64_t seed = 0;
};

class Machine {
public:
  explicit Machine(const Options &options);
  Machine(const Machine &) = delete;
  ~Machine();

  // For the host.
  /// Queue a launch of a group of ranks; returns its id.
  uint64_t submit(Launch launch, const std::vector<int32_t> &group);
  /// A rank's stream of that name and index; made when it is first asked for.
  Stream &stream(int32_t rank, const std::string &name, int32_t index);
  /// Whether a stream has operations.
  bool hasStreamWork() const;
  enum class Status { Completed, Paused, Blocked, Idle, Failed };
  /// Run programs until a launch completes, `maxSwitches` are used up, or no
  /// program can run.
  Status run(uint64_t maxSwitches);
  /// Ids of the launches, and of stream synchronizations, that have completed.
  std::vector<uint64_t> takeCompleted();
  /// Complete all transfers of a rank.
  void quiet(int32_t rank) { network.deliverAllFrom(rank); }
  /// Detect races from here on; before the first launch and allocation.
  void enableRaceDetector();
  /// Buffer stores and keep stale lines from here on.
  void enableWeakMemory();
  /// Let time pass as on a machine of these numbers: before the first stream
  /// and launch.
  void enableClock(const TimingModel &model);
  /// Data of copies between ranks, and within one, need not be moved.
  void setTimingOnly() { timingOnly = true; }
  bool isTimingOnly() const { return timingOnly; }
  /// Trace what happens from here on, up to that many events.
  void enableTrace(size_t capacity);

  // For the ABI and for streams, called by the running program.
  /// The machine that the calling thread runs; null: none.
  static Machine *current();
  const Options &options() const { return settings; }
  int32_t nodeOf(int32_t rank) const { return rank / settings.ranksPerNode; }
  void barrier(Team &team);
  /// A line for the host.
  void print(std::string line);
  /// Leave the running program for good.
  [[noreturn]] void abandon();
  /// Report to the host that the operation of this id has completed.
  void reportCompleted(uint64_t id) { completed.push_back(id); }
  using Streams = std::map<std::tuple<int32_t, std::string, int32_t>,
                           std::unique_ptr<Stream>>;
  const Streams &allStreams() const { return streams; }

  // For launches that run in parallel.
  /// The first function on every program's stack.
  static void runProgram();
  /// Make the calling thread run `fiber` on `machine`; returns its machine
  /// until now.
  static Machine *exchangeCurrent(Machine *machine, Fiber *fiber);
  /// All programs of a launch have ended.
  void complete(Launch &launch);
  /// Start programs while the rank has slots.
  void startPrograms(int32_t rank);

private:
  Options settings;

public:
  Heap heap;
  Random random;
  Draws draws;
  Network network;
  Scheduler scheduler;
  Teams teams;
  LaunchQueue launches;
  StackPool stacks;
  ParallelLauncher parallel;
  Diagnostics diagnostics;
  std::unique_ptr<RaceDetector> races;    ///< Null: not enabled.
  std::unique_ptr<WeakMemory> weakMemory; ///< Null: not enabled.
  std::unique_ptr<Trace> trace;           ///< Null: not enabled.
  std::unique_ptr<Clock> clock;           ///< Null: not enabled.

private:
  Status runGuarded(uint64_t maxSwitches);
  Status loop(uint64_t maxSwitches);
  bool canRunInParallel(const Launch &launch) const;

  void drainStores(Fiber &fiber);
  void resume(Fiber &fiber);
  bool start(Fiber &fiber);
  void end(Fiber &fiber);
  bool deliverOne();
  bool isLivelocked();
  void traceActivities();

  Streams streams;
  std::vector<uint64_t> completed;
  bool timingOnly = false;
  std::thread::id thread; ///< Programs keep to the thread that first ran them.
};

} // namespace ditron::sim
