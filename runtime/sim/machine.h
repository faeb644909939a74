// The simulated machine: ranks whose kernels' programs are fibers of one
// deterministic scheduler.
#pragma once

#include "abi.h"
#include "fiber.h"
#include "heap.h"
#include "network.h"
#include "parallel.h"
#include "races.h"
#include "random.h"
#include "report.h"
#include "trace.h"
#include "visibility.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace ditron::sim {

struct Fiber;
class Stream;

/// Ranks that count themselves together, and the barrier they meet at.
struct Team {
  std::vector<int32_t> ranks; ///< World rank of each member.
  std::vector<int32_t>
      indexOf; ///< Member's index of each world rank, -1 for the others.
  std::vector<Fiber *>
      inside; ///< Per member: the program that waits in the barrier.
  uint64_t generation = 0; ///< How often the team has met.
  int32_t arrived = 0;
  Clock gathered; ///< What those inside know.
};

/// A tensor that a kernel was given, as reports speak of it.
struct Operand {
  std::string name;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t itemsize = 1;
  /// [first, end): the allocation that it is in; empty: not known.
  uint64_t first = 0;
  uint64_t end = 0;
  int32_t argument = -1; ///< Number of the kernel's; -1: not known.

  Operand(std::string name, uint64_t address, uint64_t bytes, uint64_t itemsize,
          uint64_t first = 0, uint64_t end = 0, int32_t argument = -1)
      : name(std::move(name)), address(address), bytes(bytes),
        itemsize(std::max<uint64_t>(itemsize, 1)), first(first), end(end),
        argument(argument) {}
};

/// One kernel launch of one rank.
struct Launch {
  uint64_t id = 0;
  int32_t rank = 0;                 ///< World rank.
  std::array<Team *, 3> teams = {}; ///< By TeamKind.
  int32_t node = 0; ///< Index of the rank's node among the group's nodes.
  Kernel kernel = nullptr;
  std::string name;
  std::vector<std::string> locations;
  std::vector<uint64_t> args;
  std::vector<Operand> operands;
  /// Programs reach no ordinary memory but the operands' allocations.
  bool bounded = false;
  std::array<int32_t, 3> grid = {};
  Stream *stream = nullptr; ///< Where it was launched; null: by the script.
  int32_t lane = -1;        ///< The stream's; -1: the script's.
  bool isMove = false;      ///< A copy or fill within the rank.
  bool isStream = false;    ///< No launch, but the stream's own actions.
  /// No program has to do with another one: they may run at the same time.
  bool independent = false;
  bool plain = false; ///< A kernel of plain Triton.
  int64_t started = 0;
  int64_t finished = 0;
  int64_t programs() const { return int64_t(grid[0]) * grid[1] * grid[2]; }
  std::array<int32_t, 3> program(int64_t number) const {
    return {int32_t(number % grid[0]), int32_t(number / grid[0] % grid[1]),
            int32_t(number / grid[0] / grid[1])};
  }
};

/// Why a program cannot go on.
struct Wait {
  enum class Kind { None, Signals, Arrival, Quiet, Barrier, Poll };
  Kind kind = Kind::None;
  const int64_t *signals = nullptr;
  int32_t count = 0;
  int32_t stride = 1; ///< Words from one signal to the next,
  int32_t shift = 0;  ///< and their lowest bits that are none of it: packets.
  int64_t value = 0;
  Compare compare = Compare::Ge;
  /// Arrival: the delivery. Quiet: the first delivery that need not have
  /// landed. Barrier: the generation to pass.
  uint64_t id = 0;
  Team *team = nullptr;

  const int64_t *at(int32_t index) const {
    return signals + ptrdiff_t(index) * stride;
  }
  int64_t seen(const int64_t *signal) const {
    return shift ? int64_t(uint64_t(*signal) >> shift) : *signal;
  }
};

/// What a program has read and written lately: when it only sees the same
/// again, it spins, and waits for a change.
struct Polls {
  struct Read {
    const void *address;
    int32_t bytes;
    int32_t changes;
    uint64_t when;                  ///< As a count of the program's reads.
    uint64_t bits;                  ///< The latest,
    std::array<uint64_t, 4> before; ///< and some that were there before.
    auto beforeEnd() const { return before.begin() + std::min(changes, 4); }
    bool had(uint64_t value) const {
      return std::find(before.begin(), beforeEnd(), value) != beforeEnd();
    }
  };
  struct Write {
    const void *address;
    uint64_t when;
  };
  void clear() { count = written = repeats = 0; }
  /// Whether what was read or written at `when` belongs to the loop that it is
  /// in, and not to what it did before.
  bool spinning(uint64_t when) const {
    return total - when < uint64_t(std::max(repeats, spinRepeats));
  }

