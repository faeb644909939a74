// The dialect's types, and what operations accept as pointers and values.

#ifndef DITRON_TYPES_TD
#define DITRON_TYPES_TD

include "DitronEnums.td"
include "mlir/IR/BuiltinTypeInterfaces.td"

def Ditron_Token : TypeDef<Ditron_Dialect, "Token"> {
  let mnemonic = "token";
  let summary = "token that a ditron.wait returned, !ditron.token";
  let description = [{
    Made by `ditron.wait` only, used by `ditron.consume_token`. It carries no
    data and costs nothing at run time: it is how a value says that it may be
    used only after a wait.

    ```mlir
    %token = ditron.wait %sig[%n] ge %epoch : !tt.ptr<i64>
    %ready = ditron.consume_token %ptr, %token : !tt.ptr<bf16>
    ```
  }];
}

def Ditron_Buffer : TypeDef<Ditron_Dialect, "Buffer", [ShapedTypeInterface]> {
  let mnemonic = "buffer";
  let summary = "buffer of a host program, !ditron.buffer<T>";
  let description = [{
    Memory of this rank's GPU as a host program sees it: a tensor argument, an
    allocation, or a slice of one. A dimension is a number or `?`. The memory
    space is `local`, which is not printed, or `symmetric`. Strides are not part
    of the type. A launch passes a buffer as a pointer to its first element.

    ```mlir
    ditron.program @name(%a: !ditron.buffer<?x?xbf16>, %flags: !ditron.buffer<8xi64, symmetric>) {
    }
    ```
  }];
  let parameters = (ins
    ArrayRefParameter<"int64_t">:$shape, "::mlir::Type":$elementType,
    EnumParameter<Ditron_MemorySpace>:$space);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool hasRank() const { return true; }
    bool isSymmetric() const { return getSpace() == MemorySpace::Symmetric; }
    BufferType cloneWith(::std::optional<::llvm::ArrayRef<int64_t>> shape,
                         ::mlir::Type elementType) const {
      return get(getContext(), shape.value_or(getShape()), elementType, getSpace());
    }
  }];
}

def Ditron_Stream : TypeDef<Ditron_Dialect, "Stream"> {
  let mnemonic = "stream";
  let summary = "stream of a host program, !ditron.stream";
  let description = [{
    A queue of work of this rank's GPU: what was put on it first is done first.
    Streams do not order each other; an event that one records and another
    awaits does.

    ```mlir
    %copy = ditron.stream "copy"
    ```
  }];
}

def Ditron_Event : TypeDef<Ditron_Dialect, "Event"> {
  let mnemonic = "event";
  let summary = "point in a stream of a host program, !ditron.event";
  let description = [{
    Made by `ditron.record`, used by `ditron.await`: everything that was put on
    the recording stream before it.

    ```mlir
    %event = ditron.record
    ditron.await %event stream %copy
    ```
  }];
}

def Ditron_SignalBuffer : Type<And<[
    CPred<"::llvm::isa<::mlir::ditron::BufferType>($_self)">,
    CPred<"::llvm::cast<::mlir::ditron::BufferType>($_self).getElementType().isSignlessInteger(64)">,
    CPred<"::llvm::cast<::mlir::ditron::BufferType>($_self).isSymmetric()">]>,
  "buffer of signals, !ditron.buffer<shape x i64, symmetric>", "::mlir::ditron::BufferType">;
def Ditron_Number : AnyTypeOf<[AnySignlessInteger, AnyFloat], "integer or float">;
// !tt.tensordesc<...> comes from the stand-in for Triton's dialect, TritonShim.h.
def Ditron_TensorDescriptor : Type<CPred<"::mlir::ditron::tt::isDescriptorType($_self)">,
  "tensor descriptor, !tt.tensordesc<...>">;
def Ditron_Argument : AnyTypeOf<[Ditron_Buffer, Ditron_TensorDescriptor, AnySignlessInteger, AnyFloat],
  "buffer, tensor descriptor, integer or float">;

// !tt.ptr<T> comes from the stand-in for Triton's dialect, TritonShim.h.
class PtrTo<Pred pointee, string summary> : Type<And<[
    CPred<"::llvm::isa<::mlir::ditron::tt::PointerType>($_self)">,
    SubstLeaves<"$_self",
      "::llvm::cast<::mlir::ditron::tt::PointerType>($_self).getPointeeType()", pointee>]>,
    summary, "::mlir::ditron::tt::PointerType">;
class OrTensor<Type scalar, string text> : Type<Or<[
    scalar.predicate, RankedTensorOf<[scalar]>.predicate]>, text>;

def Scalar8To64 : TypeConstraint<CPred<
    "$_self.isSignlessIntOrFloat() && ::llvm::is_contained("
    "{8u, 16u, 32u, 64u}, $_self.getIntOrFloatBitWidth())">,
    "8- to 64-bit integer or float">;

def Ditron_Ptr : PtrTo<CPred<"true">, "pointer, !tt.ptr<T>">;
def Ditron_PtrLike : OrTensor<Ditron_Ptr, "pointer or tensor of pointers, !tt.ptr<T>">;
def Ditron_RankLike : OrTensor<I32, "i32 or tensor of i32">;
def Ditron_SignalPtr : PtrTo<I64.predicate,
  "signal pointer, !tt.ptr<i64> (signals are 64-bit epoch counters that only grow)">;

def Ditron_CellPtr : OrTensor<PtrTo<Scalar8To64.predicate, "">,
  "pointer or tensor of pointers to 8- to 64-bit integers or floats">;
def Ditron_SumPtr : OrTensor<PtrTo<
  AnyTypeOf<[I32, I64, F16, BF16, F32, F64]>.predicate, "">,
  "pointer or tensor of pointers to i32, i64, f16, bf16, f32 or f64 (what the GPUs add atomically)">;
def Ditron_CasPtr : OrTensor<PtrTo<AnyTypeOf<[I32, I64]>.predicate, "">,
  "pointer or tensor of pointers to i32 or i64 (what the GPUs compare and swap)">;
def Ditron_MultimemPtr : OrTensor<PtrTo<
  AnyTypeOf<[I32, I64, F16, BF16, F32]>.predicate, "">,
  "multicast pointer or tensor of them to i32, i64, f16, bf16 or f32 (what NVLink SHARP reduces)">;

def Ditron_Cell : Type<Or<[Scalar8To64.predicate,
  RankedTensorOf<[Type<Scalar8To64.predicate, "">]>.predicate]>,
  "8- to 64-bit integer or float, or tensor of them">;
def Ditron_ShflValue : AnyTypeOf<[I32, I64, F32]>;

// `value` is what `ptr` points to, elementwise for a tensor of pointers. The
// custom form infers the value's type from the pointer's through this.
class PointedToBy<string value, string ptr> : TypesMatchWith<
  "'" # value # "' has the type that '" # ptr # "' points to, "
  "elementwise and in the same shape for a tensor of pointers",
  ptr, value, "::mlir::ditron::getPointedToType($_self)">;

#endif // DITRON_TYPES_TD
