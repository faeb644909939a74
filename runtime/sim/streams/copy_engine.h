// How copies and fills move their bytes: in parts, in any order.
#pragma once

#include "scheduler/random.h"
#include "streams/stream.h"

#include <vector>

namespace ditron::sim {

/// All of a copy as some parts, in a seeded order.
std::vector<CopyPart> splitCopy(const StridedCopy &copy, Random &random);

/// Move one part, now.
void movePart(Machine &machine, const StridedCopy &copy, const CopyPart &part);

/// The kernel, of one program, that copies or fills within a rank: its argument
/// is the address of the StridedCopy.
void localCopyKernel(void *args, int32_t, int32_t, int32_t, int32_t, int32_t,
                     int32_t);

} // namespace ditron::sim
