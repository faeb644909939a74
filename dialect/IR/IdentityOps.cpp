// Symmetric addresses and tile order: verifiers and folders.

#include "dialect/IR/Checks.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::ditron;

LogicalResult SymmAtOp::verify() {
  if (failed(verifyRank(*this, getRank()))) {
    return failure();
  }
  if (isa<RankedTensorType>(getRank().getType()) &&
      failed(
          verifyCompatibleShapes({getRank().getType(), getPtr().getType()}))) {
    return emitOpError("expected a rank for each pointer, got ")
           << getRank().getType() << " for " << getPtr().getType();
  }
  return verifyOwnAddress(*this, getPtr(), "ptr");
}

OpFoldResult SymmAtOp::fold(FoldAdaptor) {
  return isOwnRank(getRank()) ? getPtr() : Value();
}

LogicalResult MulticastPtrOp::verify() {
  return verifyOwnAddress(*this, getPtr(), "ptr");
}

LogicalResult SwizzleOp::verify() {
  std::optional<int64_t> tile = getConstant(getTile());
  std::optional<int64_t> size = getConstant(getSize());
  std::optional<int64_t> block = getConstant(getBlock());
  if (block && *block <= 0) {
    return emitOpError("expected block to be positive, got constant ")
           << *block;
  }
  if (size && *size < 0) {
    return emitOpError("expected size to be 0 or more, got constant ") << *size;
  }
  if (tile && *tile < 0) {
    return emitOpError("expected tile to be 0 or more, got constant ") << *tile;
  }
  return success();
}

OpFoldResult SwizzleOp::fold(FoldAdaptor) {
  std::optional<int64_t> size = getConstant(getSize());
  std::optional<int64_t> block = getConstant(getBlock());
  bool oneTile = size && block && *block > 0 && *size <= *block;
  return oneTile ? getTile() : Value();
}
