// Reading the declarations of Triton's operations.

#include "dialect/IR/TritonOpFormat.h"

#include "dialect/IR/TritonShim.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/ErrorHandling.h"

using namespace mlir;
using namespace mlir::ditron;
using namespace mlir::ditron::tt;

using Element = OpFormat::Element;

//===----------------------------------------------------------------------===//
// Enumerations
//===----------------------------------------------------------------------===//

namespace {
struct EnumCases {
  StringRef enumeration;
  int64_t first;
  StringRef keywords; // of the numbers from `first` on
};
} // namespace

/// Triton's enumerations are i32 attributes, which the forms write as keywords.
static const EnumCases enumerations[] = {
    {"CacheModifier", 1, "none ca cg wb cs wt cv"},
    {"DescriptorReduceKind", 1, "add min max inc dec and or xor"},
    {"EvictionPolicy", 1, "evict_normal evict_first evict_last"},
    {"InputPrecision", 0, "tf32 tf32x3 ieee bf16x3 bf16x6"},
    {"MemSemantic", 1, "relaxed acquire release acq_rel"},
    {"MemSyncScope", 1, "gpu cta sys"},
    {"ProgramIDDim", 0, "x y z"},
    {"PropagateNan", 0, "none"},
    {"PropagateNan", 0xffff, "all"},
    {"RMWOp", 1, "and or xor add fadd max min umax umin exch"},
    {"RoundingMode", 0, "rtz rtne"},
    {"ScaleDotElemType", 0, "e4m3 e5m2 e2m3 e3m2 e2m1 bf16 fp16"},
};

/// Calls `visit` with each keyword of an enumeration and its number until it
/// returns true.
static void visitCases(StringRef enumeration,
                       function_ref<bool(StringRef, int64_t)> visit) {
  for (const EnumCases &cases : enumerations) {
    if (cases.enumeration != enumeration) {
      continue;
    }
    int64_t value = cases.first;
    for (StringRef keyword : llvm::split(cases.keywords, ' ')) {
      if (visit(keyword, value++)) {
        return;
      }
    }
  }
}

std::optional<int64_t> tt::getEnumValue(StringRef enumeration,
                                        StringRef keyword) {
  std::optional<int64_t> found;
  visitCases(enumeration, [&](StringRef candidate, int64_t value) {
    return candidate == keyword && (found = value);
  });
  return found;
}

std::optional<StringRef> tt::getEnumKeyword(StringRef enumeration,
                                            int64_t value) {
  std::optional<StringRef> found;
  visitCases(enumeration, [&](StringRef keyword, int64_t candidate) {
    return candidate == value && (found = keyword);
  });
  return found;
}

//===----------------------------------------------------------------------===//
// Declarations
//===----------------------------------------------------------------------===//

static SmallVector<StringRef> splitList(StringRef list) {
  SmallVector<StringRef> items;
  list.split(items, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef &item : items) {
    item = item.trim();
  }
  return items;
}

/// `a sep b` without the spaces around each.
static std::pair<StringRef, StringRef> splitAt(StringRef text, char separator) {
  auto [before, after] = text.split(separator);
  return {before.trim(), after.trim()};
}

static OpFormat::Value readValue(StringRef text) {
  auto [name, rule] = splitAt(text, ':');
  auto count = OpFormat::Count::One;
  if (name.consume_back("?")) {
    count = OpFormat::Count::Optional;
  } else if (name.consume_back("*")) {
    count = OpFormat::Count::Variadic;
  }
  auto [ruleName, source] = splitAt(rule, '(');
  source.consume_back(")");
  auto kind = llvm::StringSwitch<OpFormat::Rule>(ruleName)
                  .Case("i32", OpFormat::Rule::I32)
                  .Case("i64", OpFormat::Rule::I64)
                  .Case("same", OpFormat::Rule::Same)
                  .Case("pointee", OpFormat::Rule::Pointee)
                  .Case("element", OpFormat::Rule::Element)
                  .Case("element_pointer", OpFormat::Rule::ElementPointer)
                  .Case("mask", OpFormat::Rule::Mask)
                  .Default(OpFormat::Rule::Written);
  return {name, count, kind, source};
}

static OpFormat::Attribute readAttribute(StringRef text) {
  auto [declared, defaultValue] = splitAt(text, '=');
  auto [name, kind] = splitAt(declared, ':');
  return {name, kind, defaultValue};
}

