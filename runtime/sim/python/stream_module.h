// Python bindings of streams.
#pragma once

#include "streams/stream.h"

#include <nanobind/nanobind.h>

namespace ditron::sim {

/// A launch of a compiled kernel, as Python describes it.
Launch makeLaunch(int32_t rank, uintptr_t address, std::string name,
                  std::vector<std::string> locations,
                  std::array<int32_t, 3> grid, const std::vector<int64_t> &args,
                  std::vector<Operand> operands);

/// Add the classes Stream, StreamEvent, and StridedCopy to the module.
void bindStreams(nanobind::module_ &m);

} // namespace ditron::sim
