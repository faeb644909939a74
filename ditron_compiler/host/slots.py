"""Storage for the values of a program while it is evaluated: each SSA value has a slot of a list."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ditron_compiler import ir
from ditron_compiler.host.steps import RankPlacement, Step, Storage

__all__ = ["Action", "Get", "Slots", "EvaluationState", "location"]


@dataclass
class EvaluationState:
    """One evaluation: the values by slot, and the results so far."""

    values: list[Any]
    placement: RankPlacement
    epoch: int
    allocations: list[Storage] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    events: int = 0
    iterations: int = 0


Action = Callable[[EvaluationState], None]
Get = Callable[[list[Any]], Any]  # of the values by slot


class Slots:
    """Numbers the values of a program."""

    def __init__(self) -> None:
        self._slots: dict[ir.Value, int] = {}

    def _new(self, value: ir.Value) -> int:
        """The slot of a value, at its definition."""
        return self._slots.setdefault(value, len(self._slots))

    def _get(self, value: ir.Value) -> Get:
        return operator.itemgetter(self._slots[value])

    def _list(self, numbers: Sequence[int | ir.Value]) -> Get:
        """A tuple of numbers, each an integer or an SSA value."""
        entries = [(number, 0) if isinstance(number, int) else (None, self._slots[number]) for number in numbers]
        return lambda values: tuple(values[slot] if number is None else number for number, slot in entries)

    def _compute(self, op: ir.Operation, function: Callable[[EvaluationState], Any]) -> Action:
        """The action that computes the operation's result."""
        result = self._new(op.results[0])

        def run(state: EvaluationState) -> None:
            state.values[result] = function(state)

        return run


def location(op: ir.Operation) -> str:
    """The source location of an operation: ``file:line:column``."""
    found = op.location.file_line_col
    return "unknown" if found is None else ":".join(map(str, found))
