// Symmetric memory: a heap per rank, of the same layout, and the names of its
// allocations.
#pragma once

#include "abi/abi.h"
#include "report/report.h"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ditron::sim {

/// A symmetric allocation, and what reports call it.
struct Allocation {
  size_t offset = 0;
  size_t bytes = 0;
  std::string name;
  std::string dtype;
  size_t itemsize = 1;
  std::vector<int64_t> shape;
  std::vector<int32_t> ranks; ///< World ranks that hold it.
};

/// `name[i, j]` of the element at a byte of it, or behind its end.
std::string elementOf(const Allocation &allocation, size_t byte);

class Heap {
public:
  Heap(int32_t numRanks, size_t bytes);
  Heap(const Heap &) = delete;
  ~Heap();

  /// Reserve `allocation.bytes` zeroed bytes at the same offset of every rank's
  /// heap; returns the offset.
  size_t allocate(Allocation allocation);
  void release(size_t offset);

  /// Where an address lies: in a rank's heap, or a team's multicast window.
  struct Location {
    int32_t rank = 0;
    size_t offset = 0;
    bool multicast = false;
    TeamKind team = TeamKind::Group;
  };
  std::optional<Location> locate(const void *address) const;
  /// Whether an address lies in a rank's heap.
  bool holds(const void *address) const {
    auto *byte = static_cast<const std::byte *>(address);
    return byte >= base && byte < base + stride * size_t(numRanks);
  }
  /// Whether [low, high) lies outside of all heaps and windows.
  bool isOutside(uintptr_t low, uintptr_t high) const {
    auto first = reinterpret_cast<uintptr_t>(base);
    return high <= first || low >= first + extent();
  }
  /// Whether [low, high) lies in one allocation of one rank.
  bool isInOneAllocation(uintptr_t low, uintptr_t high) const;
  /// The allocation that an address lies in, on whichever rank or on all of a
  /// team; null: none.
  const Allocation *allocationAt(const void *address) const;
  std::byte *at(int32_t rank, size_t offset) const {
    return base + size_t(rank) * stride + offset;
  }
  std::byte *multicastAt(TeamKind team, size_t offset) const {
    return at(numRanks + int32_t(team), offset);
  }

  /// Bytes from `offset` to the end of its allocation; none between
  /// allocations.
  std::optional<size_t> bytesFrom(size_t offset) const;
  /// The allocation that holds [offset, offset + bytes), else a Failure that
  /// names the nearest one.
  const Allocation &require(size_t offset, size_t bytes,
                            const char *what) const;
  /// `signals[3]`, or the address when nothing symmetric lies there.
  std::string nameOf(const void *address) const;
  size_t capacity() const { return bytes; }

private:
  const Allocation *before(size_t offset) const;
  /// Bytes of all heaps and windows.
  size_t extent() const;

  int32_t numRanks;
  size_t bytes;
  size_t stride;
  size_t used = 0; ///< From here on nothing was allocated yet, so all is zero.
  std::byte *base = nullptr;
  std::map<size_t, Allocation> allocations; ///< By offset.
  std::map<size_t, Allocation> freed;       ///< For reports.
};

} // namespace ditron::sim