  /// Reads of the same after which it spins.
  static constexpr int32_t spinRepeats = 64;
  std::array<Read, 16> reads;
  int32_t count = 0;
  std::array<Write, 8> writes;
  int32_t written = 0;
  int32_t repeats = 0; ///< Reads of the same since it wrote.
  uint64_t total = 0;  ///< Reads.
  uint64_t looks = 0;  ///< Reads of nothing new in this age of the machine.
  uint64_t age = 0;
};

/// A program under way.
struct Fiber {
  Launch *launch = nullptr;
  std::array<int32_t, 3> pid = {};
  Stack stack;
  bool begun = false;
  bool done = false;
  int32_t loc = -1;      ///< Of the last call into the machine,
  bool repeats = true;   ///< and whether a loop may make it for ever.
  void **home = nullptr; ///< Where it leaves to when it runs beside others, on
                         ///< any core; null: to the scheduler.
  size_t place = 0;      ///< Index among the waiting programs.
  int32_t slot = -1;     ///< Among its rank's resident programs, in a record.
  Wait wait;
  Polls polls;
  Thread thread;
  std::vector<uintptr_t>
      watched; ///< Words, address / 8, whose change wakes it.
};

struct Options {
  int32_t numRanks = 1;
  int32_t ranksPerNode = 1;
  size_t heapBytes = size_t(1) << 30;
  size_t stackBytes = size_t(64) << 20;
  int32_t resident = 132; ///< Programs of one rank that run at the same time,
                          ///< like blocks on SMs.
  uint64_t seed = 0;
};

/// The first function on every program's stack.
void programEntry();

class Machine {
public:
  explicit Machine(const Options &options);
  Machine(const Machine &) = delete;
  ~Machine();

  // For the host.
  uint64_t submit(Launch launch, const std::vector<int32_t> &group);
  /// A rank's stream of that name and index; made when it is first asked for.
  Stream &stream(int32_t rank, const std::string &name, int32_t index);
  /// Whether something is on a stream.
  bool busy() const;
  enum class Status { Completed, Paused, Stuck, Idle, Failed };
  /// Run programs until a launch completes, `maxSwitches` are used up, or
  /// nothing can go on.
  Status run(uint64_t maxSwitches);
  std::vector<uint64_t> takeCompleted();
  std::vector<std::string> takePrinted();
  std::vector<ProgramReport> takeWarnings();
  const ProgramReport &failure() const { return failed; }
  /// Every program that waits, by rank.
  std::vector<ProgramReport> waiters() const;
  /// One line per launch whose programs find no place to start.
  std::vector<std::string> starved() const;
  /// Streams that wait for each other, in words; empty when there are none.
  std::string circle() const;
  void quiet(int32_t rank) { network.landAllFrom(rank); }
  uint64_t traceHash() const { return trace; }
  uint64_t switches() const { return switchCount; }
  /// Look for races from here on; before the first launch and allocation.
  void findRaces();
  /// Let stores be seen late and reads be stale from here on.
  void weaken();
  /// Run launches that are independent on that many cores from here on, unless
  /// something is asked for that needs one order: races, weak memory, a record.
  void spread(int32_t count) { cores = count; }
  /// Call it a deadlock when programs that only read have looked that often
  /// and nothing was new.
  void giveUpAfter(uint64_t looks) { mostLooks = looks; }
  /// Keep a record of what happens from here on, of that many events.
  void record(size_t capacity);

  // For the ABI, called by the running program.
  static Fiber *current();
  static Machine *running();
  const Options &settings() const { return options; }
  int32_t nodeOf(int32_t rank) const { return rank / options.ranksPerNode; }
  /// Stop the running program until `wait` is over.
  void block(const Wait &wait);
  /// Let another program go on, sometimes.
  void maybeYield(uint64_t oneIn = 4);
  /// A read that a spin loop could be made of.
  void polled(const void *address, uint64_t bits, int32_t bytes);
  /// The same for an ordinary load, of which there are many: it only lets
  /// others go on when it reads the same again.
  void polledOrdinarily(const void *address, uint64_t bits, int32_t bytes);
  /// A read that says something, of a program that does not only read.
  void looked(const void *address, uint64_t bits, int32_t bytes);
  /// The program writes where others may look. Once more to the same place, in
  /// a loop, is nothing new: who reads it will tell.
  void wrote(const void *address);
  /// The program has done something else that others can see: it is not just
  /// spinning.
  void acted();
  void changed(const void *address, size_t bytes);
  void barrier(Team &team);
  void fail(Fiber &fiber, Failure failure);
  [[noreturn]] void abandon();
  /// A line for the host, who takes what there is before this program goes on
  /// when there are many.
  void print(std::string line);
  /// Say it once for each line of a kernel, and go on.
  void warn(const Fiber &fiber, Failure warning);

