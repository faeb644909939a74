// Signals and tokens: verifiers and folders.

#include "dialect/IR/Checks.h"

using namespace mlir;
using namespace mlir::ditron;

LogicalResult WaitOp::verify() {
  std::optional<int64_t> count = getConstant(getCount());
  if (count && *count < 0) {
    return emitOpError("expected count to be 0 or more signals, got constant ")
           << *count;
  }
  return success();
}

OpFoldResult ConsumeTokenOp::fold(FoldAdaptor) {
  // The value may have consumed other tokens since; it still depends on this.
  Value value = getValue();
  while (auto inner = value.getDefiningOp<ConsumeTokenOp>()) {
    if (inner.getToken() == getToken()) {
      return getValue();
    }
    value = inner.getValue();
  }
  return {};
}

LogicalResult NotifyOp::verify() {
  if (failed(verifyRank(*this, getRank())) ||
      failed(verifyOwnAddress(*this, getSignal(), "signal"))) {
    return failure();
  }
  std::optional<int64_t> rank = getConstant(getRank());
  if (rank && getScope() == Scope::GPU) {
    return emitOpError("expected scope node or world, because rank ")
           << *rank
           << " is another GPU on every rank but one; scope gpu needs "
              "ditron.rank as rank";
  }
  return success();
}

LogicalResult SignalOpOp::verify() {
  if (failed(verifyRank(*this, getRank()))) {
    return failure();
  }
  return verifyOwnAddress(*this, getSignal(), "signal");
}
