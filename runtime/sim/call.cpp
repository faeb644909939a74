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

void checkAccess(Machine &machine, const Fiber &fiber, const void *p,
                 int64_t bytes, const char *what) {
  checkPointer(p, bytes, what);
  std::optional<Heap::Place> place = machine.heap.locate(p);
  if (!place || bytes == 0) {
    return; // ordinary memory: its extent is not known here
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
                 const char *what) {
  // Mostly all of them lie in one allocation, or none in a heap.
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (const Run &run : runs) {
    if (run.bytes > 0) {
      auto address = reinterpret_cast<uintptr_t>(run.address);
      low = std::min(low, address);
      high = std::max(high, address + uintptr_t(run.bytes));
    }
  }
  if (low < high && machine.heap.isElsewhere(low, high)) {
    checkPointer(reinterpret_cast<const void *>(low), 1, what);
    return;
  }
  if (low < high && machine.heap.isWithinOne(low, high) &&
      machine.nodeOf(machine.heap.locate(reinterpret_cast<void *>(low))->rank) ==
          machine.nodeOf(fiber.launch->rank)) {
    return;
  }
  for (const Run &run : runs) {
    checkAccess(machine, fiber, run.address, run.bytes, what);
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
