// The ditron dialect: types, attributes and operations.

#ifndef DITRON_IR_DITRON_H
#define DITRON_IR_DITRON_H

#include "dialect/IR/DitronTypes.h"
#include "dialect/IR/TritonShim.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::ditron {

/// What `type`, a pointer or a tensor of pointers, points to: `T`, or a tensor
/// of `T` of the same shape. Null for any other type.
Type getPointedToType(Type type);

/// Checks that an operation stands in a ditron.program.
LogicalResult verifyInProgram(Operation *op);

/// Whether a memory order has an acquire, or a release, in it.
inline bool isAcquire(Semantic semantic) {
  return semantic == Semantic::Acquire || semantic == Semantic::AcqRel;
}
inline bool isRelease(Semantic semantic) {
  return semantic == Semantic::Release || semantic == Semantic::AcqRel;
}

/// An access to another rank's memory, named by this rank's own address of it.
struct RemoteAccess {
  Value ptr;
  /// The number of bytes; null for one signal.
  Value nbytes;
};

/// The trait of operations of host programs.
template <typename Op>
class InProgram : public OpTrait::TraitBase<Op, InProgram> {
public:
  static LogicalResult verifyTrait(Operation *op) {
    return verifyInProgram(op);
  }
};

// Traits that say something and check nothing; DitronInterfaces.td says what.
template <typename Op>
class ProgramWide : public OpTrait::TraitBase<Op, ProgramWide> {};
template <typename Op> class Spins : public OpTrait::TraitBase<Op, Spins> {};
template <typename Op>
class OrdersMemory : public OpTrait::TraitBase<Op, OrdersMemory> {};
template <typename Op>
class CompletesTransfers : public OpTrait::TraitBase<Op, CompletesTransfers> {};
template <typename Op>
class ThreadDependent : public OpTrait::TraitBase<Op, ThreadDependent> {};
template <typename Op>
class RequiresMulticast : public OpTrait::TraitBase<Op, RequiresMulticast> {};

/// Adds the ditron dialect and the stand-ins for Triton's dialects.
void registerDitronDialects(DialectRegistry &registry);

} // namespace mlir::ditron

#include "dialect/IR/DitronDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/IR/DitronAttrs.h.inc"

#include "dialect/IR/DitronInterfaces.h.inc"

#define GET_OP_CLASSES
#include "dialect/IR/DitronOps.h.inc"

#endif // DITRON_IR_DITRON_H
