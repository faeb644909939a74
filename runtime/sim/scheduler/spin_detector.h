// Finds out that programs only spin.
//
// What a program does depends on what it reads. So when no program has read a
// new value for long, whatever they write, none will again: a livelock. Only
// reads in loops that may not terminate count (Fiber::mayRepeat): elsewhere a
// program makes progress, however slowly. Loops whose trip count the compiler
// does not see remain, so programs may read often before it is a livelock.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ditron::sim {

struct Fiber;

class SpinDetector {
public:
  /// How a value that is read compares with what the program read there before.
  enum class Value { New, Earlier, Unchanged };
  Value read(Fiber &fiber, const void *address, uint64_t bits, int32_t bytes);
  /// A write where other programs may read. Writing to the same address again,
  /// in a loop, is no progress: a new value is progress when it is read.
  void write(Fiber &fiber, const void *address);
  /// Another effect that other programs can see: the program does not just
  /// spin.
  void effect(Fiber &fiber);
  /// Some program has made progress.
  void progress();

  /// Livelock: after that many reads of known values.
  void setLimit(uint64_t reads) { limit = reads; }
  /// `programs`: those that are waiting or ready.
  bool limitReached(size_t programs) const;
  /// Whether programs have spun long enough that they should be checked.
  bool isCheckDue() const { return idleReads >= nextCheck; }
  /// Whether a program has read known values only since all was made visible.
  bool isSpinning(const Fiber &fiber) const;
  /// All in flight has been made visible: let programs read again.
  void startNewEpoch(size_t programs);

private:
  bool makesProgress(const Fiber &fiber);
  void resetIdleReads();

  uint64_t limit = uint64_t(1) << 20;
  uint64_t idleReads = 0; ///< Reads of known values since there was progress.
  uint64_t boundedAccesses = 0; ///< Accesses in loops that terminate since
                                ///< there was other progress.
  uint64_t nextCheck = 0;       ///< After that many idle reads.
  uint64_t epoch = 1; ///< Ends with progress, and when all is made visible.
  bool hasWritten = false; ///< Whether a program wrote meanwhile.
};

} // namespace ditron::sim
