// Finds accesses to the same memory that nothing orders, of which one writes,
// and reads of symmetric memory that nobody has written.
//
// The order is that of vector clocks, not of what happened to come first in
// this run, so most mistakes are found whatever the schedule. A put counts as
// an actor of its own: what it writes is ordered only for those who hear of its
// arrival.
#pragma once

#include "clock.h"
#include "heap.h"
#include "report.h"
#include "shadow.h"

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

struct Delivery;
struct Fiber;
struct Launch;
struct Operand;
struct Team;

enum class Access : uint8_t {
  Load,
  Store,
  AtomicLoad,
  AtomicStore,
  Atomic,
  Put,
  PutSource,
  Get,
  GetSource,
  Signal,
  Wait,
  HostRead,
  HostWrite,
  Copy, ///< By a copy engine.
  CopySource,
  Packet,
  Take ///< Of packets, by ll_get.
};

/// What a program knows; part of its fiber.
/// A store where another program of the launch has stored by the same line,
/// which is no race if it changes nothing.
struct Echo {
  AccessId first, second;
  std::byte *address;
  std::vector<std::byte> before;
};

struct Thread {
  struct Remembered {
    int32_t loc;
    Access kind;
    AccessId id;
  };

  Actor actor = 0;
  Actor taker = 0; ///< Who takes packets for it; 0: nobody has.
  uint32_t time = 0;
  Clock clock;
  std::map<int32_t, Clock> fenced; ///< Per target: its puts that later ones to
                                   ///< there follow.
  std::vector<Remembered> recent;  ///< Accesses at this time.
  /// What it knew at its latest fence: a relaxed write after that tells it.
  std::optional<Clock> fence;
  /// What relaxed reads have found: known from the next fence on.
  std::optional<Clock> heard;
  std::vector<Echo> echoes; ///< Of the store that it is at.
};

/// What travels with a signal: all that its sender had done for whoever sees
/// it.
struct Passage {
  Clock clock;
  AccessId id = 0; ///< The signal's own write.
  bool narrow = false;
};

/// What to do about two things on two streams of a rank.
constexpr const char *orderStreams = "order the streams: let the second wait "
                                     "for an event that is recorded after "
                                     "the first, or put both on one stream";

class Races {
public:
  Races(const Heap &heap, int32_t numRanks);

  // The life of launches and programs.
  void launched(const Launch &launch);
  void begun(Fiber &fiber);
  void ended(Fiber &fiber);
  void completed(const Launch &launch);
  /// The scripts of these ranks have met; `quiet`: what they sent has arrived.
  void meet(const std::vector<int32_t> &ranks, bool quiet);
  /// Symmetric memory begins a new life; `undefined`: until it is written.
  void allocated(const Symbol &symbol, bool undefined);

  // What programs do. Each throws a Failure when it finds a mistake.
  void access(Fiber &fiber, Runs runs, Access kind);
  void access(Fiber &fiber, const void *p, size_t bytes, Access kind) {
    Run run{const_cast<void *>(p), int64_t(bytes)};
    access(fiber, {&run, 1}, kind);
  }
  /// The program has stored: did it change what was there?
  void checkEchoes(Fiber &fiber);
  /// `narrow`: with a scope of one GPU, which orders nothing between ranks.
  void acquire(Fiber &fiber, const void *p, bool narrow);
  /// A relaxed read: it acquires once a fence follows.
  void hear(Fiber &fiber, const void *p, bool narrow);
  /// An atomic that changes what is there, and joins its release sequence.
  void release(Fiber &fiber, const void *p, bool narrow);
  /// The same relaxed: who sees it learns what was before the latest fence.
  void tell(Fiber &fiber, const void *p, bool narrow);
  /// An atomic store, which begins a release sequence. To be called when others
  /// can see it.
  std::function<void()> storing(Fiber &fiber, const void *p, bool narrow,
                                bool releases);
  void fence(Fiber &fiber, int32_t target);
  void fence(Fiber &fiber);
  void quiet(Fiber &fiber);
  /// A put leaves; with a signal, returns what travels with that.
  std::shared_ptr<Passage> put(Fiber &fiber, const Delivery &delivery,
                               bool nbi);
  std::shared_ptr<Passage> signal(Fiber &fiber, const Delivery &delivery,
                                  bool narrow);
  void get(Fiber &fiber, const Delivery &delivery, bool nbi);
  /// Bytes are copied: what has been written there is as at the source.
  void copied(const Fiber &fiber, const void *to, const void *from,
              size_t bytes);
  void arrive(Fiber &fiber, Team &team);
  void leave(Fiber &fiber, const Team &team);

