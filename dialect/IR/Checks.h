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

/// A list of numbers, each known or a value, as `custom<Ints>` reads it.
class Ints {
public:
  Ints(MLIRContext *context, ArrayRef<int64_t> numbers, ValueRange values);

  size_t size() const { return entries.size(); }
  /// An IntegerAttr of i64 or a value.
  OpFoldResult operator[](size_t i) const { return entries[i]; }
  /// The number, also where it is a value that is a constant.
  std::optional<int64_t> known(size_t i) const;

private:
  SmallVector<OpFoldResult> entries;
};

/// Fails unless `numbers` leaves as many places open as there are `values`.
/// `what` names an entry of the list.
LogicalResult verifyInts(Operation *op, ArrayRef<int64_t> numbers,
                         ValueRange values, StringRef what);

/// Moves constants from `values` into `numbers`. Fails when there are none.
LogicalResult absorbConstants(ArrayRef<int64_t> numbers, OperandRange values,
                              SmallVectorImpl<int64_t> &newNumbers,
                              SmallVectorImpl<Value> &newValues);

/// The size of a buffer along a dimension as far as this program says it: an
/// IntegerAttr, a value, or null.
OpFoldResult getDim(Value buffer, int64_t dimension);

/// Fails unless one buffer can be copied to the other.
LogicalResult verifySameShape(Operation *op, Value src, Value dst);

/// The next (previous) operation of the block that touches memory or may have
/// any other effect; null at its end (beginning).
Operation *nextWithEffects(Operation *op);
Operation *previousWithEffects(Operation *op);

} // namespace mlir::ditron

#endif // DITRON_IR_CHECKS_H
