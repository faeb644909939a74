// The dialect's registration, and the generated classes' definitions.

#include "dialect/IR/Ditron.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ditron;

#include "dialect/IR/DitronDialect.cpp.inc"
#include "dialect/IR/DitronEnums.cpp.inc"

//===----------------------------------------------------------------------===//
// Custom assembly
//===----------------------------------------------------------------------===//

/// An enumeration attribute as a bare keyword.
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

using Operands = SmallVectorImpl<OpAsmParser::UnresolvedOperand>;

/// Numbers that are known or values: `[%parity, 0, 0]`.
static ParseResult parseInts(OpAsmParser &parser, Operands &values,
                             DenseI64ArrayAttr &numbers) {
  return parseDynamicIndexList(parser, values, numbers);
}

static void printInts(OpAsmPrinter &printer, Operation *op, OperandRange values,
                      ArrayRef<int64_t> numbers) {
  printDynamicIndexList(printer, op, values, numbers);
}

/// The same in parentheses.
static ParseResult parseGrid(OpAsmParser &parser, Operands &values,
                             DenseI64ArrayAttr &numbers) {
  return parseDynamicIndexList(parser, values, numbers, /*valueTypes=*/nullptr,
                               AsmParser::Delimiter::Paren);
}

static void printGrid(OpAsmPrinter &printer, Operation *op, OperandRange values,
                      ArrayRef<int64_t> numbers) {
  printDynamicIndexList(printer, op, values, numbers,
                        /*valueTypes=*/TypeRange(),
                        AsmParser::Delimiter::Paren);
}

/// Both ends of a copy between ranks, of which one is at the peer:
/// `%src to %dst on %peer` or `%src on %peer to %dst`.
static ParseResult parseEnds(OpAsmParser &parser,
                             OpAsmParser::UnresolvedOperand &src,
                             OpAsmParser::UnresolvedOperand &dst,
                             OpAsmParser::UnresolvedOperand &peer,
                             UnitAttr &pull) {
  if (parser.parseOperand(src)) {
    return failure();
  }
  if (succeeded(parser.parseOptionalKeyword("on"))) {
    pull = parser.getBuilder().getUnitAttr();
    return failure(parser.parseOperand(peer) || parser.parseKeyword("to") ||
                   parser.parseOperand(dst));
  }
  return failure(parser.parseKeyword("to") || parser.parseOperand(dst) ||
                 parser.parseKeyword("on") || parser.parseOperand(peer));
}

static void printEnds(OpAsmPrinter &printer, Operation *, Value src, Value dst,
                      Value peer, UnitAttr pull) {
  if (pull) {
    printer << src << " on " << peer << " to " << dst;
  } else {
    printer << src << " to " << dst << " on " << peer;
  }
}

/// The type of a rank: i32, which is not printed, or `, tensor<64xi32>`.
static ParseResult parseTensorOfRanks(OpAsmParser &parser, Type &type) {
  if (succeeded(parser.parseOptionalComma())) {
    return parser.parseType(type);
  }
  type = parser.getBuilder().getI32Type();
  return success();
}

static void printTensorOfRanks(OpAsmPrinter &printer, Operation *, Type type) {
  if (isa<RankedTensorType>(type)) {
    printer << ", " << type;
  }
}

#define GET_ATTRDEF_CLASSES
#include "dialect/IR/DitronAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/IR/DitronTypes.cpp.inc"

#include "dialect/IR/DitronInterfaces.cpp.inc"

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

Operation *DitronDialect::materializeConstant(OpBuilder &builder,
                                              Attribute value, Type type,
                                              Location loc) {
  return arith::ConstantOp::materialize(builder, value, type, loc);
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
