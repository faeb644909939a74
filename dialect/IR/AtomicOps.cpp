// Atomic accesses and NVLink SHARP: verifiers and memory effects.

#include "dialect/IR/Checks.h"

#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::ditron;

using Effects = SmallVectorImpl<MemoryEffects::EffectInstance>;

void LdOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getPtrMutable());
  // As good as a write: what comes after an acquire must not move above it, and
  // a loop that only polls, however relaxed, must not go as dead.
  effects.emplace_back(MemoryEffects::Write::get());
}

/// Whether adding `value` never makes an integer less.
static bool isKnownNonNegative(Value value) {
  APInt constant;
  return matchPattern(value, m_ConstantInt(&constant)) &&
         constant.isNonNegative();
}

bool AtomicAddOp::mayDecrease() { return !isKnownNonNegative(getValue()); }

bool RedOp::mayDecrease() {
  return getOp() != ReduceOp::Max &&
         !(getOp() == ReduceOp::Add && isKnownNonNegative(getValue()));
}

static Type getElementType(Value ptr) {
  return getElementTypeOrSelf(getPointedToType(ptr.getType()));
}

LogicalResult RedOp::verify() {
  Type element = getElementType(getPtr());
  if (getOp() != ReduceOp::Add && !element.isInteger()) {
    return emitOpError("expected i32 or i64 under ")
           << stringifyEnum(getOp()) << ", got " << element
           << "; floats can only be added";
  }
  return success();
}

/// Fails when `ptr` is known to lead to one rank instead of to the switch.
static LogicalResult verifyMulticast(Operation *op, Value ptr) {
  auto symmAt = ptr.getDefiningOp<SymmAtOp>();
  if (!symmAt) {
    return success();
  }
  InFlightDiagnostic error =
      op->emitOpError("expected ptr to come from ditron.multicast_ptr, got the "
                      "result of 'ditron.symm_at'");
  error.attachNote(symmAt.getLoc()) << "the address of one rank is made here";
  return error;
}

template <typename Multimem>
static LogicalResult verifyMultimemReduction(Multimem op) {
  Type element = getElementType(op.getPtr());
  if (op.getOp() != ReduceOp::Add && element.isF32()) {
    return op.emitOpError("expected i32, i64, f16 or bf16 under ")
           << stringifyEnum(op.getOp())
           << ", got 'f32'; NVLink SHARP can only add f32";
  }
  return verifyMulticast(op, op.getPtr());
}

LogicalResult MultimemLdReduceOp::verify() {
  return verifyMultimemReduction(*this);
}

LogicalResult MultimemStOp::verify() {
  return verifyMulticast(*this, getPtr());
}

LogicalResult MultimemRedOp::verify() { return verifyMultimemReduction(*this); }
