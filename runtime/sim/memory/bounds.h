// Checks of the addresses that programs access.
#pragma once

#include "abi/abi.h"

#include <cstddef>
#include <cstdint>

namespace ditron::sim {

class Machine;
struct Fiber;

/// What happens on an access beyond a tensor in ordinary memory. A GPU's
/// allocator rounds sizes up, so that reads there often work.
enum class OutOfBounds { Fails, Warns };

/// Check that [p, p + bytes) is memory that this rank may access by ordinary
/// instructions; `argument`: in the tensor of that number, -1: unknown.
void checkAccess(Machine &machine, const Fiber &fiber, const void *p,
                 int64_t bytes, const char *what,
                 OutOfBounds outOfBounds = OutOfBounds::Fails,
                 int32_t argument = -1);

/// The same for all ranges of one access.
void checkAccess(Machine &machine, const Fiber &fiber, ByteRanges ranges,
                 const char *what, OutOfBounds outOfBounds = OutOfBounds::Fails,
                 int32_t argument = -1);

/// Check provenance only: that [p, p + bytes) is in the tensor of the argument
/// that the address is computed from.
void checkProvenance(Machine &machine, const Fiber &fiber, const void *p,
                     int64_t bytes, const char *what, int32_t argument);

/// Check that [p, p + bytes) lies in one allocation of this rank's own heap
/// that `target` (world rank) has as well; returns its address in `target`'s
/// heap.
std::byte *symmetric(Machine &machine, const Fiber &fiber, const void *p,
                     int64_t bytes, int32_t target, const char *what);

} // namespace ditron::sim
