"""The values of a program while it is evaluated: where they are kept, and how operations reach them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ditron_compiler import ir
from ditron_compiler.host.steps import Place, Root, Step

__all__ = ["Action", "Get", "Slots", "State", "location"]


@dataclass
class State:
    """One evaluation: the values by slot, and what has come of it so far."""

    values: list[Any]
    place: Place
    epoch: int
    roots: list[Root] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    events: int = 0
    turns: int = 0


Action = Callable[[State], None]
Get = Callable[[list[Any]], Any]  # of the values by slot


class Slots:
    """Numbers each value of a program, so that a list holds them."""

    def __init__(self) -> None:
        self._slots: dict[ir.Value, int] = {}

    def _new(self, value: ir.Value) -> int:
        """The slot of a value that an operation or a block defines."""
        return self._slots.setdefault(value, len(self._slots))

    def _get(self, value: ir.Value) -> Get:
        return operator.itemgetter(self._slots[value])

    def _list(self, values: Sequence[ir.Value], known: ir.Attribute) -> Get:
        """A list of numbers, each known or a value."""
        dynamic, rest = ir.ShapedType.get_dynamic_size(), iter(values)
        entries = [(None, self._slots[next(rest)]) if number == dynamic else (number, 0) for number in known]
        return lambda values: tuple(values[slot] if number is None else number for number, slot in entries)

    def _gives(self, op: ir.Operation, function: Callable[[State], Any]) -> Action:
        """The action that makes the operation's result."""
        result = self._new(op.results[0])

        def run(state: State) -> None:
            state.values[result] = function(state)

        return run


def location(op: ir.Operation) -> str:
    """Where an operation comes from: ``file:line:column``."""
    place = op.location.file_line_col
    return "unknown" if place is None else ":".join(map(str, place))
