// Triton's operations that MLIR's passes must know about.

#ifndef DITRON_TRITON_OP_TABLE_H
#define DITRON_TRITON_OP_TABLE_H

namespace mlir {
class Dialect;
namespace ditron::tt {

/// Registers the operations of the table in TritonOpTable.cpp, with their memory
/// effects, in the `tt` stand-in. All others stay unknown: MLIR's passes then
/// assume the worst of them.
void registerTritonOps(Dialect &dialect);

} // namespace ditron::tt
} // namespace mlir

#endif // DITRON_TRITON_OP_TABLE_H
