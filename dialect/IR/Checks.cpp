// What several verifiers and folders ask of a value.

#include "dialect/IR/Checks.h"

#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
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

Ints::Ints(MLIRContext *context, ArrayRef<int64_t> numbers, ValueRange values) {
  Type i64 = IntegerType::get(context, 64);
  for (int64_t number : numbers) {
    if (!ShapedType::isDynamic(number)) {
      entries.push_back(IntegerAttr::get(i64, number));
    } else if (!values.empty()) { // a verifier has complained otherwise
      entries.push_back(values.front());
      values = values.drop_front();
    }
  }
}

std::optional<int64_t> Ints::known(size_t i) const {
  if (auto value = dyn_cast<Value>(entries[i])) {
    return getConstant(value);
  }
  return cast<IntegerAttr>(cast<Attribute>(entries[i])).getInt();
}

LogicalResult ditron::verifyInts(Operation *op, ArrayRef<int64_t> numbers,
                                 ValueRange values, StringRef what) {
  size_t open = llvm::count_if(numbers, ShapedType::isDynamic);
  if (open == values.size()) {
    return success();
  }
  return op->emitOpError("expected a value for each ")
         << what << " that is not known, " << open << " in all, got "
         << values.size();
}

LogicalResult ditron::absorbConstants(ArrayRef<int64_t> numbers,
                                      OperandRange values,
                                      SmallVectorImpl<int64_t> &newNumbers,
                                      SmallVectorImpl<Value> &newValues) {
  newNumbers.assign(numbers.begin(), numbers.end());
  OperandRange::iterator value = values.begin();
  for (int64_t &number : newNumbers) {
    if (!ShapedType::isDynamic(number)) {
      continue;
    }
    if (std::optional<int64_t> constant = getConstant(*value)) {
      number = *constant;
    } else {
      newValues.push_back(*value);
    }
    ++value;
  }
  return success(newValues.size() != values.size());
}

OpFoldResult ditron::getDim(Value buffer, int64_t dimension) {
  auto type = cast<BufferType>(buffer.getType());
  int64_t size = type.getShape()[dimension];
  if (!ShapedType::isDynamic(size)) {
    return IntegerAttr::get(IntegerType::get(buffer.getContext(), 64), size);
  }
  if (auto alloc = buffer.getDefiningOp<AllocOp>()) {
    return Ints(buffer.getContext(), alloc.getStaticSizes(),
                alloc.getSizes())[dimension];
  }
  if (auto slice = buffer.getDefiningOp<SliceOp>()) {
    Ints sizes(buffer.getContext(), slice.getStaticSizes(), slice.getSizes());
    return sizes[sizes.size() - type.getRank() + dimension];
  }
  return {};
}

LogicalResult ditron::verifySameShape(Operation *op, Value src, Value dst) {
  auto from = cast<BufferType>(src.getType());
  auto to = cast<BufferType>(dst.getType());
  if (from.getElementType() != to.getElementType()) {
    return op->emitOpError("expected src and dst to have the same element "
                           "type, got ")
           << from.getElementType() << " and " << to.getElementType();
  }
  if (failed(verifyCompatibleShape(from.getShape(), to.getShape()))) {
    return op->emitOpError("expected src and dst to have the same shape, got ")
           << from << " and " << to;
  }
  return success();
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
