// The kernels of copies, fills and host calls, and how bytes are moved: in
// parts, in any order.
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

/// The kernel, of one program, that stands for a function of host code: its
/// argument is the address of the HostCall.
void hostCallKernel(void *args, int32_t, int32_t, int32_t, int32_t, int32_t,
                    int32_t);

} // namespace ditron::sim
