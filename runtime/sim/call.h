// The frame of every call from a program into the machine, and the checks they
// share.
#pragma once

#include "machine.h"
#include "text.h"

namespace ditron::sim {

/// Run `body(machine, fiber)`. A Failure ends the launch: compiled code has no
/// unwind tables, so instead of passing through it an exception stops here, and
/// the program is left for good.
template <typename Body>
auto call(int32_t loc, Body body)
    -> decltype(body(*Machine::running(), *Machine::current())) {
  Machine &machine = *Machine::running();
  Fiber &fiber = *Machine::current();
  if (machine.events) {
    machine.events->tick();
  }
  try {
    if (!fiber.thread.echoes.empty()) {
      machine.races->checkEchoes(fiber);
    }
    fiber.repeats = loc & mayRepeat; // an unknown place, -1, has all bits
    fiber.loc = loc < 0 ? loc : loc & ~mayRepeat;
    return body(machine, fiber);
  } catch (Failure &failure) {
    machine.fail(fiber, std::move(failure));
  } catch (const std::bad_alloc &) {
    machine.fail(fiber, {"the host is out of memory",
                         "simulate fewer ranks, or smaller tensors"});
  }
  machine.abandon();
}

inline bool acquires(int32_t sem) {
  return Semantic(sem) == Semantic::Acquire ||
         Semantic(sem) == Semantic::AcqRel;
}
inline bool releases(int32_t sem) {
  return Semantic(sem) == Semantic::Release ||
         Semantic(sem) == Semantic::AcqRel;
}
/// The scope of one GPU, the dialect's first: it orders nothing between ranks.
inline bool isNarrow(int32_t scope) { return scope == 0; }

/// World rank of rank `rank` of the launch's group.
int32_t worldRank(const Fiber &fiber, int32_t rank);

/// What becomes of an access beyond a tensor in ordinary memory. A GPU's
/// allocator rounds up, so that kernels get away with reads there.
enum class Beyond { Fails, Warns };

/// Check [p, p + bytes): a place this rank may read or write by ordinary
/// instructions; `argument`: in the tensor of that number, -1: not known which.
void checkAccess(Machine &machine, const Fiber &fiber, const void *p,
                 int64_t bytes, const char *what, Beyond beyond = Beyond::Fails,
                 int32_t argument = -1);

/// Check that [p, p + bytes) is in the tensor that argument's address is made
/// from; whether it is a place at all is left to others.
void checkOrigin(Machine &machine, const Fiber &fiber, const void *p,
                 int64_t bytes, const char *what, int32_t argument);

/// The same as checkAccess for all runs of one access.
void checkAccess(Machine &machine, const Fiber &fiber, Runs runs,
                 const char *what, Beyond beyond = Beyond::Fails,
                 int32_t argument = -1);

/// Check that [p, p + bytes) lies in one allocation of this rank's own heap
/// that `target` (world rank) has as well; return its address in `target`'s
/// heap.
std::byte *symmetric(Machine &machine, const Fiber &fiber, const void *p,
                     int64_t bytes, int32_t target, const char *what);

} // namespace ditron::sim
