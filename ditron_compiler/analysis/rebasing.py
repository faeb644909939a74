"""Recompute a pointer from another base."""

from __future__ import annotations

from collections.abc import Callable

from ditron_compiler import ir
from ditron_compiler.analysis.alias import POINTER_ARITHMETIC
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.ir.dialects import arith
from ditron_compiler.ir.matchers import defining_op

__all__ = ["rebase"]


def rebase(
    pointer: ir.Value,
    change: Callable[[ir.Value], ir.Value],
    make: Callable[[str, list[ir.Value], ir.Type, dict[str, ir.Attribute]], ir.Value],
    stop: Callable[[ir.Value], bool] = lambda value: False,
) -> ir.Value:
    """``pointer`` with ``change`` applied to its scalar base: ``f(base + offsets) = f(base) + offsets``.

    That holds where ``change`` translates a whole heap. ``make(name, operands, result type, attributes)`` clones the
    operations that lead from the base to the pointer; the search for the base ends at a scalar that ``stop`` accepts.

    Raises MatchFailure for a tensor of pointers that was loaded, is carried by a loop, or otherwise has no single base.
    """
    op = defining_op(pointer)
    tensor = ir.RankedTensorType.isinstance(pointer.type)
    if tensor or not stop(pointer):
        if isinstance(op, POINTER_ARITHMETIC):
            operands = list(op.operands)
            operands[0] = rebase(operands[0], change, make, stop)
            return make(op.name, operands, pointer.type, {name: op.attributes[name] for name in op.attributes.keys()})
        if isinstance(op, arith.SelectOp):
            bases = [rebase(value, change, make, stop) for value in (op.true_value, op.false_value)]
            return make(op.name, [op.condition, *bases], pointer.type, {})
        if tensor:
            raise MatchFailure("the tensor of pointers has no single scalar base", op)
    return change(pointer)
