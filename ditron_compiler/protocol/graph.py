"""What happens before what: in time, and visibly.

A node is a stretch of a program or stream between two operations that order, or the landing of something that was sent.
Two relations hold between nodes. *In time*: the one is over before the other begins, in every execution. *Visibly*:
moreover what the one wrote is seen by the other, and what it read is not overwritten by it. The second is part of the
first: a relaxed wait orders in time only.

Nodes are numbered in the order of the run that made them, so every edge points upwards. A set of nodes is a Python
integer, one bit per node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Graph"]


@dataclass
class Graph:
    """Nodes, edges, and after :meth:`close` who is before whom."""

    in_time: list[list[int]] = field(default_factory=list)
    visibly: list[list[int]] = field(default_factory=list)
    before: list[int] = field(default_factory=list)  # per node: all that are before it in time
    seen: list[int] = field(default_factory=list)  # per node: all that are visibly before it

    def add(self, visible: Iterable[int] = (), late: Iterable[int] = ()) -> int:
        """A new node after ``visible`` (visibly) and ``late`` (in time only)."""
        visible = list(visible)
        self.visibly.append(visible)
        self.in_time.append([*visible, *late])
        return len(self.visibly) - 1

    def order(self, first: int, then: int, visible: bool) -> bool:
        """Add an edge; whether it is new."""
        assert first < then, "edges point upwards"
        if first in self.in_time[then] and (not visible or first in self.visibly[then]):
            return False
        if first not in self.in_time[then]:
            self.in_time[then].append(first)
        if visible:
            self.visibly[then].append(first)
        return True

    def close(self) -> None:
        """Work out :attr:`before` and :attr:`seen` from the edges."""
        self.before = _closure(self.in_time)
        self.seen = _closure(self.visibly)

    def precedes(self, first: int, then: int) -> bool:
        """In time; a node precedes itself."""
        return first == then or bool(self.before[then] >> first & 1)

    def sees(self, first: int, then: int) -> bool:
        """Visibly; a node sees itself."""
        return first == then or bool(self.seen[then] >> first & 1)


def _closure(edges: list[list[int]]) -> list[int]:
    sets: list[int] = []
    for preds in edges:
        total = 0
        for pred in preds:
            total |= sets[pred] | 1 << pred
        sets.append(total)
    return sets
