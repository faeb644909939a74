// For every piece of memory: who wrote it last and who has read it since.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace ditron::sim {

/// A remembered access, by number; 0 is none. In a cell's `read` the highest
/// bit says that it is a set of them.
using AccessId = uint32_t;

/// An Entry per page of memory. The rows of a tile lie on different pages, so
/// an access changes the page for each of them, but seldom the chapter.
template <typename Entry> class Pages {
public:
  static constexpr size_t bits = 12;
  static constexpr size_t bytes = size_t(1) << bits;

  /// The entry of a page, by the page's number.
  Entry &operator[](uintptr_t number) {
    if (Entry *found = find(number)) {
      return *found;
    }
    latest =
        (chapters[number >> chapterBits] = std::make_unique<Chapter>()).get();
    return (*latest)[number % latest->size()];
  }
  /// The same, or null where no neighbour has one yet.
  Entry *find(uintptr_t number) const {
    if (!latest || latestNumber != number >> chapterBits) {
      latestNumber = number >> chapterBits;
      auto found = chapters.find(latestNumber);
      latest = found == chapters.end() ? nullptr : found->second.get();
    }
    return latest ? &(*latest)[number % latest->size()] : nullptr;
  }
  void clear() {
    chapters.clear();
    latest = nullptr;
  }
  bool empty() const { return chapters.empty(); }

private:
  static constexpr size_t chapterBits = 9;
  using Chapter = std::array<Entry, size_t(1) << chapterBits>;

  std::unordered_map<uintptr_t, std::unique_ptr<Chapter>> chapters;
  mutable Chapter *latest = nullptr; ///< That of `latestNumber`.
  mutable uintptr_t latestNumber = 0;
};

class Shadow {
public:
  struct Cell {
    AccessId write = 0;
    AccessId read = 0;
  };

  /// `visit(cell, address)` for every cell of [address, address + bytes). Cells
  /// are 256 bytes, and smaller where accesses begin or end in between, so that
  /// neighbours are never taken for one another.
  template <typename Visit>
  void forEach(uintptr_t address, size_t bytes, Visit &&visit) {
    uintptr_t end = address + bytes;
    while (address < end) {
      uintptr_t number = address >> Pages<Page>::bits;
      uintptr_t start = number << Pages<Page>::bits;
      uintptr_t stop = std::min(end, start + Pages<Page>::bytes);
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
    return size_t(1) << pages[address >> Pages<Page>::bits].shift;
  }
  /// Forget what is known about a range.
  void forget(uintptr_t address, size_t bytes);
  void clear() { pages.clear(); }
  bool empty() const { return pages.empty(); }

private:
  struct Page {
    std::unique_ptr<Cell[]> cells; ///< None: nothing is known yet.
    uint8_t shift = 8;
    size_t count() const { return Pages<Page>::bytes >> shift; }
  };

  /// Make cells so small that all of them start where `bits` may.
  static void refine(Page &page, uintptr_t bits) {
    if (!page.cells || bits & ((uintptr_t(1) << page.shift) - 1)) {
      split(page, bits);
    }
  }
  static void split(Page &page, uintptr_t bits);

  Pages<Page> pages;
};

/// Which bytes have been written: of symmetric memory ever, of a rank's own all
/// but those that were copied from memory that has not been.
class Written {
public:
  /// Nothing is yet, in this range.
  void reset(uintptr_t address, size_t bytes) { set(address, bytes, false); }
  void mark(uintptr_t address, size_t bytes) { set(address, bytes, true); }
  /// The first byte of the range that is not, or its end.
  uintptr_t firstUnwritten(uintptr_t address, size_t bytes) const {
    return pages.empty() ? address + bytes : first(false, address, bytes);
  }
  /// As was in `source` at `from`, so is now at `to`.
  void copy(uintptr_t to, const Written &source, uintptr_t from, size_t bytes);
  void clear() { pages.clear(); }

private:
  using Page = std::array<uint64_t, 64>; ///< A bit per byte.
  void set(uintptr_t address, size_t bytes, bool value);
  /// The first byte of the range that has been written, or not; or its end.
  uintptr_t first(bool value, uintptr_t address, size_t bytes) const;

  /// A page that has none has been written, as far as is known.
  Pages<std::unique_ptr<Page>> pages;
};

} // namespace ditron::sim
