// Parsing Triton's operations by their declared forms.

#include "dialect/IR/TritonOpFormat.h"
#include "dialect/IR/TritonShim.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::ditron;
using namespace mlir::ditron::tt;

using Element = OpFormat::Element;

namespace {

/// Parses one operation; MLIR's parser reports what it does not find.
class ElementParser {
public:
  ElementParser(const OpFormat &format, OpAsmParser &parser,
                OperationState &state)
      : format(format), parser(parser), state(state),
        operands(format.numOperands), types(format.values.size()) {}

  ParseResult parse() {
    if (parse(format.elements) || inferTypes() || resolveOperands()) {
      return failure();
    }
    if (format.hasSegments) {
      addSegments();
    }
    separateProperties(format, state);
    return success();
  }

private:
  ParseResult parse(ArrayRef<Element> elements) {
    return failure(!llvm::all_of(elements, [&](const Element &element) {
      return succeeded(parse(element));
    }));
  }

  ParseResult parse(const Element &element) {
    switch (element.kind) {
    case Element::Literal:
      return parseLiteral(element.text);
    case Element::Operand:
      if (format.values[element.index].count == OpFormat::Count::Variadic) {
        return parser.parseOperandList(operands[element.index]);
      }
      return parser.parseOperand(operands[element.index].emplace_back());
    case Element::Attribute:
      return parseAttribute(format.attributes[element.index]);
    case Element::AttrDict:
      return parser.parseOptionalAttrDict(state.attributes);
    case Element::Type:
      if (format.values[element.index].count == OpFormat::Count::Variadic) {
        return parser.parseTypeList(types[element.index]);
      }
      return parser.parseType(types[element.index].emplace_back());
    case Element::OperandTypes: {
      SmallVector<Type> all;
      return failure(parser.parseTypeList(all) || setOperandTypes(all));
    }
    case Element::FunctionType: {
      FunctionType type;
      return failure(parser.parseType(type) ||
                     setOperandTypes(type.getInputs()) ||
                     setResultTypes(type.getResults()));
    }
    case Element::PointerType:
      return failure(
          !types[element.index].emplace_back(parsePointerParameters(parser)));
    case Element::DescriptorType:
      return failure(!types[element.index].emplace_back(
          parseDescriptorParameters(parser)));
    case Element::Optional:
      return parseGroup(element.group);
    }
    llvm_unreachable("all elements are handled");
  }

  /// A group is there if its first literal, or operand, is.
  ParseResult parseGroup(ArrayRef<Element> group) {
    const Element &first = group.front();
    if (first.kind == Element::Operand) {
      OpAsmParser::UnresolvedOperand operand;
      OptionalParseResult there = parser.parseOptionalOperand(operand);
      if (!there.has_value()) {
        return success();
      }
      if (failed(*there)) {
        return failure();
      }
      auto &all = operands[first.index];
      all.push_back(operand);
      if (parser.parseTrailingOperandList(all)) {
        return failure();
      }
    } else if (failed(parseOptionalLiteral(first.text))) {
      return success();
    }
    return parse(group.drop_front());
  }

  ParseResult parseLiteral(StringRef text) {
    if (llvm::isAlpha(text.front())) {
      return parser.parseKeyword(text);
    }
    return succeeded(parseOptionalLiteral(text))
               ? ParseResult::success()
               : parser.emitError(parser.getCurrentLocation())
                     << "expected '" << text << "'";
  }

  ParseResult parseOptionalLiteral(StringRef text) {
    if (llvm::isAlpha(text.front())) {
      return parser.parseOptionalKeyword(text);
    }
    if (text == "->") {
      return parser.parseOptionalArrow();
    }
    switch (text.front()) {
    case ',':
      return parser.parseOptionalComma();
    case ':':
      return parser.parseOptionalColon();
    case '=':
      return parser.parseOptionalEqual();
    case '*':
      return parser.parseOptionalStar();
    case '(':
      return parser.parseOptionalLParen();
    case ')':
      return parser.parseOptionalRParen();
    case '[':
      return parser.parseOptionalLSquare();
    case ']':
      return parser.parseOptionalRSquare();
    }
    llvm_unreachable("a literal that no form has");
  }

