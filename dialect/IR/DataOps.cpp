// Data movement and its order: verifiers and canonicalizations.

#include "dialect/IR/Checks.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::ditron;

/// Bytes that one element takes in memory; 1 where its size is not known here.
static int64_t getElementBytes(Type element) {
  if (isa<tt::PointerType>(element)) {
    return 8;
  }
  return element.isIntOrFloat()
             ? llvm::divideCeil(element.getIntOrFloatBitWidth(), 8)
             : 1;
}

template <typename Transfer> static LogicalResult verifyTransfer(Transfer op) {
  Type element = op.getDst().getType().getPointeeType();
  Type source = op.getSrc().getType().getPointeeType();
  if (element != source) {
    return op.emitOpError(
               "expected dst and src to point to the same type, got ")
           << element << " and " << source;
  }
  std::optional<int64_t> bytes = getConstant(op.getNbytes());
  if (bytes && *bytes < 0) {
    return op.emitOpError("expected nbytes to be 0 or more, got constant ")
           << *bytes;
  }
  int64_t elementBytes = getElementBytes(element);
  if (bytes && *bytes % elementBytes != 0) {
    return op.emitOpError("expected nbytes to be a multiple of ")
           << elementBytes << ", the bytes of one " << element
           << ", got constant " << *bytes;
  }
  return verifyRank(op, op.getRank());
}

LogicalResult PutmemOp::verify() {
  if (failed(verifyTransfer(*this))) {
    return failure();
  }
  return verifyOwnAddress(*this, getDst(), "dst");
}

LogicalResult GetmemOp::verify() {
  if (failed(verifyTransfer(*this))) {
    return failure();
  }
  return verifyOwnAddress(*this, getSrc(), "src");
}

LogicalResult PutmemSignalOp::verify() {
  if (failed(verifyTransfer(*this)) ||
      failed(verifyOwnAddress(*this, getDst(), "dst"))) {
    return failure();
  }
  return verifyOwnAddress(*this, getSig(), "sig");
}

LogicalResult FenceOp::canonicalize(FenceOp op, PatternRewriter &rewriter) {
  bool covered = isa_and_nonnull<FenceOp, QuietOp, BarrierAllOp, BarrierOp>(
                     nextWithEffects(op)) ||
                 isa_and_nonnull<QuietOp, BarrierAllOp, BarrierOp>(
                     previousWithEffects(op));
  if (!covered) {
    return rewriter.notifyMatchFailure(op, "something lies between");
  }
  rewriter.eraseOp(op);
  return success();
}

LogicalResult QuietOp::canonicalize(QuietOp op, PatternRewriter &rewriter) {
  bool covered =
      isa_and_nonnull<QuietOp, BarrierAllOp, BarrierOp>(nextWithEffects(op)) ||
      isa_and_nonnull<BarrierAllOp, BarrierOp>(previousWithEffects(op));
  if (!covered) {
    return rewriter.notifyMatchFailure(op, "something lies between");
  }
  rewriter.eraseOp(op);
  return success();
}
