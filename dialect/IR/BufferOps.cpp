// The memory of host programs and its numbers: verifiers, folders, canonical
// forms.

#include "dialect/IR/Checks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::ditron;

//===----------------------------------------------------------------------===//
// Sizes and strides
//===----------------------------------------------------------------------===//

template <typename Query> static LogicalResult verifyDimension(Query op) {
  int64_t rank = op.getSource().getType().getRank();
  auto dimension = int64_t(op.getDimension());
  if (dimension >= 0 && dimension < rank) {
    return success();
  }
  return op.emitOpError("expected the dimension to be in [0, ")
         << rank << "), got " << dimension;
}

LogicalResult DimOp::verify() { return verifyDimension(*this); }
LogicalResult StrideOp::verify() { return verifyDimension(*this); }

OpFoldResult DimOp::fold(FoldAdaptor) {
  return getDim(getSource(), getDimension());
}

OpFoldResult StrideOp::fold(FoldAdaptor) {
  if (auto slice = getSource().getDefiningOp<SliceOp>()) {
    int64_t dropped =
        slice.getSource().getType().getRank() - getSource().getType().getRank();
    setDimension(getDimension() + dropped);
    getSourceMutable().assign(slice.getSource());
    return getResult();
  }
  if (!getSource().getDefiningOp<AllocOp>()) {
    return {};
  }
  int64_t stride = 1;
  for (int64_t i = int64_t(getDimension()) + 1,
               rank = getSource().getType().getRank();
       i < rank; ++i) {
    auto size = dyn_cast_or_null<Attribute>(getDim(getSource(), i));
    if (!size) {
      return {};
    }
    stride *= cast<IntegerAttr>(size).getInt();
  }
  return IntegerAttr::get(getType(), stride);
}

//===----------------------------------------------------------------------===//
// Allocations, parts, descriptors
//===----------------------------------------------------------------------===//

/// Checks sizes against a type: what the type knows is what was asked for.
static LogicalResult verifySizes(Operation *op, const Ints &sizes,
                                 BufferType type, size_t dropped = 0) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::optional<int64_t> size = sizes.known(i);
    if (size && *size < 0) {
      return op->emitOpError("expected sizes to be 0 or more, got constant ")
             << *size;
    }
    if (i < dropped) {
      continue;
    }
    int64_t declared = type.getShape()[i - dropped];
    if (!ShapedType::isDynamic(declared) && size != declared) {
      InFlightDiagnostic error = op->emitOpError("expected size ")
                                 << declared << " in dimension " << i - dropped
                                 << ", as the result's type says, got ";
      return size ? error << *size : error << "a value; write '?' in the type";
    }
  }
  return success();
}

void AllocOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), getLabel().empty() ? "alloc" : getLabel());
}

LogicalResult AllocOp::verify() {
  if (getLabel().empty()) {
    return emitOpError("expected a label that names the memory in reports");
  }
  size_t rank = getType().getRank();
  if (getStaticSizes().size() != rank) {
    return emitOpError("expected ")
           << rank << " sizes, one for each dimension of the result, got "
           << getStaticSizes().size();
  }
  if (failed(verifyInts(*this, getStaticSizes(), getSizes(), "size"))) {
    return failure();
  }
  return verifySizes(*this, Ints(getContext(), getStaticSizes(), getSizes()),
                     getType());
}

LogicalResult SliceOp::verify() {
  BufferType source = getSource().getType(), result = getType();
  size_t rank = source.getRank();
  if (source.getElementType() != result.getElementType() ||
      source.getSpace() != result.getSpace()) {
    return emitOpError("expected the element type and the memory space of the "
                       "source in the result, got ")
           << source << " and " << result;
  }
  if (getStaticOffsets().size() != rank || getStaticSizes().size() != rank) {
    return emitOpError("expected ")
           << rank << " offsets and sizes, one for each dimension of the "
           << "source, got " << getStaticOffsets().size() << " and "
           << getStaticSizes().size();
  }
  if (failed(verifyInts(*this, getStaticOffsets(), getOffsets(), "offset")) ||
      failed(verifyInts(*this, getStaticSizes(), getSizes(), "size"))) {
    return failure();
  }
  if (result.getRank() > source.getRank()) {
    return emitOpError("expected the result to have at most the ")
           << rank << " dimensions of the source, got " << result.getRank();
  }
  size_t dropped = rank - result.getRank();
  Ints offsets(getContext(), getStaticOffsets(), getOffsets());
  Ints sizes(getContext(), getStaticSizes(), getSizes());
  for (size_t i = 0; i < rank; ++i) {
    std::optional<int64_t> offset = offsets.known(i), size = sizes.known(i);
    int64_t whole = source.getShape()[i];
    if (i < dropped && size != 1) {
      return emitOpError("expected size 1 in dimension ")
             << i << " of the source, which the result has not";
    }
    if (offset && *offset < 0) {
      return emitOpError("expected offsets to be 0 or more, got constant ")
             << *offset;
    }
    if (!ShapedType::isDynamic(whole) && size &&
        offset.value_or(0) + *size > whole) {
      return emitOpError("expected elements of the source, which has ")
             << whole << " in dimension " << i << ", got " << *size << " from "
             << offset.value_or(0);
    }
  }
  return verifySizes(*this, sizes, result, dropped);
}

void TensorDescriptorOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), "desc");
}

/// The element type of a descriptor as a buffer has it: without signedness.
static Type signless(Type element) {
  auto integer = dyn_cast<IntegerType>(element);
  return integer ? IntegerType::get(element.getContext(), integer.getWidth())
                 : element;
}

LogicalResult TensorDescriptorOp::verify() {
  RankedTensorType block = tt::getDescriptorBlock(getType());
  if (!block) {
    return emitOpError("expected a block in the type of the result, as in "
                       "!tt.tensordesc<tensor<16x64xbf16>>, got ")
           << getType();
  }
  Type element = getSource().getType().getElementType();
  if (signless(block.getElementType()) != element) {
    return emitOpError("expected a block of the buffer's elements, ")
           << element << ", got " << block;
  }
  auto rank = size_t(block.getRank());
  if (rank < 1 || rank > 5) {
    return emitOpError("expected a block of 1 to 5 dimensions, got ") << block;
  }
  if (getStaticSizes().size() != rank || getStaticStrides().size() != rank) {
    return emitOpError("expected ")
           << rank << " sizes and strides, one for each dimension of the "
           << "block, got " << getStaticSizes().size() << " and "
           << getStaticStrides().size();
  }
  if (failed(verifyInts(*this, getStaticSizes(), getSizes(), "size")) ||
      failed(verifyInts(*this, getStaticStrides(), getStrides(), "stride"))) {
    return failure();
  }
  if (getNanPadding() && !isa<FloatType>(element)) {
    return emitOpError("expected floats where NaN is outside, got ") << element;
  }
  Ints sizes(getContext(), getStaticSizes(), getSizes());
  Ints strides(getContext(), getStaticStrides(), getStrides());
  int64_t bytes = std::max<int64_t>(element.getIntOrFloatBitWidth() / 8, 1);
  for (size_t i = 0; i < rank; ++i) {
    std::optional<int64_t> size = sizes.known(i), stride = strides.known(i);
    if (size && *size < 1) {
      return emitOpError("expected sizes of at least 1, got constant ")
             << *size;
    }
    if (stride && i + 1 == rank && *stride != 1) {
      return emitOpError("expected the last stride to be 1, got constant ")
             << *stride;
    }
    if (stride && i + 1 < rank && (*stride < 0 || *stride * bytes % 16)) {
      return emitOpError("expected strides of a multiple of 16 bytes, got ")
             << *stride << " elements of " << bytes;
    }
  }
  return success();
}

/// Whether `size` is how many elements `buffer` has along a dimension.
static bool isWholeSize(OpFoldResult size, Value buffer, uint64_t dimension) {
  if (size == getDim(buffer, dimension)) {
    return true;
  }
  auto value = dyn_cast<Value>(size);
  auto dim = value ? value.getDefiningOp<DimOp>() : DimOp();
  return dim && dim.getSource() == buffer && dim.getDimension() == dimension;
}

OpFoldResult SliceOp::fold(FoldAdaptor) {
  if (getType() != getSource().getType()) {
    return {};
  }
  Ints offsets(getContext(), getStaticOffsets(), getOffsets());
  Ints sizes(getContext(), getStaticSizes(), getSizes());
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (offsets.known(i) != 0 || !isWholeSize(sizes[i], getSource(), i)) {
      return {};
    }
  }
  return getSource();
}

namespace {

/// Sizes that are constants become part of the operation.
struct KnownSizes : OpRewritePattern<AllocOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AllocOp op,
                                PatternRewriter &rewriter) const override {
    SmallVector<int64_t> numbers;
    SmallVector<Value> values;
    if (failed(absorbConstants(op.getStaticSizes(), op.getSizes(), numbers,
                               values))) {
      return rewriter.notifyMatchFailure(op, "no constants");
    }
    rewriter.modifyOpInPlace(op, [&] {
      op.setStaticSizes(numbers);
      op.getSizesMutable().assign(values);
    });
    return success();
  }
};

