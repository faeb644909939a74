// Python passes inside MLIR's pass manager.
#ifndef DITRON_BINDINGS_PYTHONPASS_H
#define DITRON_BINDINGS_PYTHONPASS_H

#include "Core.h"

namespace mlir::ditron::python {

/// Takes the exception that a Python pass raised since the last call, if any (a null object otherwise).
nb::object takePendingException();

/// `_core._register_pass`.
void bindPythonPasses(nb::module_ &m);

} // namespace mlir::ditron::python

#endif // DITRON_BINDINGS_PYTHONPASS_H
