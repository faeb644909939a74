#include "races/shadow_memory.h"

namespace ditron::sim {

constexpr size_t pageBytes = PageTable<int>::bytes;
static uintptr_t pageOf(uintptr_t address) { return address / pageBytes; }
static uintptr_t endOfPage(uintptr_t address) {
  return (address / pageBytes + 1) * pageBytes;
}

void ShadowMemory::split(Page &page, uintptr_t bits) {
  uint8_t shift = page.shift;
  while (bits & ((uintptr_t(1) << shift) - 1)) {
    --shift;
  }
  size_t parts = size_t(1) << (page.shift - shift);
  auto cells = std::make_unique<Cell[]>(page.count() * parts);
  for (size_t index = 0; page.cells && index < page.count(); ++index) {
    std::fill_n(cells.get() + index * parts, parts, page.cells[index]);
  }
  page.cells = std::move(cells);
  page.shift = shift;
}

void ShadowMemory::reset(uintptr_t address, size_t bytes) {
  uintptr_t end = address + bytes;
  while (address < end) {
    uintptr_t stop = std::min(end, endOfPage(address));
    Page *page = pages.find(pageOf(address));
    if (page && page->cells) {
      forEach(address, stop - address,
              [](Cell &cell, uintptr_t) { cell = {}; });
    }
    address = stop;
  }
}

/// The bits of a word for [address, stop), and the next word's first
/// address.
static uint64_t maskOf(uintptr_t address, uintptr_t stop, uintptr_t &next) {
  next = std::min(stop, (address / 64 + 1) * 64);
  uint64_t mask = ~uint64_t(0) << (address % 64);
  return next % 64 ? mask & ~(~uint64_t(0) << (next % 64)) : mask;
}

static size_t wordOf(uintptr_t address) { return address % pageBytes / 64; }

void InitializedBytes::set(uintptr_t address, size_t bytes, bool value) {
  if (value && pages.empty()) {
    return;
  }
  uintptr_t end = address + bytes;
  while (address < end) {
    uintptr_t stop = std::min(end, endOfPage(address));
    std::unique_ptr<Page> *found = pages.find(pageOf(address));
    if (!found || !*found) {
      if (value) {
        address = stop;
        continue;
      }
      found = &pages[pageOf(address)];
      *found = std::make_unique<Page>();
      (*found)->fill(~uint64_t(0));
    }
    Page &page = **found;
    for (uintptr_t next; address < stop; address = next) {
      uint64_t bits = maskOf(address, stop, next);
      uint64_t &word = page[wordOf(address)];
      word = value ? word | bits : word & ~bits;
    }
    if (value && std::all_of(page.begin(), page.end(),
                             [](uint64_t word) { return !~word; })) {
      found->reset();
    }
  }
}

uintptr_t InitializedBytes::first(bool value, uintptr_t address,
                                  size_t bytes) const {
  uintptr_t end = address + bytes;
  while (address < end) {
    uintptr_t stop = std::min(end, endOfPage(address));
    const std::unique_ptr<Page> *found = pages.find(pageOf(address));
    if (!found || !*found) {
      if (value) {
        return address;
      }
      address = stop;
      continue;
    }
    for (uintptr_t next; address < stop; address = next) {
      uint64_t bits = maskOf(address, stop, next);
      uint64_t word = (**found)[wordOf(address)];
      if (uint64_t there = bits & (value ? word : ~word)) {
        return address / 64 * 64 + uintptr_t(__builtin_ctzll(there));
      }
    }
  }
  return end;
}

void InitializedBytes::copy(uintptr_t to, const InitializedBytes &source,
                            uintptr_t from, size_t bytes) {
  for (uintptr_t at = from, end = from + bytes; at < end;) {
    uintptr_t gap = source.firstUninitialized(at, end - at);
    markInitialized(to + (at - from), gap - at);
    at = source.first(true, gap, end - gap);
    markUninitialized(to + (gap - from), at - gap);
  }
}

} // namespace ditron::sim
