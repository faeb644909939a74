"""The order of a scenario's segments, in every execution: precedence, and happens-before.

A node is a segment of a program or stream between two operations that order, or the completion of a transfer or signal
at its target. *Precedes*: one node ends before the other begins. *Happens before* (visible): moreover what the first
wrote is visible to the second, and what it read is not overwritten by it. Happens-before implies precedence; a relaxed
wait gives precedence only.

A release of scope ``gpu`` is seen by programs of its GPU, and not by a NIC or a copy engine, which read memory by
themselves: its edges are *narrow*. At a node that publishes, by a fence, a wider release or the end of a kernel, all
that is visible becomes visible to these, too.

Nodes are numbered in the order of the run that made them, so every edge leads to a higher number. A set of nodes is a
Python integer, one bit per node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ditron_compiler.protocol.budget import check_budget

__all__ = ["Graph"]


@dataclass
class Graph:
    """Nodes, edges, and after :meth:`close` their transitive closure."""

    in_time: list[list[int]] = field(default_factory=list)
    visibly: list[list[int]] = field(default_factory=list)
    before: list[int] = field(default_factory=list)  # per node: all that precede it
    visible: list[int] = field(default_factory=list)  # per node: all that happen before it
    narrow: set[tuple[int, int]] = field(default_factory=set)
    published: set[int] = field(default_factory=set)

    def add(self, visible: Iterable[int] = (), ordered: Iterable[int] = (), narrow: Iterable[int] = ()) -> int:
        """A new node; the nodes of ``visible`` happen before it, those of ``ordered`` only precede it. ``narrow``: on
        one GPU, the nodes happen before it."""
        visible, narrow, node = list(visible), list(narrow), len(self.visibly)
        self.narrow |= {(first, node) for first in narrow if first not in visible}
        self.visibly.append([*visible, *narrow])
        self.in_time.append([*visible, *narrow, *ordered])
        return node

    def order(self, first: int, then: int, visible: bool, narrow: bool = False) -> bool:
        """Add an edge, if it is visible on one GPU only a ``narrow`` one; whether it is new."""
        assert first < then, "edges lead to higher numbers"
        if visible and not narrow:
            self.narrow.discard((first, then))
        elif visible and first not in self.visibly[then]:
            self.narrow.add((first, then))
        if first in self.in_time[then] and (not visible or first in self.visibly[then]):
            return False
        if first not in self.in_time[then]:
            self.in_time[then].append(first)
        if visible:
            self.visibly[then].append(first)
        return True

    def close(self) -> None:
        """Compute :attr:`before` and :attr:`visible` from the edges."""
        self.before = _closure(self.in_time)
        self.visible = _closure(self.visibly)

    def visible_beyond_gpu(self) -> list[int]:
        """Per node: all that is visible to a NIC or a copy engine that reads for it. The graph is closed."""
        sets: list[int] = []
        for node, preds in enumerate(self.visibly):
            total = self.visible[node] if node in self.published else 0
            for pred in preds:
                if (pred, node) not in self.narrow:
                    total |= sets[pred] | 1 << pred
            sets.append(total)
        return sets

    def precedes(self, first: int, then: int) -> bool:
        """Whether ``first`` ends before ``then`` begins; a node precedes itself."""
        return first == then or bool(self.before[then] >> first & 1)

    def happens_before(self, first: int, then: int) -> bool:
        """Whether ``first`` happens before ``then``; a node does so before itself."""
        return first == then or bool(self.visible[then] >> first & 1)


def _closure(edges: list[list[int]]) -> list[int]:
    sets: list[int] = []
    for preds in edges:
        check_budget()
        total = 0
        for pred in preds:
            total |= sets[pred] | 1 << pred
        sets.append(total)
    return sets
