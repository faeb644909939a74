"""Change the type of values through structured control flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, scf

__all__ = ["propagate_type"]


def propagate_type(values: Iterable[ir.Value], new_type: ir.Type) -> list[ir.OpOperand]:
    """Give ``values``, and all values that they flow to through scf operations and selects, the type ``new_type``.

    Returns the uses by other operations.
    """
    seen: set[ir.Value] = set()
    worklist = list(values)
    other_uses: list[ir.OpOperand] = []
    while worklist:
        value = worklist.pop()
        if value in seen:
            continue
        seen.add(value)
        value.set_type(new_type)
        for use in value.uses:
            forwarded = list(_forwarded(use))
            worklist += forwarded
            if not forwarded:
                other_uses.append(use)
    return other_uses


def _forwarded(use: ir.OpOperand) -> Iterator[ir.Value]:
    """The block arguments and results that an operand becomes."""
    op, index = use.owner, use.operand_number
    if isinstance(op, scf.ForOp) and index >= 3:  # after lower bound, upper bound and step
        yield from _loop_carried(op, index - 3)
    elif isinstance(op, scf.WhileOp):
        yield op.before_block.arguments[index]
    elif isinstance(op, scf.ConditionOp) and index >= 1:
        yield op.parent.results[index - 1]
        yield op.parent.after_block.arguments[index - 1]
    elif isinstance(op, scf.YieldOp):
        parent = op.parent
        if isinstance(parent, scf.ForOp):
            yield from _loop_carried(parent, index)
        elif isinstance(parent, scf.WhileOp):
            yield parent.before_block.arguments[index]
        else:
            yield parent.results[index]
    elif isinstance(op, arith.SelectOp) and index >= 1:
        yield op.result


def _loop_carried(loop: scf.ForOp, index: int) -> Iterator[ir.Value]:
    yield loop.inner_iter_args[index]
    yield loop.results[index]
