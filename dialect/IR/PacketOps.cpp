// Packets that carry their own flag: verifiers.

#include "dialect/IR/Checks.h"

using namespace mlir;
using namespace mlir::ditron;

/// What the two ends of a message have in common; `data` is the unpacked side.
template <typename Op> static LogicalResult verifyMessage(Op op, Value data) {
  if (op.getProtocol() == Protocol::Simple) {
    return op.emitOpError("expected protocol ll or ll128, got simple, whose "
                          "data has no flag; use ditron.putmem_signal");
  }
  if (failed(verifyByteCount(op, op.getNbytes(), data.getType()))) {
    return failure();
  }
  std::optional<int64_t> epoch = getConstant(op.getEpoch());
  if (epoch && *epoch < 1) {
    return op.emitOpError("expected epoch to be 1 or more, because packet "
                          "memory begins with flag 0, got constant ")
           << *epoch;
  }
  return success();
}

LogicalResult LLPutOp::verify() {
  if (failed(verifyMessage(*this, getSrc())) ||
      failed(verifyRank(*this, getRank()))) {
    return failure();
  }
  return verifyOwnAddress(*this, getPackets(), "packets");
}

LogicalResult LLGetOp::verify() {
  if (failed(verifyMessage(*this, getDst()))) {
    return failure();
  }
  return verifyOwnAddress(*this, getPackets(), "packets");
}
