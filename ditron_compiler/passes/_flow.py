"""Follow a value through structured control flow."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ditron_compiler import ir

__all__ = ["in_dominance_order", "retype"]


def retype(values: Iterable[ir.Value], new_type: ir.Type) -> list[ir.OpOperand]:
    """Give ``values``, and every value that they become through scf control flow and selects, the type ``new_type``.

    Returns the uses that end there: those by operations which do not pass the value on.
    """
    seen: set[ir.Value] = set()
    worklist = list(values)
    ends: list[ir.OpOperand] = []
    while worklist:
        value = worklist.pop()
        if value in seen:
            continue
        seen.add(value)
        value.set_type(new_type)
        for use in value.uses:
            passed_on = list(_becomes(use))
            worklist += passed_on
            if not passed_on:
                ends.append(use)
    return ends


def _becomes(use: ir.OpOperand) -> Iterator[ir.Value]:
    """The values that an operand turns into inside, behind, or at the next turn of its operation."""
    op, index = use.owner, use.operand_number
    name = op.name
    if name == "scf.for" and index >= 3:  # lower bound, upper bound and step come first
        yield from _loop_carried(op, index - 3)
    elif name == "scf.while":
        yield op.regions[0].blocks[0].arguments[index]
    elif name == "scf.condition" and index >= 1:
        yield op.parent.results[index - 1]
        yield op.parent.regions[1].blocks[0].arguments[index - 1]
    elif name == "scf.yield":
        parent = op.parent
        if parent.name == "scf.for":
            yield from _loop_carried(parent, index)
        elif parent.name == "scf.while":
            yield parent.regions[0].blocks[0].arguments[index]
        else:
            yield parent.results[index]
    elif name == "arith.select" and index >= 1:
        yield op.results[0]


def _loop_carried(loop: ir.Operation, index: int) -> Iterator[ir.Value]:
    yield loop.regions[0].blocks[0].arguments[index + 1]  # the induction variable comes first
    yield loop.results[index]


def in_dominance_order(region: ir.Region, known: Iterable[Any] = ()) -> Iterator[tuple[ir.Operation, list[Any]]]:
    """Every operation of ``region``, after those that come before it, with a list of what is known where it stands.

    What the caller appends to the list is in those of all operations that this one dominates. An operation comes after
    those in its regions.
    """
    inside = list(known)
    for index, block in enumerate(region):
        # The first block comes before all others; of those nothing is known but that.
        scope = inside if index == 0 else list(inside)
        for op in list(block):
            for inner in op.regions:
                yield from in_dominance_order(inner, scope)
            yield op, scope