namespace {

/// Reads a form and decides where spaces are printed, as mlir-tblgen does.
class FormatReader {
public:
  FormatReader(StringRef text, const OpFormat &format)
      : text(text), format(format) {}

  std::vector<Element> read() {
    std::vector<Element> elements;
    for (skipSpaces(); !text.empty() && text.front() != ')'; skipSpaces()) {
      elements.push_back(readElement());
      skipSpaces();
      elements.back().isAnchor = text.consume_front("^");
    }
    return elements;
  }

private:
  Element readElement() {
    if (text.consume_front("`")) {
      return spaced({Element::Literal, takeUntil('`')});
    }
    if (text.consume_front("(")) {
      Element element{Element::Optional};
      element.group = read();
      takeUntil(')');
      text.consume_front("?");
      return element;
    }
    if (text.consume_front("$")) {
      return spaced(readVariable());
    }
    StringRef directive = takeWord();
    if (directive == "attr-dict") {
      lastWasPunctuation = false; // it prints its own space, or nothing
      return {Element::AttrDict};
    }
    if (!text.consume_front("(")) {
      fail();
    }
    StringRef argument = takeUntil(')');
    if (directive == "functional-type") {
      return spaced({Element::FunctionType});
    }
    if (argument == "operands") {
      return spaced({Element::OperandTypes});
    }
    Element element{llvm::StringSwitch<Element::Kind>(directive)
                        .Case("pointer-type", Element::PointerType)
                        .Case("descriptor-type", Element::DescriptorType)
                        .Default(Element::Type)};
    argument.consume_front("$");
    element.index = findValue(argument);
    return spaced(element);
  }

  Element readVariable() {
    StringRef name = takeWord();
    for (auto [index, attribute] : llvm::enumerate(format.attributes)) {
      if (attribute.name == name) {
        return {Element::Attribute, name, unsigned(index)};
      }
    }
    return {Element::Operand, name, findValue(name)};
  }

  unsigned findValue(StringRef name) {
    for (auto [index, value] : llvm::enumerate(format.values)) {
      if (value.name == name) {
        return index;
      }
    }
    fail();
  }

  /// Decides on the space before `element`, which comes next.
  Element spaced(Element element) {
    if (element.kind != Element::Literal) {
      element.spaceBefore = spaceWanted || !lastWasPunctuation;
      lastWasPunctuation = false;
      spaceWanted = true;
      return element;
    }
    StringRef literal = element.text;
    bool isPunctuation = literal.size() == 1 || literal == "->";
    StringRef tight = lastWasPunctuation ? ">)}]," : "<>(){}[],";
    bool fits = !isPunctuation || !tight.contains(literal.front());
    element.spaceBefore = spaceWanted && fits;
    spaceWanted = literal.size() != 1 || !StringRef("<({[").contains(literal);
    lastWasPunctuation =
        literal.front() != '_' && !llvm::isAlpha(literal.front());
    return element;
  }

  void skipSpaces() { text = text.ltrim(); }

  StringRef takeUntil(char end) {
    StringRef taken = text.take_until([&](char c) { return c == end; });
    text = text.drop_front(taken.size());
    if (!text.consume_front(StringRef(&end, 1))) {
      fail();
    }
    return taken;
  }

  StringRef takeWord() {
    StringRef word = text.take_while(
        [](char c) { return llvm::isAlnum(c) || c == '_' || c == '-'; });
    text = text.drop_front(word.size());
    return word;
  }

  [[noreturn]] void fail() {
    llvm::report_fatal_error("malformed assembly format before '" + text + "'");
  }

  StringRef text;
  const OpFormat &format;
  bool spaceWanted = true;
  bool lastWasPunctuation = false;
};

} // namespace

OpFormat::OpFormat(const OpDeclaration &declaration) {
  for (StringRef item : splitList(declaration.operands)) {
    values.push_back(readValue(item));
  }
  numOperands = values.size();
  for (StringRef item : splitList(declaration.results)) {
    values.push_back(readValue(item));
  }
  for (StringRef item : splitList(declaration.attributes)) {
    attributes.push_back(readAttribute(item));
  }
  hasSegments = findAttribute(operandSegmentsName);
  elements = FormatReader(declaration.format, *this).read();
}

const OpFormat::Attribute *OpFormat::findAttribute(StringRef name) const {
  auto found = llvm::find_if(
      attributes, [&](const Attribute &item) { return item.name == name; });
  return found == attributes.end() ? nullptr : &*found;
}

