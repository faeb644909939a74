// How a registered operation behaves of which only the name is known.

#include "dialect/IR/TritonOpModel.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::ditron::tt;

static Attribute &storedIn(OpaqueProperties properties) {
  return *properties.as<Attribute *>();
}

static DictionaryAttr getDictionary(Operation *op) {
  return dyn_cast_or_null<DictionaryAttr>(storedIn(op->getPropertiesStorage()));
}

namespace {
/// Bytecode asks every registered operation that has properties for this; its
/// reader does not ask the dialect, so it is in each operation's own map.
struct Bytecode : BytecodeOpInterface::FallbackModel<Bytecode> {
  static LogicalResult readProperties(DialectBytecodeReader &reader,
                                      OperationState &state) {
    return reader.readOptionalAttribute(state.propertiesAttr);
  }
  void writeProperties(Operation *op, DialectBytecodeWriter &writer) const {
    writer.writeOptionalAttribute(storedIn(op->getPropertiesStorage()));
  }
};
} // namespace

static mlir::detail::InterfaceMap makeInterfaces() {
  mlir::detail::InterfaceMap map;
  map.insertModels<Bytecode>();
  return map;
}

TritonOpModel::TritonOpModel(StringRef name, Dialect *dialect, TypeID id,
                             Structure structure)
    : Impl(name, dialect, id, makeInterfaces()), structure(structure) {}

//===----------------------------------------------------------------------===//
// Behaviour
//===----------------------------------------------------------------------===//

LogicalResult TritonOpModel::foldHook(Operation *, ArrayRef<Attribute>,
                                      SmallVectorImpl<OpFoldResult> &) {
  return failure();
}

void TritonOpModel::getCanonicalizationPatterns(RewritePatternSet &,
                                                MLIRContext *) {}

bool TritonOpModel::hasTrait(TypeID trait) {
  if (trait == TypeID::get<OpTrait::IsTerminator>()) {
    return structure == Structure::Terminator;
  }
  if (trait == TypeID::get<OpTrait::IsIsolatedFromAbove>()) {
    return structure == Structure::Isolated;
  }
  return false;
}

OperationName::ParseAssemblyFn TritonOpModel::getParseAssemblyFn() {
  return [](OpAsmParser &parser, OperationState &) -> ParseResult {
    return parser.emitError(parser.getNameLoc())
           << "expected the generic form, in quotes, of an operation of "
              "Triton's; its own form only Triton reads";
  };
}

void TritonOpModel::printAssembly(Operation *op, OpAsmPrinter &printer,
                                  StringRef) {
  printer.printGenericOp(op);
}

LogicalResult TritonOpModel::verifyInvariants(Operation *) { return success(); }

LogicalResult TritonOpModel::verifyRegionInvariants(Operation *) {
  return success();
}

//===----------------------------------------------------------------------===//
// Properties
//===----------------------------------------------------------------------===//

void TritonOpModel::populateDefaultAttrs(const OperationName &,
                                         NamedAttrList &) {}

std::optional<Attribute> TritonOpModel::getInherentAttr(Operation *op,
                                                        StringRef name) {
  DictionaryAttr dictionary = getDictionary(op);
  Attribute value = dictionary ? dictionary.get(name) : Attribute();
  return value ? std::optional(value) : std::nullopt;
}

void TritonOpModel::setInherentAttr(Operation *op, StringAttr name,
                                    Attribute value) {
  NamedAttrList attrs(getDictionary(op));
  value ? (void)attrs.set(name, value) : (void)attrs.erase(name);
  storedIn(op->getPropertiesStorage()) = attrs.getDictionary(op->getContext());
}

void TritonOpModel::populateInherentAttrs(Operation *op, NamedAttrList &attrs) {
  if (DictionaryAttr dictionary = getDictionary(op)) {
    attrs.append(dictionary.getValue());
  }
}

LogicalResult
TritonOpModel::verifyInherentAttrs(OperationName, NamedAttrList &,
                                   function_ref<InFlightDiagnostic()>) {
  return success();
}

int TritonOpModel::getOpPropertyByteSize() { return sizeof(Attribute); }

void TritonOpModel::initProperties(OperationName, OpaqueProperties storage,
                                   OpaqueProperties init) {
  new (storage.as<Attribute *>())
      Attribute(init ? storedIn(init) : Attribute());
}

void TritonOpModel::deleteProperties(OpaqueProperties properties) {
  storedIn(properties).~Attribute();
}

void TritonOpModel::populateDefaultProperties(OperationName, OpaqueProperties) {
}

LogicalResult
TritonOpModel::setPropertiesFromAttr(OperationName, OpaqueProperties properties,
                                     Attribute value,
                                     function_ref<InFlightDiagnostic()>) {
  storedIn(properties) = value;
  return success();
}

Attribute TritonOpModel::getPropertiesAsAttr(Operation *op) {
  return storedIn(op->getPropertiesStorage());
}

void TritonOpModel::copyProperties(OpaqueProperties to, OpaqueProperties from) {
  storedIn(to) = storedIn(from);
}

bool TritonOpModel::compareProperties(OpaqueProperties a, OpaqueProperties b) {
  return storedIn(a) == storedIn(b);
}

llvm::hash_code TritonOpModel::hashProperties(OpaqueProperties properties) {
  return hash_value(storedIn(properties));
}