  // Streams (stream_races.cpp). The actions of a stream are those of its fiber.
  /// A new lane of a rank: the number of the lane.
  int32_t addStream(Fiber &fiber, const std::string &label);
  /// What the script of a rank knows as it enqueues something.
  Clock enqueued(int32_t lane);
  /// An item begins; `known` had happened when it was enqueued.
  void itemBegins(Fiber &fiber, const Clock &known);
  void itemEnds(Fiber &fiber);
  /// The script waited for all that is over on a lane.
  void synchronized(int32_t lane);
  /// How many items of a lane its rank's script knows to be over.
  uint64_t itemsKnown(int32_t lane);
  /// A stream writes a signal, and waits until that has landed.
  std::shared_ptr<Passage> streamSignal(Fiber &fiber, const Delivery &delivery);
  /// How often everything so far has become known to everybody: clocks of
  /// another age mean nothing.
  uint64_t age() const { return restarts; }
  /// Names for memory that is not symmetric.
  void named(int32_t rank, const std::vector<Operand> &operands);

  // Packets (packets.cpp).
  /// A message of them leaves for [to, to + bytes).
  void sendPackets(Fiber &fiber, const void *to, size_t bytes, int32_t target,
                   int64_t epoch);
  /// A program has seen all flags of a message.
  void takePackets(Fiber &fiber, const void *packets, size_t bytes,
                   int64_t epoch);
  /// Who sent the latest message there, for reports.
  std::optional<ProgramReport> packetSender(const void *packet);
  /// Throws a Failure when a program of `rank` is about to read what nobody has
  /// written.
  void checkWritten(int32_t rank, const void *p, size_t bytes, Access kind);

  /// A signal lands. Returns what is wrong with that.
  std::optional<ProgramReport> land(const Delivery &delivery);
  /// A rank's script reads or writes memory: symmetric, or what its streams
  /// use.
  std::optional<ProgramReport> host(int32_t rank, const void *p, size_t bytes,
                                    bool writes, const std::string &line);
  /// The senders of a signal so far, for reports.
  std::optional<ProgramReport> senderOf(const void *signal) const;

private:
  struct Record {
    Actor actor;
    uint32_t time;
    int32_t loc;
    Access kind;
  };
  /// Whose an actor is, to speak of it and to know when it is over.
  struct Identity {
    int32_t rank;
    uint32_t launch;
    int32_t source; ///< Index of its kernel in `sources`.
    std::array<int32_t, 3> program;
    bool
        travels; ///< A transfer to another rank: a launch's end is not its end.
    int32_t lane;
    bool takes = false; ///< Packets: who gets one of its program's knows of it.
  };
  /// Where launches follow each other: a script's, or a stream's.
  struct Lane {
    int32_t rank;
    std::string label; ///< Empty: the script.
    Thread *thread;
    int32_t source = 0;    ///< Of its own actions, in `sources`.
    uint32_t launches = 0; ///< So far.
    uint64_t itemsEnqueued = 0, itemsKnown = 0;
    std::deque<uint32_t> unknown = {}; ///< When items ended that the script
                                       ///< does not know of.
  };
  struct Source {
    std::string kernel;
    std::vector<std::string> locations;
  };
  struct Running {
    uint32_t number;
    int32_t source;
    Clock start, end;
  };
  /// Transfers of a program to one rank; each has a time, and a fence orders
  /// all up to one.
  struct Channel {
    Actor actor;
    Actor issuer;
    int32_t target;
    std::vector<uint32_t> issued; ///< The issuer's time at each.
    bool open;                    ///< More may come.
  };
  /// What a rank's programs have sent, until all know that it has arrived.
  struct Flying {
    std::vector<Channel> channels;
    size_t over = 0; ///< The first ones, of launches that are over.
    std::unordered_map<Actor, std::vector<size_t>> of; ///< By issuer.
    void clear() { *this = Flying(); }
  };
  /// What of its sender is known to who takes a message of packets.
  struct Message {
    int64_t epoch;
    Clock takes;                ///< Before it was sent.
    std::optional<Clock> fence; ///< And once a fence follows.
  };
  struct Release {
    int32_t rank;
    bool narrow;
    Clock clock;
  };
  struct Sync {
    std::vector<Release> releases;
    AccessId latest = 0; ///< The latest signal that landed here.
  };
  /// Memory that all ranks share, or one rank's own.
  struct Space {
    Shadow shadow;
    std::unordered_map<uintptr_t, Sync> syncs;
    Written written;
  };

