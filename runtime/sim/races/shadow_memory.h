// Shadow memory of the race detector: the last write of every piece of memory
// and the reads since, and which bytes are initialized.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace ditron::sim {

/// Number of an access record; 0 is none. In a cell's `read` the highest bit
/// says that it is the number of a set of them.
using AccessId = uint32_t;

/// A page table of two levels: an Entry per page of memory, in directories of
/// neighbouring pages. The rows of a tile lie on different pages but mostly in
/// one directory, so the last directory is cached.
template <typename Entry> class PageTable {
public:
  static constexpr size_t bits = 12;
  static constexpr size_t bytes = size_t(1) << bits;

  /// The entry of a page, by the page's number.
  Entry &operator[](uintptr_t number) {
    if (Entry *found = find(number)) {
      return *found;
    }
    cached =
        (directories[number >> directoryBits] = std::make_unique<Directory>())
            .get();
    return (*cached)[number % cached->size()];
  }
  /// The same, or null where there is no directory yet.
  Entry *find(uintptr_t number) const {
    if (!cached || cachedNumber != number >> directoryBits) {
      cachedNumber = number >> directoryBits;
      auto found = directories.find(cachedNumber);
      cached = found == directories.end() ? nullptr : found->second.get();
    }
    return cached ? &(*cached)[number % cached->size()] : nullptr;
  }
  void clear() {
    directories.clear();
    cached = nullptr;
  }
  bool empty() const { return directories.empty(); }

private:
  static constexpr size_t directoryBits = 9;
  using Directory = std::array<Entry, size_t(1) << directoryBits>;

  std::unordered_map<uintptr_t, std::unique_ptr<Directory>> directories;
  mutable Directory *cached = nullptr; ///< That of `cachedNumber`.
  mutable uintptr_t cachedNumber = 0;
};

class ShadowMemory {
public:
  struct Cell {
    AccessId write = 0;
    AccessId read = 0;
  };

  /// `visit(cell, address)` for every cell of [address, address + bytes). Cells
  /// are 256 bytes, and smaller where accesses begin or end in between, so that
  /// accesses to neighbours are never taken for a race.
  template <typename Visit>
  void forEach(uintptr_t address, size_t bytes, Visit &&visit) {
    uintptr_t end = address + bytes;
    while (address < end) {
      uintptr_t number = address >> PageTable<Page>::bits;
      uintptr_t start = number << PageTable<Page>::bits;
      uintptr_t stop = std::min(end, start + PageTable<Page>::bytes);
      Page &page = pages[number];
      refine(page, address | stop);
      size_t step = size_t(1) << page.shift;
      Cell *cell = page.cells.get() + ((address - start) >> page.shift);
      for (; address < stop; address += step, ++cell) {
        visit(*cell, address);
      }
    }
  }

  /// Bytes of the cell at an address that has been visited.
  size_t cellBytes(uintptr_t address) {
    return size_t(1) << pages[address >> PageTable<Page>::bits].shift;
  }
  /// Clear the cells of a range.
  void reset(uintptr_t address, size_t bytes);
  void clear() { pages.clear(); }
  bool empty() const { return pages.empty(); }

private:
  struct Page {
    std::unique_ptr<Cell[]> cells; ///< Null: not accessed yet.
    uint8_t shift = 8;
    size_t count() const { return PageTable<Page>::bytes >> shift; }
  };

  /// Make cells so small that the set bits of `bits` are cell boundaries.
  static void refine(Page &page, uintptr_t bits) {
    if (!page.cells || bits & ((uintptr_t(1) << page.shift) - 1)) {
      split(page, bits);
    }
  }
  static void split(Page &page, uintptr_t bits);

  PageTable<Page> pages;
};

/// Which bytes are initialized, a bit per byte. Memory is initialized unless it
/// was marked as uninitialized, or copied from memory that was.
class InitializedBytes {
public:
  void markUninitialized(uintptr_t address, size_t bytes) {
    set(address, bytes, false);
  }
  void markInitialized(uintptr_t address, size_t bytes) {
    set(address, bytes, true);
  }
  /// The first uninitialized byte of the range, or its end.
  uintptr_t firstUninitialized(uintptr_t address, size_t bytes) const {
    return pages.empty() ? address + bytes : first(false, address, bytes);
  }
  /// Copy the state of `source` at `from` to `to`.
  void copy(uintptr_t to, const InitializedBytes &source, uintptr_t from,
            size_t bytes);
  void clear() { pages.clear(); }

private:
  using Page = std::array<uint64_t, 64>; ///< A bit per byte.
  void set(uintptr_t address, size_t bytes, bool value);
  /// The first byte of the range whose bit is `value`, or its end.
  uintptr_t first(bool value, uintptr_t address, size_t bytes) const;

  /// A page without bits is all initialized.
  PageTable<std::unique_ptr<Page>> pages;
};

} // namespace ditron::sim
