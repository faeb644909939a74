// Packets: data that brings its own flag. How messages of them leave and are
// taken, and what the search for races knows of them.
//
// Each packet lands whole, at a moment of its own. Whoever takes a message
// knows that it has landed, and of its sender only what that had taken before:
// the reads of packets that were over, since a program polls before it goes on.
// What the sender has stored otherwise is not ordered by a packet, unless there
// is a fence on both sides.
#include "call.h"
#include "compare.h"

#include <cstring>

namespace ditron::sim {

/// How a protocol cuts a message up.
struct Packing {
  size_t packet; ///< Bytes of one packet,
  size_t data;   ///< of the message in it,
  size_t group;  ///< and packets that are sent together.
  int64_t flag;

  Packing(int32_t protocol, int64_t epoch) {
    if (Protocol(protocol) == Protocol::LL128) {
      packet = 128, data = 120, group = 1, flag = epoch;
    } else {
      packet = 8, data = 4, group = 2, flag = epoch & 0xffffffff;
      flag = flag ? flag : int64_t(1) << 31; // memory begins as 0
    }
  }
  /// Packets of a message; one of no bytes has some too, whose flags say that
  /// it was sent.
  size_t count(int64_t bytes) const {
    size_t some = size_t(std::max<int64_t>(bytes, 1));
    return (some + data * group - 1) / (data * group) * group;
  }
  /// The packet that holds `bytes` bytes from `from` on.
  std::array<std::byte, 128> make(const std::byte *from, size_t bytes) const {
    std::array<std::byte, 128> image = {};
    std::memcpy(image.data(), from, bytes);
    std::memcpy(image.data() + data, &flag, packet - data);
    return image;
  }
  /// A wait for the flags of `count` packets.
  Wait wait(const void *packets, size_t count) const {
    Wait wait;
    wait.kind = Wait::Kind::Signals;
    wait.stride = int32_t(packet / 8);
    wait.shift = data % 8 ? 32 : 0;
    wait.signals = static_cast<const int64_t *>(packets) + data / 8;
    wait.count = int32_t(count);
    wait.value = flag;
    wait.compare = Compare::Eq;
    return wait;
  }
};

static void checkMessage(const void *packets, int64_t epoch, const char *what) {
  if (epoch <= 0) {
    throw Failure{format(what, ": expected an epoch of 1 or more, got ", epoch),
                  "packet memory begins with flag 0: count calls from 1 on"};
  }
  if (reinterpret_cast<uintptr_t>(packets) % 128 != 0) {
    throw Failure{format(what,
                         ": expected packet memory aligned to 128 bytes, "
                         "got ",
                         packets),
                  "allocate it by ditron.symm_packets, and index it by whole "
                  "messages"};
  }
}

static void sendPackets(Machine &machine, Fiber &fiber, std::byte *to,
                        const std::byte *src, size_t bytes, int32_t target,
                        const Packing &packing) {
  for (size_t index = 0; index < packing.count(int64_t(bytes)); ++index) {
    size_t first = std::min(index * packing.data, bytes);
    auto image =
        packing.make(src + first, std::min(packing.data, bytes - first));
    Delivery delivery;
    delivery.origin = fiber.launch->rank;
    delivery.target = target;
    delivery.launch = fiber.launch->id;
    delivery.to = to + index * packing.packet;
    delivery.from = image.data();
    delivery.bytes = packing.packet;
    delivery.id = machine.network.nextId();
    if (machine.events) {
      machine.events->sent(fiber, delivery);
    }
    Outside outside(machine.visibility.get(), fiber);
    machine.network.send(std::move(delivery), true);
  }
}

// --- the search for races
// -----------------------------------------------------

/// What a packet tells of its sender.
Clock Races::takes(const Clock &clock) const {
  Clock known(numRanks);
  for (int32_t rank = 0; rank < numRanks; ++rank) {
    known.taken[rank] = std::max(clock.launches[rank], clock.taken[rank]);
  }
  auto keep = [&](const Clock::Entries &entries) {
    for (const auto &[actor, time] : entries) {
      if (identities[actor].takes) {
        known.reach(actor, time);
      }
    }
  };
  keep(clock.entries);
  for (const auto &base : clock.bases) {
    keep(*base);
  }
  return known;
}

void Races::sendPackets(Fiber &fiber, const void *to, size_t bytes,
                        int32_t target, int64_t epoch) {
  Thread &thread = fiber.thread;
  Identity who = identities[thread.actor];
  who.travels = target != who.rank;
  auto actor = Actor(identities.size());
  identities.push_back(who);
  AccessId id = addRecord(actor, 1, fiber.loc, Access::Packet);
  auto address = reinterpret_cast<uintptr_t>(to);
  spaces[0].written.mark(address, bytes);
  spaces[0].shadow.forEach(
      address, bytes, [&](Shadow::Cell &cell, uintptr_t at) {
        bool taken = false;
        forEachReader(cell.read, [&](AccessId reader) {
          if (!mayMeet(reader, id, thread.clock)) {
            conflict(fiber.launch->rank, at, reader, id);
          }
          taken |= records[reader].kind == Access::Take;
        });
        bool packet = cell.write && records[cell.write].kind == Access::Packet;
        // Landing is not enough: a packet that nobody has taken would be lost.
        if (cell.write &&
            !(packet ? taken : mayMeet(cell.write, id, thread.clock))) {
          conflict(fiber.launch->rank, at, cell.write, id);
        }
        cell.write = id;
        cell.read = 0;
      });
  messages[id] = {epoch, takes(thread.clock), thread.fence};
  tick(thread);
}

void Races::takePackets(Fiber &fiber, const void *packets, size_t bytes,
                        int64_t epoch) {
  Thread &thread = fiber.thread;
  if (!thread.taker) {
    thread.taker = Actor(identities.size());
    identities.push_back(identities[thread.actor]);
    identities.back().takes = true;
  }
  thread.clock.reach(thread.taker, thread.time);
  AccessId id = addRecord(thread.taker, thread.time, fiber.loc, Access::Take);
  AccessId good = 0;
  std::vector<const Clock *> heard;
  spaces[0].shadow.forEach(
      reinterpret_cast<uintptr_t>(packets), bytes,
      [&](Shadow::Cell &cell, uintptr_t at) {
        if (cell.write && cell.write != good) {
          auto message = messages.find(cell.write);
          if (message != messages.end() && message->second.epoch == epoch) {
            thread.clock.join(message->second.takes);
            if (message->second.fence) {
              heard.push_back(&*message->second.fence);
            }
          } else if (message != messages.end() ||
                     !mayMeet(cell.write, id, thread.clock)) {
            conflict(fiber.launch->rank, at, cell.write, id);
          }
          good = cell.write;
        }
        cell.read = addReader(cell.read, id, thread.clock);
      });
  for (const Clock *fence : heard) { // for when a fence of its own follows
    if (!thread.heard) {
      thread.heard.emplace(numRanks);
    }
    thread.heard->join(*fence);
  }
}

std::optional<ProgramReport> Races::packetSender(const void *packet) {
  std::optional<ProgramReport> sender;
  spaces[0].shadow.forEach(reinterpret_cast<uintptr_t>(packet), 1,
                           [&](Shadow::Cell &cell, uintptr_t) {
                             if (messages.count(cell.write)) {
                               sender = report(cell.write);
                             }
                           });
  return sender;
}

} // namespace ditron::sim

