"""Typed classes of Triton's operations, which our MLIR carries without knowing them: operands and attributes by name.

    if isinstance(op, tt.LoadOp) and op.mask is None:
        pointer = op.ptr

Names are those of Triton's ODS. An operation is one line here: ``?`` stands for an optional operand, ``*`` for a
variadic one. An attribute is None when the operation does not have it; one with an enumeration gives its member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

from ... import ir
from ..._core import PointerType
from .._registry import register_operation
from . import arith

# PointerType and the classes below are what the module offers.
__all__ = ["MemSemantic", "MemSyncScope", "PointerType", "RMWOp", "TritonOp", "sum_of_axis"]


class MemSemantic(IntEnum):
    """Memory order of an atomic: the attribute ``sem``."""

    RELAXED = 1
    ACQUIRE = 2
    RELEASE = 3
    ACQUIRE_RELEASE = 4


class MemSyncScope(IntEnum):
    """Scope of an atomic: the attribute ``scope``."""

    GPU = 1
    CTA = 2
    SYSTEM = 3


class RMWOp(IntEnum):
    """What an atomic does: the attribute ``atomic_rmw_op``."""

    AND = 1
    OR = 2
    XOR = 3
    ADD = 4
    FADD = 5
    MAX = 6
    MIN = 7
    UMAX = 8
    UMIN = 9
    XCHG = 10


_ENUMS = {"sem": MemSemantic, "scope": MemSyncScope, "atomic_rmw_op": RMWOp}


class TritonOp(ir.OpView):
    """The base of all: ``AddPtrOp(result_type, ptr, offset)`` makes an operation, with attributes as keywords.

    A variadic operand or result is given as a list; optional operands at the end may be left out.
    """

    _operands: tuple[str, ...]
    _results: tuple[str, ...]
    _segmented: bool  # the sizes of the operand groups are in the attribute operandSegmentSizes

    def __init_subclass__(
        cls, name: str, ins: str = "", outs: str = "result", attrs: str = "", segmented: bool = False
    ):
        cls.OPERATION_NAME = f"tt.{name}"
        cls._operands, cls._results, cls._segmented = tuple(ins.split()), tuple(outs.split()), segmented
        accessors = {name: _operand(cls._operands, i) for i, name in enumerate(cls._operands)}
        accessors |= {name: _result(name, i) for i, name in enumerate(cls._results)}
        accessors |= {name: _attribute(name) for name in attrs.split()}
        for name, accessor in accessors.items():
            if not hasattr(ir.OpView, name := name.rstrip("?*")):  # `operands` and `results` are there already
                setattr(cls, name, property(accessor))
        register_operation(None)(cls)
        __all__.append(cls.__name__)

    def __init__(self, *arguments, loc=None, ip=None, **attributes):
        """The types of the results, then the operands."""
        results, operands = arguments[: len(self._results)], arguments[len(self._results) :]
        if self._segmented:
            operands += (None,) * (len(self._operands) - len(operands))
        else:
            operands = _flat(operands)
        super().__init__(
            self.OPERATION_NAME,
            (0, True),
            [_KINDS.get(name[-1], 1) for name in self._operands] if self._segmented else None,
            None,
            attributes={name: value for name, value in attributes.items() if value is not None},
            results=_flat(results),
            operands=operands,
            loc=loc,
            ip=ip,
        )


_KINDS = {"*": -1, "?": 0}


def _flat(groups: Iterable) -> list:
    return [
        item
        for group in groups
        if group is not None
        for item in (group if isinstance(group, (list, tuple)) else [group])
    ]


def _operand(names: tuple[str, ...], index: int) -> Callable[[TritonOp], ir.Value | list[ir.Value] | None]:
    """The accessor of the operand, or group of operands, at ``index`` of ``names``."""
    name = names[index]
    if not any(before[-1] in "?*" for before in names[: index + 1]):
        return lambda op: op.operands[index]

    def get(op: TritonOp) -> ir.Value | list[ir.Value] | None:
        operands = list(op.operands)
        sizes = _group_sizes(op, names, len(operands))
        start = sum(sizes[:index])
        if name[-1] == "*":
            return operands[start : start + sizes[index]]
        return operands[start] if sizes[index] else None

    return get


def _group_sizes(op: TritonOp, names: tuple[str, ...], count: int) -> list[int]:
    """How many of an operation's ``count`` operands each name stands for."""
    if op._segmented and "operandSegmentSizes" in op.attributes:
        return list(op.attributes["operandSegmentSizes"])
    variadic = sum(name[-1] == "*" for name in names)
    if variadic:  # all of the same size
        each = (count - (len(names) - variadic)) // variadic
        return [each if name[-1] == "*" else 1 for name in names]
    return [1] * count + [0] * (len(names) - count)


