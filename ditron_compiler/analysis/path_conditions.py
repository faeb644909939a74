"""Under which conditions a program comes to an operation: the ``scf.if`` that it stands in."""

from __future__ import annotations

from collections.abc import Iterator

from ditron_compiler import ir
from ditron_compiler.ir.dialects.enums import predicate
from ditron_compiler.ir.matchers import defining_op

__all__ = ["BELOW", "NOT_BELOW", "conditions", "exclusive"]

BELOW, NOT_BELOW = ("slt", "ult"), ("sge", "uge")
_LOOPS = ("scf.for", "scf.while")


def conditions(at: ir.Operation, if_true: tuple[str, ...], if_false: tuple[str, ...]) -> Iterator[ir.Operation]:
    """The comparisons of one of the predicates that hold at ``at``: those of the ``scf.if`` it stands in."""
    while at.parent is not None:
        block, parent = at.block, at.parent
        if parent.name == "scf.if":
            test = defining_op(parent.operands[0])
            predicates = if_true if block == parent.regions[0].blocks[0] else if_false
            if test is not None and test.name == "arith.cmpi" and predicate(test) in predicates:
                yield test
        at = parent


def exclusive(op: ir.Operation, other: ir.Operation, loop: ir.Operation | None = None) -> bool:
    """Whether a program comes to only one of the two, in each turn of ``loop`` if given: branches of an ``scf.if``."""
    blocks = {}
    while op is not None and op.parent is not None:
        blocks[op.parent] = op.block
        op = op.parent
    apart = False
    while (parent := other.parent) is not None and parent != loop:
        if parent.name == "scf.if":
            apart |= blocks.get(parent, other.block) != other.block
        elif parent.name in _LOOPS:  # one turn may take this branch, and the next one that
            apart = False
        other = parent
    return apart
