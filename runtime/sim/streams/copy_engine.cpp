#include "streams/copy_engine.h"

#include "abi/call.h"

#include <cstring>
#include <utility>

namespace ditron::sim {

constexpr size_t maxParts = 8;
/// Yields before a copy between ranks begins; the seed chooses one.
constexpr int32_t delays[] = {0, 2, 16, 128};
/// Ids of transfers that are not the network's have this bit.
constexpr uint64_t engineIds = uint64_t(1) << 48;

std::vector<CopyPart> splitCopy(const StridedCopy &copy, Random &random) {
  std::vector<CopyPart> parts;
  if (!copy.rows || !copy.bytes) {
    return parts;
  }
  if (Machine::current()->clock) {
    return {{0, copy.rows, 0, copy.bytes}};
  }
  // By rows where there are several, else by elements.
  bool byRow = copy.rows > 1;
  size_t unit = byRow ? 1 : copy.itemsize;
  size_t units = byRow ? copy.rows : copy.bytes / unit;
  size_t count = 1 + random.below(std::min(maxParts, units));
  for (size_t part = 0; part < count; ++part) {
    size_t begin = units * part / count * unit;
    size_t end = units * (part + 1) / count * unit;
    parts.push_back(byRow ? CopyPart{begin, end - begin, 0, copy.bytes}
                          : CopyPart{0, 1, begin, end - begin});
  }
  for (size_t left = parts.size(); left > 1; --left) {
    std::swap(parts[left - 1], parts[random.below(left)]);
  }
  return parts;
}

void movePart(Machine &machine, const StridedCopy &copy, const CopyPart &part) {
  if (machine.isTimingOnly() && copy.isData) {
    return;
  }
  for (size_t row = part.row; row < part.row + part.rows; ++row) {
    std::byte *to = copy.toRow(row) + part.start;
    if (copy.from) {
      std::memmove(to, copy.fromRow(row) + part.start, part.bytes);
    } else {
      for (size_t at = 0; at < part.bytes; at += copy.itemsize) {
        std::memcpy(to + at, copy.pattern.data(), copy.itemsize);
      }
    }
    machine.scheduler.memoryChanged(to, part.bytes);
  }
}

void localCopyKernel(void *args, int32_t, int32_t, int32_t, int32_t, int32_t,
                     int32_t) {
  const auto &copy =
      *reinterpret_cast<const StridedCopy *>(*static_cast<uint64_t *>(args));
  call(0, [&](Machine &machine, Fiber &fiber) {
    for (size_t row = 0; machine.races && row < copy.rows; ++row) {
      if (copy.from) {
        machine.races->copyReads(fiber, copy.fromRow(row), copy.bytes);
      }
      machine.races->access(fiber, copy.toRow(row), copy.bytes,
                            copy.from ? Access::Copy : Access::Store);
      if (copy.from) {
        machine.races->copied(fiber, copy.toRow(row), copy.fromRow(row),
                              copy.bytes);
      }
    }
    std::vector<CopyPart> parts = splitCopy(copy, machine.random);
    if (machine.clock && !parts.empty()) { // of a copy, read and written
      double bytes = double(copy.rows) * double(copy.bytes);
      machine.clock->copyWithin(fiber, copy.from ? 2 * bytes : bytes);
    }
    for (const CopyPart &part : parts) {
      movePart(machine, copy, part);
      machine.scheduler.maybeYield(2);
    }
  });
}

void hostCallKernel(void *args, int32_t, int32_t, int32_t, int32_t, int32_t,
                    int32_t) {
  auto &hosted = *reinterpret_cast<HostCall *>(*static_cast<uint64_t *>(args));
  call(0, [&](Machine &machine, Fiber &fiber) {
    auto access = [&](const HostCall::Ranges &ranges, Access kind) {
      for (auto [address, bytes] : ranges) {
        machine.races->access(fiber, reinterpret_cast<const void *>(address),
                              bytes, kind);
      }
    };
    if (machine.races) {
      access(hosted.reads, Access::Load);
      access(hosted.writes, Access::Store);
    }
    machine.scheduler.maybeYield(2);
    machine.reportCompleted(hosted.id);
    Wait wait;
    wait.kind = Wait::Kind::Signals;
    wait.signals = &hosted.returned;
    wait.count = 1;
    wait.value = 1;
    wait.compare = Compare::Ge;
    machine.scheduler.block(wait);
  });
}

/// Between ranks. For the race detector all of it is accessed at once, by the
/// stream: no other operation can be ordered after a part of it only.
void Stream::runRankCopy(const StreamOp &op) {
  const StridedCopy &copy = op.copy;
  if (machine.races) {
    for (size_t row = 0; row < copy.rows; ++row) {
      machine.races->copyReads(fiber, copy.fromRow(row), copy.bytes);
      machine.races->access(fiber, copy.toRow(row), copy.bytes, Access::Copy);
      machine.races->copied(fiber, copy.toRow(row), copy.fromRow(row),
                            copy.bytes);
    }
  }
  Transfer transfer;
  transfer.origin = self.rank;
  transfer.target = op.peer;
  transfer.launch = self.id;
  transfer.isGet = !op.push;
  std::vector<CopyPart> parts = splitCopy(copy, machine.random);
  if (machine.nodeOf(op.peer) == machine.nodeOf(self.rank)) {
    copyByEngine(copy, parts, std::move(transfer));
  } else {
    copyByNetwork(copy, parts, std::move(transfer));
  }
}

void Stream::copyByEngine(const StridedCopy &copy,
                          const std::vector<CopyPart> &parts,
                          Transfer transfer) {
  std::vector<uint64_t> ids;
  for (const CopyPart &part : parts) {
    ids.push_back(transfer.id = engineIds | machine.launches.newId());
    transfer.bytes = part.rows * part.bytes;
    if (machine.trace) {
      machine.trace->sent(fiber, transfer);
    }
  }
  if (machine.clock) {
    double bytes = double(copy.rows) * double(copy.bytes);
    int32_t peer = transfer.target;
    machine.clock->copy(fiber, peer, bytes, !transfer.isGet);
  } else {
    for (int32_t left = delays[machine.random.below(4)]; left > 0; --left) {
      machine.scheduler.maybeYield(1);
    }
  }
  for (size_t index = 0; index < parts.size(); ++index) {
    const CopyPart &part = parts[index];
    transfer.id = ids[index];
    movePart(machine, copy, part);
    if (machine.trace) {
      machine.trace->delivered(machine.heap, transfer,
                               copy.toRow(part.row) + part.start,
                               part.rows * part.bytes);
    }
    machine.scheduler.maybeYield(1);
  }
}

void Stream::copyByNetwork(const StridedCopy &copy,
                           const std::vector<CopyPart> &parts,
                           Transfer transfer) {
  std::vector<uint64_t> inFlight;
  for (const CopyPart &part : parts) {
    for (size_t row = part.row; row < part.row + part.rows; ++row) {
      transfer.to = copy.toRow(row) + part.start;
      transfer.from = copy.fromRow(row) + part.start;
      transfer.bytes = part.bytes;
      transfer.id = machine.network.nextId();
      inFlight.push_back(transfer.id);
      if (machine.trace) {
        machine.trace->sent(fiber, transfer);
      }
      machine.network.send(transfer, false);
    }
  }
  for (uint64_t id : inFlight) {
    Wait wait;
    wait.kind = Wait::Kind::Transfer;
    wait.id = id;
    machine.scheduler.block(wait);
  }
}

} // namespace ditron::sim
