// The clock, as a part of the Python module.
#pragma once

#include "machine.h"

#include <nanobind/nanobind.h>

namespace ditron::sim {

void bindClock(nanobind::module_ &m, nanobind::class_<Machine> &machine);

} // namespace ditron::sim
