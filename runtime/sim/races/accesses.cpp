// Accesses against the shadow memory: races, and reads of uninitialized memory.
#include "machine.h"
#include "races/race_detector.h"
#include "report/text.h"

#include <algorithm>
#include <utility>

namespace ditron::sim {

/// Readers of one cell that are remembered, the latest; a write that follows
/// more than these is checked against these.
constexpr size_t maxReaders = 64;

AccessId RaceDetector::addRecord(ThreadId thread, uint32_t time, int32_t loc,
                                 Access kind) {
  records.push_back({thread, time, loc, kind});
  return AccessId(records.size() - 1);
}

/// Accesses of one kind by the same line at the same time have one record.
AccessId RaceDetector::recordOf(Fiber &fiber, Access kind) {
  ThreadState &thread = fiber.thread;
  for (const ThreadState::RecentAccess &recent : thread.recent) {
    if (recent.loc == fiber.loc && recent.kind == kind) {
      return recent.id;
    }
  }
  AccessId id = addRecord(thread.id, thread.time, fiber.loc, kind);
  thread.recent.push_back({fiber.loc, kind, id});
  return id;
}

void RaceDetector::access(Fiber &fiber, ByteRanges ranges, Access kind) {
  bool any = false;
  for (const ByteRange &range : ranges) {
    if (range.bytes) {
      checkInitialized(fiber.launch->rank, range.address, size_t(range.bytes),
                       kind);
      any = true;
      if (isAtomic(kind) && heap.holds(range.address)) {
        checkUpdates(fiber, range, kind);
      }
    }
  }
  if (any) {
    bool mayRepeatValues = kind == Access::Store && fiber.launch->plain;
    // Each update has a record, to know which of them a program has read.
    AccessId id =
        kind == Access::Update
            ? addRecord(fiber.thread.id, fiber.thread.time, fiber.loc, kind)
            : recordOf(fiber, kind);
    checkAndRecord(fiber.launch->rank, ranges, id, fiber.thread.clock,
                   mayRepeatValues ? &fiber.thread.sameValueStores : nullptr);
  }
}

/// What an atomic access has to do with the updates of other programs there: a
/// store is a race with one that it overwrites and neither follows nor has
/// read.
void RaceDetector::checkUpdates(Fiber &fiber, ByteRange range, Access kind) {
  ThreadState &thread = fiber.thread;
  spaces[0].shadow.forEach(
      reinterpret_cast<uintptr_t>(range.address), size_t(range.bytes),
      [&](const ShadowMemory::Cell &cell, uintptr_t address) {
        const AccessRecord &write = records[cell.write];
        if (!cell.write || write.kind != Access::Update ||
            write.thread == thread.id) {
          return;
        }
        AccessId &read = thread.updatesRead[address];
        if (kind == Access::AtomicStore && read != cell.write &&
            !happensBefore(write.thread, write.time, thread.clock)) {
          reportRace(fiber.launch->rank, address, cell.write,
                     recordOf(fiber, kind));
        }
        read = cell.write;
      });
}

bool RaceDetector::mayBeSameValue(AccessId before, AccessId after) const {
  const AccessRecord &one = records[before], &two = records[after];
  const ThreadInfo &first = threads[one.thread], &second = threads[two.thread];
  return one.kind == Access::Store && one.loc >= 0 && one.loc == two.loc &&
         first.rank == second.rank && first.launch == second.launch;
}

void RaceDetector::checkSameValueStores(Fiber &fiber) {
  for (const SameValueStore &store :
       std::exchange(fiber.thread.sameValueStores, {})) {
    auto [was, is] =
        std::mismatch(store.before.begin(), store.before.end(), store.address);
    if (was != store.before.end()) {
      reportRace(fiber.launch->rank, reinterpret_cast<uintptr_t>(is),
                 store.first, store.second);
    }
  }
}

void RaceDetector::allocated(const Allocation &allocation, bool undefined) {
  for (int32_t rank : allocation.ranks) {
    auto address =
        reinterpret_cast<uintptr_t>(heap.at(rank, allocation.offset));
    spaces[0].shadow.reset(address, allocation.bytes);
    spaces[0].syncVars.erase(address, allocation.bytes);
    if (undefined) {
      spaces[0].initialized.markUninitialized(address, allocation.bytes);
    } else {
      spaces[0].initialized.markInitialized(address, allocation.bytes);
    }
  }
}

/// What is copied may be padding: the copy is then as uninitialized as its
/// source, and only a read of it is reported.
void RaceDetector::copied(const Fiber &fiber, const void *to, const void *from,
                          size_t bytes) {
  int32_t rank = fiber.launch->rank;
  spaceOf(rank, to).initialized.copy(reinterpret_cast<uintptr_t>(to),
                                     spaceOf(rank, from).initialized,
                                     reinterpret_cast<uintptr_t>(from), bytes);
}

void RaceDetector::checkInitialized(int32_t rank, const void *p, size_t bytes,
                                    Access kind) {
  if (isCopy(kind)) {
    return;
  }
  AddressSpace &space = spaceOf(rank, p);
  InitializedBytes &initialized = space.initialized;
  auto address = reinterpret_cast<uintptr_t>(p);
  if (isWrite(kind) && kind != Access::Atomic && kind != Access::Update) {
    initialized.markInitialized(address, bytes);
    return;
  }
  for (uintptr_t at = address, end = address + bytes;
       (at = initialized.firstUninitialized(at, end - at)) < end; ++at) {
    auto *byte = reinterpret_cast<const char *>(at);
    // It was zero when it was allocated: host code has written there, in a way
    // that the simulator does not see.
    if (*byte != 0) {
      initialized.markInitialized(at, 1);
      continue;
    }
    Failure failure{
        format("this ", spelling(kind), " reads ", nameOf(rank, byte),
               ", which is uninitialized"),
        "ditron.symm_empty gives memory without contents: write it first, mask "
        "the access, or take ditron.symm_zeros (signals need it)",
        "unwritten",
        {}};
    space.shadow.forEach(at, 1, [&](const ShadowMemory::Cell &cell, uintptr_t) {
      if (cell.write && isCopy(records[cell.write].kind)) {
        failure.what =
            format("this ", spelling(kind), " reads ", nameOf(rank, byte),
                   ", a copy of uninitialized memory");
        failure.others.push_back(report(cell.write));
      }
    });
    throw failure;
  }
}

bool RaceDetector::isRaceFree(AccessId before, AccessId after,
                              const VectorClock &clock) const {
  const AccessRecord &one = records[before];
  Access two = records[after].kind;
  // Host code may read a signal at any time.
  bool isSignalRead = (one.kind == Access::HostRead && isAtomic(two)) ||
                      (two == Access::HostRead && isAtomic(one.kind));
  return isSignalRead || (isAtomic(one.kind) && isAtomic(two)) ||
         happensBefore(one.thread, one.time, clock);
}

/// The readers of a cell and one more, without those that happen before it.
AccessId RaceDetector::addReader(AccessId readers, AccessId id,
                                 const VectorClock &clock) {
  if (!readers || readers == id) {
    return id;
  }
  AccessId &slot = grown[uint64_t(readers) << 32 | id];
  if (slot) {
    return slot;
  }
  std::vector<AccessId> kept;
  bool plain = !isAtomic(records[id].kind);
  forEachReader(readers, [&](AccessId other) {
    const AccessRecord &record = records[other];
    bool covered = (plain || isAtomic(record.kind)) &&
                   happensBefore(record.thread, record.time, clock);
    if (other != id && !covered) {
      kept.push_back(other);
    }
  });
  if (kept.empty()) {
    return slot = id;
  }
  if (kept.size() >= maxReaders) {
    kept.erase(kept.begin());
  }
  kept.push_back(id);
  readerSets.push_back(std::move(kept));
  return slot = AccessId(readerSets.size() - 1) | isSet;
}

void RaceDetector::checkAndRecord(
    int32_t rank, ByteRanges ranges, AccessId id, const VectorClock &clock,
    std::vector<SameValueStore> *sameValueStores) {
  // Neighbouring cells mostly have the same history.
  AccessId goodWrite = id, goodRead = id, from = 0, to = 0;
  auto checkWrite = [&](ShadowMemory::Cell &cell, uintptr_t address) {
    if (cell.write && cell.write != goodWrite) {
      if (!isRaceFree(cell.write, id, clock)) {
        auto *first = reinterpret_cast<std::byte *>(address);
        // A store to symmetric memory may become visible to others later.
        if (!sameValueStores || heap.holds(first) ||
            !mayBeSameValue(cell.write, id)) {
          reportRace(rank, address, cell.write, id);
        }
        size_t bytes = spaceOf(rank, first).shadow.cellBytes(address);
        sameValueStores->push_back(
            {cell.write, id, first, {first, first + bytes}});
        return;
      }
      goodWrite = cell.write;
    }
  };
  auto read = [&](ShadowMemory::Cell &cell, uintptr_t address) {
    checkWrite(cell, address);
    if (cell.read != id) {
      if (cell.read != from || !to) {
        from = cell.read;
        to = addReader(from, id, clock);
      }
      cell.read = to;
    }
  };
  auto write = [&](ShadowMemory::Cell &cell, uintptr_t address) {
    checkWrite(cell, address);
    if (cell.read && cell.read != goodRead) {
      forEachReader(cell.read, [&](AccessId reader) {
        if (!isRaceFree(reader, id, clock)) {
          reportRace(rank, address, reader, id);
        }
      });
      goodRead = cell.read;
    }
    cell.write = id;
    cell.read = 0;
  };
  bool writes = isWrite(records[id].kind);
  for (const ByteRange &range : ranges) {
    ShadowMemory &shadow = spaceOf(rank, range.address).shadow;
    auto address = reinterpret_cast<uintptr_t>(range.address);
    if (writes) {
      shadow.forEach(address, size_t(range.bytes), write);
    } else {
      shadow.forEach(address, size_t(range.bytes), read);
    }
  }
}

std::optional<ProgramReport> RaceDetector::hostAccess(int32_t rank,
                                                      const void *p,
                                                      size_t bytes, bool writes,
                                                      const std::string &line) {
  if (!heap.locate(p) && queuesOf[rank].size() == 1 &&
      !hasLocalTransfers(rank)) {
    return std::nullopt; // nothing else may use it
  }
  if (writes) {
    spaceOf(rank, p).initialized.markInitialized(reinterpret_cast<uintptr_t>(p),
                                                 bytes);
  }
  ThreadState &host = hosts[rank];
  std::vector<std::string> &lines = sources[0].locations;
  auto known = std::find(lines.begin(), lines.end(), line);
  auto loc = int32_t(known - lines.begin());
  if (known == lines.end()) {
    lines.push_back(line);
  }
  AccessId id = addRecord(host.id, host.time, loc,
                          writes ? Access::HostWrite : Access::HostRead);
  try {
    checkAndRecord(rank, p, bytes, id, host.clock);
  } catch (Failure &failure) {
    ProgramReport wrong = report(id);
    wrong.what = std::move(failure.what);
    wrong.hint = std::move(failure.hint);
    wrong.kind = std::move(failure.kind);
    wrong.others = std::move(failure.others);
    return wrong;
  }
  return std::nullopt;
}

} // namespace ditron::sim
