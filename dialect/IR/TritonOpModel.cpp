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
                             const TritonOp &op)
    : Impl(name, dialect, id, makeInterfaces()), op(op) {}

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
    return op.structure == Structure::Terminator;
  }
  if (trait == TypeID::get<OpTrait::IsIsolatedFromAbove>()) {
    return op.structure == Structure::Function;
  }
  return false;
}

LogicalResult TritonOpModel::verifyInvariants(Operation *) { return success(); }

LogicalResult TritonOpModel::verifyRegionInvariants(Operation *) {
  return success();
}

//===----------------------------------------------------------------------===//
// Assembly
//===----------------------------------------------------------------------===//

OperationName::ParseAssemblyFn TritonOpModel::getParseAssemblyFn() {
  const TritonOp *op = &this->op;
  return [op](OpAsmParser &parser, OperationState &state) -> ParseResult {
    if (op->structure == Structure::Function) {
      if (parseFunction(parser, state)) {
        return failure();
      }
      separateProperties(op->format, state);
      return success();
    }
    if (!op->format.elements.empty()) {
      return parseWithFormat(op->format, parser, state);
    }
    return parser.emitError(parser.getNameLoc())
           << "'" << state.name
           << "' is written in generic form, its name in quotes";
  };
}

void TritonOpModel::printAssembly(Operation *op, OpAsmPrinter &printer,
                                  StringRef) {
  if (this->op.structure == Structure::Function) {
    if (isCoveredByFunctionForm(this->op.format, op)) {
      return printFunction(op, printer);
    }
  } else if (!this->op.format.elements.empty() &&
             isCoveredByFormat(this->op.format, op)) {
    return printWithFormat(this->op.format, op, printer);
  }
  printer.printGenericOp(op);
}

//===----------------------------------------------------------------------===//
// Properties
//===----------------------------------------------------------------------===//

void TritonOpModel::populateDefaultAttrs(const OperationName &,
                                         NamedAttrList &) {}

/// The dictionary to keep: without attributes that have their default value,
/// of which versions of Triton write different ones; null if it is empty.
static Attribute dropDefaults(const OpFormat &format, Attribute properties) {
  auto dictionary = dyn_cast_or_null<DictionaryAttr>(properties);
  if (!dictionary) {
    return properties;
  }
  SmallVector<NamedAttribute> kept;
  for (NamedAttribute attribute : dictionary) {
    const auto *declared = format.findAttribute(attribute.getName());
    if (!declared || !isDefault(*declared, attribute.getValue())) {
      kept.push_back(attribute);
    }
  }
  return kept.empty()
             ? Attribute()
             : DictionaryAttr::getWithSorted(dictionary.getContext(), kept);
}

std::optional<Attribute> TritonOpModel::getInherentAttr(Operation *op,
                                                        StringRef name) {
  DictionaryAttr dictionary = getDictionary(op);
  Attribute value = dictionary ? dictionary.get(name) : Attribute();
  // One that is declared is inherent even while it is absent.
  bool isInherent = value || this->op.format.findAttribute(name);
  return isInherent ? std::optional(value) : std::nullopt;
}

void TritonOpModel::setInherentAttr(Operation *op, StringAttr name,
                                    Attribute value) {
  NamedAttrList attrs(getDictionary(op));
  value ? (void)attrs.set(name, value) : (void)attrs.erase(name);
  storedIn(op->getPropertiesStorage()) =
      dropDefaults(this->op.format, attrs.getDictionary(op->getContext()));
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
  storedIn(properties) = dropDefaults(op.format, value);
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
