// Threads of a program and the escape: verifiers, effects, canonicalizations.

#include "dialect/IR/Checks.h"

using namespace mlir;
using namespace mlir::ditron;

using Effects = SmallVectorImpl<MemoryEffects::EffectInstance>;

LogicalResult SyncThreadsOp::canonicalize(SyncThreadsOp op,
                                          PatternRewriter &rewriter) {
  if (!isa_and_nonnull<SyncThreadsOp>(nextWithEffects(op))) {
    return rewriter.notifyMatchFailure(op, "no other barrier right after");
  }
  rewriter.eraseOp(op);
  return success();
}

LogicalResult ShflOp::verify() {
  constexpr int64_t widestWarp = 64; // AMD's CDNA; NVIDIA's has 32 lanes
  std::optional<int64_t> lane = getConstant(getLane());
  if (lane && (*lane < 0 || *lane >= widestWarp)) {
    return emitOpError("expected lane to be in [0, ")
           << widestWarp << "), got constant " << *lane;
  }
  return success();
}

void ExpectOp::getEffects(Effects &effects) {
  if (!getCondition()) {
    effects.emplace_back(MemoryEffects::Read::get());
    effects.emplace_back(MemoryEffects::Write::get());
  }
}

Speculation::Speculatability ExpectOp::getSpeculatability() {
  return getCondition() ? Speculation::Speculatable
                        : Speculation::NotSpeculatable;
}

LogicalResult ExternCallOp::verify() {
  if (getPure() && getNumResults() == 0) {
    return emitOpError("expected a pure call to return something, because a "
                       "pure call without a result is erased; drop 'pure'");
  }
  return success();
}

void ExternCallOp::getEffects(Effects &effects) {
  if (!getPure()) {
    effects.emplace_back(MemoryEffects::Read::get());
    effects.emplace_back(MemoryEffects::Write::get());
  }
}

Speculation::Speculatability ExternCallOp::getSpeculatability() {
  return getPure() ? Speculation::Speculatable : Speculation::NotSpeculatable;
}