/// Offsets and sizes that are constants become part of the operation.
struct KnownPart : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op,
                                PatternRewriter &rewriter) const override {
    SmallVector<int64_t> offsets, sizes;
    SmallVector<Value> offsetValues, sizeValues;
    bool changed = succeeded(absorbConstants(
        op.getStaticOffsets(), op.getOffsets(), offsets, offsetValues));
    changed |= succeeded(
        absorbConstants(op.getStaticSizes(), op.getSizes(), sizes, sizeValues));
    if (!changed) {
      return rewriter.notifyMatchFailure(op, "no constants");
    }
    rewriter.modifyOpInPlace(op, [&] {
      op.setStaticOffsets(offsets);
      op.setStaticSizes(sizes);
      op.getOffsetsMutable().assign(offsetValues);
      op.getSizesMutable().assign(sizeValues);
    });
    return success();
  }
};

/// Sizes and strides that are constants become part of the operation.
struct KnownTensor : OpRewritePattern<TensorDescriptorOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TensorDescriptorOp op,
                                PatternRewriter &rewriter) const override {
    SmallVector<int64_t> sizes, strides;
    SmallVector<Value> sizeValues, strideValues;
    bool changed = succeeded(
        absorbConstants(op.getStaticSizes(), op.getSizes(), sizes, sizeValues));
    changed |= succeeded(absorbConstants(op.getStaticStrides(), op.getStrides(),
                                         strides, strideValues));
    if (!changed) {
      return rewriter.notifyMatchFailure(op, "no constants");
    }
    rewriter.modifyOpInPlace(op, [&] {
      op.setStaticSizes(sizes);
      op.setStaticStrides(strides);
      op.getSizesMutable().assign(sizeValues);
      op.getStridesMutable().assign(strideValues);
    });
    return success();
  }
};

/// A part of a part is a part.
struct SliceOfSlice : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op,
                                PatternRewriter &rewriter) const override {
    auto inner = op.getSource().getDefiningOp<SliceOp>();
    if (!inner) {
      return rewriter.notifyMatchFailure(op, "not of a slice");
    }
    Ints innerOffsets(inner.getContext(), inner.getStaticOffsets(),
                      inner.getOffsets());
    Ints innerSizes(inner.getContext(), inner.getStaticSizes(),
                    inner.getSizes());
    Ints offsets(op.getContext(), op.getStaticOffsets(), op.getOffsets());
    Ints sizes(op.getContext(), op.getStaticSizes(), op.getSizes());
    size_t dropped = innerSizes.size() - sizes.size();
    SmallVector<int64_t> numbers[2];
    SmallVector<Value> values[2];
    auto add = [&](int list, OpFoldResult entry) {
      auto value = dyn_cast<Value>(entry);
      numbers[list].push_back(
          value ? ShapedType::kDynamic
                : cast<IntegerAttr>(cast<Attribute>(entry)).getInt());
      if (value) {
        values[list].push_back(value);
      }
    };
    for (size_t i = 0; i < innerSizes.size(); ++i) {
      bool gone = i < dropped;
      add(0, gone ? innerOffsets[i]
                  : sum(rewriter, op.getLoc(), innerOffsets[i],
                        offsets[i - dropped]));
      add(1, gone ? innerSizes[i] : sizes[i - dropped]);
    }
    rewriter.replaceOpWithNewOp<SliceOp>(op, op.getType(), inner.getSource(),
                                         values[0], values[1], numbers[0],
                                         numbers[1]);
    return success();
  }

  static OpFoldResult sum(PatternRewriter &rewriter, Location loc,
                          OpFoldResult a, OpFoldResult b) {
    auto known = [](OpFoldResult entry) -> std::optional<int64_t> {
      auto attr = dyn_cast<Attribute>(entry);
      return attr ? std::optional(cast<IntegerAttr>(attr).getInt())
                  : std::nullopt;
    };
    if (known(a) == 0) {
      return b;
    }
    if (known(b) == 0) {
      return a;
    }
    if (known(a) && known(b)) {
      return rewriter.getI64IntegerAttr(*known(a) + *known(b));
    }
    auto value = [&](OpFoldResult entry) -> Value {
      if (auto attr = dyn_cast<Attribute>(entry)) {
        return arith::ConstantOp::create(rewriter, loc,
                                         cast<IntegerAttr>(attr));
      }
      return cast<Value>(entry);
    };
    return arith::AddIOp::create(rewriter, loc, value(a), value(b)).getResult();
  }
};

} // namespace

void AllocOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                          MLIRContext *context) {
  patterns.add<KnownSizes>(context);
}

void SliceOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                          MLIRContext *context) {
  patterns.add<KnownPart, SliceOfSlice>(context);
}

void TensorDescriptorOp::getCanonicalizationPatterns(
    RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<KnownTensor>(context);
}
