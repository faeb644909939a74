#include "memory/bounds.h"

#include "machine.h"
#include "report/text.h"

#include <algorithm>
#include <cstdlib>

namespace ditron::sim {

static void checkPointer(const void *p, int64_t bytes, const char *what) {
  if (bytes < 0) {
    throw Failure{
        format(what, ": expected a size of at least 0 bytes, got ", bytes),
        "check how the size is computed"};
  }
  if (reinterpret_cast<uintptr_t>(p) < 4096 && bytes > 0) {
    throw Failure{format(what, " through a null pointer"),
                  "a tensor without elements is null; so is symm_at of a rank "
                  "on another node: reach that by putmem and getmem",
                  "bounds"};
  }
}

/// The address that an argument is; 0: there is none.
static uint64_t addressOf(const Launch &launch, int32_t argument) {
  return argument >= 0 && size_t(argument) < launch.args.size()
             ? launch.args[size_t(argument)]
             : 0;
}

/// The operand that an argument is, if its allocation is known.
static const Operand *operandOf(const Launch &launch, int32_t argument) {
  auto found = std::find_if(
      launch.operands.begin(), launch.operands.end(),
      [&](const Operand &operand) { return operand.argument == argument; });
  return argument >= 0 && found != launch.operands.end() && found->end
             ? &*found
             : nullptr;
}

static bool holds(const Operand &operand, uintptr_t low, uintptr_t high) {
  return low >= operand.first && high <= operand.end;
}

/// Whether [low, high), ordinary memory, lies in the allocation of `own`, or,
/// when the provenance is unknown, in any of the launch's.
static bool isAllowed(const Launch &launch, const Operand *own, uintptr_t low,
                      uintptr_t high) {
  return own ? holds(*own, low, high)
             : !launch.bounded ||
                   std::any_of(launch.operands.begin(), launch.operands.end(),
                               [&](const Operand &operand) {
                                 return holds(operand, low, high);
                               });
}

/// The report of an access to ordinary memory outside of all allocations:
/// `x[1000]`, as an element of its own operand, else of the nearest one.
static Failure outOfOperands(const Launch &launch, const Operand *own,
                             uintptr_t low, uintptr_t high, const char *what) {
  auto distance = [&](const Operand &operand) {
    return low < operand.first ? operand.first - low : high - operand.end;
  };
  const Operand &nearest =
      own ? *own
          : *std::min_element(
                launch.operands.begin(), launch.operands.end(),
                [&](auto &a, auto &b) { return distance(a) < distance(b); });
  bool before = low < nearest.first;
  uintptr_t wrong = before ? low : std::max<uintptr_t>(low, nearest.end);
  int64_t byte = int64_t(wrong - nearest.address);
  auto size = int64_t(nearest.itemsize);
  int64_t element = byte / size - (byte % size < 0);
  return {format(what, " of ", high - low, " bytes goes ",
                 before ? "before the beginning" : "past the end", " of `",
                 nearest.name, "`, to ", nearest.name, "[", element,
                 "]: its memory has ", nearest.end - nearest.first, " bytes",
                 nearest.address == nearest.first
                     ? ""
                     : format(", and `", nearest.name, "` begins at byte ",
                              nearest.address - nearest.first, " of it")),
          "mask it, or check the offset; elements are counted in memory, from "
          "the tensor's first",
          "bounds"};
}

/// The symmetric tensor that an argument is; null: none.
static const Allocation *allocationOf(const Machine &machine,
                                      const Launch &launch, int32_t argument) {
  return machine.heap.allocationAt(
      reinterpret_cast<void *>(addressOf(launch, argument)));
}

/// The report of an access that leaves the symmetric tensor `own`: `x[70]`, or
/// the element of another tensor at that address.
static Failure outOfAllocation(const Heap &heap, const Allocation &own,
                               const void *p, int64_t bytes, const char *what) {
  std::optional<Heap::Location> location = heap.locate(p);
  if (!location) {
    auto offset = int64_t(reinterpret_cast<uintptr_t>(p));
    if (std::abs(offset) < int64_t(heap.capacity())) {
      return {format(what, " of ", bytes, " bytes at ", offset,
                     " bytes from a null pointer, computed from `", own.name,
                     "`"),
              "symm_at of a rank on another node is null: reach that by putmem "
              "and getmem",
              "bounds"};
    }
    return {format(what, " of ", bytes, " bytes leaves `", own.name,
                   "` for an address that is not symmetric: it has ", own.bytes,
                   " bytes"),
            "check the offset and the mask", "bounds"};
  }
  bool before = location->offset < own.offset;
  std::string to = heap.allocationAt(p) ? heap.nameOf(p)
                   : before ? format(own.offset - location->offset,
                                     " bytes before ", elementOf(own, 0))
                            : elementOf(own, location->offset - own.offset);
  return {format(what, " of ", bytes, " bytes goes ",
                 before ? "before the beginning" : "past the end", " of `",
                 own.name, "`, to ", to, ": it has ", own.bytes, " bytes"),
          "check the offset and the mask, or allocate more", "bounds"};
}

/// Whether [p, p + bytes) is in the tensor of the argument that the address is
/// computed from; else fails, or warns.
static bool staysInProvenance(Machine &machine, const Fiber &fiber,
                              const void *p, int64_t bytes, const char *what,
                              OutOfBounds outOfBounds, int32_t argument) {
  const Launch &launch = *fiber.launch;
  if (const Allocation *own = allocationOf(machine, launch, argument)) {
    if (machine.heap.allocationAt(p) != own) {
      throw outOfAllocation(machine.heap, *own, p, bytes, what);
    }
    return true;
  }
  const Operand *own = operandOf(launch, argument);
  auto low = reinterpret_cast<uintptr_t>(p), high = low + uintptr_t(bytes);
  if (!own || holds(*own, low, high)) {
    return true;
  }
  if (machine.heap.holds(
          reinterpret_cast<void *>(addressOf(launch, argument)))) {
    return true; // its tensor was freed, which the heap knows more of
  }
  Failure failure = outOfOperands(launch, own, low, high, what);
  if (outOfBounds == OutOfBounds::Fails) {
    throw failure;
  }
  machine.diagnostics.warn(fiber, std::move(failure));
  return false;
}

void checkProvenance(Machine &machine, const Fiber &fiber, const void *p,
                     int64_t bytes, const char *what, int32_t argument) {
  if (bytes > 0 && reinterpret_cast<uintptr_t>(p) >= 4096) {
    staysInProvenance(machine, fiber, p, bytes, what, OutOfBounds::Fails,
                      argument);
  }
}

static bool isHeldBy(const Allocation &allocation, int32_t rank) {
  return std::find(allocation.ranks.begin(), allocation.ranks.end(), rank) !=
         allocation.ranks.end();
}

/// Whether the launch may access `allocation`: a bounded one only those of its
/// arguments, whose address may be one past the end.
static bool mayAccess(const Machine &machine, const Launch &launch,
                      const Allocation &allocation) {
  return !launch.bounded ||
         std::any_of(launch.args.begin(), launch.args.end(), [&](auto address) {
           auto location =
               machine.heap.locate(reinterpret_cast<const void *>(address));
           return location && location->offset >= allocation.offset &&
                  location->offset <= allocation.offset + allocation.bytes;
         });
}

/// The allocation that [offset, offset + bytes) of `rank`'s heap is in, which
/// that rank has to hold and the launch may access.
static const Allocation &requireHeld(const Machine &machine,
                                     const Launch &launch, size_t offset,
                                     int64_t bytes, int32_t rank,
                                     const char *what) {
  const Allocation &allocation =
      machine.heap.require(offset, size_t(bytes), what);
  if (!isHeldBy(allocation, rank)) {
    throw Failure{format(what, ": rank ", rank, " of the world does not hold `",
                         allocation.name, "`, which was allocated by ranks ",
                         join(allocation.ranks)),
                  "allocate it in a group that has both ranks"};
  }
  if (!mayAccess(machine, launch, allocation)) {
    throw Failure{format(what, " of ", bytes, " bytes at ",
                         elementOf(allocation, offset - allocation.offset),
                         ", which is no tensor of this launch"),
                  "check the offset and the mask: the kernel has pointers to "
                  "other tensors only",
                  "bounds"};
  }
  return allocation;
}

void checkAccess(Machine &machine, const Fiber &fiber, const void *p,
                 int64_t bytes, const char *what, OutOfBounds outOfBounds,
                 int32_t argument) {
  checkPointer(p, bytes, what);
  if (bytes == 0 || !staysInProvenance(machine, fiber, p, bytes, what,
                                       outOfBounds, argument)) {
    return;
  }
  const Launch &launch = *fiber.launch;
  std::optional<Heap::Location> location = machine.heap.locate(p);
  if (!location) {
    auto low = reinterpret_cast<uintptr_t>(p), high = low + uintptr_t(bytes);
    if (!isAllowed(launch, operandOf(launch, argument), low, high)) {
      Failure failure = outOfOperands(launch, nullptr, low, high, what);
      if (outOfBounds == OutOfBounds::Fails) {
        throw failure;
      }
      machine.diagnostics.warn(fiber, std::move(failure));
    }
    return;
  }
  if (location->multicast) {
    throw Failure{format(what, " at a multicast address"),
                  "use dl.multimem_ld_reduce, multimem_st or multimem_red"};
  }
  if (machine.nodeOf(location->rank) != machine.nodeOf(launch.rank)) {
    throw Failure{format(what, " in the heap of rank ", location->rank,
                         ", which is on another node"),
                  "reach ranks of other nodes by putmem and getmem"};
  }
  requireHeld(machine, launch, location->offset, bytes, location->rank, what);
}

/// A quick check whether the rank may access [low, high); if false, it may all
/// the same.
static bool isObviouslyValid(const Machine &machine, const Launch &launch,
                             uintptr_t low, uintptr_t high, int32_t argument) {
  const Heap &heap = machine.heap;
  const Allocation *own = allocationOf(machine, launch, argument);
  const Operand *operand = operandOf(launch, argument);
  if (heap.isOutside(low, high)) {
    return !own && low >= 4096 && isAllowed(launch, operand, low, high);
  }
  if (!heap.isInOneAllocation(low, high)) {
    return false;
  }
  auto *lowest = reinterpret_cast<const void *>(low);
  const Allocation *allocation = heap.allocationAt(lowest);
  int32_t rank = heap.locate(lowest)->rank;
  return machine.nodeOf(rank) == machine.nodeOf(launch.rank) &&
         isHeldBy(*allocation, rank) &&
         (own ? own == allocation
              : !operand && mayAccess(machine, launch, *allocation));
}

void checkAccess(Machine &machine, const Fiber &fiber, ByteRanges ranges,
                 const char *what, OutOfBounds outOfBounds, int32_t argument) {
  // Most often all of them lie in one allocation.
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (const ByteRange &range : ranges) {
    if (range.bytes > 0) {
      auto address = reinterpret_cast<uintptr_t>(range.address);
      low = std::min(low, address);
      high = std::max(high, address + uintptr_t(range.bytes));
    }
  }
  if (low < high &&
      isObviouslyValid(machine, *fiber.launch, low, high, argument)) {
    return;
  }
  for (const ByteRange &range : ranges) {
    checkAccess(machine, fiber, range.address, range.bytes, what, outOfBounds,
                argument);
  }
}

std::byte *symmetric(Machine &machine, const Fiber &fiber, const void *p,
                     int64_t bytes, int32_t target, const char *what) {
  checkPointer(p, bytes, what);
  if (bytes == 0) {
    return nullptr;
  }
  std::optional<Heap::Location> location = machine.heap.locate(p);
  if (!location || location->multicast) {
    throw Failure{format(what, ": expected a symmetric address, got ", p,
                         ", which is in no symmetric heap"),
                  "allocate the tensor by ditron.symm_empty or symm_zeros"};
  }
  if (location->rank != fiber.launch->rank) {
    throw Failure{
        format(what,
               ": expected this rank's own symmetric address, got one in the "
               "heap of rank ",
               location->rank),
        "pass the local pointer and the peer's rank, without symm_at"};
  }
  requireHeld(machine, *fiber.launch, location->offset, bytes, target, what);
  return machine.heap.at(target, location->offset);
}

} // namespace ditron::sim
