// What several verifiers and folders ask of a value.

#ifndef DITRON_IR_CHECKS_H
#define DITRON_IR_CHECKS_H

#include "dialect/IR/Ditron.h"

#include <optional>

namespace mlir::ditron {

/// The value of an integer constant, sign-extended.
std::optional<int64_t> getConstant(Value value);

/// Whether `rank` is this rank's own number in its group.
bool isOwnRank(Value rank);

/// Fails when `rank` is a constant that no rank can have.
LogicalResult verifyRank(Operation *op, Value rank);

/// Fails when `nbytes` is a constant that cannot count the bytes of whole
/// elements of what `ptr`, the type of a pointer, points to.
LogicalResult verifyByteCount(Operation *op, Value nbytes, Type ptr);

/// Fails when `ptr`, the operand called `operand`, was already translated to
/// another rank or to the multicast address: `op` translates it itself.
LogicalResult verifyOwnAddress(Operation *op, Value ptr, StringRef operand);

/// The next (previous) operation of the block that touches memory or may have
/// any other effect; null at its end (beginning).
Operation *nextWithEffects(Operation *op);
Operation *previousWithEffects(Operation *op);

} // namespace mlir::ditron

#endif // DITRON_IR_CHECKS_H
