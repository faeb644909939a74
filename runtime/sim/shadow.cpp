#include "shadow.h"

namespace ditron::sim {

void Shadow::split(Page &page, uintptr_t bits) {
  uint8_t shift = page.shift;
  while (bits & ((uintptr_t(1) << shift) - 1)) {
    --shift;
  }
  size_t parts = size_t(1) << (page.shift - shift);
  std::vector<Cell> cells;
  cells.reserve(page.cells.size() * parts);
  for (const Cell &cell : page.cells) {
    cells.insert(cells.end(), parts, cell);
  }
  page.cells = std::move(cells);
  page.shift = shift;
}

void Shadow::forget(uintptr_t address, size_t bytes) {
  uintptr_t end = address + bytes;
  while (address < end) {
    uintptr_t stop = std::min(end, ((address >> pageBits) + 1) << pageBits);
    if (pages.count(address >> pageBits)) {
      forEach(address, stop - address, [](Cell &cell, uintptr_t) { cell = {}; });
    }
    address = stop;
  }
}

/// The bits of a word that stand for [address, stop), and the next word's first
/// address.
static uint64_t bitsOf(uintptr_t address, uintptr_t stop, uintptr_t &next) {
  next = std::min(stop, (address / 64 + 1) * 64);
  uint64_t mask = ~uint64_t(0) << (address % 64);
  return next % 64 ? mask & ~(~uint64_t(0) << (next % 64)) : mask;
}

static size_t wordOf(uintptr_t address) {
  return address % Shadow::pageBytes / 64;
}

void Written::set(uintptr_t address, size_t bytes, bool value) {
  uintptr_t end = address + bytes;
  while (address < end) {
    uintptr_t number = address >> Shadow::pageBits;
    uintptr_t stop = std::min(end, (number + 1) << Shadow::pageBits);
    auto found = pages.find(number);
    if (found == pages.end()) {
      if (value) {
        address = stop;
        continue;
      }
      found = pages.emplace(number, std::make_unique<Page>()).first;
      found->second->fill(~uint64_t(0));
    }
    for (uintptr_t next; address < stop; address = next) {
      uint64_t bits = bitsOf(address, stop, next);
      uint64_t &word = (*found->second)[wordOf(address)];
      word = value ? word | bits : word & ~bits;
    }
    if (value && std::all_of(found->second->begin(), found->second->end(),
                             [](uint64_t word) { return !~word; })) {
      pages.erase(found);
    }
  }
}

uintptr_t Written::firstUnwritten(uintptr_t address, size_t bytes) const {
  uintptr_t end = address + bytes;
  while (address < end) {
    uintptr_t number = address >> Shadow::pageBits;
    uintptr_t stop = std::min(end, (number + 1) << Shadow::pageBits);
    auto found = pages.find(number);
    if (found == pages.end()) {
      address = stop;
      continue;
    }
    for (uintptr_t next; address < stop; address = next) {
      uint64_t bits = bitsOf(address, stop, next);
      if (uint64_t missing = bits & ~(*found->second)[wordOf(address)]) {
        return address / 64 * 64 + uintptr_t(__builtin_ctzll(missing));
      }
    }
  }
  return end;
}

void Written::copy(uintptr_t to, uintptr_t from, size_t bytes) {
  if (pages.empty() || firstUnwritten(from, bytes) == from + bytes) {
    mark(to, bytes);
    return;
  }
  for (size_t byte = 0; byte < bytes; ++byte) {
    set(to + byte, 1, firstUnwritten(from + byte, 1) != from + byte);
  }
}

} // namespace ditron::sim
