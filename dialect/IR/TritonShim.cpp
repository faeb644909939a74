// The `tt` dialect's pointer type, and dialects that take anything.

#include "dialect/IR/TritonShim.h"
#include "dialect/IR/TritonOpTable.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/MLIRContext.h"

using namespace mlir;
using namespace mlir::ditron;

//===----------------------------------------------------------------------===//
// !tt.ptr
//===----------------------------------------------------------------------===//

struct tt::detail::PointerTypeStorage : public TypeStorage {
  using KeyTy = std::pair<Type, unsigned>;

  explicit PointerTypeStorage(const KeyTy &key) : key(key) {}
  bool operator==(const KeyTy &other) const { return key == other; }
  static PointerTypeStorage *construct(TypeStorageAllocator &allocator,
                                       const KeyTy &key) {
    return new (allocator.allocate<PointerTypeStorage>())
        PointerTypeStorage(key);
  }

  KeyTy key;
};

MLIR_DEFINE_EXPLICIT_TYPE_ID(mlir::ditron::tt::PointerType)

tt::PointerType tt::PointerType::get(Type pointee, unsigned addressSpace) {
  return Base::get(pointee.getContext(), pointee, addressSpace);
}

Type tt::PointerType::getPointeeType() const { return getImpl()->key.first; }

unsigned tt::PointerType::getAddressSpace() const {
  return getImpl()->key.second;
}

Type tt::parsePointerParameters(AsmParser &parser) {
  Type pointee;
  unsigned addressSpace = tt::PointerType::globalAddressSpace;
  if (parser.parseLess() || parser.parseType(pointee)) {
    return {};
  }
  if (succeeded(parser.parseOptionalComma()) &&
      parser.parseInteger(addressSpace)) {
    return {};
  }
  if (parser.parseGreater()) {
    return {};
  }
  return tt::PointerType::get(pointee, addressSpace);
}

void tt::printPointerParameters(PointerType type, AsmPrinter &printer) {
  printer << '<' << type.getPointeeType();
  if (type.getAddressSpace() != PointerType::globalAddressSpace) {
    printer << ", " << type.getAddressSpace();
  }
  printer << '>';
}

//===----------------------------------------------------------------------===//
// !tt.tensordesc
//===----------------------------------------------------------------------===//

Type tt::parseDescriptorParameters(AsmParser &parser) {
  std::string text = "tensordesc<";
  llvm::raw_string_ostream stream(text);
  Type type;
  if (parser.parseLess()) {
    return {};
  }
  // A tensor type up to Triton 3.6, shape and element type later.
  OptionalParseResult block = parser.parseOptionalType(type);
  if (!block.has_value()) {
    SmallVector<int64_t> shape;
    if (parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
        parser.parseType(type)) {
      return {};
    }
    llvm::interleave(shape, stream, "x");
    stream << 'x';
  } else if (failed(*block)) {
    return {};
  }
  stream << type;
  Attribute layout;
  if (succeeded(parser.parseOptionalComma())) {
    if (parser.parseAttribute(layout)) {
      return {};
    }
    stream << ", " << layout;
  }
  if (parser.parseGreater()) {
    return {};
  }
  stream << '>';
  return OpaqueType::get(parser.getBuilder().getStringAttr("tt"), text);
}

bool tt::isDescriptorType(Type type) {
  auto opaque = dyn_cast<OpaqueType>(type);
  return opaque && opaque.getDialectNamespace() == "tt" &&
         opaque.getTypeData().starts_with("tensordesc<");
}

RankedTensorType tt::getDescriptorBlock(Type descriptor) {
  StringRef text = cast<OpaqueType>(descriptor).getTypeData();
  text.consume_front("tensordesc<");
  text.consume_front("tensor<");
  // Up to the layout, if there is one.
  text = text.take_until([](char c) { return c == ',' || c == '>'; });
  ScopedDiagnosticHandler quiet(descriptor.getContext(),
                                [](Diagnostic &) { return success(); });
  Type block = parseType(("tensor<" + text + ">").str(),
                         descriptor.getContext(), /*numRead=*/nullptr,
                         /*isKnownNullTerminated=*/true);
  return dyn_cast_or_null<RankedTensorType>(block);
}

//===----------------------------------------------------------------------===//
// Dialects
//===----------------------------------------------------------------------===//

namespace mlir::ditron::tt {

/// A dialect whose operations, types and attributes are kept as text.
class OpaqueDialect : public Dialect {
public:
  Attribute parseAttribute(DialectAsmParser &parser, Type type) const override {
    Builder &builder = parser.getBuilder();
    return OpaqueAttr::get(builder.getStringAttr(getNamespace()),
                           parser.getFullSymbolSpec(),
                           type ? type : builder.getNoneType());
  }
  Type parseType(DialectAsmParser &parser) const override {
    return OpaqueType::get(parser.getBuilder().getStringAttr(getNamespace()),
                           parser.getFullSymbolSpec());
  }

protected:
  OpaqueDialect(StringRef name, MLIRContext *context, TypeID id)
      : Dialect(name, context, id) {
    allowUnknownOperations();
    allowUnknownTypes();
  }
};

class TritonDialect : public OpaqueDialect {
public:
  explicit TritonDialect(MLIRContext *context)
      : OpaqueDialect(getDialectNamespace(), context,
                      TypeID::get<TritonDialect>()) {
    addTypes<PointerType>();
    registerTritonOps(*this, operationIds);
  }
  static constexpr StringLiteral getDialectNamespace() { return "tt"; }

  Type parseType(DialectAsmParser &parser) const override {
    // The full text is asked for first: it is what an opaque type keeps.
    StringRef text = parser.getFullSymbolSpec();
    StringRef keyword;
    if (failed(parser.parseKeyword(&keyword))) {
      return {};
    }
    if (keyword == "ptr") {
      return parsePointerParameters(parser);
    }
    return OpaqueType::get(parser.getBuilder().getStringAttr(getNamespace()),
                           text);
  }
  void printType(Type type, DialectAsmPrinter &printer) const override {
    printer << "ptr";
    printPointerParameters(cast<PointerType>(type), printer);
  }
  void *getRegisteredInterfaceForOp(TypeID interface,
                                    OperationName name) override {
    return getTritonOpInterface(interface, name);
  }

private:
  TypeIDAllocator operationIds;
};

/// What Triton's modules mention besides `tt`: layouts and target operations.
template <typename Name> class TargetDialect : public OpaqueDialect {
public:
  explicit TargetDialect(MLIRContext *context)
      : OpaqueDialect(getDialectNamespace(), context,
                      TypeID::get<TargetDialect<Name>>()) {}
  static constexpr StringLiteral getDialectNamespace() { return Name::value; }
};

struct GPUName {
  static constexpr StringLiteral value = "ttg";
};
struct NvidiaGPUName {
  static constexpr StringLiteral value = "ttng";
};
struct AMDGPUName {
  static constexpr StringLiteral value = "amdg";
};
struct WarpSpecName {
  static constexpr StringLiteral value = "nvws";
};
struct GluonName {
  static constexpr StringLiteral value = "gluon";
};

} // namespace mlir::ditron::tt

void tt::registerShims(DialectRegistry &registry) {
  registry.insert<TritonDialect, TargetDialect<GPUName>,
                  TargetDialect<NvidiaGPUName>, TargetDialect<AMDGPUName>,
                  TargetDialect<WarpSpecName>, TargetDialect<GluonName>>();
}
