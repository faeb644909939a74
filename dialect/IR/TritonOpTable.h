// Triton's operations that MLIR's passes must know about.

#ifndef DITRON_TRITON_OP_TABLE_H
#define DITRON_TRITON_OP_TABLE_H

#include "dialect/IR/TritonOpFormat.h"

namespace mlir::ditron::tt {

/// How an operation touches memory.
enum class Access {
  None,      // may also be executed where it was not asked for
  Read,      //
  Write,     // or an effect that must stay, such as printing
  ReadWrite, //
  Load,      // reads; if `isVolatile`, writes too, so that it stays
  Call,      // reads and writes, unless `pure`
  Unknown,   // no statement
};

/// What else MLIR may rely on.
enum class Structure { Plain, Terminator, Function };

struct TritonOp {
  Access access;
  Structure structure;
  OpFormat format;
};

/// The table's entry for an operation, null if it has none.
const TritonOp *lookUpTritonOp(StringRef name);

/// Registers the operations of the table with `dialect`. All others stay
/// unknown: MLIR's passes assume the worst of them, and they are printed and
/// parsed in generic form. `ids` must live as long as the dialect.
void registerTritonOps(Dialect &dialect, TypeIDAllocator &ids);

/// The memory effects, speculatability and results' names of an operation of
/// the table, as `Dialect::getRegisteredInterfaceForOp` wants them; null for
/// others.
void *getTritonOpInterface(TypeID interface, OperationName name);

} // namespace mlir::ditron::tt

#endif // DITRON_TRITON_OP_TABLE_H
