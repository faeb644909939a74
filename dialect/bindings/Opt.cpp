#include "Core.h"
namespace mlir::ditron::python {
void bindOpt(nb::module_ &m) {}
} // namespace mlir::ditron::python
