// How programs stop and go on: waits, spin loops, barriers.
#include "machine.h"

#include "compare.h"
#include "text.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ditron::sim {

/// After these it sees what is there.
constexpr int32_t staleRepeats = 8;
/// Reads of nothing new, of all programs, after which parked ones get another
/// go.
constexpr uint64_t patience = 4096;
/// The same for each program: slow ones must come to it, too.
constexpr uint64_t patienceOfEach = 256;
/// What a program must have looked since all was shown to count as one that
/// only polls.
constexpr uint64_t fewestLooks = 8;
/// What each program may look before they are called stuck: it might be a loop
/// that reads the same for long and then ends.
constexpr uint64_t looksOfEach = 16384;
/// That much longer when loops write as well,
constexpr uint64_t writersLooks = 4;
/// and when they are known to end: a limit may be out of sight.
constexpr uint64_t endingLooks = 64;
/// Changed ranges longer than this are looked up by waiter, not by address.
constexpr size_t wideChange = 1024;

static const int64_t *firstUnsatisfied(const Wait &wait) {
  for (int32_t index = 0; index < wait.count; ++index) {
    const int64_t *signal = wait.at(index);
    if (!compares(wait.compare, wait.seen(signal), wait.value)) {
      return signal;
    }
  }
  return nullptr;
}

static bool awaitsDelivery(const Wait &wait) {
  return wait.kind == Wait::Kind::Quiet || wait.kind == Wait::Kind::Arrival;
}

bool Machine::over(const Fiber &fiber) const {
  const Wait &wait = fiber.wait;
  switch (wait.kind) {
  case Wait::Kind::None:
    return true;
  case Wait::Kind::Signals:
    return !firstUnsatisfied(wait);
  case Wait::Kind::Arrival:
    return !network.underWay(fiber.launch->rank, wait.id);
  case Wait::Kind::Quiet:
    return !network.pendingFrom(fiber.launch->rank, wait.id);
  case Wait::Kind::Barrier:
    return wait.team->generation > wait.id;
  case Wait::Kind::Poll:
    for (int32_t index = 0; index < fiber.polls.count; ++index) {
      const Polls::Read &read = fiber.polls.reads[index];
      if (fiber.polls.spinning(read.when) &&
          std::memcmp(read.address, &read.bits, read.bytes) != 0) {
        return true;
      }
    }
    return false;
  }
  return true;
}

void Machine::block(const Wait &wait) {
  Fiber &fiber = *current();
  fiber.wait = wait;
  bool stopped = false;
  while (!over(fiber)) {
    stopped = true;
    park(fiber);
    leave();
  }
  if (stopped && !awaitsDelivery(wait)) {
    news();
  }
  fiber.wait.kind = Wait::Kind::None;
}

void Machine::maybeYield(uint64_t oneIn) {
  if (random.oneIn(oneIn)) {
    ready.push_back(current());
    leave();
  }
}

/// A wait watches the first signal that holds it up; when that one changes, the
/// next such.
void Machine::park(Fiber &fiber) {
  fiber.place = waiting.size();
  waiting.push_back(&fiber);
  fiber.watched.clear();
  if (fiber.wait.kind == Wait::Kind::Signals) {
    fiber.watched.push_back(
        reinterpret_cast<uintptr_t>(firstUnsatisfied(fiber.wait)) / 8);
  } else if (fiber.wait.kind == Wait::Kind::Poll) {
    for (int32_t index = 0; index < fiber.polls.count; ++index) {
      const Polls::Read &read = fiber.polls.reads[index];
      if (fiber.polls.spinning(read.when)) {
        fiber.watched.push_back(reinterpret_cast<uintptr_t>(read.address) / 8);
      }
    }
  } else if (awaitsDelivery(fiber.wait)) {
    quieting.push_back(&fiber);
  }
  for (uintptr_t word : fiber.watched) {
    watchers.emplace(word, &fiber);
  }
}