  ParseResult parseAttribute(const OpFormat::Attribute &declared) {
    Builder &builder = parser.getBuilder();
    Attribute value;
    if (declared.kind == "unit") {
      value = builder.getUnitAttr();
    } else if (declared.kind.empty()) {
      // With a type, a colon behind a string is not the string's.
      if (parser.parseAttribute(value, builder.getNoneType())) {
        return failure();
      }
    } else {
      SMLoc loc = parser.getCurrentLocation();
      StringRef keyword;
      if (parser.parseKeyword(&keyword)) {
        return failure();
      }
      auto number = getEnumValue(declared.kind, keyword);
      if (!number) {
        return parser.emitError(loc)
               << "'" << keyword << "' is no " << declared.kind;
      }
      value = builder.getI32IntegerAttr(*number);
    }
    state.addAttribute(declared.name, value);
    return success();
  }

  ParseResult setOperandTypes(ArrayRef<Type> all) {
    size_t count = 0;
    for (auto [index, group] : llvm::enumerate(operands)) {
      ArrayRef<Type> rest = all.drop_front(std::min(count, all.size()));
      count += group.size();
      llvm::append_range(types[index], rest.take_front(group.size()));
    }
    return count == all.size() ? ParseResult::success()
                               : parser.emitError(parser.getNameLoc())
                                     << "expected types of " << count
                                     << " operands, got " << all.size();
  }

  ParseResult setResultTypes(ArrayRef<Type> all) {
    auto sizes = getSizes(format.results(), all.size(), nullptr);
    if (!sizes) {
      return parser.emitError(parser.getNameLoc())
             << "unexpected number of results: " << all.size();
    }
    for (auto [index, size] : llvm::enumerate(*sizes)) {
      llvm::append_range(types[format.numOperands + index],
                         all.take_front(size));
      all = all.drop_front(size);
    }
    return success();
  }

  /// Twice over: an operand's type may follow from a result's and the other
  /// way round.
  ParseResult inferTypes() {
    for (bool isLast : {false, true}) {
      for (auto [index, value] : llvm::enumerate(format.values)) {
        bool isOperand = index < format.numOperands;
        size_t count = isOperand ? operands[index].size() : 1;
        if (value.rule == OpFormat::Rule::Written || !types[index].empty()) {
          continue;
        }
        if (Type type = inferType(format, value, types, state.getContext())) {
          types[index].assign(count, type);
        } else if (isLast && count) {
          return parser.emitError(parser.getNameLoc())
                 << "the type of '" << value.name << "' does not follow from '"
                 << value.source << "'";
        }
      }
    }
    for (auto &results : ArrayRef(types).drop_front(format.numOperands)) {
      state.addTypes(results);
    }
    return success();
  }

  ParseResult resolveOperands() {
    for (auto [index, group] : llvm::enumerate(operands)) {
      if (parser.resolveOperands(group, types[index], parser.getNameLoc(),
                                 state.operands)) {
        return failure();
      }
    }
    return success();
  }

  void addSegments() {
    auto sizes = llvm::map_to_vector(
        operands, [](const auto &group) { return int32_t(group.size()); });
    state.addAttribute(operandSegmentsName,
                       parser.getBuilder().getDenseI32ArrayAttr(sizes));
  }

  const OpFormat &format;
  OpAsmParser &parser;
  OperationState &state;
  SmallVector<SmallVector<OpAsmParser::UnresolvedOperand>> operands;
  OpFormat::Types types;
};

} // namespace

void tt::separateProperties(const OpFormat &format, OperationState &state) {
  NamedAttrList properties, discardable;
  for (NamedAttribute attribute : state.attributes) {
    bool isInherent = format.findAttribute(attribute.getName());
    (isInherent ? properties : discardable).push_back(attribute);
  }
  state.attributes = discardable;
  state.propertiesAttr = properties.getDictionary(state.getContext());
}

ParseResult tt::parseWithFormat(const OpFormat &format, OpAsmParser &parser,
                                OperationState &state) {
  return ElementParser(format, parser, state).parse();
}
