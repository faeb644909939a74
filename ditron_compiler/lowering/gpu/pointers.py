"""Addresses of the GPU lowering: translation to another heap, on the scalar base, with its alignment as an attribute.

An opaque call makes Triton's axis analysis forget how pointers are aligned and contiguous; on the scalar base, where an
attribute restores the alignment, nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable

from ditron_compiler import ir
from ditron_compiler.analysis import divisibility as _divisibility
from ditron_compiler.analysis import rebasing
from ditron_compiler.analysis.alias import POINTER_ARITHMETIC
from ditron_compiler.ir.dialects import ditron, tt
from ditron_compiler.ir.matchers import defining_op
from ditron_compiler.lowering.gpu.builder import Lowering, is_tensor, with_element

__all__ = ["divisibility", "rebase", "translate_each"]

Build = Callable[[str, list[ir.Value], ir.Type, ir.Attribute | None], ir.Value]


def rebase(lowering: Lowering, pointer: ir.Value, change: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """``pointer`` with ``change`` applied to its scalar base, at the current operation."""
    return rebasing.rebase(pointer, change, lowering.make)


def divisibility(pointer: ir.Value) -> ir.Attribute | None:
    """The attribute that says how a scalar pointer is aligned, in the form that operations carry; None when unknown."""
    known = min(_divisibility.divisibility(pointer), 16)  # no access is wider
    return ir.Attribute.parse(f"dense<{known}> : tensor<1xi32>", pointer.context) if known > 1 else None


def translate_each(lowering: Lowering, op: ditron.SymmAtOp, build: Build) -> None:
    """``symm_at`` with a tensor of ranks; ``build(symbol, operands, result, attribute)`` makes the call.

    All of a peer's heap is equally far from this rank's: what the call gives is that distance, by rank, before ranks
    are broadcast. Added to the pointers it leaves Triton what it knows of their alignment and contiguity.
    """
    base = _scalar_base(op.ptr)
    if base is None:  # pointers that were loaded, say
        lowering.replace(
            build("symm_at", [lowering.splat(lowering.ctx, op.ptr.type), op.ptr, op.rank], op.ptr.type, None)
        )
        return
    ranks, broadcasts = op.rank, []
    while isinstance(defining_op(ranks), tt.BroadcastOp | tt.ExpandDimsOp):
        broadcasts.append(defining_op(ranks))
        ranks = defining_op(ranks).operands[0]
    kind, itemsize = with_element(ranks.type, lowering.i64), _divisibility.pointee_bytes(base.type)
    operands = [lowering.splat(lowering.ctx, kind), lowering.splat(base, kind), ranks]
    size = lowering.constant(itemsize, lowering.i64, kind)
    dimensions = len(ir.RankedTensorType(kind).shape)
    aligned = ir.Attribute.parse(f"dense<{max(16 // itemsize, 1)}> : tensor<{dimensions}xi32>", op.context)
    distance = build("symm_distance", [*operands, size], kind, aligned)
    for shape in reversed(broadcasts):
        wanted = with_element(shape.results[0].type, lowering.i64)
        attributes = {name: shape.attributes[name] for name in shape.attributes.keys()}
        distance = lowering.make(shape.name, [distance], wanted, attributes)
    lowering.replace(lowering.make(tt.AddPtrOp.OPERATION_NAME, [op.ptr, distance], op.ptr.type))


def _scalar_base(pointer: ir.Value) -> ir.Value | None:
    """A scalar pointer to the same heap that ``pointer`` is computed from."""
    while is_tensor(pointer.type):
        op = defining_op(pointer)
        if not isinstance(op, POINTER_ARITHMETIC):
            return None
        pointer = op.operands[0]
    return pointer
