"""How a program depends on the number of its call: what can be computed once, and what each call.

A value is constant, or ``slope * epoch + offset``, or repeats with a period (``epoch % 2`` and what is made of it), or
none of these. Steps whose values are of the first three kinds are built once for each place in the period.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ditron_compiler import ir

__all__ = ["Affine", "affine_steps", "period_of"]

_LONGEST = 16  # of a period


class Affine(int):
    """``slope * epoch + offset``; as an integer, its value in the call it was evaluated for."""

    slope: int
    offset: int

    @classmethod
    def through(cls, epoch: int, value: int, later: int, then: int) -> Affine:
        """What is ``value`` in call ``epoch`` and ``then`` in call ``later``."""
        result = cls(value)
        result.slope, rest = divmod(then - value, later - epoch)
        if rest:
            raise ValueError(f"{value} in call {epoch} and {then} in call {later} are not on a line of integers")
        result.offset = value - result.slope * epoch
        return result

    def __repr__(self) -> str:
        return f"{self.slope} * epoch + {self.offset}"


# Kind of a value: its period when it repeats (1: constant), 0 when it grows in proportion, None when neither.
_GROWS = 0
_Kind = int | None


def period_of(program: ir.Operation) -> int | None:
    """After how many calls the steps repeat, but for numbers in proportion to the epoch; None when they never do."""
    kinds: dict[Any, _Kind] = {}
    periods = [1]
    regular = True

    def kind(value: Any) -> _Kind:
        return kinds.get(value, 1)

    def look(op: ir.Operation) -> Any:
        nonlocal regular
        operands = [kind(value) for value in op.operands]
        if op.name == "ditron.epoch":
            kinds[op.results[0]] = _GROWS
        elif any(k != 1 for k in operands):
            result = _transfer(op.name, operands, op)
            for value in op.results:
                kinds[value] = result
            if op.results and op.name.startswith("arith."):
                return ir.WalkResult.ADVANCE
            regular = regular and _usable(op, operands)
            periods.extend(k for k in operands if k)
            if op.name == "scf.for":  # the index goes with the bounds
                repeats = [k for k in operands[:3] if k]
                kinds[op.regions[0].blocks[0].arguments[0]] = math.lcm(*repeats) if len(repeats) == 3 else None
        return ir.WalkResult.ADVANCE

    program.walk(look, ir.WalkOrder.PRE_ORDER)
    period = math.lcm(*periods)
    return period if regular and period <= _LONGEST else None


def _transfer(name: str, operands: list[_Kind], op: ir.Operation) -> _Kind:
    """The kind of an operation's results."""
    if None in operands:
        return None
    if _GROWS not in operands:
        return math.lcm(*(k for k in operands if k))
    if name in ("arith.addi", "arith.subi"):
        others = [k for k in operands if k != _GROWS]
        return _GROWS if all(k == 1 for k in others) else None
    if name == "arith.muli":
        return _GROWS if operands.count(1) == 1 else None
    if name in ("arith.trunci", "arith.extsi"):
        return _GROWS
    if name in ("arith.remsi", "arith.remui") and operands[0] == _GROWS and _constant(op.operands[1]):
        return _constant(op.operands[1])
    return None


def _constant(value: Any) -> int | None:
    owner = value.owner
    if getattr(owner, "name", "") != "arith.constant":
        return None
    return abs(ir.IntegerAttr(owner.attributes["value"]).value) or None


# Where a number in proportion to the epoch is understood: an operand that is not a place, a size or a peer.
def _usable(op: ir.Operation, operands: list[_Kind]) -> bool:
    if None in operands:
        return False
    if _GROWS not in operands:
        return True
    return op.name in ("ditron.signal_write", "ditron.signal_wait", "ditron.launch", "ditron.all_gather")


def affine_steps(epoch: int, steps: list, later: int, then: list) -> list | None:
    """The steps of call ``epoch`` with :class:`Affine` numbers, seen from those of call ``later``.

    None when the two differ in more than that.
    """
    if [type(step) for step in steps] != [type(step) for step in then]:
        return None
    try:
        return [_merge(epoch, a, later, b) for a, b in zip(steps, then, strict=True)]
    except ValueError:
        return None


# Fields that hold numbers which may grow with the epoch.
_NUMBERS = {"value", "args"}


def _merge(epoch: int, step: Any, later: int, other: Any) -> Any:
    changed = {}
    for field in fields(step):
        a, b = getattr(step, field.name), getattr(other, field.name)
        if a == b:
            continue
        if field.name not in _NUMBERS:
            raise ValueError(f"{field.name} of {step} depends on the epoch")
        changed[field.name] = (
            tuple(_number(epoch, x, later, y) for x, y in zip(a, b, strict=True))
            if isinstance(a, tuple)
            else _number(epoch, a, later, b)
        )
    return replace(step, **changed) if changed else step


def _number(epoch: int, a: Any, later: int, b: Any) -> Any:
    if a == b:
        return a
    if type(a) is not int or type(b) is not int:
        raise ValueError(f"{a} depends on the epoch")
    return Affine.through(epoch, a, later, b)


def affines(steps: list) -> Iterator[Affine]:
    """Every number that grows with the epoch."""
    for step in steps:
        for field in fields(step):
            value = getattr(step, field.name)
            for item in value if isinstance(value, tuple) and not is_dataclass(value) else (value,):
                if isinstance(item, Affine):
                    yield item
