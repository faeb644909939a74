#include "memory/heap.h"

#include "report/text.h"

#include <cstring>
#include <new>
#include <sys/mman.h>

namespace ditron::sim {

constexpr size_t pageBytes = size_t(2) << 20;
/// The start of a heap is unused, so that a small negative offset from the
/// first allocation is still recognised as an address of the heap.
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

size_t Heap::allocate(Allocation allocation) {
  // A spare byte before rounding leaves a gap after each allocation, to detect
  // overruns.
  size_t needed = roundUp(allocation.bytes + 1, alignment);
  size_t offset = firstOffset;
  for (const auto &[start, other] : allocations) {
    if (offset + needed <= start) {
      break;
    }
    offset = start + roundUp(other.bytes + 1, alignment);
  }
  if (offset + needed > bytes) {
    size_t taken = 0;
    for (const auto &entry : allocations) {
      taken += entry.second.bytes;
    }
    throw Failure{format("the symmetric heap is full: ", allocation.bytes,
                         " bytes were requested, ", taken, " of ", bytes,
                         " are in use"),
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
  allocation.offset = offset;
  allocations.emplace(offset, std::move(allocation));
  return offset;
}

void Heap::release(size_t offset) {
  auto found = allocations.find(offset);
  if (found != allocations.end()) {
    freed[offset] = std::move(found->second);
    allocations.erase(found);
  }
}

std::optional<Heap::Location> Heap::locate(const void *address) const {
  auto *byte = static_cast<const std::byte *>(address);
  if (byte < base || byte >= base + extent()) {
    return std::nullopt;
  }
  size_t distance = byte - base;
  Location location;
  location.rank = int32_t(distance / stride);
  location.offset = distance % stride;
  if (location.rank >= numRanks) {
    location.multicast = true;
    location.team = TeamKind(location.rank - numRanks);
  }
  return location;
}

const Allocation *Heap::before(size_t offset) const {
  auto next = allocations.upper_bound(offset);
  return next == allocations.begin() ? nullptr : &std::prev(next)->second;
}

std::string elementOf(const Allocation &allocation, size_t byte) {
  size_t index = byte / allocation.itemsize;
  std::string subscript;
  for (size_t axis = allocation.shape.size(); axis-- > 0;) {
    size_t extent = size_t(allocation.shape[axis]);
    bool outermost = axis == 0 || extent == 0;
    subscript = format(outermost ? index : index % extent,
                       subscript.empty() ? "" : ", ", subscript);
    index = outermost ? 0 : index / extent;
  }
  return format(allocation.name, "[", subscript, "]");
}

const Allocation &Heap::require(size_t offset, size_t count,
                                const char *what) const {
  const Allocation *allocation = before(offset);
  if (allocation &&
      offset < allocation->offset + allocation->bytes + alignment) {
    size_t start = offset - allocation->offset;
    if (start + count <= allocation->bytes) {
      return *allocation;
    }
    auto next = allocations.upper_bound(offset);
    bool isNext = next != allocations.end() && start >= allocation->bytes &&
                  next->first - offset < start - allocation->bytes;
    std::string where = isNext ? format(next->first - offset, " bytes before ",
                                        elementOf(next->second, 0))
                               : format("at ", elementOf(*allocation, start),
                                        " goes past its end: it has ",
                                        allocation->bytes, " bytes");
    throw Failure{format(what, " of ", count, " bytes ", where),
                  "check the offset and the size in bytes (elements times "
                  "their size), or allocate more",
                  "bounds"};
  }
  auto next = freed.upper_bound(offset);
  if (next != freed.begin()) {
    const Allocation &old = std::prev(next)->second;
    if (offset < old.offset + old.bytes) {
      throw Failure{
          format(what, " of ", count, " bytes at ",
                 elementOf(old, offset - old.offset), ", which was freed"),
          "free it after the last kernel that uses it, on every rank", "freed"};
    }
  }
  throw Failure{
      format(what,
             " at an address of the symmetric heap where nothing is allocated"),
      "check the offset; or was the tensor freed?", "bounds"};
}

std::optional<size_t> Heap::bytesFrom(size_t offset) const {
  const Allocation *allocation = before(offset);
  if (!allocation || offset >= allocation->offset + allocation->bytes) {
    return std::nullopt;
  }
  return allocation->offset + allocation->bytes - offset;
}

bool Heap::isInOneAllocation(uintptr_t low, uintptr_t high) const {
  auto *address = reinterpret_cast<const void *>(low);
  if (!holds(address)) {
    return false;
  }
  std::optional<size_t> rest = bytesFrom(locate(address)->offset);
  return rest && high - low <= *rest;
}

const Allocation *Heap::allocationAt(const void *address) const {
  std::optional<Location> location = locate(address);
  return location && bytesFrom(location->offset) ? before(location->offset)
                                                 : nullptr;
}

std::string Heap::nameOf(const void *address) const {
  std::optional<Location> location = locate(address);
  const Allocation *allocation = location ? before(location->offset) : nullptr;
  if (!allocation ||
      location->offset >= allocation->offset + allocation->bytes) {
    return format("the signal at ", address);
  }
  return elementOf(*allocation, location->offset - allocation->offset);
}

} // namespace ditron::sim
