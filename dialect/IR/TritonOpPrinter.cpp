// Printing Triton's operations by their declared forms.

#include "dialect/IR/TritonOpFormat.h"
#include "dialect/IR/TritonShim.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::ditron;
using namespace mlir::ditron::tt;

using Element = OpFormat::Element;
using Types = OpFormat::Types;

//===----------------------------------------------------------------------===//
// What an operation has of what is declared
//===----------------------------------------------------------------------===//

static std::optional<SmallVector<unsigned>>
getOperandSizes(const OpFormat &format, Operation *op) {
  auto segments = op->getAttrOfType<DenseI32ArrayAttr>(operandSegmentsName);
  if (format.hasSegments != bool(segments)) {
    return std::nullopt;
  }
  return getSizes(format.operands(), op->getNumOperands(), segments);
}

static OperandRange getOperands(const OpFormat &format, Operation *op,
                                unsigned index) {
  SmallVector<unsigned> sizes = *getOperandSizes(format, op);
  unsigned start = llvm::sum_of(ArrayRef(sizes).take_front(index), 0u);
  return op->getOperands().slice(start, sizes[index]);
}

/// The types of everything declared, nothing if the operation has not that.
static std::optional<Types> getTypes(const OpFormat &format, Operation *op) {
  auto operandSizes = getOperandSizes(format, op);
  auto resultSizes = getSizes(format.results(), op->getNumResults(), nullptr);
  if (!operandSizes || !resultSizes) {
    return std::nullopt;
  }
  Types types;
  auto add = [&](TypeRange all, ArrayRef<unsigned> sizes) {
    for (unsigned size : sizes) {
      types.emplace_back(all.take_front(size));
      all = all.drop_front(size);
    }
  };
  add(op->getOperandTypes(), *operandSizes);
  add(op->getResultTypes(), *resultSizes);
  return types;
}

static bool isThere(const OpFormat &format, Operation *op,
                    const Element &element) {
  return element.kind == Element::Attribute
             ? op->hasAttr(format.attributes[element.index].name)
             : !getOperands(format, op, element.index).empty();
}

/// Whether an optional group is printed.
static bool isGroupThere(const OpFormat &format, const Types &types,
                         Operation *op, const Element &group) {
  auto anchor =
      llvm::find_if(group.group, [](const Element &e) { return e.isAnchor; });
  return anchor->kind == Element::Type ? !types[anchor->index].empty()
                                       : isThere(format, op, *anchor);
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

/// Whether the attribute can be written as the form has it.
static bool isWritable(const OpFormat::Attribute &declared, Attribute value) {
  if (declared.kind == "unit") {
    return isa<UnitAttr>(value);
  }
  if (declared.kind.empty()) {
    return isa<StringAttr, SymbolRefAttr>(value);
  }
  auto number = dyn_cast<IntegerAttr>(value);
  return number && number.getType().isSignlessInteger(32) &&
         getEnumKeyword(declared.kind, number.getInt());
}

static bool areElementsCovered(const OpFormat &format, const Types &types,
                               Operation *op, ArrayRef<Element> elements) {
  return llvm::all_of(elements, [&](const Element &element) {
    switch (element.kind) {
    case Element::Attribute: {
      const OpFormat::Attribute &declared = format.attributes[element.index];
      Attribute value = op->getAttr(declared.name);
      return value && isWritable(declared, value);
    }
    case Element::PointerType:
      return isa<tt::PointerType>(types[element.index].front());
    case Element::DescriptorType: {
      auto type = dyn_cast<OpaqueType>(types[element.index].front());
      return type && type.getTypeData().starts_with("tensordesc<");
    }
    case Element::Optional:
      return !isGroupThere(format, types, op, element) ||
             areElementsCovered(format, types, op, element.group);
    default:
      return true;
    }
  });
}

/// The attributes that the form writes by themselves.
static void getWritten(const OpFormat &format, ArrayRef<Element> elements,
                       SmallVectorImpl<StringRef> &names) {
  for (const Element &element : elements) {
    if (element.kind == Element::Attribute) {
      names.push_back(format.attributes[element.index].name);
    }
    getWritten(format, element.group, names);
  }
}

bool tt::arePropertiesCovered(const OpFormat &format, Operation *op) {
  auto isDeclared = [&](NamedAttribute attribute) {
    return format.findAttribute(attribute.getName()) != nullptr;
  };
  Attribute properties = op->getPropertiesAsAttribute();
  auto dictionary = dyn_cast_or_null<DictionaryAttr>(properties);
  return (!properties ||
          (dictionary && llvm::all_of(dictionary, isDeclared))) &&
         llvm::none_of(op->getDiscardableAttrs(), isDeclared);
}

bool tt::isCoveredByFormat(const OpFormat &format, Operation *op) {
  if (op->getNumRegions() || op->getNumSuccessors() ||
      !arePropertiesCovered(format, op)) {
    return false;
  }
  std::optional<Types> types = getTypes(format, op);
  if (!types) {
    return false;
  }
  for (auto [value, known] : llvm::zip_equal(format.values, *types)) {
    if (value.rule == OpFormat::Rule::Written) {
      continue;
    }
    Type inferred = inferType(format, value, *types, op->getContext());
    if (!llvm::all_of(known, [&](Type type) { return type == inferred; })) {
      return false;
    }
  }
  return areElementsCovered(format, *types, op, format.elements);
}

namespace {

struct ElementPrinter {
  const OpFormat &format;
  Operation *op;
  OpAsmPrinter &printer;
  Types types;

  void print(ArrayRef<Element> elements) {
    for (const Element &element : elements) {
      print(element);
    }
  }

  void print(const Element &element) {
    bool isUnit = element.kind == Element::Attribute &&
                  format.attributes[element.index].kind == "unit";
    if (element.spaceBefore && !isUnit) {
      printer << ' ';
    }
    switch (element.kind) {
    case Element::Literal:
      printer << element.text;
      break;
    case Element::Operand:
      printer << getOperands(format, op, element.index);
      break;
    case Element::Attribute:
      printAttribute(format.attributes[element.index]);
      break;
    case Element::AttrDict: {
      SmallVector<StringRef> written{operandSegmentsName};
      getWritten(format, format.elements, written);
      printer.printOptionalAttrDict(op->getAttrs(), written);
      break;
    }
    case Element::Type:
      printer << ArrayRef<Type>(types[element.index]);
      break;
    case Element::OperandTypes:
      printer << op->getOperandTypes();
      break;
    case Element::PointerType:
      printPointerParameters(
          cast<tt::PointerType>(types[element.index].front()), printer);
      break;
    case Element::DescriptorType: {
      auto type = cast<OpaqueType>(types[element.index].front());
      printer << type.getTypeData().drop_front(descriptorMnemonic.size());
      break;
    }
    case Element::FunctionType:
      printer.printFunctionalType(op);
      break;
    case Element::Optional:
      if (isGroupThere(format, types, op, element)) {
        print(element.group);
      }
      break;
    }
  }

  void printAttribute(const OpFormat::Attribute &declared) {
    Attribute value = op->getAttr(declared.name);
    if (declared.kind.empty()) {
      printer.printAttributeWithoutType(value);
    } else if (declared.kind != "unit") {
      int64_t number = cast<IntegerAttr>(value).getInt();
      printer << *getEnumKeyword(declared.kind, number);
    }
  }
};

} // namespace

void tt::printWithFormat(const OpFormat &format, Operation *op,
                         OpAsmPrinter &printer) {
  printer << op->getName();
  ElementPrinter{format, op, printer, *getTypes(format, op)}.print(
      format.elements);
}
