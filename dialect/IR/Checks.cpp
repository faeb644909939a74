// What several verifiers and folders ask of a value.

#include "dialect/IR/Checks.h"

#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::ditron;

std::optional<int64_t> ditron::getConstant(Value value) {
  llvm::APInt constant;
  if (!matchPattern(value, m_ConstantInt(&constant))) {
    return std::nullopt;
  }
  return constant.getSExtValue();
}

bool ditron::isOwnRank(Value rank) {
  auto op = rank.getDefiningOp<RankOp>();
  return op && op.getTeam() == Team::Group;
}

LogicalResult ditron::verifyRank(Operation *op, Value rank) {
  std::optional<int64_t> constant = getConstant(rank);
  if (!constant || *constant >= 0) {
    return success();
  }
  return op->emitOpError("expected rank to be in [0, num_ranks), got constant ")
         << *constant;
}

/// Bytes that one element takes in memory; 1 where its size is not known here.
static int64_t getElementBytes(Type element) {
  if (isa<tt::PointerType>(element)) {
    return 8;
  }
  return element.isIntOrFloat()
             ? llvm::divideCeil(element.getIntOrFloatBitWidth(), 8)
             : 1;
}

LogicalResult ditron::verifyByteCount(Operation *op, Value nbytes, Type ptr) {
  std::optional<int64_t> bytes = getConstant(nbytes);
  if (bytes && *bytes < 0) {
    return op->emitOpError("expected nbytes to be 0 or more, got constant ")
           << *bytes;
  }
  Type element = cast<tt::PointerType>(ptr).getPointeeType();
  int64_t elementBytes = getElementBytes(element);
  if (bytes && *bytes % elementBytes != 0) {
    return op->emitOpError("expected nbytes to be a multiple of ")
           << elementBytes << ", the bytes of one " << element
           << ", got constant " << *bytes;
  }
  return success();
}

LogicalResult ditron::verifyOwnAddress(Operation *op, Value ptr,
                                       StringRef operand) {
  Operation *origin = ptr.getDefiningOp();
  auto symmAt = dyn_cast_or_null<SymmAtOp>(origin);
  bool atPeer = symmAt && !isOwnRank(symmAt.getRank());
  if (!atPeer && !isa_and_nonnull<MulticastPtrOp>(origin)) {
    return success();
  }
  InFlightDiagnostic error = op->emitOpError("expected ")
                             << operand
                             << " to be this rank's own symmetric address, "
                                "which the operation translates itself, got "
                                "the result of '"
                             << origin->getName() << "'; pass its operand";
  error.attachNote(origin->getLoc()) << "translated here";
  return error;
}

static bool hasEffects(Operation *op) {
  return !isMemoryEffectFree(op) || op->getNumRegions() != 0;
}

Operation *ditron::nextWithEffects(Operation *op) {
  do {
    op = op->getNextNode();
  } while (op && !hasEffects(op));
  return op;
}

Operation *ditron::previousWithEffects(Operation *op) {
  do {
    op = op->getPrevNode();
  } while (op && !hasEffects(op));
  return op;
}
