#include "memory/weak_memory.h"

#include "scheduler/fiber.h"
#include "scheduler/launch.h"

#include <algorithm>

namespace ditron::sim {

/// Of a long range only a part of this size is buffered or stale: what is
/// swapped at every switch stays small.
constexpr size_t partBytes = 256;
constexpr size_t maxBuffered = 64;
constexpr size_t maxStale = 64;
/// Of the switches to its program, how often a stale line is evicted: else a
/// spin loop that is not recognised would read it for ever.
constexpr uint64_t evictOneIn = 8;

WeakMemory::WeakMemory(const Heap &heap, uint64_t seed,
                       std::function<void(const void *, size_t)> changed)
    : heap(heap), random(seed ^ 0x5ee1a7e5u), changed(std::move(changed)) {
  constexpr uint64_t accessRates[] = {1, 2, 4, 16};
  constexpr uint64_t publishRates[] = {4, 32, 256, 2048};
  bufferOneIn = accessRates[random.below(4)];
  staleOneIn = accessRates[random.below(4)];
  publishOneIn = publishRates[random.below(4)];
}

void WeakMemory::ShadowCopy::swap() {
  std::swap_ranges(bytes.begin(), bytes.end(), address);
}

bool WeakMemory::ShadowCopy::overlaps(const void *p, size_t count) const {
  auto *first = static_cast<const std::byte *>(p);
  return first < address + bytes.size() && address < first + count;
}

/// Whether a release of the fiber's, of a wider scope than `gpu`, makes it
/// visible to all.
bool WeakMemory::BufferedStore::isPublishedBy(const Fiber &fiber) const {
  return scope == Scope::Program
             ? owner == &fiber
             : scope == Scope::Rank && rank == fiber.launch->rank;
}

bool WeakMemory::BufferedStore::isSeenBy(const Fiber &fiber) const {
  return isPublishedBy(fiber) &&
         (scope == Scope::Program ||
          (!fiber.launch->isStream && !fiber.launch->isCopy));
}

// --- switches ----------------------------------------------------------------

void WeakMemory::switchIn(const Fiber &fiber) {
  running = &fiber;
  for (BufferedStore &store : buffer) {
    if (store.isSeenBy(fiber)) {
      store.swap();
    }
  }
  dropWhere([&](const StaleLine &line) {
    return line.reader == &fiber && random.oneIn(evictOneIn);
  });
  for (StaleLine &line : stale) {
    line.swapped = line.reader == &fiber;
    if (line.swapped) {
      line.swap();
    }
  }
}

void WeakMemory::switchOut() {
  for (size_t index = stale.size(); index-- > 0;) {
    if (stale[index].swapped) {
      stale[index].swap();
      stale[index].swapped = false;
    }
  }
  for (size_t index = buffer.size(); index-- > 0;) {
    if (buffer[index].isSeenBy(*running)) {
      buffer[index].swap();
    }
  }
  running = nullptr;
}

/// Nobody sees the buffered stores of an ended program until its launch
/// completes.
void WeakMemory::programEnded(const Fiber &fiber) {
  for (BufferedStore &store : buffer) {
    if (store.owner == &fiber && store.scope == Scope::Program) {
      store.scope = Scope::Nobody;
      store.owner = nullptr;
    }
  }
  dropWhere([&](const StaleLine &line) { return line.reader == &fiber; });
}

/// A kernel's end publishes what its programs have seen, too.
void WeakMemory::launchCompleted(const Launch &launch) {
  publishWhere([&](const BufferedStore &store) {
    return store.launch == launch.id ||
           (store.scope == Scope::Rank && store.rank == launch.rank &&
            !launch.isCopy);
  });
}

// --- buffered stores ---------------------------------------------------------

/// Between fibers only. Older stores to the same bytes come first.
void WeakMemory::publish(size_t index) {
  BufferedStore store = std::move(buffer[index]);
  buffer.erase(buffer.begin() + ptrdiff_t(index));
  for (;;) {
    auto older = std::find_if(
        buffer.begin(), buffer.end(), [&](const BufferedStore &other) {
          return other.number < store.number &&
                 other.overlaps(store.address, store.bytes.size());
        });
    if (older == buffer.end()) {
      break;
    }
    publish(size_t(older - buffer.begin()));
  }
  store.swap();
  changed(store.address, store.bytes.size());
  if (store.onVisible) {
    store.onVisible();
  }
}

template <typename Pick> void WeakMemory::publishWhere(Pick pick) {
  if (std::none_of(buffer.begin(), buffer.end(), pick)) {
    return;
  }
  const Fiber *fiber = running;
  if (fiber) {
    switchOut();
  }
  for (;;) {
    auto found = std::find_if(buffer.begin(), buffer.end(), pick);
    if (found == buffer.end()) {
      break;
    }
    publish(size_t(found - buffer.begin()));
  }
  if (fiber) {
    switchIn(*fiber);
  }
}

bool WeakMemory::publishOne() {
  if (buffer.empty()) {
    return false;
  }
  publish(random.below(buffer.size()));
  return true;
}

void WeakMemory::maybePublish() {
  if (!buffer.empty() && random.oneIn(publishOneIn)) {
    publishOne();
  }
}

void WeakMemory::flush(const Fiber &fiber, const void *p, size_t bytes) {
  publishWhere([&](const BufferedStore &store) {
    return store.isSeenBy(fiber) && (store.fenced || store.overlaps(p, bytes));
  });
  invalidate(fiber, p, bytes);
}

bool WeakMemory::store(const Fiber &fiber, const void *p, size_t bytes,
                       const std::function<void()> &onVisible) {
  if (bytes == 0 || !heap.holds(p)) {
    return false;
  }
  flush(fiber, p, bytes);
  if (!random.oneIn(bufferOneIn)) {
    return false;
  }
  if (buffer.size() >= maxBuffered) {
    uint64_t oldest = buffer.front().number;
    publishWhere(
        [&](const BufferedStore &store) { return store.number == oldest; });
  }
  auto *address = static_cast<std::byte *>(const_cast<void *>(p));
  if (bytes > partBytes) {
    address += random.below(bytes - partBytes + 1);
    bytes = partBytes;
  }
  buffer.push_back({{address, {address, address + bytes}},
                    numStores++,
                    Scope::Program,
                    &fiber,
                    fiber.launch->rank,
                    fiber.launch->id,
                    onVisible});
  return true;
}

void WeakMemory::release(const Fiber &fiber, bool gpuScope) {
  if (gpuScope) {
    // An atomic becomes visible to all at once.
    publishWhere([&](const BufferedStore &store) {
      return store.owner == &fiber && store.onVisible;
    });
    for (BufferedStore &store : buffer) {
      if (store.owner == &fiber) {
        store.scope = Scope::Rank;
      }
    }
    return;
  }
  publishWhere(
      [&](const BufferedStore &store) { return store.isPublishedBy(fiber); });
}

void WeakMemory::fence(const Fiber &fiber) {
  for (BufferedStore &store : buffer) {
    store.fenced |= store.isSeenBy(fiber);
  }
}

bool WeakMemory::hasBufferedStores(const Fiber &fiber) const {
  return std::any_of(
      buffer.begin(), buffer.end(),
      [&](const BufferedStore &store) { return store.isSeenBy(fiber); });
}

// --- stale lines -------------------------------------------------------------

template <typename Pick> void WeakMemory::dropWhere(Pick pick) {
  auto drop = [&](StaleLine &line) {
    if (!pick(line)) {
      return false;
    }
    if (line.swapped) {
      line.swap();
    }
    return true;
  };
  stale.erase(std::remove_if(stale.begin(), stale.end(), drop), stale.end());
}

void WeakMemory::cache(const Fiber &fiber, const void *p, size_t bytes) {
  // The more lines there are, the fewer are added: most loads cost nothing.
  loadsToSkip = random.below(staleOneIn * (1 + stale.size()));
  for (const StaleLine &line : stale) {
    if (line.reader == &fiber && line.overlaps(p, bytes)) {
      return;
    }
  }
  if (stale.size() >= maxStale) {
    const StaleLine *other = &stale[random.below(maxStale)];
    dropWhere([&](const StaleLine &line) { return &line == other; });
  }
  auto *address = static_cast<std::byte *>(const_cast<void *>(p));
  if (bytes > partBytes) {
    address += random.below(bytes - partBytes + 1);
    bytes = partBytes;
  }
  stale.push_back({{address, {address, address + bytes}}, &fiber, false});
}

void WeakMemory::invalidate(const Fiber &fiber, const void *p, size_t bytes) {
  dropWhere([&](const StaleLine &line) {
    return line.reader == &fiber && line.overlaps(p, bytes);
  });
}

void WeakMemory::acquire(const Fiber &fiber) {
  dropWhere([&](const StaleLine &line) { return line.reader == &fiber; });
}

} // namespace ditron::sim
