#include "visibility.h"

#include "machine.h"

#include <algorithm>
#include <cstring>

namespace ditron::sim {

/// Of a long run of bytes only a part of this size is late or stale: what is
/// exchanged at every turn stays small.
constexpr size_t partBytes = 256;
constexpr size_t maxLate = 64;
constexpr size_t maxStale = 64;
/// Of the turns of its program, the one in which a stale line is given up:
/// else one that spins in a way that is not recognised would do so for ever.
constexpr uint64_t evictOneIn = 8;

Visibility::Visibility(const Heap &heap, uint64_t seed,
                       std::function<void(const void *, size_t)> changed)
    : heap(heap), random(seed ^ 0x5ee1a7e5u), changed(std::move(changed)) {
  constexpr uint64_t habits[] = {1, 2, 4, 16}, paces[] = {4, 32, 256, 2048};
  lateOneIn = habits[random.below(4)];
  staleOneIn = habits[random.below(4)];
  publishOneIn = paces[random.below(4)];
}

void Visibility::Aside::exchange() {
  std::swap_ranges(bytes.begin(), bytes.end(), address);
}

bool Visibility::Aside::overlaps(const void *p, size_t count) const {
  auto *first = static_cast<const std::byte *>(p);
  return first < address + bytes.size() && address < first + count;
}

bool Visibility::Late::seenBy(const Fiber &fiber) const {
  return level == Level::Program
             ? owner == &fiber
             : level == Level::Rank && rank == fiber.launch->rank &&
                   !fiber.launch->isStream && !fiber.launch->isMove;
}

// --- turns -------------------------------------------------------------------

void Visibility::enter(const Fiber &fiber) {
  inside = &fiber;
  for (Late &store : late) {
    if (store.seenBy(fiber)) {
      store.exchange();
    }
  }
  dropWhere([&](const Stale &line) {
    return line.reader == &fiber && random.oneIn(evictOneIn);
  });
  for (Stale &line : stale) {
    line.shown = line.reader == &fiber;
    if (line.shown) {
      line.exchange();
    }
  }
}

void Visibility::leave() {
  for (size_t index = stale.size(); index-- > 0;) {
    if (stale[index].shown) {
      stale[index].exchange();
      stale[index].shown = false;
    }
  }
  for (size_t index = late.size(); index-- > 0;) {
    if (late[index].seenBy(*inside)) {
      late[index].exchange();
    }
  }
  inside = nullptr;
}

/// Its late stores are nobody's until its launch ends.
void Visibility::ended(const Fiber &fiber) {
  for (Late &store : late) {
    if (store.owner == &fiber && store.level == Level::Program) {
      store.level = Level::Nobody;
      store.owner = nullptr;
    }
  }
  dropWhere([&](const Stale &line) { return line.reader == &fiber; });
}

void Visibility::completed(const Launch &launch) {
  publishWhere([&](const Late &store) { return store.launch == launch.id; });
}

// --- late stores
// ---------------------------------------------------------------

/// Between turns only. What was stored there before comes first.
void Visibility::publish(size_t index) {
  Late store = std::move(late[index]);
  late.erase(late.begin() + ptrdiff_t(index));
  for (;;) {
    auto older = std::find_if(late.begin(), late.end(), [&](const Late &other) {
      return other.number < store.number &&
             other.overlaps(store.address, store.bytes.size());
    });
    if (older == late.end()) {
      break;
    }
    publish(size_t(older - late.begin()));
  }
  store.exchange();
  changed(store.address, store.bytes.size());
  if (store.seen) {
    store.seen();
  }
}

template <typename Pick> void Visibility::publishWhere(Pick pick) {
  if (std::none_of(late.begin(), late.end(), pick)) {
    return;
  }
  const Fiber *running = inside;
  if (running) {
    leave();
  }
  for (;;) {
    auto found = std::find_if(late.begin(), late.end(), pick);
    if (found == late.end()) {
      break;
    }
    publish(size_t(found - late.begin()));
  }
  if (running) {
    enter(*running);
  }
}

bool Visibility::publishOne() {
  if (late.empty()) {
    return false;
  }
  publish(random.below(late.size()));
  return true;
}

void Visibility::drift() {
  if (!late.empty() && random.oneIn(publishOneIn)) {
    publishOne();
  }
}

void Visibility::settle(const Fiber &fiber, const void *p, size_t bytes) {
  publishWhere([&](const Late &store) {
    return store.seenBy(fiber) && (store.fenced || store.overlaps(p, bytes));
  });
  refresh(fiber, p, bytes);
}

bool Visibility::store(const Fiber &fiber, const void *p, size_t bytes,
                       const std::function<void()> &seen) {
  if (bytes == 0 || !heap.holds(p)) {
    return false;
  }
  settle(fiber, p, bytes);
  if (!random.oneIn(lateOneIn)) {
    return false;
  }
  if (late.size() >= maxLate) {
    uint64_t oldest = late.front().number;
    publishWhere([&](const Late &store) { return store.number == oldest; });
  }
  auto *address = static_cast<std::byte *>(const_cast<void *>(p));
  if (bytes > partBytes) {
    address += random.below(bytes - partBytes + 1);
    bytes = partBytes;
  }
  late.push_back({{address, {address, address + bytes}},
                  stores++,
                  Level::Program,
                  &fiber,
                  fiber.launch->rank,
                  fiber.launch->id,
                  seen});
  return true;
}

void Visibility::release(const Fiber &fiber, bool narrow) {
  if (narrow) {
    // An atomic has one moment at which it is seen.
    publishWhere(
        [&](const Late &store) { return store.owner == &fiber && store.seen; });
    for (Late &store : late) {
      if (store.owner == &fiber) {
        store.level = Level::Rank;
      }
    }
    return;
  }
  publishWhere([&](const Late &store) { return store.seenBy(fiber); });
}

void Visibility::fence(const Fiber &fiber) {
  for (Late &store : late) {
    store.fenced |= store.seenBy(fiber);
  }
}

bool Visibility::owes(const Fiber &fiber) const {
  return std::any_of(late.begin(), late.end(),
                     [&](const Late &store) { return store.seenBy(fiber); });
}

// --- stale lines
// ---------------------------------------------------------------

template <typename Pick> void Visibility::dropWhere(Pick pick) {
  auto gone = [&](Stale &line) {
    if (!pick(line)) {
      return false;
    }
    if (line.shown) {
      line.exchange();
    }
    return true;
  };
  stale.erase(std::remove_if(stale.begin(), stale.end(), gone), stale.end());
}

void Visibility::keep(const Fiber &fiber, const void *p, size_t bytes) {
  // The more lines there are, the fewer are added: most loads cost nothing.
  loadsToSkip = random.below(staleOneIn * (1 + stale.size()));
  for (const Stale &line : stale) {
    if (line.reader == &fiber && line.overlaps(p, bytes)) {
      return; // it is remembered already
    }
  }
  if (stale.size() >= maxStale) {
    const Stale *other = &stale[random.below(maxStale)];
    dropWhere([&](const Stale &line) { return &line == other; });
  }
  auto *address = static_cast<std::byte *>(const_cast<void *>(p));
  if (bytes > partBytes) {
    address += random.below(bytes - partBytes + 1);
    bytes = partBytes;
  }
  stale.push_back({{address, {address, address + bytes}}, &fiber, false});
}

void Visibility::refresh(const Fiber &fiber, const void *p, size_t bytes) {
  dropWhere([&](const Stale &line) {
    return line.reader == &fiber && line.overlaps(p, bytes);
  });
}

void Visibility::acquire(const Fiber &fiber) {
  dropWhere([&](const Stale &line) { return line.reader == &fiber; });
}

} // namespace ditron::sim
