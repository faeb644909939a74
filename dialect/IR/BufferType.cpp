// !ditron.buffer: its text and its rules.

#include "dialect/IR/Ditron.h"

using namespace mlir;
using namespace mlir::ditron;

LogicalResult
BufferType::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                   ArrayRef<int64_t> shape, Type element, MemorySpace) {
  if (!element.isSignlessIntOrFloat()) {
    return emitError() << "expected the element type of a buffer to be an "
                          "integer or a float, got "
                       << element;
  }
  for (int64_t size : shape) {
    if (size < 0 && size != ShapedType::kDynamic) {
      return emitError() << "expected a buffer's sizes to be 0 or more, got "
                         << size;
    }
  }
  return success();
}

Type BufferType::parse(AsmParser &parser) {
  llvm::SMLoc loc = parser.getCurrentLocation();
  SmallVector<int64_t> shape;
  Type element;
  MemorySpace space = MemorySpace::Local;
  if (parser.parseLess() || parser.parseDimensionList(shape) ||
      parser.parseType(element)) {
    return {};
  }
  if (succeeded(parser.parseOptionalComma())) {
    FailureOr<MemorySpace> parsed = FieldParser<MemorySpace>::parse(parser);
    if (failed(parsed)) {
      return {};
    }
    space = *parsed;
  }
  if (parser.parseGreater()) {
    return {};
  }
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(),
                    ArrayRef<int64_t>(shape), element, space);
}

void BufferType::print(AsmPrinter &printer) const {
  printer << '<';
  for (int64_t size : getShape()) {
    if (ShapedType::isDynamic(size)) {
      printer << '?';
    } else {
      printer << size;
    }
    printer << 'x';
  }
  printer << getElementType();
  if (getSpace() != MemorySpace::Local) {
    printer << ", " << stringifyEnum(getSpace());
  }
  printer << '>';
}
