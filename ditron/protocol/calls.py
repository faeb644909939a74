"""How many calls, and how many ranks, show all that a program or a script does.

A buffer that is chosen by the number of the call is used again after a period: what the call that comes back to it
overwrites is seen only if that call is looked at.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd, lcm
from typing import Any

import numpy as np

from ditron_compiler.protocol import memory
from ditron_compiler.protocol.scenario import HostAccess, HostLaunch, HostOp, HostSignalWait, HostSignalWrite, Scenario

__all__ = ["CALLS", "MAX_CALLS", "MAX_RANKS", "rank_counts", "with_calls_needed", "with_missing_calls"]

#: Calls of a program that are looked at: so many, or more if a period asks for them, up to the second number.
CALLS, MAX_CALLS = 3, 12
#: The largest group that is added because a kernel compares the number of ranks with a constant.
MAX_RANKS = 9


def with_calls_needed(scenario: Scenario) -> Scenario:
    """Of a scenario of :data:`MAX_CALLS` calls, as many as are needed; with a note if more would be."""
    needed, loc = _needed(scenario)
    if needed >= MAX_CALLS:
        scenario.notes.append(
            f"{loc}: what is chosen here by the number of the call comes again after more than {MAX_CALLS - 2} calls: "
            f"{MAX_CALLS} are looked at"
        )
    calls = min(max(CALLS, needed), MAX_CALLS)
    steps = [[step for step in steps if step.call <= calls] for steps in scenario.steps]
    return replace(scenario, steps=steps, calls=calls)


def _needed(scenario: Scenario) -> tuple[int, str]:
    """The number of calls, and the line that asks for most."""
    # Of the first call only what the others do too: it allocates.
    by_call = [[step for step in scenario.steps[0] if step.call == call] for call in range(2, MAX_CALLS + 1)]
    periods: list[tuple[int, str]] = []
    if len({tuple((type(step), step.loc) for step in steps) for steps in by_call}) == 1:
        for same in zip(*by_call, strict=True):
            periods += _host_periods(scenario, same)
            if isinstance(same[0], HostLaunch):
                periods += _kernel_periods(scenario, same)
    if not periods:
        return CALLS, ""
    return lcm(*(period for period, _ in periods)) + 1, max(periods)[1]


def _host_periods(scenario: Scenario, calls: Sequence[HostOp]) -> Iterator[tuple[int, str]]:
    """Periods of what host code gives to an operation: addresses, and integers that do not just grow."""
    for values in zip(*map(_values, calls), strict=False):
        steps = {b - a for a, b in zip(values, values[1:], strict=False)}
        if steps == {0}:
            continue
        root = scenario.roots.get(memory.parts(values[0])[1]) if values[0] >= 1 << 36 else None
        if root is None and (len(steps) == 1 or values[0] >= 1 << 36):
            continue  # an epoch; or memory that a call allocates
        if root is not None and len({memory.parts(value)[1] for value in values}) > 1 and not root.symmetric:
            continue
        period = next((p for p in range(2, MAX_CALLS - 1) if values[p:] == values[:-p]), MAX_CALLS)
        yield period, calls[0].loc


def _values(step: HostOp) -> list[int]:
    if isinstance(step, HostLaunch):
        return [int(value) if isinstance(value, (int, np.integer)) else 0 for value in step.args]
    if isinstance(step, HostAccess):
        return [int(span[0, 0]) if span is not None and len(span) else 0 for span in (step.reads, step.writes)]
    if isinstance(step, (HostSignalWrite, HostSignalWait)):
        return [int(cell) for cell in step.cells]
    return []


def _kernel_periods(scenario: Scenario, launches: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Periods of what a kernel makes of an integer that grows from call to call."""
    for number, found in launches[0].kernel.uses.periods.items():
        values = [launch.args[number] for launch in launches]
        if not all(isinstance(value, (int, np.integer)) for value in values):
            continue
        step = int(values[1] - values[0]) if len(values) > 1 else 0
        if step and len({b - a for a, b in zip(values, values[1:], strict=False)}) == 1:
            for period in found:
                calls = period.calls * (scenario.ranks if period.of_ranks else 1)
                yield calls // gcd(calls, abs(step)), period.loc


def rank_counts(scenario: Scenario) -> set[int]:
    """Groups of so many ranks show what kernels do beyond the numbers that they compare the number of ranks with."""
    kernels = {id(step.kernel): step.kernel for step in scenario.steps[0] if isinstance(step, HostLaunch)}
    return set().union(*(kernel.uses.ranks for kernel in kernels.values()))


def with_missing_calls(scenario: Scenario) -> Scenario:
    """A scenario of a script; notes say where it launches too seldom for what it chooses by the number of the call."""
    launches: dict[str, list[HostLaunch]] = {}
    for step in scenario.steps[0]:
        if isinstance(step, HostLaunch):
            launches.setdefault(step.loc, []).append(step)
    notes = []
    for same in launches.values():
        if len(same) < CALLS:  # a script of fewer calls shows less anyway
            continue
        alike = [launch for launch in same if launch.kernel is same[-1].kernel]  # Triton specializes 1 and 16
        periods = [*_kernel_periods(scenario, alike), *_moduli(same)]
        period, loc = max(periods, default=(0, ""))
        if period >= len(same):
            notes.append(
                f"{loc}: what is chosen here comes again after {period} calls, and {same[0].kernel.name} is launched "
                f"{len(same)} times at {same[0].loc}: launch it {period + 1} times"
            )
    scenario.notes.extend(dict.fromkeys(notes))
    return scenario


def _moduli(launches: Sequence[HostLaunch]) -> Iterator[tuple[int, str]]:
    """Constants of ``%`` in the loop around a launch whose addresses change from call to call."""
    calls = [[value for value in _values(launch) if value >= 1 << 36] for launch in launches]
    if all(call == calls[0] for call in calls):
        return
    file, _, line = launches[0].loc.rpartition(":")
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return
    for loop in ast.walk(tree):
        if isinstance(loop, (ast.For, ast.While)) and loop.lineno <= int(line) <= loop.end_lineno:
            counter = {node.id for node in ast.walk(getattr(loop, "target", loop)) if isinstance(node, ast.Name)}
            for node in ast.walk(loop):
                if (
                    isinstance(node, ast.BinOp)
                    and isinstance(node.op, ast.Mod)
                    and isinstance(node.right, ast.Constant)
                    and isinstance(node.right.value, int)
                    and any(isinstance(name, ast.Name) and name.id in counter for name in ast.walk(node.left))
                ):
                    yield node.right.value, f"{file}:{node.lineno}"
