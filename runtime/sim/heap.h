// Symmetric memory: one arena per rank, laid out alike, and the names of what
// lives there.
#pragma once

#include "abi.h"
#include "report.h"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ditron::sim {

/// A symmetric allocation, as reports speak of it.
struct Symbol {
  size_t offset = 0;
  size_t bytes = 0;
  std::string name;
  std::string dtype;
  size_t itemsize = 1;
  std::vector<int64_t> shape;
  std::vector<int32_t> ranks; ///< World ranks that hold it.
};

/// `name[i, j]` of the element at a byte of it, or behind its end.
std::string elementOf(const Symbol &symbol, size_t byte);

class Heap {
public:
  Heap(int32_t numRanks, size_t bytes);
  Heap(const Heap &) = delete;
  ~Heap();

  /// Reserve `symbol.bytes` zeroed bytes at the same offset of every arena and
  /// return the offset.
  size_t allocate(Symbol symbol);
  void release(size_t offset);

  /// Where an address lies: a rank's arena, or a team's multicast window.
  struct Place {
    int32_t rank = 0;
    size_t offset = 0;
    bool multicast = false;
    TeamKind team = TeamKind::Group;
  };
  std::optional<Place> locate(const void *address) const;
  /// Whether an address lies in a rank's arena.
  bool holds(const void *address) const {
    auto *byte = static_cast<const std::byte *>(address);
    return byte >= base && byte < base + stride * size_t(numRanks);
  }
  /// Whether [low, high) lies outside of all heaps.
  bool isElsewhere(uintptr_t low, uintptr_t high) const {
    auto first = reinterpret_cast<uintptr_t>(base);
    return high <= first || low >= first + extent();
  }
  /// Whether [low, high) lies in one allocation of one rank.
  bool isWithinOne(uintptr_t low, uintptr_t high) const;
  /// The allocation that an address lies in, on whichever rank or on all of a
  /// team; null: none.
  const Symbol *symbolAt(const void *address) const;
  std::byte *at(int32_t rank, size_t offset) const {
    return base + size_t(rank) * stride + offset;
  }
  std::byte *multicastAt(TeamKind team, size_t offset) const {
    return at(numRanks + int32_t(team), offset);
  }

  /// How much of the symbol at `offset` there is from there on; none between
  /// symbols.
  std::optional<size_t> bytesFrom(size_t offset) const;
  /// The allocation that holds [offset, offset + bytes), else a Failure that
  /// names the nearest one.
  const Symbol &require(size_t offset, size_t bytes, const char *what) const;
  /// `signals[3]`, or the address when nothing symmetric lies there.
  std::string nameOf(const void *address) const;
  size_t capacity() const { return bytes; }

private:
  const Symbol *before(size_t offset) const;
  /// Bytes of all arenas and windows.
  size_t extent() const;

  int32_t numRanks;
  size_t bytes;
  size_t stride;
  size_t used =
      0; ///< Bytes from here on were never handed out, so they are still zero.
  std::byte *base = nullptr;
  std::map<size_t, Symbol> symbols;
  std::map<size_t, Symbol> freed; ///< To name what was there.
};

} // namespace ditron::sim