void Machine::wake(Fiber &fiber) {
  waiting[fiber.place] = waiting.back();
  waiting[fiber.place]->place = fiber.place;
  waiting.pop_back();
  for (uintptr_t word : fiber.watched) {
    auto [first, last] = watchers.equal_range(word);
    watchers.erase(std::find_if(first, last, [&](const auto &entry) {
      return entry.second == &fiber;
    }));
  }
  fiber.watched.clear();
  if (awaitsDelivery(fiber.wait)) {
    quieting.erase(std::find(quieting.begin(), quieting.end(), &fiber));
  }
  ready.push_back(&fiber);
}

void Machine::changed(const void *address, size_t bytes) {
  if (watchers.empty() || bytes == 0) {
    return;
  }
  auto first = reinterpret_cast<uintptr_t>(address) / 8;
  auto last = (reinterpret_cast<uintptr_t>(address) + bytes - 1) / 8;
  woken.clear();
  if (bytes <= wideChange) {
    for (uintptr_t word = first; word <= last; ++word) {
      auto [begin, end] = watchers.equal_range(word);
      for (auto entry = begin; entry != end; ++entry) {
        woken.push_back(entry->second);
      }
    }
  } else {
    for (Fiber *fiber : waiting) {
      if (std::any_of(
              fiber->watched.begin(), fiber->watched.end(),
              [&](uintptr_t word) { return word >= first && word <= last; })) {
        woken.push_back(fiber);
      }
    }
  }
  // By place, not by hash or address: runs must repeat.
  std::sort(woken.begin(), woken.end(),
            [](const Fiber *a, const Fiber *b) { return a->place < b->place; });
  woken.erase(std::unique(woken.begin(), woken.end()), woken.end());
  for (Fiber *fiber : woken) {
    wake(*fiber);
  }
}

bool Machine::wakeWaiters() {
  size_t before = ready.size();
  for (size_t index = waiting.size(); index-- > 0;) {
    if (index < waiting.size() && over(*waiting[index])) {
      wake(*waiting[index]);
    }
  }
  return ready.size() > before;
}

// --- programs that only poll
// --------------------------------------------------
//
// What a program does depends on what it reads. So when nobody reads anything
// new for long, whatever they write, nobody will. Only looks in loops that need
// not end count (Fiber::repeats): who reads elsewhere gets on, however slowly.
// What is left are loops that count in a way that the compiler does not see:
// they may look often before they are called stuck.

void Machine::news() {
  steps = 0;
  gotOn();
}

/// A program did what it does only so often.
void Machine::gotOn() {
  looks = 0;
  nextTry = patience;
  ++age;
  writing = false;
}

/// Whether a program gets on by a read or a write that is nothing new.
bool Machine::getsOn() {
  if (current()->repeats || ++steps > endingLooks * mostLooks) {
    return false;
  }
  gotOn();
  return true;
}

uint64_t Machine::enoughLooks() const {
  return std::max(writing ? writersLooks * mostLooks : mostLooks,
                  looksOfEach * (waiting.size() + ready.size()));
}

bool Machine::wakeSpinners() {
  if (looks >= enoughLooks()) {
    return false;
  }
  size_t before = ready.size();
  for (size_t index = waiting.size(); index-- > 0;) {
    if (waiting[index]->wait.kind == Wait::Kind::Poll) {
      wake(*waiting[index]);
    }
  }
  return ready.size() > before;
}

/// Nothing was new for a while: show all that is under way, and let them look
/// again. Returns whether they have done so often enough.
bool Machine::onlyPolled() {
  auto looksInVain = [&](const Fiber *fiber) {
    return fiber->polls.age == age && fiber->polls.looks >= fewestLooks;
  };
  if (!wakeWaiters() && looks >= enoughLooks() &&
      std::all_of(ready.begin(), ready.end(), looksInVain)) {
    if (!ready.empty()) {
      news(); // a script may have something to say
    }
    return true;
  }
  while (land()) {
  }
  while (visibility && visibility->publishOne()) {
  }
  ++age;
  nextTry = looks + patience + patienceOfEach * (waiting.size() + ready.size());
  wakeSpinners();
  return false;
}

