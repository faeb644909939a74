"""Apply a change of address to the scalar pointer that a pointer, or a tensor of pointers, is computed from.

An opaque call makes Triton's axis analysis forget how pointers are aligned and contiguous; on the scalar base, where an
attribute restores the alignment, nothing is lost: ``f(base + offsets) = f(base) + offsets`` for what moves the heap as
a whole.
"""
from __future__ import annotations

from collections.abc import Callable

from ditron_compiler import ir
from ditron_compiler.lowering.gpu import Lowering, is_tensor

__all__ = ["Untraceable", "divisibility", "rebase"]

# Operations that only place the pointers of operand 0; other operands stay as they are.
_TRANSPARENT = {"tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast",
                "tt.unsplat", "ttg.convert_layout"}


class Untraceable(Exception):
    """No scalar base was found; ``value`` is where the search ended."""

    def __init__(self, value: ir.Value):
        self.value = value


def rebase(lowering: Lowering, pointer: ir.Value, change: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """``pointer`` with ``change`` applied to its scalar base.

    Raises Untraceable for a tensor of pointers that was loaded, carried around a loop, or otherwise not computed from
    one base.
    """
    op = pointer.owner if isinstance(pointer, ir.OpResult) else None
    if op is not None and op.name in _TRANSPARENT:
        operands = list(op.operands)
        operands[0] = rebase(lowering, operands[0], change)
        return lowering.make(op.name, operands, pointer.type, {a: op.attributes[a] for a in op.attributes.keys()})
    if op is not None and op.name == "arith.select":
        return lowering.make(op.name, [op.operands[0], *(rebase(lowering, v, change) for v in list(op.operands)[1:])],
                             pointer.type)
    if is_tensor(pointer.type):
        raise Untraceable(pointer)
    return change(pointer)


def divisibility(pointer: ir.Value) -> ir.Attribute | None:
    """The attribute that says how a scalar pointer is aligned, in the form that operations carry; None when unknown."""
    if isinstance(pointer, ir.OpResult):
        return pointer.owner.attributes.get("tt.divisibility")
    function = pointer.owner.owner
    if function.name != "tt.func" or "arg_attrs" not in function.attributes:
        return None
    arguments = ir.ArrayAttr(function.attributes["arg_attrs"])
    if pointer.arg_number >= len(arguments):
        return None
    known = ir.DictAttr(arguments[pointer.arg_number])
    if "tt.divisibility" not in known:
        return None
    value = ir.IntegerAttr(known["tt.divisibility"]).value
    return ir.Attribute.parse(f"dense<{value}> : tensor<1xi32>", pointer.context)
