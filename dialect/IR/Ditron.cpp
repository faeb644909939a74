// The dialect's registration, and the generated classes' definitions.

#include "dialect/IR/Ditron.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ditron;

#include "dialect/IR/DitronDialect.cpp.inc"
#include "dialect/IR/DitronEnums.cpp.inc"

//===----------------------------------------------------------------------===//
// Custom assembly: an enumeration attribute as a bare keyword
//===----------------------------------------------------------------------===//

template <typename EnumAttr>
static ParseResult parseKeyword(OpAsmParser &parser, EnumAttr &attr) {
  using Enum = decltype(attr.getValue());
  FailureOr<Enum> value = FieldParser<Enum>::parse(parser);
  if (failed(value)) {
    return failure();
  }
  attr = EnumAttr::get(parser.getContext(), *value);
  return success();
}

template <typename EnumAttr>
static void printKeyword(OpAsmPrinter &printer, Operation *, EnumAttr attr) {
  printer << stringifyEnum(attr.getValue());
}

#define GET_ATTRDEF_CLASSES
#include "dialect/IR/DitronAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/IR/DitronTypes.cpp.inc"

#define GET_OP_CLASSES
#include "dialect/IR/DitronOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Dialect
//===----------------------------------------------------------------------===//

void DitronDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialect/IR/DitronTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialect/IR/DitronAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/IR/DitronOps.cpp.inc"
      >();
}

void ditron::registerDitronDialects(DialectRegistry &registry) {
  registry.insert<DitronDialect>();
  tt::registerShims(registry);
}

Type ditron::getPointedToType(Type type) {
  if (auto tensor = dyn_cast<RankedTensorType>(type)) {
    auto pointer = dyn_cast<tt::PointerType>(tensor.getElementType());
    return pointer ? tensor.clone(pointer.getPointeeType()) : Type();
  }
  auto pointer = dyn_cast<tt::PointerType>(type);
  return pointer ? pointer.getPointeeType() : Type();
}
