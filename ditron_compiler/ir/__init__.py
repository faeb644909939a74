"""MLIR from Python, with the names of upstream's ``mlir.ir``.

    from ditron_compiler import ir

    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @f(%x: i32) -> i32 { return %x : i32 }")
        module.operation.walk(lambda op: print(op.name))

An operation has one Python object; once erased (or after a pass ran over it) touching it raises RuntimeError.
"""

from .._core import (  # noqa: F401 - this is the list of what the module offers
    AffineMapAttr,
    ArrayAttr,
    Attribute,
    BF16Type,
    Block,
    BlockArgument,
    BlockArgumentList,
    BlockList,
    BoolAttr,
    ComplexType,
    Context,
    DenseBoolArrayAttr,
    DenseElementsAttr,
    DenseF32ArrayAttr,
    DenseF64ArrayAttr,
    DenseFPElementsAttr,
    DenseI8ArrayAttr,
    DenseI16ArrayAttr,
    DenseI32ArrayAttr,
    DenseI64ArrayAttr,
    DenseIntElementsAttr,
    Diagnostic,
    DiagnosticHandler,
    DiagnosticInfo,
    DiagnosticSeverity,
    DictAttr,
    F16Type,
    F32Type,
    F64Type,
    FlatSymbolRefAttr,
    Float8E4M3B11FNUZType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    FloatAttr,
    FloatTF32Type,
    FloatType,
    FunctionType,
    IndexType,
    InsertionPoint,
    IntegerAttr,
    IntegerType,
    Location,
    MemRefType,
    Module,
    NoneType,
    OpaqueType,
    OpAttributeMap,
    Operation,
    OperationList,
    OpOperand,
    OpOperandList,
    OpResult,
    OpResultList,
    OpView,
    RankedTensorType,
    Region,
    RegionSequence,
    ShapedType,
    StridedLayoutAttr,
    StringAttr,
    SymbolRefAttr,
    SymbolTable,
    TupleType,
    Type,
    TypeAttr,
    UnitAttr,
    UnrankedMemRefType,
    UnrankedTensorType,
    Value,
    VectorType,
    WalkOrder,
    WalkResult,
    llvm_version,
    translate_module_to_llvmir,
)
from . import _builders  # noqa: F401 - registers the builtin attribute builders
from ._errors import MLIRError  # noqa: F401
from ._registry import AttrBuilder, register_attribute_builder  # noqa: F401


class Dialect:
    """The base of the dialect classes in generated code."""

    DIALECT_NAMESPACE = ""


# Generated annotations say Value[IntegerType] and the like; they carry no meaning at run time.
for _generic in (Value, OpResult, OpOperandList, OpResultList):
    _generic.__class_getitem__ = classmethod(lambda cls, item: cls)


__all__ = [name for name in dir() if not name.startswith("_") and name != "annotations"]
