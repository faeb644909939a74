// The latest accesses of a program to memory that others may access, by which
// a spin loop is recognised.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

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
  void clear() {
    reads.clear();
    readOf.clear();
    next = 0;
    numWrites = 0;
    restart();
  }
  /// Something changed: a spin loop would begin here.
  void restart() {
    repeats = places = 0;
    begin = totalReads;
  }
  /// The latest read of that place; null: none is kept.
  Read *find(const void *address, int32_t bytes) {
    // A loop reads the same places in the same order.
    size_t index = next < reads.size() ? next : 0;
    if (reads.empty() || reads[index].address != address ||
        reads[index].bytes != bytes) {
      auto found = readOf.find(keyOf(address, bytes));
      if (found == readOf.end()) {
        return nullptr;
      }
      index = found->second;
    }
    next = index + 1;
    return &reads[index];
  }
  void add(const Read &read) {
    readOf.emplace(keyOf(read.address, read.bytes), reads.size());
    reads.push_back(read);
  }
  /// Whether it has read often enough what does not change: each place of the
  /// loop twice.
  bool spins() const { return repeats >= std::max(fewestRepeats, 2 * places); }
  /// Whether an access at `when` is part of the loop that the program is in
  /// now.
  bool isInLoop(uint64_t when) const {
    return when > begin || totalReads - when < uint64_t(fewestRepeats);
  }
  /// The elements of a tensor are read next, some perhaps several times.
  void beginTensor() { tensor = totalReads; }
  /// Whether the latest read was of what the tensor has read before.
  bool readTwiceInTensor() const { return previous > tensor; }

  static constexpr int32_t fewestRepeats = 64;
  static constexpr size_t maxReads = 16384;
  std::vector<Read> reads;
  std::array<Write, 8> writes;
  int32_t numWrites = 0;
  int32_t repeats = 0; ///< Reads of unchanged values since its last write.
  int32_t places = 0;  ///< That those reads were of.
  uint64_t begin = 0;  ///< Of those reads.
  uint64_t totalReads = 0;
  uint64_t previous = 0; ///< When the place of the latest read was read before.
  uint64_t tensor = 0;   ///< Reads before those of the tensor.
  uint64_t idleReads = 0; ///< Reads of known values in this epoch.
  uint64_t epoch = 0;     ///< Of the spin detector.

private:
  static uint64_t keyOf(const void *address, int32_t bytes) {
    return reinterpret_cast<uintptr_t>(address) << 4 | uint64_t(bytes);
  }
  std::unordered_map<uint64_t, size_t> readOf; ///< Indices into reads.
  size_t next = 0; ///< Of the read behind the latest one, in reads.
};

} // namespace ditron::sim
