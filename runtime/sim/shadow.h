// For every piece of memory: who wrote it last and who has read it since.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ditron::sim {

/// A remembered access, by number; 0 is none. In a cell's `read` the highest
/// bit says that it is a set of them.
using AccessId = uint32_t;

class Shadow {
public:
  struct Cell {
    AccessId write = 0;
    AccessId read = 0;
  };

  static constexpr size_t pageBits = 12;
  static constexpr size_t pageBytes = size_t(1) << pageBits;

  /// `visit(cell, address)` for every cell of [address, address + bytes). Cells
  /// are 256 bytes, and smaller where accesses begin or end in between, so that
  /// neighbours are never taken for one another.
  template <typename Visit>
  void forEach(uintptr_t address, size_t bytes, Visit visit) {
    uintptr_t end = address + bytes;
    while (address < end) {
      uintptr_t number = address >> pageBits;
      uintptr_t stop = std::min(end, (number + 1) << pageBits);
      Page &page = pageOf(number);
      refine(page, address | stop);
      uintptr_t start = number << pageBits;
      size_t step = size_t(1) << page.shift;
      Cell *cell = page.cells.data() + ((address - start) >> page.shift);
      for (; address < stop; address += step, ++cell) {
        visit(*cell, address);
      }
    }
  }

  /// Forget what is known about a range.
  void forget(uintptr_t address, size_t bytes);
  void clear() {
    pages.clear();
    latest = nullptr;
  }
  bool empty() const { return pages.empty(); }

private:
  struct Page {
    uint8_t shift = 8;
    std::vector<Cell> cells = std::vector<Cell>(pageBytes >> 8);
  };

  Page &pageOf(uintptr_t number) {
    if (!latest || latestNumber != number) {
      std::unique_ptr<Page> &slot = pages[number];
      if (!slot) {
        slot = std::make_unique<Page>();
      }
      latest = slot.get();
      latestNumber = number;
    }
    return *latest;
  }
  /// Make cells so small that all of them start where `bits` may.
  static void refine(Page &page, uintptr_t bits) {
    if (bits & ((uintptr_t(1) << page.shift) - 1)) {
      split(page, bits);
    }
  }
  static void split(Page &page, uintptr_t bits);

  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
  Page *latest = nullptr;
  uintptr_t latestNumber = 0;
};

/// Which bytes of symmetric memory have been written, ever.
class Written {
public:
  /// Nothing is yet, in this range.
  void reset(uintptr_t address, size_t bytes) { set(address, bytes, false); }
  void mark(uintptr_t address, size_t bytes) { set(address, bytes, true); }
  /// The first byte of the range that is not, or its end.
  uintptr_t firstUnwritten(uintptr_t address, size_t bytes) const;
  /// As was at `from`, so is now at `to`.
  void copy(uintptr_t to, uintptr_t from, size_t bytes);

private:
  using Page = std::array<uint64_t, Shadow::pageBytes / 64>; ///< Bit per byte.
  void set(uintptr_t address, size_t bytes, bool value);

  /// A page that is not here has been written, as far as is known.
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
};

} // namespace ditron::sim