  // For streams.
  uint64_t newId() { return nextLaunch++; }
  Random &chance() { return random; }
  void start(Fiber &fiber) { ready.push_back(&fiber); }
  /// Let another program go on.
  void pass() { maybeYield(1); }
  /// The host hears of what has this number.
  void tell(uint64_t id) { completed.push_back(id); }
  /// The team of these ranks; those of a name meet apart.
  Team &team(std::vector<int32_t> ranks, const std::string &name = "");

  Heap heap;
  std::unique_ptr<Races> races;           ///< Null: nobody looks for them.
  std::unique_ptr<Visibility> visibility; ///< Null: all is seen at once.
  std::unique_ptr<Trace> events;          ///< Null: nobody asked for a record.

private:
  friend void programEntry();
  friend class Circles;
  friend class Stream;
  Status guarded(uint64_t maxSwitches);
  Status loop(uint64_t maxSwitches);
  void admit(int32_t rank);
  void resume(Fiber &fiber);
  void retire(Fiber &fiber);
  void linger();
  void conclude(Launch &launch);
  struct Worker;
  static Machine *occupy(Machine *machine, Fiber *fiber);
  void work(Batch &batch, Batch::Time until);
  bool runBatch();
  Failure noStack() const;
  Fiber *pick();
  bool over(const Fiber &fiber) const;
  void park(Fiber &fiber);
  void wake(Fiber &fiber);
  bool wakeWaiters();
  bool land();
  bool wakeSpinners();
  enum class Look { New, Back, Again };
  Look look(const void *address, uint64_t bits, int32_t bytes);
  void news();
  void gotOn();
  bool getsOn();
  uint64_t enoughLooks() const;
  bool onlyPolled();
  void leave();
  std::string describe(const Fiber &fiber) const;
  std::string history(const Wait &wait) const;
  /// Who writes a signal when its stream comes to that; nothing: no stream.
  std::string writtenLater(const int64_t *signal) const;
  ProgramReport report(const Fiber &fiber, std::string what,
                       std::string hint = "") const;
  void failByFault(int signal, const void *address);
  void note(uint64_t event);

  Options options;
  Random random;

public:
  Network network;

private:
  StackPool stacks;
  uint64_t landOneIn; ///< Per step, the chance that something under way lands.
  std::vector<bool> straggler; ///< Per rank: runs seldom while others can.
  std::map<std::pair<std::vector<int32_t>, std::string>, std::unique_ptr<Team>>
      teams;
  std::map<std::tuple<int32_t, std::string, int32_t>, std::unique_ptr<Stream>>
      streams;
  std::unordered_map<uint64_t, std::unique_ptr<Launch>> launches;
  std::vector<std::deque<Launch *>>
      queues; ///< Per rank: launches with programs that have not started.
  std::vector<int32_t> residents; ///< Per rank.
  std::deque<Fiber> fibers;
  std::vector<Fiber *> unused;
  std::vector<Fiber *> ready;
  std::vector<Fiber *> waiting;
  std::vector<Fiber *>
      quieting; ///< Those of them that wait for deliveries of their rank.
  std::unordered_multimap<uintptr_t, Fiber *> watchers; ///< By word.
  std::vector<Fiber *> woken; ///< Scratch of `changed`.
  uint64_t mostLooks = uint64_t(1) << 20;
  uint64_t looks = 0;   ///< Reads of nothing new since a program got on.
  uint64_t steps = 0;   ///< What programs got on by since anything was new.
  uint64_t nextTry = 0; ///< Looks after which all are given another go.
  uint64_t age = 1;     ///< Changes when something is new or has been shown.
  bool writing = false; ///< Whether a program wrote since.
  std::deque<std::unique_ptr<Batch>> batches; ///< Under way, or to be.
  int32_t cores = 1;
  std::mutex sharing; ///< Of what programs on several cores use together.
  std::vector<uint64_t> completed;
  std::vector<std::string> printed;
  std::vector<ProgramReport> warnings;
  std::set<std::string> warned; ///< Locations that `warnings` were of.
  ProgramReport failed;
  bool hasFailed = false;
  uint64_t nextLaunch = 1;
  uint64_t switchCount = 0;
  uint64_t trace = 0;
  void *scheduler = nullptr; ///< The scheduler's context while a program runs.
  std::thread::id thread; ///< Programs keep to the thread that first ran them.
};

} // namespace ditron::sim
