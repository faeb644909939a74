// A stand-in for the dialects of Triton.
//
// Stock Triton carries its own MLIR, so its dialects cannot be linked here. A
// module that it printed in generic form is read with these instead: `tt` has
// the pointer type and the memory effects that MLIR's passes need; every other
// operation, type and attribute of Triton's goes through as it came.

#ifndef DITRON_TRITON_SHIM_H
#define DITRON_TRITON_SHIM_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/Types.h"

namespace mlir {
class AsmParser;
class AsmPrinter;
} // namespace mlir

namespace mlir::ditron::tt {

namespace detail {
struct PointerTypeStorage;
} // namespace detail

/// `!tt.ptr<T>`, or `!tt.ptr<T, N>` for an address space other than 1.
class PointerType
    : public Type::TypeBase<PointerType, Type, detail::PointerTypeStorage> {
public:
  using Base::Base;
  static constexpr StringLiteral name = "tt.ptr";
  static constexpr unsigned globalAddressSpace = 1;

  static PointerType get(Type pointee,
                         unsigned addressSpace = globalAddressSpace);
  Type getPointeeType() const;
  unsigned getAddressSpace() const;
};

/// What follows `!tt.ptr`: `<T>` or `<T, N>`.
Type parsePointerParameters(AsmParser &parser);
void printPointerParameters(PointerType type, AsmPrinter &printer);

/// What follows `!tt.tensordesc`: `<tensor<16x64xf16>>` or `<16x64xf16>`, as
/// the opaque type that the whole is.
Type parseDescriptorParameters(AsmParser &parser);

/// Whether a type is `!tt.tensordesc<...>`.
bool isDescriptorType(Type type);

/// Shape and element type of a descriptor's block, as a tensor without layout;
/// null when the type does not say them. Integers may be signed or unsigned.
RankedTensorType getDescriptorBlock(Type descriptor);

/// Adds `tt` and the other dialects that Triton's modules mention.
void registerShims(DialectRegistry &registry);

} // namespace mlir::ditron::tt

MLIR_DECLARE_EXPLICIT_TYPE_ID(mlir::ditron::tt::PointerType)

#endif // DITRON_TRITON_SHIM_H
