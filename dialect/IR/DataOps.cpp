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

// A quiet for the signals that a kernel ends with, of which nothing may come
// (SIGNALS_AT_END in ditron_compiler/ir/dialects/ditron.py): it stands in for
// no other one, nor for a fence.
static bool isForSignalsAtEnd(Operation *op) {
  return isa<QuietOp>(op) && op->hasAttr("ditron.signals_at_end");
}

// Whether an operation orders and completes all that comes before it.
static bool completesAll(Operation *op) {
  return isa_and_nonnull<QuietOp, BarrierAllOp, BarrierOp>(op) &&
         !isForSignalsAtEnd(op);
}

LogicalResult FenceOp::canonicalize(FenceOp op, PatternRewriter &rewriter) {
  Operation *next = nextWithEffects(op);
  bool covered = isa_and_nonnull<FenceOp>(next) || completesAll(next) ||
                 completesAll(previousWithEffects(op));
  if (!covered) {
    return rewriter.notifyMatchFailure(op, "something lies between");
  }
  rewriter.eraseOp(op);
  return success();
}

LogicalResult QuietOp::canonicalize(QuietOp op, PatternRewriter &rewriter) {
  Operation *previous = previousWithEffects(op);
  bool covered = completesAll(nextWithEffects(op)) ||
                 isa_and_nonnull<BarrierAllOp, BarrierOp>(previous) ||
                 (isForSignalsAtEnd(op) && completesAll(previous));
  if (!covered) {
    return rewriter.notifyMatchFailure(op, "something lies between");
  }
  rewriter.eraseOp(op);
  return success();
}
