// Ranks, and symmetric and multicast pointers.
#include "abi/call.h"

#include <optional>

using namespace ditron::sim;

static const Team &teamOf(int32_t team) {
  return *Fiber::current()->launch->teams[team];
}

int32_t ditron_sim_rank(int32_t team) {
  return teamOf(team).indexOf[Fiber::current()->launch->rank];
}
int32_t ditron_sim_num_ranks(int32_t team) {
  return int32_t(teamOf(team).ranks.size());
}
int32_t ditron_sim_local_rank() {
  return ditron_sim_rank(int32_t(TeamKind::Node));
}
int32_t ditron_sim_num_local_ranks() {
  return ditron_sim_num_ranks(int32_t(TeamKind::Node));
}
int32_t ditron_sim_node() { return Fiber::current()->launch->node; }

void *ditron_sim_symm_at(void *p, int32_t rank, int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) -> void * {
    int32_t target = worldRank(fiber, rank);
    // Only the heap is checked, not the allocation: lanes that a mask turns off
    // may lie past the end.
    std::optional<Heap::Location> location = machine.heap.locate(p);
    if (!location || location->multicast) {
      throw Failure{p ? format("symm_at: expected a symmetric address, got ", p,
                               ", which is in no symmetric heap")
                      : "symm_at of a null pointer",
                    p ? "allocate the tensor by ditron.symm_empty or symm_zeros"
                      : "a tensor without elements is null: call symm_at where "
                        "there are some"};
    }
    if (location->rank != fiber.launch->rank) {
      throw Failure{format("symm_at: expected this rank's own symmetric "
                           "address, got one in the heap of rank ",
                           location->rank),
                    "apply symm_at once, to the pointer the kernel was given"};
    }
    return machine.nodeOf(target) == machine.nodeOf(fiber.launch->rank)
               ? machine.heap.at(target, location->offset)
               : nullptr;
  });
}

void *ditron_sim_multicast_ptr(void *p, int32_t team, int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) -> void * {
    std::optional<Heap::Location> location = machine.heap.locate(p);
    if (!location || location->multicast ||
        location->rank != fiber.launch->rank) {
      throw Failure{
          format(
              "multicast_ptr: expected this rank's own symmetric address, got ",
              p),
          "pass the pointer of a tensor made by ditron.symm_empty or "
          "symm_zeros"};
    }
    for (int32_t rank : teamOf(team).ranks) {
      if (machine.nodeOf(rank) != machine.nodeOf(fiber.launch->rank)) {
        return nullptr;
      }
    }
    return machine.heap.multicastAt(TeamKind(team), location->offset);
  });
}