  bool ordered(Actor actor, uint32_t time, const Clock &clock) const;
  bool isOver(const Identity &who, const Clock &clock) const;
  static int32_t laneOf(const Launch &launch);
  void beginAgain(int32_t lane);
  void forgetLocal(int32_t rank);
  void forgetCopies(int32_t rank);
  Space &spaceOf(int32_t rank, const void *p);
  AccessId remember(Fiber &fiber, Access kind);
  AccessId addRecord(Actor actor, uint32_t time, int32_t loc, Access kind);
  void touch(int32_t rank, Runs runs, AccessId id, const Clock &clock,
             std::vector<Echo> *echoes = nullptr);
  bool isEcho(AccessId before, AccessId after) const;
  void touch(int32_t rank, const void *p, size_t bytes, AccessId id,
             const Clock &clock) {
    Run run{const_cast<void *>(p), int64_t(bytes)};
    touch(rank, {&run, 1}, id, clock);
  }
  bool mayMeet(AccessId before, AccessId after, const Clock &clock) const;
  AccessId addReader(AccessId readers, AccessId id, const Clock &clock);
  static constexpr AccessId isSet = AccessId(1) << 31;
  template <typename Visit> void forEachReader(AccessId readers, Visit visit);
  [[noreturn]] void conflict(int32_t rank, uintptr_t address, AccessId before,
                             AccessId after) const;
  /// Whether two accesses are those of two streams of a rank, or of its script
  /// and a stream.
  bool onStreams(AccessId before, AccessId after) const;
  std::string nameOf(int32_t rank, const void *p) const;
  ProgramReport report(AccessId id) const;
  void tick(Thread &thread);
  Channel &channel(Fiber &fiber, int32_t target, bool own);
  size_t known(const Channel &channel, const Thread &thread) const;
  template <typename Visit> void forEachKnown(const Fiber &fiber, Visit visit);
  void prune(Clock &clock) const;
  void restart();
  void giveOff(Sync &sync, Release release);
  template <typename Visit>
  void forEachRelease(const Fiber &fiber, const void *p, bool narrow,
                      Visit visit);
  void orders(Fiber &fiber);
  Clock takes(const Clock &clock) const;

  const Heap &heap;
  int32_t numRanks;
  std::vector<Identity> identities;
  std::vector<Source> sources;
  std::map<const void *, int32_t> sourceOf; ///< By the kernel's address.
  std::vector<Record> records;
  std::vector<std::vector<AccessId>> readerSets;
  std::unordered_map<uint64_t, AccessId> grown; ///< (readers, one more).
  std::vector<Thread> scripts;                  ///< Per rank.
  std::vector<Space> spaces;                    ///< [0]: symmetric; 1 + rank.
  std::vector<Flying> flying;                   ///< Per lane.
  std::deque<Lane> lanes;                       ///< The scripts' come first.
  std::vector<std::vector<int32_t>> lanesOf;    ///< Per rank.
  std::unordered_map<uint64_t, Running> running;
  std::vector<std::deque<Operand>> names; ///< Per rank: of its own memory.
  uint64_t restarts = 0;
  std::unordered_map<AccessId, Message> messages;
};

template <typename Visit>
void Races::forEachReader(AccessId readers, Visit visit) {
  if (readers & isSet) {
    for (AccessId id : readerSets[readers & ~isSet]) {
      visit(id);
    }
  } else if (readers) {
    visit(readers);
  }
}

} // namespace ditron::sim
