#include "scheduler/wait_queue.h"

#include "abi/compare.h"
#include "network/network.h"
#include "scheduler/fiber.h"
#include "scheduler/launch.h"
#include "scheduler/team.h"
#include "timing/clock.h"

#include <algorithm>
#include <cstring>

namespace ditron::sim {

/// Changed ranges longer than this are looked up by fiber, not by address.
constexpr size_t longRange = 1024;

const int64_t *Wait::firstUnsatisfied() const {
  for (int32_t index = 0; index < count; ++index) {
    const int64_t *signal = at(index);
    if (!compares(compare, valueOf(signal), value)) {
      return signal;
    }
  }
  return nullptr;
}

static uintptr_t wordOf(const void *address) {
  return reinterpret_cast<uintptr_t>(address) / 8;
}

bool WaitQueue::isSatisfied(const Fiber &fiber) const {
  const Wait &wait = fiber.wait;
  switch (wait.kind) {
  case Wait::Kind::None:
    return true;
  case Wait::Kind::Signals:
    return !wait.firstUnsatisfied();
  case Wait::Kind::Transfer:
    return !network.inFlight(fiber.launch->rank, wait.id);
  case Wait::Kind::Quiet:
    return !network.pendingFrom(fiber.launch->rank, wait.id);
  case Wait::Kind::Barrier:
    return wait.team->generation > wait.id;
  case Wait::Kind::Spin:
    for (const AccessHistory::Read &read : fiber.history.reads) {
      if (fiber.history.isInLoop(read.when) &&
          std::memcmp(read.address, &read.bits, read.bytes) != 0) {
        return true;
      }
    }
    return false;
  }
  return true;
}

/// A wait for signals watches the first unsatisfied one; when that changes, the
/// next such.
void WaitQueue::add(Fiber &fiber) {
  fiber.waitIndex = waiting.size();
  waiting.push_back(&fiber);
  fiber.watched.clear();
  if (fiber.wait.kind == Wait::Kind::Signals) {
    fiber.watched.push_back(wordOf(fiber.wait.firstUnsatisfied()));
  } else if (fiber.wait.kind == Wait::Kind::Spin) {
    for (const AccessHistory::Read &read : fiber.history.reads) {
      if (fiber.history.isInLoop(read.when)) {
        fiber.watched.push_back(wordOf(read.address));
      }
    }
  } else if (fiber.wait.isForDelivery()) {
    forDelivery.push_back(&fiber);
  }
  for (uintptr_t word : fiber.watched) {
    watchers.emplace(word, &fiber);
  }
}

void WaitQueue::wake(Fiber &fiber) {
  waiting[fiber.waitIndex] = waiting.back();
  waiting[fiber.waitIndex]->waitIndex = fiber.waitIndex;
  waiting.pop_back();
  for (uintptr_t word : fiber.watched) {
    auto [first, last] = watchers.equal_range(word);
    watchers.erase(std::find_if(first, last, [&](const auto &entry) {
      return entry.second == &fiber;
    }));
  }
  fiber.watched.clear();
  if (fiber.wait.isForDelivery()) {
    forDelivery.erase(
        std::find(forDelivery.begin(), forDelivery.end(), &fiber));
  }
  if (clock) {
    clock->woken(fiber);
  }
  ready.push_back(&fiber);
}

void WaitQueue::memoryChanged(const void *address, size_t bytes) {
  if (watchers.empty() || bytes == 0) {
    return;
  }
  uintptr_t first = wordOf(address);
  uintptr_t last = (reinterpret_cast<uintptr_t>(address) + bytes - 1) / 8;
  woken.clear();
  if (bytes <= longRange) {
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
  // By index, not by hash or address: runs must be reproducible.
  std::sort(woken.begin(), woken.end(), [](const Fiber *a, const Fiber *b) {
    return a->waitIndex < b->waitIndex;
  });
  woken.erase(std::unique(woken.begin(), woken.end()), woken.end());
  for (Fiber *fiber : woken) {
    wake(*fiber);
  }
}

void WaitQueue::wakeDelivered() {
  for (size_t index = forDelivery.size(); index-- > 0;) {
    if (isSatisfied(*forDelivery[index])) {
      wake(*forDelivery[index]);
    }
  }
}

bool WaitQueue::wakeSatisfied() {
  size_t before = ready.size();
  for (size_t index = waiting.size(); index-- > 0;) {
    if (index < waiting.size() && isSatisfied(*waiting[index])) {
      wake(*waiting[index]);
    }
  }
  return ready.size() > before;
}

bool WaitQueue::wakeSpinning() {
  size_t before = ready.size();
  for (size_t index = waiting.size(); index-- > 0;) {
    if (waiting[index]->wait.kind == Wait::Kind::Spin) {
      wake(*waiting[index]);
    }
  }
  return ready.size() > before;
}

} // namespace ditron::sim
