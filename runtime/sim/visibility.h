// Memory as weak as a GPU's: what a program stores in symmetric memory others
// may see late, and what it has read it may read again as it was.
//
// Compiled code has ordinary loads and stores, so memory itself is exchanged:
// between turns it holds what everybody sees; while a program runs, also its
// own late stores and the stale lines that it still has. A store is late until
// its program releases it, its launch ends, or a choice of the seed; a line is
// stale until an acquire, an atomic or volatile read of it, or such a choice.
// What releases shows what was before it, and may be late itself.
#pragma once

#include "heap.h"
#include "random.h"

#include <functional>
#include <vector>

namespace ditron::sim {

struct Fiber;
struct Launch;

class Visibility {
public:
  /// `changed(address, bytes)` is called when a late store becomes visible.
  Visibility(const Heap &heap, uint64_t seed,
             std::function<void(const void *, size_t)> changed);

  // A program's turn.
  void enter(const Fiber &fiber);
  void leave();
  void ended(const Fiber &fiber);
  void completed(const Launch &launch);

  // What the running program is about to do.
  /// A store: late, maybe, if so true. Then `seen` is called when others can
  /// see it.
  bool store(const Fiber &fiber, const void *p, size_t bytes,
             const std::function<void()> &seen = {});
  /// An ordinary load: remembered, to be read again as it was, maybe.
  void load(const Fiber &fiber, const void *p, size_t bytes) {
    if (bytes != 0 && heap.holds(p) && !(loadsToSkip && loadsToSkip--)) {
      keep(fiber, p, bytes);
    }
  }
  /// A load that is not stale: atomic, volatile, or of a loop that spins.
  void refresh(const Fiber &fiber, const void *p, size_t bytes);
  /// An atomic, a copy, a wait: what the program has stored there comes first.
  void settle(const Fiber &fiber, const void *p, size_t bytes);
  void acquire(const Fiber &fiber);
  /// With `narrow`, of the scope of one GPU, other ranks see nothing yet.
  void release(const Fiber &fiber, bool narrow = false);
  /// What it has stored comes before what it does next that others see: until
  /// then it may stay late, whatever the program reads.
  void fence(const Fiber &fiber);

  /// Whether others do not see all yet that the program has stored.
  bool owes(const Fiber &fiber) const;

  // Between turns.
  /// Let a late store become visible, sometimes.
  void drift();
  /// Let one become visible; false when there is none.
  bool publishOne();

private:
  enum class Level { Program, Rank, Nobody };
  /// Memory beside the one that everybody sees; exchanged with it by turns.
  struct Aside {
    std::byte *address;
    std::vector<std::byte> bytes;
    void exchange();
    bool overlaps(const void *p, size_t count) const;
  };
  struct Late : Aside {
    uint64_t number; ///< In the order of creation.
    Level level;
    const Fiber *owner; ///< Whose memory has it, at Level::Program.
    int32_t rank;
    uint64_t launch;
    std::function<void()> seen = {};
    bool fenced = false;
    bool seenBy(const Fiber &fiber) const;
  };
  struct Stale : Aside {
    const Fiber *reader;
    bool shown; ///< In this turn.
  };

  void keep(const Fiber &fiber, const void *p, size_t bytes);
  void publish(size_t index);
  template <typename Pick> void publishWhere(Pick pick);
  template <typename Pick> void dropWhere(Pick pick);

  const Heap &heap;
  Random random;
  std::function<void(const void *, size_t)> changed;
  uint64_t lateOneIn, staleOneIn, publishOneIn; ///< The seed's habits.
  const Fiber *inside = nullptr;                ///< Whose turn it is.
  uint64_t stores = 0;
  uint64_t loadsToSkip = 0; ///< Before one is remembered.
  std::vector<Late> late;   ///< The oldest first.
  std::vector<Stale> stale;
};

/// While it lives, memory is as between turns.
class Outside {
public:
  Outside(Visibility *visibility, const Fiber &fiber)
      : visibility(visibility), fiber(fiber) {
    if (visibility) {
      visibility->leave();
    }
  }
  ~Outside() {
    if (visibility) {
      visibility->enter(fiber);
    }
  }

private:
  Visibility *visibility;
  const Fiber &fiber;
};

} // namespace ditron::sim
