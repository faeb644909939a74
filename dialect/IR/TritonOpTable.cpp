// Triton's operations that MLIR's passes must know about.

#include "dialect/IR/TritonOpTable.h"

void mlir::ditron::tt::registerTritonOps(Dialect &) {}
