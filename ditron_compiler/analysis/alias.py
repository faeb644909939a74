"""Alias analysis by underlying objects: from which memory a pointer is computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.slicing import incoming_values
from ditron_compiler.ir.dialects import ditron, tt
from ditron_compiler.ir.matchers import defining_op, is_function_argument

__all__ = ["POINTER_ARITHMETIC", "SAME_OBJECT", "UnderlyingObject", "may_alias", "underlying_objects"]

#: Operations whose result points into the object of operand 0, at an address computed from that of operand 0.
POINTER_ARITHMETIC = (
    tt.AddPtrOp,
    tt.SplatOp,
    tt.BroadcastOp,
    tt.ExpandDimsOp,
    tt.ReshapeOp,
    tt.TransOp,
    tt.BitcastOp,
    tt.UnsplatOp,
)
#: All operations whose result leads to the object of operand 0.
SAME_OBJECT = (
    *POINTER_ARITHMETIC,
    ditron.ConsumeTokenOp,
    tt.MakeTensorDescOp,
    tt.MakeTensorPtrOp,
    tt.AdvanceOp,
    ditron.MulticastPtrOp,
)


@dataclass(frozen=True)
class UnderlyingObject:
    """The memory at ``root``, a value that pointers are computed from, mostly a kernel's argument, on one rank.

    ``rank`` is the operand of the ``symm_at`` on the way; None is this rank.
    """

    root: ir.Value
    rank: ir.Value | None = None


def underlying_objects(pointer: ir.Value) -> frozenset[UnderlyingObject]:
    """Every object that a pointer, a tensor of pointers or a descriptor may be based on."""
    found: set[UnderlyingObject] = set()
    seen: set[tuple[ir.Value, ir.Value | None]] = set()
    worklist: list[tuple[ir.Value, ir.Value | None]] = [(pointer, None)]
    while worklist:
        value, rank = worklist.pop()
        if (value, rank) in seen:
            continue
        seen.add((value, rank))
        op = defining_op(value)
        if isinstance(op, ditron.SymmAtOp):
            worklist.append((op.ptr, op.rank))
        elif isinstance(op, SAME_OBJECT):
            worklist.append((op.operands[0], rank))
        elif incoming := incoming_values(value):
            worklist += [(source, rank) for source in incoming]
        else:
            found.add(UnderlyingObject(value, rank))
    return frozenset(found)


def may_alias(root: ir.Value | None, others: Iterable[ir.Value | None]) -> bool:
    """Whether memory at ``root`` may be memory at one of ``others``; None is unknown memory.

    Different arguments of a kernel never alias. Any other root, such as a pointer that was loaded, may be any memory.
    """
    return any(
        root is None
        or other is None
        or root == other
        or not (is_function_argument(root) and is_function_argument(other))
        for other in others
    )
