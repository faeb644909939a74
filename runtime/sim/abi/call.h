// What all functions of the ABI share: the frame of a call from a program into
// the machine, and the notices of the program's accesses.
#pragma once

#include "abi/abi.h"
#include "machine.h"
#include "memory/bounds.h"
#include "report/text.h"

namespace ditron::sim {

/// Run `body(machine, fiber)`. A Failure ends the launch: compiled code has no
/// unwind tables, so an exception stops here and the program is abandoned.
template <typename Body>
auto call(int32_t loc, Body body)
    -> decltype(body(*Machine::current(), *Fiber::current())) {
  Machine &machine = *Machine::current();
  Fiber &fiber = *Fiber::current();
  if (machine.trace) {
    machine.trace->tick();
  }
  try {
    if (!fiber.thread.sameValueStores.empty()) {
      machine.races->checkSameValueStores(fiber);
    }
    fiber.mayRepeat = loc & mayRepeat; // an unknown location, -1, has all bits
    fiber.loc = loc < 0 ? loc : loc & ~mayRepeat;
    return body(machine, fiber);
  } catch (Failure &failure) {
    machine.diagnostics.fail(fiber, std::move(failure));
  } catch (const std::bad_alloc &) {
    machine.diagnostics.fail(fiber,
                             {"the host is out of memory",
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
inline bool isGpuScope(int32_t scope) { return scope == 0; }

/// With a clock, before `fiber` communicates: let what it has spent pass.
inline void settle(Machine &machine, Fiber &fiber) {
  if (machine.clock) {
    machine.clock->settle(fiber);
  }
}

/// World rank of rank `rank` of the launch's group.
int32_t worldRank(const Fiber &fiber, int32_t rank);

// Notices for the spin detector.
/// A read by an operation that also writes.
void observeRead(Machine &machine, Fiber &fiber, const void *address,
                 uint64_t bits, int32_t bytes);
/// A write where other programs may read.
void observeWrite(Machine &machine, Fiber &fiber, const void *address);
/// Another effect that other programs can see.
void observeEffect(Machine &machine, Fiber &fiber);
/// A read that may be a spin loop's: one that spins is blocked until the memory
/// changes. Of the elements of a tensor of loads those that are the same repeat
/// nothing.
void pollAtomic(Machine &machine, Fiber &fiber, const void *address,
                uint64_t bits, int32_t bytes, bool isElement = false);
/// The same for an ordinary load. These are many, so that it lets others run
/// only when the value is unchanged.
void pollOrdinary(Machine &machine, Fiber &fiber, const void *address,
                  uint64_t bits, int32_t bytes, bool isElement = false);

} // namespace ditron::sim
