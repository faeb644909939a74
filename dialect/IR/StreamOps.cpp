// What host programs put on streams: verifiers and canonicalizations.

#include "dialect/IR/Checks.h"

#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::ditron;

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

void RecordOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getEvent(), "event");
}

LogicalResult RecordOp::canonicalize(RecordOp op, PatternRewriter &rewriter) {
  if (!op.getEvent().use_empty()) {
    return rewriter.notifyMatchFailure(op, "something awaits the event");
  }
  rewriter.eraseOp(op);
  return success();
}

LogicalResult AwaitOp::canonicalize(AwaitOp op, PatternRewriter &rewriter) {
  auto record = op.getEvent().getDefiningOp<RecordOp>();
  if (!record || record.getStream() != op.getStream()) {
    return rewriter.notifyMatchFailure(op, "another stream's event");
  }
  rewriter.eraseOp(op);
  return success();
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

LogicalResult CopyOp::verify() {
  return verifySameShape(*this, getSrc(), getDst());
}

LogicalResult RankCopyOp::verify() {
  BufferType remote = (getPull() ? getSrc() : getDst()).getType();
  if (!remote.isSymmetric()) {
    return emitOpError("expected ")
           << (getPull() ? "src" : "dst")
           << " to be symmetric, because it is the peer's, got " << remote;
  }
  if (failed(verifySameShape(*this, getSrc(), getDst()))) {
    return failure();
  }
  return verifyRank(*this, getPeer());
}

LogicalResult AllGatherOp::verify() {
  BufferType src = getSrc().getType(), dst = getDst().getType();
  if (!dst.isSymmetric()) {
    return emitOpError("expected dst to be symmetric, because every rank "
                       "writes there, got ")
           << dst;
  }
  if (getSignal().getType().getRank() != 1) {
    return emitOpError("expected one signal for each rank, in a buffer of one "
                       "dimension, got ")
           << getSignal().getType();
  }
  bool same = src.getElementType() == dst.getElementType() &&
              src.getRank() == dst.getRank() && src.getRank() > 0 &&
              succeeded(verifyCompatibleShape(src.getShape().drop_front(),
                                              dst.getShape().drop_front()));
  if (!same) {
    return emitOpError("expected dst to have the element type of src, and its "
                       "sizes but for the first dimension, got ")
           << src << " and " << dst;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Signals
//===----------------------------------------------------------------------===//

template <typename SignalUser>
static LogicalResult verifySignal(SignalUser op) {
  BufferType type = op.getSignal().getType();
  size_t rank = type.getRank();
  if (op.getStaticIndices().size() != rank) {
    return op.emitOpError("expected ")
           << rank << " indices, one for each dimension of " << type
           << ", because it is about one signal, got "
           << op.getStaticIndices().size();
  }
  if (failed(verifyInts(op, op.getStaticIndices(), op.getIndices(), "index"))) {
    return failure();
  }
  Ints indices(op.getContext(), op.getStaticIndices(), op.getIndices());
  for (size_t i = 0; i < rank; ++i) {
    std::optional<int64_t> index = indices.known(i);
    int64_t size = type.getShape()[i];
    bool beyond = index && !ShapedType::isDynamic(size) && *index >= size;
    if (index && (*index < 0 || beyond)) {
      return op.emitOpError("expected an index of ")
             << type << ", got constant " << *index << " in dimension " << i;
    }
  }
  return success();
}

LogicalResult SignalWriteOp::verify() {
  if (failed(verifySignal(*this))) {
    return failure();
  }
  return verifyRank(*this, getPeer());
}

LogicalResult SignalWaitOp::verify() { return verifySignal(*this); }

/// Indices that are constants become part of the operation.
template <typename SignalUser>
static LogicalResult absorbIndices(SignalUser op, PatternRewriter &rewriter) {
  SmallVector<int64_t> numbers;
  SmallVector<Value> values;
  if (failed(absorbConstants(op.getStaticIndices(), op.getIndices(), numbers,
                             values))) {
    return rewriter.notifyMatchFailure(op, "no constants");
  }
  rewriter.modifyOpInPlace(op, [&] {
    op.setStaticIndices(numbers);
    op.getIndicesMutable().assign(values);
  });
  return success();
}

LogicalResult SignalWriteOp::canonicalize(SignalWriteOp op,
                                          PatternRewriter &rewriter) {
  return absorbIndices(op, rewriter);
}

LogicalResult SignalWaitOp::canonicalize(SignalWaitOp op,
                                         PatternRewriter &rewriter) {
  return absorbIndices(op, rewriter);
}

//===----------------------------------------------------------------------===//
// ditron.launch
//===----------------------------------------------------------------------===//

LogicalResult LaunchOp::verify() {
  size_t size = getStaticGrid().size();
  if (size < 1 || size > 3) {
    return emitOpError("expected a grid of 1 to 3 numbers, got ") << size;
  }
  if (failed(verifyInts(*this, getStaticGrid(), getGrid(), "number"))) {
    return failure();
  }
  Ints grid(getContext(), getStaticGrid(), getGrid());
  for (size_t i = 0; i < size; ++i) {
    std::optional<int64_t> number = grid.known(i);
    if (number && *number < 0) {
      return emitOpError("expected the grid's numbers to be 0 or more, got "
                         "constant ")
             << *number;
    }
  }
  for (auto [i, argument] : llvm::enumerate(getArgs())) {
    if (tt::isDescriptorType(argument.getType()) &&
        !argument.getDefiningOp<TensorDescriptorOp>()) {
      return emitOpError("expected argument ")
             << i << ", a descriptor, to be made by ditron.tensor_descriptor";
    }
  }
  return success();
}

LogicalResult LaunchOp::canonicalize(LaunchOp op, PatternRewriter &rewriter) {
  SmallVector<int64_t> numbers;
  SmallVector<Value> values;
  if (failed(
          absorbConstants(op.getStaticGrid(), op.getGrid(), numbers, values))) {
    return rewriter.notifyMatchFailure(op, "no constants");
  }
  rewriter.modifyOpInPlace(op, [&] {
    op.setStaticGrid(numbers);
    op.getGridMutable().assign(values);
  });
  return success();
}

/// Whether a kernel's parameter can be given a value of a program.
static bool accepts(Type parameter, Type given) {
  auto buffer = dyn_cast<BufferType>(given);
  auto pointer = dyn_cast<tt::PointerType>(parameter);
  if (!buffer || !pointer) {
    return parameter == given;
  }
  return pointer.getPointeeType() == buffer.getElementType();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Operation *kernel =
      symbols.lookupNearestSymbolFrom((*this)->getParentOp(), getKernelAttr());
  if (!kernel || kernel->getName().getStringRef() != "tt.func") {
    return emitOpError("expected ")
           << getKernelAttr() << " to be a tt.func of the module, "
           << (kernel ? "which it is not" : "which has nothing of that name");
  }
  auto attribute = kernel->getAttrOfType<TypeAttr>("function_type");
  auto type =
      attribute ? dyn_cast<FunctionType>(attribute.getValue()) : FunctionType();
  if (!type) {
    return emitOpError("expected ") << getKernelAttr() << " to have a type";
  }
  ArrayRef<Type> parameters = type.getInputs();
  if (kernel->hasAttr("ditron.kernel") && !parameters.empty()) {
    parameters = parameters.drop_back(); // the context
  }
  auto fail = [&](const Twine &text) {
    InFlightDiagnostic error = emitOpError(text);
    error.attachNote(kernel->getLoc()) << "the kernel";
    return error;
  };
  if (parameters.size() != getArgs().size()) {
    return fail("expected " + Twine(parameters.size()) + " arguments for @" +
                getKernel() + ", got " + Twine(getArgs().size()));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    Type given = getArgs()[i].getType();
    if (!accepts(parameters[i], given)) {
      return fail("expected argument " + Twine(i) + " of @" + getKernel() +
                  " to be for ")
             << parameters[i] << ", got " << given;
    }
  }
  return success();
}
