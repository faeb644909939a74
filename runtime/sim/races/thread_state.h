// What the race detector keeps per logical thread and per signal in flight.
#pragma once

#include "abi/abi.h"
#include "races/access.h"
#include "races/shadow_memory.h"
#include "races/vector_clock.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ditron::sim {

/// A store to where another program of the launch has stored by the same line.
/// It is a race only if it changes the value.
struct SameValueStore {
  AccessId first, second;
  std::byte *address;
  std::vector<std::byte> before;
};

/// The clock of a program, a rank's host code or a stream, and what goes with
/// it; part of a program's fiber.
struct ThreadState {
  struct RecentAccess {
    int32_t loc;
    Access kind;
    AccessId id;
  };

  ThreadId id = 0;
  ThreadId packetReader = 0; ///< Its reads of packets are this thread's; 0:
                             ///< there are none yet.
  uint32_t time = 0;
  VectorClock clock;
  /// Of threads that it has acquired from by a release of scope `gpu`, up to
  /// when their actions are known to be seen beyond this GPU's programs, as by
  /// a NIC or a copy engine. Its own fence, or release of a wider scope,
  /// publishes these, too, and so does the end of a kernel.
  std::map<ThreadId, uint32_t> seenBeyondGpu;
  std::map<int32_t, VectorClock> fencedPuts; ///< Per target: the puts that
                                             ///< later ones to there follow.
  std::vector<RecentAccess> recent;          ///< Accesses at this time.
  /// The clock at its latest fence: relaxed writes after the fence release it.
  std::optional<VectorClock> fenceClock;
  /// What its relaxed reads have observed: acquired by its next fence.
  std::optional<VectorClock> observed;
  std::vector<SameValueStore> sameValueStores; ///< Of the store in progress.
  /// Per address: the latest update by another thread that it has read there.
  std::unordered_map<uintptr_t, AccessId> updatesRead;

  void acquire(const VectorClock &released, Scope scope) {
    if (scope == Scope::Gpu) {
      for (const auto &[thread, time] : released.entries) {
        if (uint32_t known = clock.of(thread); time > known) {
          seenBeyondGpu.emplace(thread, known);
        }
      }
    } else {
      for (auto &[thread, time] : seenBeyondGpu) {
        time = std::max(time, released.of(thread));
      }
    }
    clock.join(released);
  }
  /// Join the clock of an event, with what was seen beyond this GPU there.
  void follow(const VectorClock &event,
              const std::map<ThreadId, uint32_t> &seenThere) {
    std::map<ThreadId, uint32_t> seen;
    for (const auto *known : {&std::as_const(seenBeyondGpu), &seenThere}) {
      for (const auto &entry : *known) {
        uint32_t most = std::max(seenBy(clock, seenBeyondGpu, entry.first),
                                 seenBy(event, seenThere, entry.first));
        if (most < std::max(clock.of(entry.first), event.of(entry.first))) {
          seen.emplace(entry.first, most);
        }
      }
    }
    seenBeyondGpu = std::move(seen);
    clock.join(event);
  }
  /// The clock of a NIC or a copy engine that reads for it.
  VectorClock clockBeyondGpu() const {
    VectorClock seen = clock;
    seen.flatten();
    for (auto &[thread, time] : seen.entries) {
      if (auto found = seenBeyondGpu.find(thread);
          found != seenBeyondGpu.end()) {
        time = std::min(time, found->second);
      }
    }
    return seen;
  }

private:
  static uint32_t seenBy(const VectorClock &clock,
                         const std::map<ThreadId, uint32_t> &seenBeyondGpu,
                         ThreadId thread) {
    auto found = seenBeyondGpu.find(thread);
    return found == seenBeyondGpu.end() ? clock.of(thread) : found->second;
  }
};

/// What a signal in flight releases: an acquire of the signal joins it.
struct MessageClock {
  VectorClock clock;
  AccessId id = 0; ///< The write of the signal itself.
  Scope scope = Scope::World;
};

} // namespace ditron::sim
