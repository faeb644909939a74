#include "Core.h"
namespace mlir::ditron::python {
void bindPassManager(nb::module_ &m) {}
} // namespace mlir::ditron::python
