// A memory model as weak as a GPU's, for symmetric memory: programs have store
// buffers, and caches that may hold stale lines.
//
// Compiled code has ordinary loads and stores, so memory itself is swapped:
// between fibers it holds the coherent values; while a fiber runs, also its own
// buffered stores and stale lines. A store is buffered until its program
// releases it, its launch completes, or the seed chooses. A line is stale until
// an acquire, an atomic or volatile read of it, or a choice of the seed. A
// release makes visible what was before it, and its own store may be buffered.
#pragma once

#include "memory/heap.h"
#include "scheduler/random.h"

#include <functional>
#include <vector>

namespace ditron::sim {

struct Fiber;
struct Launch;

class WeakMemory {
public:
  /// `changed(address, bytes)` is called when a buffered store becomes visible.
  WeakMemory(const Heap &heap, uint64_t seed,
             std::function<void(const void *, size_t)> changed);

  // While a fiber runs, memory is as its program sees it.
  void switchIn(const Fiber &fiber);
  void switchOut();
  void programEnded(const Fiber &fiber);
  void launchCompleted(const Launch &launch);

  // What the running program is about to do.
  /// A store. True when it is buffered; then `onVisible` is called when it
  /// becomes visible.
  bool store(const Fiber &fiber, const void *p, size_t bytes,
             const std::function<void()> &onVisible = {});
  /// An ordinary load: its line may be stale at the next one.
  void load(const Fiber &fiber, const void *p, size_t bytes) {
    if (bytes != 0 && heap.holds(p) && !(loadsToSkip && loadsToSkip--)) {
      cache(fiber, p, bytes);
    }
  }
  /// Drop the program's stale lines there.
  void invalidate(const Fiber &fiber, const void *p, size_t bytes);
  /// The same, and make its stores there visible: before an atomic, a copy or a
  /// wait.
  void flush(const Fiber &fiber, const void *p, size_t bytes);
  void acquire(const Fiber &fiber);
  /// With `gpuScope`, programs of the rank only see it. A stream's publishes
  /// what these see.
  void release(const Fiber &fiber, bool gpuScope = false);
  /// The program's stores become visible before what it does next, and may stay
  /// buffered until then.
  void fence(const Fiber &fiber);

  bool hasBufferedStores(const Fiber &fiber) const;

  // Between fibers.
  /// Make a buffered store visible, sometimes.
  void maybePublish();
  /// Make one visible; false when there is none.
  bool publishOne();

private:
  /// Bytes for an address that are swapped with the coherent ones.
  struct ShadowCopy {
    std::byte *address;
    std::vector<std::byte> bytes;
    void swap();
    bool overlaps(const void *p, size_t count) const;
  };
  /// Who sees a buffered store: its program, its rank's programs (and neither
  /// streams nor copies), or, once its program has ended, nobody.
  enum class Scope { Program, Rank, Nobody };
  struct BufferedStore : ShadowCopy {
    uint64_t number; ///< In program order.
    Scope scope;
    const Fiber *owner; ///< With Scope::Program.
    int32_t rank;
    uint64_t launch;
    std::function<void()> onVisible = {};
    bool fenced = false;
    bool isPublishedBy(const Fiber &fiber) const;
    bool isSeenBy(const Fiber &fiber) const;
  };
  struct StaleLine : ShadowCopy {
    const Fiber *reader;
    bool swapped;
  };

  void cache(const Fiber &fiber, const void *p, size_t bytes);
  void publish(size_t index);
  template <typename Pick> void publishWhere(Pick pick);
  template <typename Pick> void dropWhere(Pick pick);

  const Heap &heap;
  Random random;
  std::function<void(const void *, size_t)> changed;
  uint64_t bufferOneIn, staleOneIn, publishOneIn; ///< Chosen by the seed.
  const Fiber *running = nullptr;                 ///< Whose copies are swapped.
  uint64_t numStores = 0;
  uint64_t loadsToSkip = 0;          ///< Before one is cached.
  std::vector<BufferedStore> buffer; ///< The oldest first.
  std::vector<StaleLine> stale;
};

/// While it lives, memory holds the coherent values.
class CoherentScope {
public:
  CoherentScope(WeakMemory *weakMemory, const Fiber &fiber)
      : weakMemory(weakMemory), fiber(fiber) {
    if (weakMemory) {
      weakMemory->switchOut();
    }
  }
  ~CoherentScope() {
    if (weakMemory) {
      weakMemory->switchIn(fiber);
    }
  }

private:
  WeakMemory *weakMemory;
  const Fiber &fiber;
};

} // namespace ditron::sim
