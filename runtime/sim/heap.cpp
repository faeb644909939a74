#include "heap.h"

#include "text.h"

#include <cstring>
#include <new>
#include <sys/mman.h>

namespace ditron::sim {

constexpr size_t pageBytes = size_t(2) << 20;
/// Nothing lies at the start of an arena, so that a small negative offset is
/// still seen as the heap's.
constexpr size_t firstOffset = size_t(64) << 10;
constexpr size_t alignment = 256;
constexpr int32_t multicastWindows = 3;

static size_t roundUp(size_t value, size_t to) {
  return (value + to - 1) / to * to;
}

Heap::Heap(int32_t numRanks, size_t bytes)
    : numRanks(numRanks), bytes(roundUp(bytes + firstOffset, pageBytes)),
      stride(this->bytes + pageBytes) {
  size_t total = stride * size_t(numRanks + multicastWindows) + pageBytes;
  void *memory = mmap(nullptr, total, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  base = reinterpret_cast<std::byte *>(
      roundUp(reinterpret_cast<uintptr_t>(memory), pageBytes));
  munmap(memory, base - static_cast<std::byte *>(memory));
  size_t kept = extent();
  munmap(base + kept, static_cast<std::byte *>(memory) + total - (base + kept));
  for (int32_t rank = 0; rank < numRanks; ++rank) {
    if (mprotect(at(rank, 0), this->bytes, PROT_READ | PROT_WRITE) != 0) {
      munmap(base, kept);
      throw std::bad_alloc();
    }
  }
}

Heap::~Heap() { munmap(base, extent()); }

size_t Heap::extent() const {
  return stride * size_t(numRanks + multicastWindows);
}

size_t Heap::allocate(Symbol symbol) {
  // One spare byte before rounding leaves a gap after each allocation, where an
  // overrun is seen.
  size_t needed = roundUp(symbol.bytes + 1, alignment);
  size_t offset = firstOffset;
  for (const auto &[start, other] : symbols) {
    if (offset + needed <= start) {
      break;
    }
    offset = start + roundUp(other.bytes + 1, alignment);
  }
  if (offset + needed > bytes) {
    size_t taken = 0;
    for (const auto &entry : symbols) {
      taken += entry.second.bytes;
    }
    throw Failure{format("the symmetric heap is full: ", symbol.bytes,
                         " bytes were asked for, ", taken, " of ", bytes,
                         " are taken"),
                  "free symmetric tensors, or give the simulator a larger heap "
                  "(DITRON_SYMMETRIC_SIZE)"};
  }
  if (offset < used) {
    for (int32_t rank = 0; rank < numRanks; ++rank) {
      std::memset(at(rank, offset), 0, std::min(needed, used - offset));
    }
  }
  used = std::max(used, offset + needed);
  for (auto old = freed.begin(); old != freed.end();) {
    bool covered =
        old->first < offset + needed && offset < old->first + old->second.bytes;
    old = covered ? freed.erase(old) : std::next(old);
  }
  symbol.offset = offset;
  symbols.emplace(offset, std::move(symbol));
  return offset;
}

void Heap::release(size_t offset) {
  auto found = symbols.find(offset);
  if (found != symbols.end()) {
    freed[offset] = std::move(found->second);
    symbols.erase(found);
  }
}

std::optional<Heap::Place> Heap::locate(const void *address) const {
  auto *byte = static_cast<const std::byte *>(address);
  if (byte < base || byte >= base + extent()) {
    return std::nullopt;
  }
  size_t distance = byte - base;
  Place place;
  place.rank = int32_t(distance / stride);
  place.offset = distance % stride;
  if (place.rank >= numRanks) {
    place.multicast = true;
    place.team = TeamKind(place.rank - numRanks);
  }
  return place;
}

const Symbol *Heap::before(size_t offset) const {
  auto next = symbols.upper_bound(offset);
  return next == symbols.begin() ? nullptr : &std::prev(next)->second;
}

std::string elementOf(const Symbol &symbol, size_t byte) {
  size_t index = byte / symbol.itemsize;
  std::string subscript;
  for (size_t axis = symbol.shape.size(); axis-- > 0;) {
    size_t extent = size_t(symbol.shape[axis]);
    bool outermost = axis == 0 || extent == 0;
    subscript = format(outermost ? index : index % extent,
                       subscript.empty() ? "" : ", ", subscript);
    index = outermost ? 0 : index / extent;
  }
  return format(symbol.name, "[", subscript, "]");
}

const Symbol &Heap::require(size_t offset, size_t count,
                            const char *what) const {
  const Symbol *symbol = before(offset);
  if (symbol && offset < symbol->offset + symbol->bytes + alignment) {
    size_t start = offset - symbol->offset;
    if (start + count <= symbol->bytes) {
      return *symbol;
    }
    auto next = symbols.upper_bound(offset);
    bool isNext = next != symbols.end() && start >= symbol->bytes &&
                  next->first - offset < start - symbol->bytes;
    std::string where =
        isNext ? format(next->first - offset, " bytes before ",
                        elementOf(next->second, 0))
               : format("at ", elementOf(*symbol, start),
                        " goes past its end: it has ", symbol->bytes, " bytes");
    throw Failure{format(what, " of ", count, " bytes ", where),
                  "check the offset and the size in bytes (elements times "
                  "their size), or allocate more",
                  "bounds"};
  }
  auto next = freed.upper_bound(offset);
  if (next != freed.begin()) {
    const Symbol &gone = std::prev(next)->second;
    if (offset < gone.offset + gone.bytes) {
      throw Failure{
          format(what, " of ", count, " bytes at ",
                 elementOf(gone, offset - gone.offset), ", which was freed"),
          "free it after the last kernel that uses it, on every rank", "freed"};
    }
  }
  throw Failure{
      format(what,
             " at an address of the symmetric heap where nothing is allocated"),
      "check the offset; or was the tensor freed?", "bounds"};
}

std::optional<size_t> Heap::bytesFrom(size_t offset) const {
  const Symbol *symbol = before(offset);
  if (!symbol || offset >= symbol->offset + symbol->bytes) {
    return std::nullopt;
  }
  return symbol->offset + symbol->bytes - offset;
}

bool Heap::isWithinOne(uintptr_t low, uintptr_t high) const {
  auto *address = reinterpret_cast<const void *>(low);
  if (!holds(address)) {
    return false;
  }
  std::optional<size_t> rest = bytesFrom(locate(address)->offset);
  return rest && high - low <= *rest;
}

const Symbol *Heap::symbolAt(const void *address) const {
  std::optional<Place> place = locate(address);
  return place && bytesFrom(place->offset) ? before(place->offset) : nullptr;
}

std::string Heap::nameOf(const void *address) const {
  std::optional<Place> place = locate(address);
  const Symbol *symbol = place ? before(place->offset) : nullptr;
  if (!symbol || place->offset >= symbol->offset + symbol->bytes) {
    return format("the signal at ", address);
  }
  return elementOf(*symbol, place->offset - symbol->offset);
}

} // namespace ditron::sim