Machine::Look Machine::look(const void *address, uint64_t bits, int32_t bytes) {
  Polls &polls = current()->polls;
  auto end = polls.reads.begin() + polls.count;
  auto read = std::find_if(polls.reads.begin(), end, [&](const auto &read) {
    return read.address == address && read.bytes == bytes;
  });
  if (read == end) {
    if (polls.count == int32_t(polls.reads.size())) {
      // A stream of reads, or a loop over more addresses than are kept: not a
      // spin we recognise.
      polls.clear();
    }
    polls.reads[polls.count++] = {address, bytes, 0, ++polls.total, bits, {}};
    polls.repeats = 0;
    news();
    return Look::New;
  }
  read->when = ++polls.total;
  bool same = read->bits == bits, back = !same && read->had(bits);
  if (!same) {
    read->before[read->changes++ % read->before.size()] = read->bits;
    read->bits = bits;
    polls.repeats = 0;
  }
  if (!same && !back) {
    news();
    return Look::New;
  }
  bool on = getsOn();
  if (std::exchange(polls.age, age) != age) {
    polls.looks = 0;
  }
  polls.looks += !on;
  looks += !on;
  return same ? Look::Again : Look::Back;
}

void Machine::looked(const void *address, uint64_t bits, int32_t bytes) {
  look(address, bits, bytes);
}

void Machine::wrote(const void *address) {
  Fiber &fiber = *current();
  if (fiber.home) {
    return;
  }
  Polls &polls = fiber.polls;
  auto end = polls.writes.begin() + polls.written;
  auto write = std::find_if(polls.writes.begin(), end, [&](const auto &write) {
    return write.address == address;
  });
  if (write != end) {
    write->when = polls.total;
    polls.repeats = 0;
    if (!getsOn()) {
      writing = true;
    }
    return;
  }
  if (polls.written == int32_t(polls.writes.size())) {
    polls.clear();
  }
  polls.writes[polls.written++] = {address, polls.total};
  polls.repeats = 0;
  news();
}

void Machine::acted() {
  current()->polls.clear();
  news();
}

void Machine::polledOrdinarily(const void *address, uint64_t bits,
                               int32_t bytes) {
  if (look(address, bits, bytes) != Look::Again) {
    return;
  }
  Fiber &fiber = *current();
  Polls &polls = fiber.polls;
  if (visibility && polls.repeats >= staleRepeats) {
    visibility->refresh(fiber, address, size_t(bytes));
  }
  if (++polls.repeats < Polls::spinRepeats) {
    maybeYield(8);
    return;
  }
  fiber.wait.kind = Wait::Kind::Poll;
  {
    TracedCall traced(events.get(), fiber, "spin",
                      [&] { return "on " + heap.nameOf(address); });
    park(fiber);
    leave();
  }
  fiber.wait.kind = Wait::Kind::None;
  polls.repeats = 0;
}

void Machine::polled(const void *address, uint64_t bits, int32_t bytes) {
  polledOrdinarily(address, bits, bytes);
  maybeYield(8);
}

void Machine::barrier(Team &team) {
  Fiber &fiber = *current();
  int32_t member = team.indexOf[fiber.launch->rank];
  if (Fiber *other = team.inside[member]) {
    throw Failure{
        format("a second program of this rank calls a barrier while program (",
               join(other->pid), ") is still in it"),
        "call it from one program per rank, for example under `if "
        "tl.program_id(0) == 0`"};
  }
  uint64_t generation = team.generation;
  if (races) {
    races->arrive(fiber, team);
  }
  if (++team.arrived == int32_t(team.ranks.size())) {
    team.arrived = 0;
    ++team.generation;
    if (races) {
      races->leave(fiber, team);
    }
    for (Fiber *&inside : team.inside) {
      if (inside) {
        if (races) {
          races->leave(*inside, team);
        }
        wake(*inside);
        inside = nullptr;
      }
    }
    maybeYield();
    return;
  }
  team.inside[member] = &fiber;
  Wait wait;
  wait.kind = Wait::Kind::Barrier;
  wait.team = &team;
  wait.id = generation;
  block(wait);
}

} // namespace ditron::sim