def _result(name: str, index: int) -> Callable[[TritonOp], ir.Value]:
    return lambda op: op.results[index]


def _attribute(name: str) -> Callable[[TritonOp], ir.Attribute | IntEnum | None]:
    enum = _ENUMS.get(name)
    if enum is None:
        return lambda op: op.attributes.get(name)

    def get(op: TritonOp) -> IntEnum | None:
        attribute = op.attributes.get(name)
        return None if attribute is None else enum(attribute.value)

    return get


# fmt: off
# structure
class CallOp(TritonOp, name="call", ins="operands*", outs="results*", attrs="callee"): ...
class ReturnOp(TritonOp, name="return", ins="srcs*", outs=""): ...
# who am I
class GetProgramIdOp(TritonOp, name="get_program_id", attrs="axis"): ...
class GetNumProgramsOp(TritonOp, name="get_num_programs", attrs="axis"): ...
# pointers and descriptors
class AddPtrOp(TritonOp, name="addptr", ins="ptr offset"): ...
class AdvanceOp(TritonOp, name="advance", ins="ptr offsets*"): ...
class BitcastOp(TritonOp, name="bitcast", ins="src"): ...
class IntToPtrOp(TritonOp, name="int_to_ptr", ins="src"): ...
class PtrToIntOp(TritonOp, name="ptr_to_int", ins="src"): ...
class MakeTensorPtrOp(TritonOp, name="make_tensor_ptr", ins="base shape* strides* offsets*", attrs="order"): ...
class MakeTensorDescOp(TritonOp, name="make_tensor_descriptor", ins="base shape* strides*", attrs="padding"): ...
# memory
class LoadOp(TritonOp, name="load", ins="ptr mask? other?", segmented=True,
             attrs="boundaryCheck padding cache evict isVolatile"): ...
class StoreOp(TritonOp, name="store", ins="ptr value mask?", outs="", attrs="boundaryCheck cache evict"): ...
class AtomicRMWOp(TritonOp, name="atomic_rmw", ins="ptr val mask?", attrs="atomic_rmw_op sem scope"): ...
class AtomicCASOp(TritonOp, name="atomic_cas", ins="ptr cmp val", attrs="sem scope"): ...
class AtomicLoadOp(TritonOp, name="atomic_load", ins="ptr mask?", attrs="sem scope"): ...
class AtomicStoreOp(TritonOp, name="atomic_store", ins="ptr value mask?", outs="", attrs="sem scope"): ...
class AtomicPollOp(TritonOp, name="atomic_poll", ins="ptr expected timeout?", attrs="sem scope"): ...
class DescriptorLoadOp(TritonOp, name="descriptor_load", ins="desc indices*", attrs="cache evict"): ...
class DescriptorGatherOp(TritonOp, name="descriptor_gather", ins="desc x_offsets y_offset"): ...
class DescriptorStoreOp(TritonOp, name="descriptor_store", ins="desc src indices*", outs=""): ...
class DescriptorReduceOp(TritonOp, name="descriptor_reduce", ins="desc src indices*", outs="", attrs="kind"): ...
class DescriptorScatterOp(TritonOp, name="descriptor_scatter", ins="desc x_offsets y_offset src", outs=""): ...
# shapes
class BroadcastOp(TritonOp, name="broadcast", ins="src"): ...
class CatOp(TritonOp, name="cat", ins="lhs rhs"): ...
class ExpandDimsOp(TritonOp, name="expand_dims", ins="src", attrs="axis"): ...
class GatherOp(TritonOp, name="gather", ins="src indices", attrs="axis"): ...
class JoinOp(TritonOp, name="join", ins="lhs rhs"): ...
class MakeRangeOp(TritonOp, name="make_range", attrs="start end"): ...
class ReshapeOp(TritonOp, name="reshape", ins="src", attrs="allow_reorder"): ...
class SplatOp(TritonOp, name="splat", ins="src"): ...
class SplitOp(TritonOp, name="split", ins="src", outs="outLHS outRHS"): ...
class TransOp(TritonOp, name="trans", ins="src", attrs="order"): ...
class UnsplatOp(TritonOp, name="unsplat", ins="src"): ...
# arithmetic
class ApproxDivFOp(TritonOp, name="approx_divf", ins="x y"): ...
class ClampFOp(TritonOp, name="clampf", ins="x min max", attrs="propagateNan"): ...
class DotOp(TritonOp, name="dot", ins="a b c", outs="d", attrs="inputPrecision maxNumImpreciseAcc"): ...
class DotScaledOp(TritonOp, name="dot_scaled", ins="a b c a_scale? b_scale?", outs="d",
                  attrs="a_elem_type b_elem_type fastMath lhs_k_pack rhs_k_pack", segmented=True): ...
