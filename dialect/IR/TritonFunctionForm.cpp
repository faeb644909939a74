// The form of `tt.func`: that of MLIR's functions.

#include "dialect/IR/TritonOpFormat.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionImplementation.h"

using namespace mlir;
using namespace mlir::ditron;

static constexpr StringLiteral typeName = "function_type";
static constexpr StringLiteral argAttrsName = "arg_attrs";
static constexpr StringLiteral resAttrsName = "res_attrs";

/// Whether `attribute` is absent or has a dictionary for each of `count`.
static bool isAttrsOf(Attribute attribute, size_t count) {
  auto array = dyn_cast_or_null<ArrayAttr>(attribute);
  return !attribute || (array && array.size() == count &&
                        llvm::all_of(array, llvm::IsaPred<DictionaryAttr>));
}

bool tt::isCoveredByFunctionForm(const OpFormat &format, Operation *op) {
  auto typeAttr = op->getAttrOfType<TypeAttr>(typeName);
  auto type = typeAttr ? dyn_cast<FunctionType>(typeAttr.getValue()) : nullptr;
  if (!type || op->getNumOperands() || op->getNumResults() ||
      op->getNumSuccessors() || op->getNumRegions() != 1 ||
      !op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()) ||
      !isAttrsOf(op->getAttr(argAttrsName), type.getNumInputs()) ||
      !isAttrsOf(op->getAttr(resAttrsName), type.getNumResults())) {
    return false;
  }
  if (!arePropertiesCovered(format, op)) {
    return false;
  }
  Region &body = op->getRegion(0);
  if (!body.empty() && body.getArgumentTypes() != type.getInputs()) {
    return false;
  }
  auto visibility =
      op->getAttrOfType<StringAttr>(SymbolTable::getVisibilityAttrName());
  return !visibility || llvm::is_contained({"public", "private", "nested"},
                                           visibility.getValue());
}

void tt::printFunction(Operation *op, OpAsmPrinter &printer) {
  StringRef visibilityName = SymbolTable::getVisibilityAttrName();
  auto type =
      cast<FunctionType>(op->getAttrOfType<TypeAttr>(typeName).getValue());
  Region &body = op->getRegion(0);
  printer << op->getName() << ' ';
  if (auto visibility = op->getAttrOfType<StringAttr>(visibilityName)) {
    printer << visibility.getValue() << ' ';
  }
  printer.printSymbolName(SymbolTable::getSymbolName(op).getValue());
  call_interface_impl::printFunctionSignature(
      printer, type.getInputs(), op->getAttrOfType<ArrayAttr>(argAttrsName),
      /*isVariadic=*/false, type.getResults(),
      op->getAttrOfType<ArrayAttr>(resAttrsName), &body,
      /*printEmptyResult=*/false);
  function_interface_impl::printFunctionAttributes(
      printer, op, {visibilityName, typeName, argAttrsName, resAttrsName});
  if (!body.empty()) {
    printer << ' ';
    printer.printRegion(body, /*printEntryBlockArgs=*/false);
  }
}

ParseResult tt::parseFunction(OpAsmParser &parser, OperationState &state) {
  Builder &builder = parser.getBuilder();
  auto buildType = [](Builder &builder, ArrayRef<Type> inputs,
                      ArrayRef<Type> results,
                      function_interface_impl::VariadicFlag, std::string &) {
    return builder.getFunctionType(inputs, results);
  };
  return function_interface_impl::parseFunctionOp(
      parser, state, /*allowVariadic=*/false, builder.getStringAttr(typeName),
      buildType, builder.getStringAttr(argAttrsName),
      builder.getStringAttr(resAttrsName));
}