bool tt::isDefault(const OpFormat::Attribute &declared, mlir::Attribute value) {
  StringRef text = declared.defaultValue;
  if (text.empty()) {
    return false;
  }
  if (text == "[]") {
    // Nothing for any argument says as much as nothing.
    auto array = dyn_cast<ArrayAttr>(value);
    auto numbers = dyn_cast<DenseI32ArrayAttr>(value);
    return (numbers && numbers.empty()) ||
           (array && llvm::all_of(array, [](mlir::Attribute item) {
              auto dictionary = dyn_cast<DictionaryAttr>(item);
              return dictionary && dictionary.empty();
            }));
  }
  auto number = dyn_cast<IntegerAttr>(value);
  if (!number) {
    return false;
  }
  if (auto flag = dyn_cast<BoolAttr>(value)) {
    return flag.getValue() == (text == "true");
  }
  int64_t expected;
  if (text.getAsInteger(10, expected)) {
    expected = *getEnumValue(declared.kind, text);
  }
  return number.getType().isSignlessInteger(32) && number.getInt() == expected;
}

//===----------------------------------------------------------------------===//
// Types that follow from others
//===----------------------------------------------------------------------===//

/// `type` with another element type, or `element` if it is not a tensor.
static Type withElementType(Type type, Type element) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? tensor.clone(element) : element;
}

static Type getPointeeOf(Type type) {
  auto pointer = dyn_cast<tt::PointerType>(getElementTypeOrSelf(type));
  return pointer ? withElementType(type, pointer.getPointeeType()) : Type();
}

Type tt::inferType(const OpFormat &format, const OpFormat::Value &value,
                   const OpFormat::Types &types, MLIRContext *context) {
  using Rule = OpFormat::Rule;
  if (value.rule == Rule::I32 || value.rule == Rule::I64) {
    return IntegerType::get(context, value.rule == Rule::I32 ? 32 : 64);
  }
  auto source = llvm::find_if(format.values, [&](const OpFormat::Value &v) {
    return v.name == value.source;
  });
  if (source == format.values.end()) {
    return {};
  }
  ArrayRef<Type> known = types[source - format.values.begin()];
  if (known.empty()) {
    return {};
  }
  Type type = known.front();
  switch (value.rule) {
  case Rule::Same:
    return type;
  case Rule::Pointee:
    return getPointeeOf(type);
  case Rule::Element:
    return getElementTypeOrSelf(type);
  case Rule::ElementPointer: {
    auto pointer = dyn_cast<tt::PointerType>(type);
    return pointer ? tt::PointerType::get(
                         getElementTypeOrSelf(pointer.getPointeeType()),
                         pointer.getAddressSpace())
                   : Type();
  }
  case Rule::Mask: {
    Type pointee = getPointeeOf(type);
    return withElementType(pointee ? pointee : type,
                           IntegerType::get(context, 1));
  }
  default:
    return {};
  }
}

//===----------------------------------------------------------------------===//
// Groups of values
//===----------------------------------------------------------------------===//

std::optional<SmallVector<unsigned>>
tt::getSizes(ArrayRef<OpFormat::Value> declared, unsigned count,
             DenseI32ArrayAttr segments) {
  SmallVector<unsigned> sizes(declared.size(), 1);
  if (segments) {
    sizes.assign(segments.asArrayRef().begin(), segments.asArrayRef().end());
  } else {
    SmallVector<unsigned> open;
    for (auto [index, value] : llvm::enumerate(declared)) {
      if (value.count != OpFormat::Count::One) {
        open.push_back(index);
      }
    }
    // Several variadic groups without a property that says so are alike.
    unsigned fixed = declared.size() - open.size();
    if (count < fixed || (!open.empty() && (count - fixed) % open.size())) {
      return std::nullopt;
    }
    for (unsigned index : open) {
      sizes[index] = (count - fixed) / open.size();
    }
  }
  if (sizes.size() != declared.size() || llvm::sum_of(sizes, 0u) != count) {
    return std::nullopt;
  }
  for (auto [value, size] : llvm::zip_equal(declared, sizes)) {
    if ((value.count == OpFormat::Count::One && size != 1) ||
        (value.count == OpFormat::Count::Optional && size > 1)) {
      return std::nullopt;
    }
  }
  return sizes;
}
