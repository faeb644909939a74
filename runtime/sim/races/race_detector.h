// Finds data races (two accesses to the same memory, at least one of them a
// write, with no happens-before order) and reads of uninitialized symmetric
// memory.
//
// Happens-before is that of vector clocks, not the order of this run, so most
// mistakes are found whatever the schedule. The transfers of a put are logical
// threads of their own: what they write happens before only what acquires the
// signal that follows them.
#pragma once

#include "memory/heap.h"
#include "races/sync_vars.h"
#include "races/thread_state.h"
#include "report/report.h"

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ditron::sim {

struct Transfer;
struct Fiber;
struct Launch;
struct Operand;
struct Team;

/// Later than any time. Host code and streams belong to no launch: theirs is
/// one that never completes.
constexpr uint32_t never = UINT32_MAX;

/// The hint for two unordered operations on two streams of a rank.
constexpr const char *orderStreams = "order the streams: let the second wait "
                                     "for an event that is recorded after "
                                     "the first, or put both on one stream";

class RaceDetector {
public:
  RaceDetector(const Heap &heap, int32_t numRanks, int32_t ranksPerNode);

  // The life of launches and programs.
  void launched(const Launch &launch);
  void programStarted(Fiber &fiber);
  void programEnded(Fiber &fiber);
  void launchCompleted(const Launch &launch);
  /// A barrier of these ranks' host code; `quiet`: it completes their
  /// transfers.
  void hostBarrier(const std::vector<int32_t> &ranks, bool quiet);
  /// Symmetric memory has been allocated; `undefined`: without contents.
  void allocated(const Allocation &allocation, bool undefined);

  // What programs do. Each throws a Failure when it finds a mistake.
  void access(Fiber &fiber, ByteRanges ranges, Access kind);
  void access(Fiber &fiber, const void *p, size_t bytes, Access kind) {
    ByteRange range{const_cast<void *>(p), int64_t(bytes)};
    access(fiber, {&range, 1}, kind);
  }
  /// The program has stored: did it change the values?
  void checkSameValueStores(Fiber &fiber);
  // Synchronization through an atomic. Both sides have a
  // scope, which has to include the other's rank.
  /// An acquire read.
  void acquire(Fiber &fiber, const void *p, size_t bytes, Scope scope);
  /// A relaxed read: it acquires once a fence follows.
  void acquireAtFence(Fiber &fiber, const void *p, size_t bytes, Scope scope);
  /// A release by a read-modify-write, which continues the release sequence.
  void release(Fiber &fiber, const void *p, size_t bytes, Scope scope);
  /// The same relaxed: it releases what was before the latest fence.
  void releaseFromFence(Fiber &fiber, const void *p, size_t bytes, Scope scope);
  /// An atomic store, which begins a release sequence. What it returns is to be
  /// called when the store becomes visible to others.
  std::function<void()> atomicStore(Fiber &fiber, const void *p, size_t bytes,
                                    Scope scope, bool releases);
  void fence(Fiber &fiber, int32_t target);
  void fence(Fiber &fiber);
  void quiet(Fiber &fiber);
  /// A put is issued; with a signal, returns what that releases.
  std::shared_ptr<MessageClock> put(Fiber &fiber, const Transfer &transfer,
                                    bool nbi);
  std::shared_ptr<MessageClock> signal(Fiber &fiber, const Transfer &transfer,
                                       Scope scope);
  void get(Fiber &fiber, const Transfer &transfer, bool nbi);
  /// A copy of a stream's reads its source.
  void copyReads(Fiber &fiber, const void *from, size_t bytes);
  /// Bytes are copied, initialized or not.
  void copied(const Fiber &fiber, const void *to, const void *from,
              size_t bytes);
  void enterBarrier(Fiber &fiber, Team &team);
  void leaveBarrier(Fiber &fiber, const Team &team);

  // Streams (streams.cpp). The operations of a stream are those of its fiber.
  /// A new queue for a stream of a rank; returns its number.
  int32_t addStream(Fiber &fiber, const std::string &label);
  /// The clock of the rank's host code as it enqueues an operation.
  VectorClock enqueued(int32_t queue);
  /// An operation begins; `enqueued`: the clock when it was enqueued.
  void streamOpBegins(Fiber &fiber, const VectorClock &enqueued);
  void streamOpEnds(Fiber &fiber);
  /// Host code has waited for all completed operations of a queue.
  void synchronized(int32_t queue);
  /// How many operations of a queue completed before what its rank's host code
  /// does now.
  uint64_t numSynchronized(int32_t queue);
  /// A stream writes a signal, and waits until it is delivered.
  std::shared_ptr<MessageClock> streamSignal(Fiber &fiber,
                                             const Transfer &transfer);
  /// How often all clocks were reset; a clock of another epoch is void.
  uint64_t epoch() const { return numResets; }
  /// Names for memory that is not symmetric.
  void addOperands(int32_t rank, const std::vector<Operand> &added);

  // Packets (packets.cpp).
  /// A message of packets is sent to [to, to + bytes).
  void sendPackets(Fiber &fiber, const void *to, size_t bytes, int32_t target,
                   int64_t epoch);
  /// A program has seen all flags of a message.
  void readPackets(Fiber &fiber, const void *packets, size_t bytes,
                   int64_t epoch);
  /// The sender of the latest message there, for reports.
  std::optional<ProgramReport> packetSender(const void *packet);
  /// Throws a Failure when a program of `rank` is about to read uninitialized
  /// memory.
  void checkInitialized(int32_t rank, const void *p, size_t bytes, Access kind);

  /// A signal is delivered. Returns what is wrong with it.
  std::optional<ProgramReport> deliverSignal(const Transfer &transfer);
  /// A rank's host code accesses memory: symmetric, or what its streams use.
  std::optional<ProgramReport> hostAccess(int32_t rank, const void *p,
                                          size_t bytes, bool writes,
                                          const std::string &line);
  /// Whether nonblocking transfers from or to memory of the rank's own may be
  /// in flight, as its host code knows.
  bool hasLocalTransfers(int32_t rank) const;
  /// The sender of a signal's latest update, for reports.
  std::optional<ProgramReport> senderOf(const void *signal);

private:
  struct AccessRecord {
    ThreadId thread;
    uint32_t time;
    int32_t loc;
    Access kind;
  };
  /// To name a thread, and to know when it has completed.
  struct ThreadInfo {
    int32_t rank;
    uint32_t launch; ///< Number of the launch in its queue.
    int32_t source;  ///< Index of its kernel in `sources`.
    std::array<int32_t, 3> program;
    bool isRemote; ///< Transfers to another rank, which may outlive the launch.
    int32_t queue;
    bool readsPackets = false; ///< The reads of packets of a program.
  };
  /// Where launches are in order: a rank's host code, or a stream.
  struct Queue {
    int32_t rank;
    std::string label; ///< Empty: host code.
    ThreadState *thread;
    int32_t source = 0;    ///< Of its own actions, in `sources`.
    uint32_t launches = 0; ///< So far.
    uint64_t numEnqueued = 0, numSynchronized = 0;
    std::deque<uint32_t> unsynchronized = {}; ///< When operations ended that
                                              ///< host code has not waited for.
  };
  struct Source {
    std::string kernel;
    std::vector<std::string> locations;
  };
  struct ActiveLaunch {
    uint32_t number;
    int32_t source;
    VectorClock start, end;
    std::map<ThreadId, uint32_t> seenBeyondGpu; ///< At the start.
  };
  /// Transfers of a program to one rank. Their times count them, so that a
  /// fence orders all up to one.
  struct Channel {
    ThreadId thread;
    ThreadId issuer;
    int32_t target;
    std::vector<uint32_t> issued; ///< The issuer's time at each.
    bool shared;                  ///< Whether later transfers join it.
  };
  /// The side of a nonblocking transfer that is memory of the rank's own.
  struct LocalAccess {
    uintptr_t address;
    size_t bytes;
    AccessId id;
  };
  /// Transfers of a queue's programs until they are known to be delivered.
  struct InFlight {
    std::vector<Channel> channels;
    size_t numCompleted = 0; ///< The first channels, of completed launches.
    std::unordered_map<ThreadId, std::vector<size_t>> byIssuer;
    std::vector<LocalAccess> local; ///< Also of completed launches.
    void clear() { *this = InFlight(); }
  };
  /// What a read of a message of packets acquires.
  struct PacketMessage {
    int64_t epoch;
    VectorClock packetsRead; ///< Reads of packets before it was sent.
    std::optional<VectorClock> fenceClock; ///< By a fence of the reader's.
  };
  /// Symmetric memory of all ranks, or one rank's own.
  struct AddressSpace {
    ShadowMemory shadow;
    SyncVars syncVars;
    InitializedBytes initialized;
  };

  void checkReadBeyondGpu(Fiber &fiber, const void *p, size_t bytes,
                          Access kind, const char *hint);
  bool happensBefore(ThreadId thread, uint32_t time,
                     const VectorClock &clock) const;
  bool hasCompleted(const ThreadInfo &thread, const VectorClock &clock) const;
  static int32_t queueOf(const Launch &launch);
  void resetQueue(int32_t queue);
  void resetAll();
  void resetLocalMemory(int32_t rank);
  void keepLocalTransfers(int32_t rank);
  void addLocalTransfer(const Fiber &fiber, const void *p, size_t bytes,
                        AccessId id);
  void resetLocalInitialized(int32_t rank);
  AddressSpace &spaceOf(int32_t rank, const void *p);
  AccessId recordOf(Fiber &fiber, Access kind);
  AccessId addRecord(ThreadId thread, uint32_t time, int32_t loc, Access kind);
  /// Check an access against the shadow memory, and enter it there.
  void checkAndRecord(int32_t rank, ByteRanges ranges, AccessId id,
                      const VectorClock &clock,
                      std::vector<SameValueStore> *sameValueStores = nullptr);
  void checkAndRecord(int32_t rank, const void *p, size_t bytes, AccessId id,
                      const VectorClock &clock) {
    ByteRange range{const_cast<void *>(p), int64_t(bytes)};
    checkAndRecord(rank, {&range, 1}, id, clock);
  }
  void checkUpdates(Fiber &fiber, ByteRange range, Access kind);
  bool mayBeSameValue(AccessId before, AccessId after) const;
  /// Whether two accesses are no race: ordered, or both atomic.
  bool isRaceFree(AccessId before, AccessId after,
                  const VectorClock &clock) const;
  AccessId addReader(AccessId readers, AccessId id, const VectorClock &clock);
  static constexpr AccessId isSet = AccessId(1) << 31;
  template <typename Visit> void forEachReader(AccessId readers, Visit visit);
  [[noreturn]] void reportRace(int32_t rank, uintptr_t address, AccessId before,
                               AccessId after) const;
  /// Whether two accesses are those of two streams of a rank, or of its host
  /// code and a stream.
  bool onTwoQueues(AccessId before, AccessId after) const;
  std::string nameOf(int32_t rank, const void *p) const;
  ProgramReport report(AccessId id) const;
  void tick(ThreadState &thread);
  Channel &channel(Fiber &fiber, int32_t target, bool own);
  size_t numIssuedBefore(const Channel &channel,
                         const ThreadState &thread) const;
  template <typename Visit>
  void forEachIssuedBefore(const Fiber &fiber, Visit visit);
  void prune(VectorClock &clock) const;
  /// Whether a release and an acquire include each other's rank.
  bool reaches(const Release &release, int32_t rank, Scope scope) const;
  template <typename Visit>
  void forEachRelease(const Fiber &fiber, const void *p, size_t bytes,
                      Scope scope, Visit visit);
  void memoryFence(Fiber &fiber);
  VectorClock packetsReadBefore(const VectorClock &clock) const;

  const Heap &heap;
  int32_t numRanks, ranksPerNode;
  std::vector<ThreadInfo> threads;
  std::vector<Source> sources;
  std::map<const void *, int32_t> sourceOf; ///< By the kernel's address.
  std::vector<AccessRecord> records;
  std::vector<std::vector<AccessId>> readerSets;
  std::unordered_map<uint64_t, AccessId> grown; ///< (readers, one more).
  std::vector<ThreadState> hosts;               ///< Per rank: its host code.
  std::vector<AddressSpace> spaces; ///< [0]: symmetric; 1 + rank: its own.
  std::vector<InFlight> inFlight;   ///< Per queue.
  std::deque<Queue> queues;         ///< Those of host code come first, by rank.
  std::vector<std::vector<int32_t>> queuesOf; ///< Per rank.
  std::unordered_map<uint64_t, ActiveLaunch> active;
  std::vector<std::deque<Operand>> operands; ///< Per rank: of its own memory.
  uint64_t numResets = 0;
  std::unordered_map<AccessId, PacketMessage> messages;
};

template <typename Visit>
void RaceDetector::forEachReader(AccessId readers, Visit visit) {
  if (readers & isSet) {
    for (AccessId id : readerSets[readers & ~isSet]) {
      visit(id);
    }
  } else if (readers) {
    visit(readers);
  }
}

} // namespace ditron::sim
