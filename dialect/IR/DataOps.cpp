// Data movement and its order: verifiers and canonicalizations.

#include "dialect/IR/Checks.h"

using namespace mlir;
using namespace mlir::ditron;

template <typename Transfer> static LogicalResult verifyTransfer(Transfer op) {
  Type element = op.getDst().getType().getPointeeType();
  Type source = op.getSrc().getType().getPointeeType();
  if (element != source) {
    return op.emitOpError(
               "expected dst and src to point to the same type, got ")
           << element << " and " << source;
  }
  if (failed(verifyByteCount(op, op.getNbytes(), op.getDst().getType()))) {
    return failure();
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
  return verifyOwnAddress(*this, getSignal(), "signal");
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
