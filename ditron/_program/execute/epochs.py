"""How a program depends on the epoch, the number of its call: which steps can be built once, and which for each call.

A value is constant, periodic in the epoch (``epoch % 2`` and what is computed from it), a linear form in the epoch, or
irregular. Steps whose values are of the first three kinds are built once for each call of a period.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ditron_compiler import host, ir
from ditron_compiler.analysis.linear import NamedSymbol, Polynomial
from ditron_compiler.ir.dialects import arith, ditron, scf
from ditron_compiler.ir.matchers import constant_int

__all__ = ["EPOCH", "is_counted_by_kernels", "linear_numbers", "linear_steps", "period_of"]

#: The symbol of linear forms in the epoch.
EPOCH = NamedSymbol("epoch")

_MAX_PERIOD = 16

_ITSELF = Polynomial.symbol(EPOCH)

# Kind of a value: its period when it is periodic (1: constant), _LINEAR, or None when it is irregular.
_LINEAR = 0
_Kind = int | None


def period_of(program: ir.Operation) -> int | None:
    """After how many calls the steps repeat, but for linear forms in the epoch; None when they never do."""
    kinds: dict[Any, _Kind] = {}
    periods = [1]
    regular = True

    def visit(op: ir.Operation) -> Any:
        nonlocal regular
        operands = [kinds.get(value, 1) for value in op.operands]
        if isinstance(op, ditron.EpochOp):
            kinds[op.result] = _LINEAR
        elif any(kind != 1 for kind in operands):
            result = _kind_of_results(op, operands)
            for value in op.results:
                kinds[value] = result
            if op.results and op.name.startswith("arith."):
                return ir.WalkResult.ADVANCE
            regular = regular and _is_regular(op, operands)
            periods.extend(kind for kind in operands if kind)
            if isinstance(op, scf.ForOp):  # the index varies as the bounds do
                bounds = [kind for kind in operands[:3] if kind]
                kinds[op.induction_variable] = math.lcm(*bounds) if len(bounds) == 3 else None
        return ir.WalkResult.ADVANCE

    program.walk(visit, ir.WalkOrder.PRE_ORDER)
    period = math.lcm(*periods)
    return period if regular and period <= _MAX_PERIOD else None


def _kind_of_results(op: ir.Operation, operands: list[_Kind]) -> _Kind:
    if None in operands:
        return None
    if _LINEAR not in operands:
        return math.lcm(*(kind for kind in operands if kind))
    if isinstance(op, arith.AddIOp | arith.SubIOp):
        others = [kind for kind in operands if kind != _LINEAR]
        return _LINEAR if all(kind == 1 for kind in others) else None
    if isinstance(op, arith.MulIOp):
        return _LINEAR if operands.count(1) == 1 else None
    if isinstance(op, arith.TruncIOp | arith.ExtSIOp):
        return _LINEAR
    if isinstance(op, arith.RemSIOp | arith.RemUIOp) and operands[0] == _LINEAR:
        return abs(constant_int(op.rhs) or 0) or None
    return None


def _is_regular(op: ir.Operation, operands: list[_Kind]) -> bool:
    """Whether a step can be built once: it may have linear forms for values, but not for buffers, sizes or peers."""
    if None in operands:
        return False
    if _LINEAR not in operands:
        return True
    return isinstance(op, ditron.SignalWriteOp | ditron.SignalWaitOp | ditron.LaunchOp | ditron.AllGatherOp)


def linear_steps(epoch: int, steps: list, later: int, then: list) -> list | None:
    """The steps of call ``epoch``, with linear forms in `EPOCH` for the numbers that differ in call ``later``.

    None when the two calls differ in more than that.
    """
    if [type(step) for step in steps] != [type(step) for step in then]:
        return None
    try:
        return [_merge(epoch, a, later, b) for a, b in zip(steps, then, strict=True)]
    except ValueError:
        return None


# Fields that hold numbers which may be linear forms.
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
    return Polynomial.through(EPOCH, (epoch, a), (later, b))


def linear_numbers(steps: list) -> Iterator[Polynomial]:
    """Every linear form in the epoch."""
    for step in steps:
        for field in fields(step):
            value = getattr(step, field.name)
            for item in value if isinstance(value, tuple) and not is_dataclass(value) else (value,):
                if isinstance(item, Polynomial):
                    yield item


def is_counted_by_kernels(steps: list) -> bool:
    """Whether the only numbers of a call that depend on the epoch are the epoch itself, one for a launch.

    Its kernels can count the call then. Not those that are launched with ``launch_pdl=True``, which may load the count
    before they wait for the kernel ahead of them.
    """
    launches = [step for step in steps if list(linear_numbers([step]))]
    return (
        bool(launches)
        and all(
            isinstance(step, host.Launch)
            and [value for value in step.args if isinstance(value, Polynomial)] == [_ITSELF]
            and not step.options.get("launch_pdl")
            for step in launches
        )
        and not any(isinstance(step, host.SignalWrite) for step in steps)
    )