class FpToFpOp(TritonOp, name="fp_to_fp", ins="src", attrs="rounding"): ...
class HistogramOp(TritonOp, name="histogram", ins="src mask?"): ...
class MapElementwiseOp(TritonOp, name="map_elementwise", ins="srcs*", outs="results*", attrs="pack"): ...
class MapElementwiseReturnOp(TritonOp, name="map_elementwise.return", ins="srcs*", outs=""): ...
class MulhiUIOp(TritonOp, name="mulhiui", ins="x y"): ...
class PreciseDivFOp(TritonOp, name="precise_divf", ins="x y"): ...
class PreciseSqrtOp(TritonOp, name="precise_sqrt", ins="x"): ...
class ReduceOp(TritonOp, name="reduce", ins="srcs*", outs="results*", attrs="axis"): ...
class ReduceReturnOp(TritonOp, name="reduce.return", ins="srcs*", outs=""): ...
class ScanOp(TritonOp, name="scan", ins="srcs*", outs="results*", attrs="axis reverse"): ...
class ScanReturnOp(TritonOp, name="scan.return", ins="srcs*", outs=""): ...
# calls out of the kernel
class AssertOp(TritonOp, name="assert", ins="condition", outs="", attrs="message"): ...
class ElementwiseInlineAsmOp(TritonOp, name="elementwise_inline_asm", ins="args*", outs="results*",
                             attrs="asm_string constraints pure packed_element"): ...
class ExternElementwiseOp(TritonOp, name="extern_elementwise", ins="srcs*", attrs="libname libpath symbol pure"): ...
class PrintOp(TritonOp, name="print", ins="args*", outs="", attrs="prefix hex isSigned"): ...
# fmt: on


class FuncOp(TritonOp, name="func", outs="", attrs="sym_name function_type sym_visibility"):
    @property
    def body(self) -> ir.Region:
        return self.regions[0]

    @property
    def entry_block(self) -> ir.Block:
        return self.regions[0].blocks[0]

    @property
    def arguments(self):
        return self.entry_block.arguments

    @property
    def is_private(self) -> bool:
        """Whether only this module calls it; the others are kernels."""
        return self.sym_visibility is not None and self.sym_visibility.value == "private"


def sum_of_axis(tensor: ir.Value, axis: int = 0) -> ir.Value:
    """Build the sum of a tensor of integers over an axis, where operations are inserted; of the only axis a scalar."""
    kind = ir.RankedTensorType(tensor.type)
    element, shape = kind.element_type, list(kind.shape)
    del shape[axis]
    result = ir.RankedTensorType.get(shape, element) if shape else element
    i32 = ir.IntegerType.get_signless(32, context=tensor.context)
    reduce = ir.Operation.create(
        ReduceOp.OPERATION_NAME,
        results=[result],
        operands=[tensor],
        regions=1,
        attributes={"axis": ir.IntegerAttr.get(i32, axis)},
    )
    block = reduce.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(block):
        ReduceReturnOp([arith.AddIOp(*block.arguments).result])
    return reduce.results[0]
