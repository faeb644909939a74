// The shadow of memory, and what is said about accesses that meet there.
#include "machine.h"
#include "races.h"
#include "text.h"

#include <algorithm>

namespace ditron::sim {

/// Readers of one place that are remembered, the latest; a write that follows
/// more than these is checked against these.
constexpr size_t maxReaders = 64;

static bool writes(Access kind) {
  switch (kind) {
  case Access::Store:
  case Access::AtomicStore:
  case Access::Atomic:
  case Access::Put:
  case Access::Get:
  case Access::Signal:
  case Access::HostWrite:
  case Access::Copy:
  case Access::Packet:
    return true;
  default:
    return false;
  }
}

static bool isAtomic(Access kind) {
  switch (kind) {
  case Access::AtomicLoad:
  case Access::AtomicStore:
  case Access::Atomic:
  case Access::Signal:
  case Access::Wait:
    return true;
  default:
    return false;
  }
}

static const char *spelling(Access kind) {
  constexpr const char *spellings[] = {"load",
                                       "store",
                                       "atomic load",
                                       "atomic store",
                                       "atomic",
                                       "put",
                                       "put's read of its source",
                                       "get",
                                       "get's read of its source",
                                       "signal",
                                       "wait",
                                       "read by the script",
                                       "write by the script",
                                       "copy",
                                       "copy's read of its source",
                                       "ll_put",
                                       "ll_get"};
  return spellings[int(kind)];
}

static const char *article(std::string_view noun) {
  bool vowel =
      std::string_view("aeiou").find(noun[0]) != std::string_view::npos;
  return vowel || noun.substr(0, 3) == "ll_" ? "an " : "a ";
}

AccessId Races::addRecord(Actor actor, uint32_t time, int32_t loc,
                          Access kind) {
  records.push_back({actor, time, loc, kind});
  return AccessId(records.size() - 1);
}

/// A program that does the same at the same place, with nothing between that
/// others could tell, is remembered once.
AccessId Races::remember(Fiber &fiber, Access kind) {
  Thread &thread = fiber.thread;
  for (const Thread::Remembered &recent : thread.recent) {
    if (recent.loc == fiber.loc && recent.kind == kind) {
      return recent.id;
    }
  }
  AccessId id = addRecord(thread.actor, thread.time, fiber.loc, kind);
  thread.recent.push_back({fiber.loc, kind, id});
  return id;
}

void Races::access(Fiber &fiber, Runs runs, Access kind) {
  bool any = false;
  for (const Run &run : runs) {
    if (run.bytes) {
      checkWritten(fiber.launch->rank, run.address, size_t(run.bytes), kind);
      any = true;
    }
  }
  if (any) {
    touch(fiber.launch->rank, runs, remember(fiber, kind), fiber.thread.clock,
          kind == Access::Store && fiber.launch->plain ? &fiber.thread.echoes
                                                       : nullptr);
  }
}

bool Races::isEcho(AccessId before, AccessId after) const {
  const Record &one = records[before], &two = records[after];
  const Identity &first = identities[one.actor],
                 &second = identities[two.actor];
  return one.kind == Access::Store && one.loc >= 0 && one.loc == two.loc &&
         first.rank == second.rank && first.launch == second.launch;
}

void Races::checkEchoes(Fiber &fiber) {
  for (const Echo &echo : std::exchange(fiber.thread.echoes, {})) {
    auto [was, is] =
        std::mismatch(echo.before.begin(), echo.before.end(), echo.address);
    if (was != echo.before.end()) {
      conflict(fiber.launch->rank, reinterpret_cast<uintptr_t>(is), echo.first,
               echo.second);
    }
  }
}

void Races::allocated(const Symbol &symbol, bool undefined) {
  for (int32_t rank : symbol.ranks) {
    auto address = reinterpret_cast<uintptr_t>(heap.at(rank, symbol.offset));
    spaces[0].shadow.forget(address, symbol.bytes);
    for (size_t byte = 0; byte < symbol.bytes && !spaces[0].syncs.empty();
         byte += 8) {
      spaces[0].syncs.erase(address + byte);
    }
    if (undefined) {
      spaces[0].written.reset(address, symbol.bytes);
    } else {
      spaces[0].written.mark(address, symbol.bytes);
    }
  }
}

static bool copies(Access kind) {
  switch (kind) {
  case Access::Put:
  case Access::PutSource:
  case Access::Get:
  case Access::GetSource:
  case Access::Copy:
  case Access::CopySource:
    return true;
  default:
    return false;
  }
}

/// What is copied may be padding: the copy is then as unwritten as its source,
/// and who reads it is reported.
void Races::copied(const Fiber &fiber, const void *to, const void *from,
                   size_t bytes) {
  int32_t rank = fiber.launch->rank;
  spaceOf(rank, to).written.copy(reinterpret_cast<uintptr_t>(to),
                                 spaceOf(rank, from).written,
                                 reinterpret_cast<uintptr_t>(from), bytes);
}

void Races::checkWritten(int32_t rank, const void *p, size_t bytes,
                         Access kind) {
  if (copies(kind)) {
    return;
  }
  Space &space = spaceOf(rank, p);
  Written &written = space.written;
  auto address = reinterpret_cast<uintptr_t>(p);
  if (writes(kind) && kind != Access::Atomic) {
    written.mark(address, bytes);
    return;
  }
  for (uintptr_t at = address, end = address + bytes;
       (at = written.firstUnwritten(at, end - at)) < end; ++at) {
    auto *byte = reinterpret_cast<const char *>(at);
    // It was zero when it was given out: a script has written there, in a way
    // that was not seen.
    if (*byte != 0) {
      written.mark(at, 1);
      continue;
    }
    Failure failure{
        format("this ", spelling(kind), " reads ", nameOf(rank, byte),
               ", which nobody has written"),
        "ditron.symm_empty gives memory without contents: write it first, mask "
        "the access, or take ditron.symm_zeros (signals need it)",
        "unwritten",
        {}};
    space.shadow.forEach(at, 1, [&](const Shadow::Cell &cell, uintptr_t) {
      if (cell.write && copies(records[cell.write].kind)) {
        failure.what =
            format("this ", spelling(kind), " reads ", nameOf(rank, byte),
                   ", a copy of what nobody has written");
        failure.others.push_back(report(cell.write));
      }
    });
    throw failure;
  }
}

bool Races::mayMeet(AccessId before, AccessId after, const Clock &clock) const {
  const Record &one = records[before];
  Access two = records[after].kind;
  // A script may look at a signal at any time.
  bool peeks = (one.kind == Access::HostRead && isAtomic(two)) ||
               (two == Access::HostRead && isAtomic(one.kind));
  return peeks || (isAtomic(one.kind) && isAtomic(two)) ||
         ordered(one.actor, one.time, clock);
}

/// The readers of a place with one more, without those that it follows.
AccessId Races::addReader(AccessId readers, AccessId id, const Clock &clock) {
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
    const Record &record = records[other];
    bool covered = (plain || isAtomic(record.kind)) &&
                   ordered(record.actor, record.time, clock);
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

void Races::touch(int32_t rank, Runs runs, AccessId id, const Clock &clock,
                  std::vector<Echo> *echoes) {
  // Neighbouring cells mostly have the same history.
  AccessId goodWrite = id, goodRead = id, from = 0, to = 0;
  auto look = [&](Shadow::Cell &cell, uintptr_t address) {
    if (cell.write && cell.write != goodWrite) {
      if (!mayMeet(cell.write, id, clock)) {
        auto *place = reinterpret_cast<std::byte *>(address);
        // Symmetric memory may show to others later what is stored there.
        if (!echoes || heap.holds(place) || !isEcho(cell.write, id)) {
          conflict(rank, address, cell.write, id);
        }
        size_t bytes = spaceOf(rank, place).shadow.cellBytes(address);
        echoes->push_back({cell.write, id, place, {place, place + bytes}});
        return;
      }
      goodWrite = cell.write;
    }
  };
  auto read = [&](Shadow::Cell &cell, uintptr_t address) {
    look(cell, address);
    if (cell.read != id) {
      if (cell.read != from || !to) {
        from = cell.read;
        to = addReader(from, id, clock);
      }
      cell.read = to;
    }
  };
  auto write = [&](Shadow::Cell &cell, uintptr_t address) {
    look(cell, address);
    if (cell.read && cell.read != goodRead) {
      forEachReader(cell.read, [&](AccessId reader) {
        if (!mayMeet(reader, id, clock)) {
          conflict(rank, address, reader, id);
        }
      });
      goodRead = cell.read;
    }
    cell.write = id;
    cell.read = 0;
  };
  bool isWrite = writes(records[id].kind);
  for (const Run &run : runs) {
    Shadow &shadow = spaceOf(rank, run.address).shadow;
    auto address = reinterpret_cast<uintptr_t>(run.address);
    if (isWrite) {
      shadow.forEach(address, size_t(run.bytes), write);
    } else {
      shadow.forEach(address, size_t(run.bytes), read);
    }
  }
}

std::string Races::nameOf(int32_t rank, const void *p) const {
  if (std::optional<Heap::Place> place = heap.locate(p)) {
    return format(heap.nameOf(p), " of rank ", place->rank);
  }
  auto address = reinterpret_cast<uint64_t>(p);
  for (const Operand &operand : names[rank]) { // the latest come first
    if (address >= operand.address &&
        address < operand.address + operand.bytes) {
      return format(operand.name, "[",
                    (address - operand.address) / operand.itemsize,
                    "] of rank ", rank);
    }
  }
  return format("memory at ", p, " of rank ", rank);
}

ProgramReport Races::report(AccessId id) const {
  const Record &record = records[id];
  const Identity &who = identities[record.actor];
  const Source &source = sources[who.source];
  ProgramReport report;
  report.kernel = source.kernel;
  if (record.loc >= 0 && size_t(record.loc) < source.locations.size()) {
    report.location = source.locations[record.loc];
  }
  report.rank = who.rank;
  report.stream = lanes[who.lane].label;
  report.program = who.program;
  report.what = format("the ", spelling(record.kind));
  return report;
}

/// What would order the two; `onStreams`: of one rank.
static std::string remedy(Access before, Access after, bool onStreams) {
  auto either = [&](Access kind) { return before == kind || after == kind; };
  if (onStreams && (either(Access::HostRead) || either(Access::HostWrite))) {
    return "what is on a stream may still be under way: synchronize() the "
           "stream first";
  }
  if (onStreams) {
    return orderStreams;
  }
  if (either(Access::CopySource)) {
    return "the copy engine reads its source until the copy is over: the copy "
           "waits on its stream for a signal that comes after what it is to "
           "read, "
           "and who writes there next for one that comes after the copy";
  }
  if (either(Access::Copy)) {
    return "a copy lands at any time: its reader waits for a signal written "
           "after it on its stream, and its sender for the news that the place "
           "is free again";
  }
  if (either(Access::Packet) || either(Access::Take)) {
    return "packets are read by dl.ll_get alone, by one program, and their "
           "place "
           "is free when that has returned: give each sender a place, two by "
           "the "
           "epoch's parity, and send again only to who has answered";
  }
  if (either(Access::PutSource)) {
    return "a put without a wait reads its source at any time until "
           "dl.quiet(): "
           "call that before the source is written again, also when that is in "
           "the next launch";
  }
  if (before == Access::Get || after == Access::Get) {
    return "what a get without a wait brings may be read after dl.quiet()";
  }
  if (before == Access::Put && after == Access::Put) {
    return "two puts to one place: give each rank (and each step) a place of "
           "its own, or let a dl.fence() or the receiver's answer come between "
           "them";
  }
  if (either(Access::Put)) {
    return "a put arrives at any time: its reader waits for a signal that was "
           "sent after it (putmem_signal, notify, or fence and signal_op), and "
           "its sender for the news that the place is free again";
  }
  if (either(Access::HostRead) || either(Access::HostWrite)) {
    return "call ditron.barrier() between the script's access and the kernels "
           "of other ranks";
  }
  if (isAtomic(before) != isAtomic(after)) {
    return "one is an ordinary access to what others wait for: use dl.wait, "
           "dl.notify, dl.ld or dl.st";
  }
  return "order them: dl.notify after the first and dl.wait before the second "
         "(acquire and release, of a scope that holds both), or a barrier";
}

bool Races::onStreams(AccessId before, AccessId after) const {
  const Identity &one = identities[records[before].actor];
  const Identity &two = identities[records[after].actor];
  return one.rank == two.rank && one.lane != two.lane;
}

void Races::conflict(int32_t rank, uintptr_t address, AccessId before,
                     AccessId after) const {
  Access first = records[before].kind, second = records[after].kind;
  ProgramReport other = report(before);
  throw Failure{
      format("race on ", nameOf(rank, reinterpret_cast<const void *>(address)),
             ": nothing orders this ", spelling(second), " and ",
             article(spelling(first)), spelling(first), " by rank ", other.rank,
             other.stream.empty() ? "" : "'s ", other.stream),
      remedy(first, second, onStreams(before, after)),
      "race",
      {std::move(other)}};
}

std::optional<ProgramReport> Races::host(int32_t rank, const void *p,
                                         size_t bytes, bool isWrite,
                                         const std::string &line) {
  std::optional<Heap::Place> place = heap.locate(p);
  if (!place && lanesOf[rank].size() == 1) {
    return std::nullopt;
  }
  if (isWrite) {
    spaceOf(rank, p).written.mark(reinterpret_cast<uintptr_t>(p), bytes);
  }
  Thread &script = scripts[rank];
  std::vector<std::string> &lines = sources[0].locations;
  auto known = std::find(lines.begin(), lines.end(), line);
  auto loc = int32_t(known - lines.begin());
  if (known == lines.end()) {
    lines.push_back(line);
  }
  AccessId id = addRecord(script.actor, script.time, loc,
                          isWrite ? Access::HostWrite : Access::HostRead);
  try {
    touch(rank, p, bytes, id, script.clock);
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
