// The latest accesses of a program to memory that others may access, by which
// a spin loop is recognised.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace ditron::sim {

struct AccessHistory {
  struct Read {
    const void *address;
    int32_t bytes;
    int32_t changes;
    uint64_t when; ///< As a count of the program's reads.
    uint64_t bits; ///< The latest value.
    std::array<uint64_t, 4> earlier;
    auto earlierEnd() const { return earlier.begin() + std::min(changes, 4); }
    bool had(uint64_t value) const {
      return std::find(earlier.begin(), earlierEnd(), value) != earlierEnd();
    }
  };
  struct Write {
    const void *address;
    uint64_t when;
  };
  void clear() { numReads = numWrites = repeats = 0; }
  /// Whether an access at `when` is part of the loop that the program is in
  /// now.
  bool isInLoop(uint64_t when) const {
    return totalReads - when < uint64_t(std::max(repeats, spinRepeats));
  }

  /// Reads of unchanged values after which a program spins.
  static constexpr int32_t spinRepeats = 64;
  std::array<Read, 16> reads;
  int32_t numReads = 0;
  std::array<Write, 8> writes;
  int32_t numWrites = 0;
  int32_t repeats = 0; ///< Reads of unchanged values since its last write.
  uint64_t totalReads = 0;
  uint64_t idleReads = 0; ///< Reads of known values in this epoch.
  uint64_t epoch = 0;     ///< Of the spin detector.
};

} // namespace ditron::sim
