// Triton's operations that MLIR's passes must know about.

#ifndef DITRON_TRITON_OP_TABLE_H
#define DITRON_TRITON_OP_TABLE_H

#include "mlir/IR/OperationSupport.h"

namespace mlir::ditron::tt {

/// Registers the operations of the table in TritonOpTable.cpp with `dialect`.
/// All others stay unknown: MLIR's passes assume the worst of them. `ids` must
/// live as long as the dialect.
void registerTritonOps(Dialect &dialect, TypeIDAllocator &ids);

/// The memory effects and speculatability of an operation of the table, as
/// `Dialect::getRegisteredInterfaceForOp` wants them; null for any other.
void *getTritonOpInterface(TypeID interface, OperationName name);

} // namespace mlir::ditron::tt

#endif // DITRON_TRITON_OP_TABLE_H
