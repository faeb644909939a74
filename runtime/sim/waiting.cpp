// How programs stop and go on: waits, spin loops, barriers.
#include "machine.h"

#include "compare.h"
#include "text.h"

#include <algorithm>
#include <cstring>

namespace ditron::sim {

/// Reads of the same values after which a program counts as spinning.
constexpr int32_t spinRepeats = 64;
/// After these it sees what is there.
constexpr int32_t staleRepeats = 8;
/// How often an idle machine gives spinning programs another go before it calls
/// them stuck: it might be a loop that reads the same for long and then ends.
/// The rounds are shared, so that many spinning programs do not take long.
constexpr int32_t spinRounds = 256;
constexpr int32_t sharedSpinRounds = 16384;
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
      if (std::memcmp(read.address, &read.bits, read.bytes) != 0) {
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
  while (!over(fiber)) {
    park(fiber);
    leave();
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
      fiber.watched.push_back(
          reinterpret_cast<uintptr_t>(fiber.polls.reads[index].address) / 8);
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

bool Machine::wakeSpinners() {
  auto spins = [](const Fiber *fiber) {
    return fiber->wait.kind == Wait::Kind::Poll;
  };
  auto spinners = int32_t(std::count_if(waiting.begin(), waiting.end(), spins));
  int32_t rounds =
      std::max(spinRounds, sharedSpinRounds / std::max(spinners, 1));
  size_t before = ready.size();
  for (size_t index = waiting.size(); index-- > 0;) {
    if (spins(waiting[index]) && waiting[index]->polls.rounds < rounds) {
      wake(*waiting[index]);
    }
  }
  return ready.size() > before;
}

bool Machine::seenBefore(const void *address, uint64_t bits, int32_t bytes) {
  Polls &polls = current()->polls;
  for (int32_t index = 0; index < polls.count; ++index) {
    Polls::Read &read = polls.reads[index];
    if (read.address == address && read.bytes == bytes) {
      if (read.bits == bits) {
        return true;
      }
      read.bits = bits;
      polls.repeats = polls.rounds = 0;
      return false;
    }
  }
  if (polls.count == int32_t(polls.reads.size())) {
    // A stream of reads, or a loop over more addresses than are kept: not a
    // spin we recognise.
    polls.clear();
  }
  polls.reads[polls.count++] = {address, bits, bytes};
  polls.repeats = polls.rounds = 0;
  return false;
}

void Machine::polledOrdinarily(const void *address, uint64_t bits,
                               int32_t bytes) {
  if (!seenBefore(address, bits, bytes)) {
    return;
  }
  Fiber &fiber = *current();
  Polls &polls = fiber.polls;
  if (visibility && polls.repeats >= staleRepeats) {
    visibility->refresh(fiber, address, size_t(bytes));
  }
  if (++polls.repeats < spinRepeats) {
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
  bool changed = over(fiber);
  fiber.wait.kind = Wait::Kind::None;
  polls.repeats = 0;
  polls.rounds = changed ? 0 : polls.rounds + 1;
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
        "dl.program_id(0) == 0`"};
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