using namespace ditron::sim;

void ditron_sim_ll_put(void *packets, void *src, int64_t n, int64_t epoch,
                       int32_t rank, int32_t protocol, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    constexpr const char *what = "ll_put";
    checkMessage(packets, epoch, what);
    checkAccess(machine, fiber, src, n, what);
    int32_t target = worldRank(fiber, rank);
    Packing packing(protocol, epoch);
    size_t bytes = packing.count(n) * packing.packet;
    std::byte *to =
        symmetric(machine, fiber, packets, int64_t(bytes), target, what);
    if (machine.nodeOf(target) != machine.nodeOf(fiber.launch->rank)) {
      throw Failure{format(what, " to rank ", target,
                           ", which is on another "
                           "node"),
                    "packets are stores, which reach the ranks of a node: use "
                    "putmem_signal"};
    }
    TracedCall traced(machine.events.get(), fiber, what, [&] {
      return format(n, " bytes of epoch ", epoch, " to ",
                    machine.heap.nameOf(packets), " of rank ", target);
    });
    if (machine.races) {
      if (n > 0) {
        machine.races->access(fiber, src, size_t(n), Access::PutSource);
      }
      machine.races->sendPackets(fiber, to, bytes, target, epoch);
    }
    if (machine.visibility) {
      machine.visibility->settle(fiber, to, bytes);
    }
    sendPackets(machine, fiber, to, static_cast<const std::byte *>(src),
                size_t(n), target, packing);
    machine.acted();
    machine.maybeYield();
  });
}

void ditron_sim_ll_get(void *dst, void *packets, int64_t n, int64_t epoch,
                       int32_t protocol, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    constexpr const char *what = "ll_get";
    checkMessage(packets, epoch, what);
    checkAccess(machine, fiber, dst, n, what);
    Packing packing(protocol, epoch);
    size_t count = packing.count(n), bytes = count * packing.packet;
    symmetric(machine, fiber, packets, int64_t(bytes), fiber.launch->rank,
              what);
    Wait wait = packing.wait(packets, count);
    TracedCall traced(
        machine.events.get(), fiber, what,
        [&] {
          return format(n, " bytes of epoch ", epoch, " at ",
                        machine.heap.nameOf(packets));
        },
        wait.signals, 1);
    if (machine.races) {
      machine.races->checkWritten(fiber.launch->rank, packets, bytes,
                                  Access::Take);
    }
    machine.acted();
    machine.maybeYield();
    if (machine.visibility) {
      machine.visibility->settle(fiber, packets, bytes);
    }
    machine.block(wait);
    if (machine.races) {
      machine.races->takePackets(fiber, packets, bytes, epoch);
    }
    if (n == 0) {
      return;
    }
    if (machine.races) {
      machine.races->access(fiber, dst, size_t(n), Access::Store);
    }
    if (machine.visibility) {
      machine.visibility->store(fiber, dst, size_t(n));
    }
    for (size_t index = 0; index * packing.data < size_t(n); ++index) {
      size_t first = index * packing.data;
      std::memcpy(static_cast<std::byte *>(dst) + first,
                  static_cast<std::byte *>(packets) + index * packing.packet,
                  std::min(packing.data, size_t(n) - first));
    }
    machine.changed(dst, size_t(n));
    machine.maybeYield();
  });
}
