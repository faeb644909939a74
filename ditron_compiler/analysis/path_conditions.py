"""Path conditions: which comparisons hold where an operation stands, and which operations exclude each other.

Only the ``scf.if`` around an operation are considered, so the result is a subset of what holds ("must").
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, scf
from ditron_compiler.ir.matchers import defining_op

LESS = (arith.CmpIPredicate.slt, arith.CmpIPredicate.ult)
NOT_LESS = (arith.CmpIPredicate.sge, arith.CmpIPredicate.uge)


def comparisons_on_path(
    op: ir.Operation, if_true: Collection[arith.CmpIPredicate], if_false: Collection[arith.CmpIPredicate]
) -> Iterator[arith.CmpIOp]:
    """The conditions of the ``scf.if`` around ``op``, by predicate: ``if_true`` in a then branch, else ``if_false``."""
    while op.parent is not None:
        block, parent = op.block, op.parent
        if isinstance(parent, scf.IfOp):
            condition = defining_op(parent.condition)
            predicates = if_true if block == parent.then_block else if_false
            if isinstance(condition, arith.CmpIOp) and condition.predicate in predicates:
                yield condition
        op = parent


def are_mutually_exclusive(op: ir.Operation, other: ir.Operation, loop: ir.Operation | None = None) -> bool:
    """Whether no program executes both, as in two branches of an ``scf.if``; with ``loop``, in one iteration of it."""
    blocks = {}
    while op is not None and op.parent is not None:
        blocks[op.parent] = op.block
        op = op.parent
    exclusive = False
    while (parent := other.parent) is not None and parent != loop:
        if isinstance(parent, scf.IfOp):
            exclusive |= blocks.get(parent, other.block) != other.block
        elif isinstance(parent, (scf.ForOp, scf.WhileOp)):  # different iterations may take different branches
            exclusive = False
        other = parent
    return exclusive
