#include "call.h"

#include <algorithm>

namespace ditron::sim {

int32_t worldRank(const Fiber &fiber, int32_t rank) {
  const std::vector<int32_t> &ranks =
      fiber.launch->teams[int(TeamKind::Group)]->ranks;
  if (rank < 0 || size_t(rank) >= ranks.size()) {
    throw Failure{format("rank ", rank, " is outside the group's ",
                         ranks.size(), " ranks"),
                  format("ranks of this group are 0 to ", ranks.size() - 1,
                         "; a peer is often (rank + i) % dl.num_ranks()")};
  }
  return ranks[rank];
}

static void checkPointer(const void *p, int64_t bytes, const char *what) {
  if (bytes < 0) {
    throw Failure{
        format(what, ": expected a size of at least 0 bytes, got ", bytes),
        "check how the size is computed"};
  }
  if (reinterpret_cast<uintptr_t>(p) < 4096 && bytes > 0) {
    throw Failure{format(what, " through a null pointer"),
                  "symm_at gives null for ranks of other nodes: reach them by "
                  "putmem and getmem; a tensor without "
                  "elements is null too"};
  }
}

/// Whether [low, high) lies in the memory of the launch's tensors, as far as
/// that is known.
static bool isWithinOperands(const Launch &launch, uintptr_t low,
                             uintptr_t high) {
  return !launch.bounded ||
         std::any_of(launch.operands.begin(), launch.operands.end(),
                     [&](const Operand &operand) {
                       return low >= operand.first && high <= operand.end;
                     });
}

/// What an access of ordinary memory does that is in no tensor: `x[1000]`, by
/// the nearest one.
static Failure beyondOperands(const Launch &launch, uintptr_t low,
                              uintptr_t high, const char *what) {
  auto distance = [&](const Operand &operand) {
    return low < operand.first ? operand.first - low : high - operand.end;
  };
  const Operand &nearest = *std::min_element(
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
                 "]: its memory has ", nearest.end - nearest.first, " bytes"),
          "mask it, or check the offset; elements are counted in memory, from "
          "the tensor's first",
          "bounds"};
}

void checkAccess(Machine &machine, const Fiber &fiber, const void *p,
                 int64_t bytes, const char *what, Beyond beyond) {
  checkPointer(p, bytes, what);
  if (bytes == 0) {
    return;
  }
  std::optional<Heap::Place> place = machine.heap.locate(p);
  if (!place) {
    auto low = reinterpret_cast<uintptr_t>(p);
    const Launch &launch = *fiber.launch;
    if (!isWithinOperands(launch, low, low + uintptr_t(bytes))) {
      Failure failure =
          beyondOperands(launch, low, low + uintptr_t(bytes), what);
      if (beyond == Beyond::Fails) {
        throw failure;
      }
      machine.warn(fiber, std::move(failure));
    }
    return;
  }
  if (place->multicast) {
    throw Failure{format(what, " at a multicast address"),
                  "use dl.multimem_ld_reduce, multimem_st or multimem_red"};
  }
  if (machine.nodeOf(place->rank) != machine.nodeOf(fiber.launch->rank)) {
    throw Failure{format(what, " in the heap of rank ", place->rank,
                         ", which is on another node"),
                  "reach ranks of other nodes by putmem and getmem"};
  }
  machine.heap.require(place->offset, size_t(bytes), what);
}

void checkAccess(Machine &machine, const Fiber &fiber, Runs runs,
                 const char *what, Beyond beyond) {
  // Mostly all of them lie in one allocation, or none in a heap.
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (const Run &run : runs) {
    if (run.bytes > 0) {
      auto address = reinterpret_cast<uintptr_t>(run.address);
      low = std::min(low, address);
      high = std::max(high, address + uintptr_t(run.bytes));
    }
  }
  if (low < high && machine.heap.isElsewhere(low, high) &&
      isWithinOperands(*fiber.launch, low, high)) {
    checkPointer(reinterpret_cast<const void *>(low), 1, what);
    return;
  }
  if (low < high && machine.heap.isWithinOne(low, high) &&
      machine.nodeOf(machine.heap.locate(reinterpret_cast<void *>(low))->rank) ==
          machine.nodeOf(fiber.launch->rank)) {
    return;
  }
  for (const Run &run : runs) {
    checkAccess(machine, fiber, run.address, run.bytes, what, beyond);
  }
}

std::byte *symmetric(Machine &machine, const Fiber &fiber, const void *p,
                     int64_t bytes, int32_t target, const char *what) {
  checkPointer(p, bytes, what);
  if (bytes == 0) {
    return nullptr;
  }
  std::optional<Heap::Place> place = machine.heap.locate(p);
  if (!place || place->multicast) {
    throw Failure{format(what, ": expected a symmetric address, got ", p,
                         ", which is in no symmetric heap"),
                  "allocate the tensor by ditron.symm_empty or symm_zeros"};
  }
  if (place->rank != fiber.launch->rank) {
    throw Failure{
        format(what,
               ": expected this rank's own symmetric address, got one in the "
               "heap of rank ",
               place->rank),
        "pass the local pointer and the peer's rank, without symm_at"};
  }
  const Symbol &symbol =
      machine.heap.require(place->offset, size_t(bytes), what);
  if (std::find(symbol.ranks.begin(), symbol.ranks.end(), target) ==
      symbol.ranks.end()) {
    throw Failure{format(what, ": rank ", target,
                         " of the world does not hold `", symbol.name,
                         "`, which was allocated by ranks ",
                         join(symbol.ranks)),
                  "allocate it in a group that has both ranks"};
  }
  return machine.heap.at(target, place->offset);
}

} // namespace ditron::sim
