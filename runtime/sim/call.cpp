#include "call.h"

#include <algorithm>
#include <cstdlib>

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

/// Whether [low, high), ordinary memory, lies in the allocation of `mine`; when
/// it is not known whose address it is, in any of the launch's.
static bool isWithin(const Launch &launch, const Operand *mine, uintptr_t low,
                     uintptr_t high) {
  return mine ? holds(*mine, low, high)
              : !launch.bounded ||
                    std::any_of(launch.operands.begin(), launch.operands.end(),
                                [&](const Operand &operand) {
                                  return holds(operand, low, high);
                                });
}

/// What an access of ordinary memory does that lies in no allocation:
/// `x[1000]`, by its own operand, else by the nearest one.
static Failure beyondOperands(const Launch &launch, const Operand *mine,
                              uintptr_t low, uintptr_t high, const char *what) {
  auto distance = [&](const Operand &operand) {
    return low < operand.first ? operand.first - low : high - operand.end;
  };
  const Operand &nearest =
      mine ? *mine
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
static const Symbol *symbolOf(const Machine &machine, const Launch &launch,
                              int32_t argument) {
  return machine.heap.symbolAt(
      reinterpret_cast<void *>(addressOf(launch, argument)));
}

/// What an access does that leaves the symmetric tensor `mine`: `x[70]`, or the
/// place of another tensor that it comes to.
static Failure beyondSymbol(const Heap &heap, const Symbol &mine, const void *p,
                            int64_t bytes, const char *what) {
  std::optional<Heap::Place> place = heap.locate(p);
  if (!place) {
    auto offset = int64_t(reinterpret_cast<uintptr_t>(p));
    if (std::abs(offset) < int64_t(heap.capacity())) {
      return {format(what, " of ", bytes, " bytes at ", offset,
                     " bytes from a null pointer, made of `", mine.name, "`"),
              "symm_at of a rank on another node is null: reach that by putmem "
              "and getmem",
              "bounds"};
    }
    return {format(what, " of ", bytes, " bytes leaves `", mine.name,
                   "` for an address that is not symmetric: it has ",
                   mine.bytes, " bytes"),
            "check the offset and the mask", "bounds"};
  }
  bool before = place->offset < mine.offset;
  std::string to = heap.symbolAt(p) ? heap.nameOf(p)
                   : before ? format(mine.offset - place->offset,
                                     " bytes before ", elementOf(mine, 0))
                            : elementOf(mine, place->offset - mine.offset);
  return {format(what, " of ", bytes, " bytes goes ",
                 before ? "before the beginning" : "past the end", " of `",
                 mine.name, "`, to ", to, ": it has ", mine.bytes, " bytes"),
          "check the offset and the mask, or allocate more", "bounds"};
}

/// Whether [p, p + bytes) is in the tensor that the argument's address is of;
/// else fails, or warns.
static bool keepsToOrigin(Machine &machine, const Fiber &fiber, const void *p,
                          int64_t bytes, const char *what, Beyond beyond,
                          int32_t argument) {
  const Launch &launch = *fiber.launch;
  if (const Symbol *mine = symbolOf(machine, launch, argument)) {
    if (machine.heap.symbolAt(p) != mine) {
      throw beyondSymbol(machine.heap, *mine, p, bytes, what);
    }
    return true;
  }
  const Operand *mine = operandOf(launch, argument);
  auto low = reinterpret_cast<uintptr_t>(p), high = low + uintptr_t(bytes);
  if (!mine || holds(*mine, low, high)) {
    return true;
  }
  Failure failure = beyondOperands(launch, mine, low, high, what);
  if (beyond == Beyond::Fails) {
    throw failure;
  }
  machine.warn(fiber, std::move(failure));
  return false;
}

void checkOrigin(Machine &machine, const Fiber &fiber, const void *p,
                 int64_t bytes, const char *what, int32_t argument) {
  if (bytes > 0 && reinterpret_cast<uintptr_t>(p) >= 4096) {
    keepsToOrigin(machine, fiber, p, bytes, what, Beyond::Fails, argument);
  }
}

static bool isHeldBy(const Symbol &symbol, int32_t rank) {
  return std::find(symbol.ranks.begin(), symbol.ranks.end(), rank) !=
         symbol.ranks.end();
}

/// Whether a launch that reaches nothing but its arguments' memory may reach
/// `symbol`; the address of an argument may be right behind its end.
static bool mayReach(const Machine &machine, const Launch &launch,
                     const Symbol &symbol) {
  return !launch.bounded ||
         std::any_of(launch.args.begin(), launch.args.end(), [&](auto address) {
           auto place =
               machine.heap.locate(reinterpret_cast<const void *>(address));
           return place && place->offset >= symbol.offset &&
                  place->offset <= symbol.offset + symbol.bytes;
         });
}

/// The allocation that [offset, offset + bytes) of `rank`'s heap is in, which
/// has to be one of that rank and one that the launch may reach.
static const Symbol &reach(const Machine &machine, const Launch &launch,
                           size_t offset, int64_t bytes, int32_t rank,
                           const char *what) {
  const Symbol &symbol = machine.heap.require(offset, size_t(bytes), what);
  if (!isHeldBy(symbol, rank)) {
    throw Failure{format(what, ": rank ", rank, " of the world does not hold `",
                         symbol.name, "`, which was allocated by ranks ",
                         join(symbol.ranks)),
                  "allocate it in a group that has both ranks"};
  }
  if (!mayReach(machine, launch, symbol)) {
    throw Failure{format(what, " of ", bytes, " bytes at ",
                         elementOf(symbol, offset - symbol.offset),
                         ", which is no tensor of this launch"),
                  "check the offset and the mask: the kernel has pointers to "
                  "other tensors only",
                  "bounds"};
  }
  return symbol;
}

void checkAccess(Machine &machine, const Fiber &fiber, const void *p,
                 int64_t bytes, const char *what, Beyond beyond,
                 int32_t argument) {
  checkPointer(p, bytes, what);
  if (bytes == 0 ||
      !keepsToOrigin(machine, fiber, p, bytes, what, beyond, argument)) {
    return;
  }
  const Launch &launch = *fiber.launch;
  std::optional<Heap::Place> place = machine.heap.locate(p);
  if (!place) {
    auto low = reinterpret_cast<uintptr_t>(p), high = low + uintptr_t(bytes);
    if (!isWithin(launch, operandOf(launch, argument), low, high)) {
      Failure failure = beyondOperands(launch, nullptr, low, high, what);
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
  if (machine.nodeOf(place->rank) != machine.nodeOf(launch.rank)) {
    throw Failure{format(what, " in the heap of rank ", place->rank,
                         ", which is on another node"),
                  "reach ranks of other nodes by putmem and getmem"};
  }
  reach(machine, launch, place->offset, bytes, place->rank, what);
}

/// Whether [low, high) is a place that the rank may access, found quickly; if
/// not, it may be one all the same.
static bool isPlainlyRight(const Machine &machine, const Launch &launch,
                           uintptr_t low, uintptr_t high, int32_t argument) {
  const Heap &heap = machine.heap;
  const Symbol *mine = symbolOf(machine, launch, argument);
  const Operand *operand = operandOf(launch, argument);
  if (heap.isElsewhere(low, high)) {
    return !mine && low >= 4096 && isWithin(launch, operand, low, high);
  }
  if (!heap.isWithinOne(low, high)) {
    return false;
  }
  auto *lowest = reinterpret_cast<const void *>(low);
  const Symbol *symbol = heap.symbolAt(lowest);
  int32_t rank = heap.locate(lowest)->rank;
  return machine.nodeOf(rank) == machine.nodeOf(launch.rank) &&
         isHeldBy(*symbol, rank) &&
         (mine ? mine == symbol
               : !operand && mayReach(machine, launch, *symbol));
}

void checkAccess(Machine &machine, const Fiber &fiber, Runs runs,
                 const char *what, Beyond beyond, int32_t argument) {
  // Mostly all of them lie in one allocation.
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (const Run &run : runs) {
    if (run.bytes > 0) {
      auto address = reinterpret_cast<uintptr_t>(run.address);
      low = std::min(low, address);
      high = std::max(high, address + uintptr_t(run.bytes));
    }
  }
  if (low < high &&
      isPlainlyRight(machine, *fiber.launch, low, high, argument)) {
    return;
  }
  for (const Run &run : runs) {
    checkAccess(machine, fiber, run.address, run.bytes, what, beyond, argument);
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
  reach(machine, *fiber.launch, place->offset, bytes, target, what);
  return machine.heap.at(target, place->offset);
}

} // namespace ditron::sim
