// Messages of packets, in which each packet carries data and a flag (NCCL's LL
// and LL128 protocols): ll_put and ll_get.
#include "abi/call.h"
#include "abi/compare.h"

#include <algorithm>
#include <array>
#include <cstring>

using namespace ditron::sim;

namespace {

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
      flag = flag ? flag : int64_t(1) << 31; // 0 is the initial value
    }
  }
  /// Packets of a message. An empty one has some too, to signal that it was
  /// sent.
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

void checkMessage(const void *packets, int64_t epoch, const char *what) {
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

void sendPackets(Machine &machine, Fiber &fiber, std::byte *to,
                 const std::byte *src, size_t bytes, int32_t target,
                 const Packing &packing) {
  for (size_t index = 0; index < packing.count(int64_t(bytes)); ++index) {
    size_t first = std::min(index * packing.data, bytes);
    auto image =
        packing.make(src + first, std::min(packing.data, bytes - first));
    Transfer transfer;
    transfer.origin = fiber.launch->rank;
    transfer.target = target;
    transfer.launch = fiber.launch->id;
    transfer.to = to + index * packing.packet;
    transfer.from = image.data();
    transfer.bytes = packing.packet;
    transfer.id = machine.network.nextId();
    if (machine.trace) {
      machine.trace->sent(fiber, transfer);
    }
    CoherentScope coherent(machine.weakMemory.get(), fiber);
    machine.network.send(std::move(transfer), true);
  }
}

} // namespace

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
    TracedCall traced(machine.trace.get(), fiber, what, [&] {
      return format(n, " bytes of epoch ", epoch, " to ",
                    machine.heap.nameOf(packets), " of rank ", target);
    });
    if (machine.clock) {
      machine.clock->move(fiber, target, double(bytes), true);
    }
    if (machine.races) {
      if (n > 0) {
        machine.races->access(fiber, src, size_t(n), Access::PutSource);
      }
      machine.races->sendPackets(fiber, to, bytes, target, epoch);
    }
    if (machine.weakMemory) {
      machine.weakMemory->flush(fiber, to, bytes);
    }
    sendPackets(machine, fiber, to, static_cast<const std::byte *>(src),
                size_t(n), target, packing);
    observeEffect(machine, fiber);
    machine.scheduler.maybeYield();
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
        machine.trace.get(), fiber, what,
        [&] {
          return format(n, " bytes of epoch ", epoch, " at ",
                        machine.heap.nameOf(packets));
        },
        wait.signals, 1);
    if (machine.races) {
      machine.races->checkInitialized(fiber.launch->rank, packets, bytes,
                                      Access::PacketRead);
    }
    observeEffect(machine, fiber);
    settle(machine, fiber);
    machine.scheduler.maybeYield();
    if (machine.weakMemory) {
      machine.weakMemory->flush(fiber, packets, bytes);
    }
    machine.scheduler.block(wait);
    if (machine.races) {
      machine.races->readPackets(fiber, packets, bytes, epoch);
    }
    if (n == 0) {
      return;
    }
    if (machine.races) {
      machine.races->access(fiber, dst, size_t(n), Access::Store);
    }
    if (machine.weakMemory) {
      machine.weakMemory->store(fiber, dst, size_t(n));
    }
    for (size_t index = 0; index * packing.data < size_t(n); ++index) {
      size_t first = index * packing.data;
      std::memcpy(static_cast<std::byte *>(dst) + first,
                  static_cast<std::byte *>(packets) + index * packing.packet,
                  std::min(packing.data, size_t(n) - first));
    }
    machine.scheduler.memoryChanged(dst, size_t(n));
    machine.scheduler.maybeYield();
  });
}
