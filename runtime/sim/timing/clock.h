// The clock: virtual time for a machine whose numbers are known.
//
// A program, or a stream, takes no time while it runs; what it spends
// (products, bytes) adds up until it communicates or ends, and passes then:
// products and transfers of one program overlap, as in a software pipeline.
// When no program can run, time goes on to the next event. Whoever can run
// earliest so runs first: this is a policy of the scheduler, instead of the
// seeded one.
//
// Each stretch of time is an activity that knows the one that it followed, so
// that the critical path is read off backwards.
#pragma once

#include "abi/abi.h"
#include "timing/flows.h"
#include "timing/operand_reads.h"
#include "timing/program_time.h"
#include "timing/timing_model.h"

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ditron::sim {

class Network;
class Scheduler;
struct Fiber;
struct Launch;
struct Transfer;

/// What a program spends, by the dialect's numbers (DitronEnums.td).
enum class Cost : int32_t {
  Dot8,
  Dot16,
  Dot32,
  Load,
  Store,
  Vector,
  Special,
  Loop,
  Latency,
  Operand
};

/// A stretch of time of a program, a stream or a transfer.
struct Activity {
  const char *kind = "";
  int32_t rank = -1;
  int32_t peer = -1;
  int64_t launch = -1; ///< Index of its LaunchTime; -1: none.
  double start = 0, end = 0;
  int64_t previous = -1; ///< The activity that it followed; -1: none.
};

/// When a launch, or a stream's operation, ran.
struct LaunchTime {
  int32_t rank = -1;
  std::string name;
  std::string stream; ///< Empty: launched by host code.
  int64_t programs = 0;
  double sharing = 1; ///< Programs on an SM.
  int64_t begun = 0;  ///< Programs that have been started.
  double queued = 0, started = 0, ended = 0;
  /// Sums over programs, in ns.
  double compute = 0, waited = 0;
  int64_t last = -1; ///< The activity that ended it.
};

/// What all transfers together use of a rank's resource from `at` on, as part
/// of its capacity.
struct Usage {
  int32_t rank;
  const char *resource;
  double at, part;
};

class Clock {
public:
  Clock(const TimingModel &model, int32_t numRanks, int32_t ranksPerNode,
        Scheduler &scheduler, Network &network);

  const TimingModel model;
  double now() const { return time; }
  /// Go on to the next event; false when there is none.
  bool runNext();
  /// Whether there is such an event.
  bool hasNext();

  // For the running fiber.
  /// Add to what it has to do before it communicates next.
  void spend(Fiber &fiber, Cost cost, double amount, int32_t peer,
             const void *address = nullptr);
  void spendTime(Fiber &fiber, double ns);
  /// Add a fence of earlier stores, which reaches `scope`.
  void spendFence(Fiber &fiber, Scope scope);
  /// Let what it has spent pass.
  void settle(Fiber &fiber);
  void sleep(Fiber &fiber, const char *kind, double ns);
  /// Move bytes by the program's own loads or stores.
  void move(Fiber &fiber, int32_t peer, double bytes, bool store);
  /// Move bytes by a copy engine, or within the rank by a kernel.
  void copy(Fiber &fiber, int32_t peer, double bytes, bool push);
  void copyWithin(Fiber &fiber, double bytes);
  /// From a store of `rank` to one who polls at `peer`.
  double latency(int32_t rank, int32_t peer) const;

  // Notices.
  /// `fiber` runs from here on.
  void resumed(const Fiber &fiber);
  /// What runs now has ended the wait of `fiber`.
  void woken(Fiber &fiber);
  void waited(Fiber &fiber, double since);
  void launched(const Launch &launch, const std::string &stream);
  /// Host code has launched: `start` programs of the rank when that has come to
  /// the GPU.
  void scheduleLaunch(int32_t rank, std::function<void()> start);
  void programStarted(Fiber &fiber);
  void programEnded(Fiber &fiber);
  void launchCompleted(const Launch &launch);
  void sent(const Transfer &transfer);
  /// A stream's operation that is no launch; returns its record.
  int64_t opBegins(Fiber &fiber, const std::string &what,
                   const std::string &stream);
  void opEnds(Fiber &fiber, int64_t record);
  /// Call `event` at `at`.
  void schedule(double at, std::function<void()> event);
  /// Called, when set, where a program or stream begins and ends to be busy.
  std::function<void(const Fiber &, const char *, bool)> onActivity;

  const std::vector<LaunchTime> &launchTimes() const { return launches; }
  /// Record `usages` from here on.
  void recordUsages();
  /// Where they change, in the order of time.
  const std::vector<Usage> &usages() const { return recordedUsages; }
  /// What led to the end of that launch, first to last.
  std::vector<Activity> criticalPath(size_t launch) const;

private:
  enum Resource { Out, In, Memory, NicOut, NicIn, numResources };
  int32_t of(int32_t rank, Resource resource) const {
    return rank * numResources + resource;
  }
  bool sameNode(int32_t a, int32_t b) const {
    return a / ranksPerNode == b / ranksPerNode;
  }
  /// The connection of two ranks of a node, where it has a rate of its own.
  int32_t pair(int32_t from, int32_t to) const {
    return model.linkPair > 0 ? numRanks * numResources + from * ranksPerNode +
                                    to % ranksPerNode
                              : -1;
  }
  static std::vector<double> capacities(const TimingModel &model,
                                        int32_t numRanks, int32_t ranksPerNode);
  int64_t begin(const char *kind, int32_t rank, int32_t peer, int64_t record,
                int64_t previous);
  void part(Fiber &fiber, const char *kind, int64_t activity);
  /// Let bytes pass as parts of an activity.
  void transfer(Fiber &fiber, int32_t peer, double bytes, bool store,
                int64_t activity);
  /// How the programs of an SM access memory of their rank, and of peers.
  enum Port { Own, Stores, Loads, numPorts };
  struct Access {
    std::array<int32_t, 3> resources;
    double bytes, cap;
    std::function<void()> done;
  };
  /// An SM issues the accesses of its programs in their order, one at a time.
  struct Queue {
    bool busy = false;
    std::list<Access> waiting;
  };
  /// Null: it runs on no SM.
  Queue *queueOf(const Fiber &fiber, Port port);
  void access(const Fiber &fiber, Port port, Access access);
  void serve(Queue &queue);
  void awaitStores(Fiber &fiber);
  double rate(const Fiber &fiber, int32_t peer) const;
  static double takeDue(ProgramTime &own);
  double fromMemory(ProgramTime &own) const;
  double slowed(const Fiber &fiber, double dots) const;
  void land(uint64_t id, int64_t activity);

  struct Event {
    double at;
    uint64_t number;
    std::function<void()> run;
    bool operator<(const Event &other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };

  int32_t numRanks, ranksPerNode;
  Scheduler &scheduler;
  Network &network;
  double time = 0;
  uint64_t numEvents = 0;
  std::priority_queue<Event> events;
  Flows flows;
  std::vector<Queue> queues;     ///< By rank, SM and port.
  std::vector<int32_t> occupied; ///< Weight of its programs, by rank and SM.
  std::vector<Activity> activities;
  std::vector<LaunchTime> launches;
  std::vector<Usage> recordedUsages;
  std::unordered_map<uint64_t, int64_t> recordOf; ///< By id of the launch.
  std::unordered_map<int64_t, OperandReads> operandReads; ///< By record.
  std::vector<int32_t> computing; ///< Programs that do products, per rank.
  int64_t cause = -1; ///< The activity because of which something runs now.
  /// Transfers that are due, but follow others that are not; with activities.
  std::vector<std::pair<uint64_t, int64_t>> deferred;
};

} // namespace ditron::sim
