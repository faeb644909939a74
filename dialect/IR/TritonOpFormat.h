// The custom assembly form of Triton's operations.
//
// A form is written as ODS writes it (`assemblyFormat`) and is interpreted:
// the operations have no C++ classes here.

#ifndef DITRON_TRITON_OP_FORMAT_H
#define DITRON_TRITON_OP_FORMAT_H

#include "mlir/IR/OpImplementation.h"

#include <optional>
#include <vector>

namespace mlir::ditron::tt {

/// How an operation is declared: its operands, results and attributes, each a
/// list in commas, and its form.
///
/// Operand, result: `name`, `name?` (optional) or `name*` (variadic), then
/// `: rule` where the form does not write the type: `i32`, `i64`, `same(x)`,
/// `pointee(x)`, `element(x)`, `element_pointer(x)` (to the element type of the
/// tensor that x points to), `mask(x)` (i1 in the shape of x or its pointee).
/// Attribute: `name`, then `: Enumeration` or `: unit` where the form writes it
/// as keyword, then `= value` if that is what its absence means.
/// Form: as in ODS, and `pointer-type($x)`, `descriptor-type($x)` for types
/// that Triton prints without `!tt.ptr`, `!tt.tensordesc`. Empty where Triton
/// prints the generic form.
struct OpDeclaration {
  const char *operands = "";
  const char *results = "";
  const char *attributes = "";
  const char *format = "";
};

/// An `OpDeclaration`, read.
struct OpFormat {
  explicit OpFormat(const OpDeclaration &declaration);

  enum class Count { One, Optional, Variadic };
  enum class Rule {
    Written,
    I32,
    I64,
    Same,
    Pointee,
    Element,
    ElementPointer,
    Mask
  };

  /// An operand or a result.
  struct Value {
    StringRef name;
    Count count;
    Rule rule;
    StringRef source; // the rule's argument
  };

  /// The types of each of `values`.
  using Types = SmallVector<SmallVector<Type>>;

  struct Attribute {
    StringRef name;
    StringRef kind;         // enumeration, "unit" or empty
    StringRef defaultValue; // empty if there is none
  };

  struct Element {
    enum Kind {
      Literal,
      Operand,
      Attribute,
      AttrDict,
      Type,
      OperandTypes, // of all
      PointerType,
      DescriptorType,
      FunctionType,
      Optional,
    };
    Kind kind;
    StringRef text = {};   // of a literal
    unsigned index = 0;    // in `values` or `attributes`
    bool isAnchor = false; // whether its optional group is there
    bool spaceBefore = false;
    std::vector<Element> group = {};
  };

  ArrayRef<Value> operands() const {
    return ArrayRef(values).take_front(numOperands);
  }
  ArrayRef<Value> results() const {
    return ArrayRef(values).drop_front(numOperands);
  }
  const Attribute *findAttribute(StringRef name) const;

  std::vector<Value> values; // operands, then results
  size_t numOperands;
  bool hasSegments; // sizes of operands' groups are a property
  std::vector<Attribute> attributes;
  std::vector<Element> elements;
};

constexpr StringLiteral operandSegmentsName = "operandSegmentSizes";
constexpr StringLiteral descriptorMnemonic = "tensordesc";

/// The number of an enumeration's keyword; its keyword for a number.
std::optional<int64_t> getEnumValue(StringRef enumeration, StringRef keyword);
std::optional<StringRef> getEnumKeyword(StringRef enumeration, int64_t value);

/// The type that follows for `value` from those that are known, null if none
/// does.
Type inferType(const OpFormat &format, const OpFormat::Value &value,
               const OpFormat::Types &types, MLIRContext *context);

/// How many of `count` values each of `declared` has, by `segments` if there
/// are any; nothing if they do not fit.
std::optional<SmallVector<unsigned>>
getSizes(ArrayRef<OpFormat::Value> declared, unsigned count,
         DenseI32ArrayAttr segments);

/// Whether `value` is what the attribute's absence means.
bool isDefault(const OpFormat::Attribute &declared, mlir::Attribute value);

/// Whether each property is declared, and no other attribute is.
bool arePropertiesCovered(const OpFormat &format, Operation *op);

/// Whether the form says everything about the operation. It does not if, for
/// example, a later Triton gave it an attribute that is not declared here.
bool isCoveredByFormat(const OpFormat &format, Operation *op);
void printWithFormat(const OpFormat &format, Operation *op,
                     OpAsmPrinter &printer);
ParseResult parseWithFormat(const OpFormat &format, OpAsmParser &parser,
                            OperationState &state);

/// Makes properties of the attributes in `state` that are declared.
void separateProperties(const OpFormat &format, OperationState &state);

/// `tt.func`, whose form is that of MLIR's functions.
bool isCoveredByFunctionForm(const OpFormat &format, Operation *op);
void printFunction(Operation *op, OpAsmPrinter &printer);
ParseResult parseFunction(OpAsmParser &parser, OperationState &state);

} // namespace mlir::ditron::tt

#endif // DITRON_TRITON_OP_FORMAT_H
