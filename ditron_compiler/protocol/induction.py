"""Waits that are ordered after a node because of each other.

:mod:`.edges` proves one edge at a time: a signal that another rank sends behind its own wait may end this wait early as
long as that one is not proven, and that one waits for us. When every rank adds to everybody's counter and waits for all
of them, a barrier by hand, no edge can be the first. Here a set of waits is proven at once to be after one node:
were there executions in which some of them return without it, look at the first that does. None of the others has
returned before without it, so nothing that they send behind has landed without it either. If what is left does not
satisfy that wait, for any of the set, there is no first one.
"""

from __future__ import annotations

from collections.abc import Iterable

from ditron_compiler.protocol.atomics import reaches
from ditron_compiler.protocol.budget import check_budget
from ditron_compiler.protocol.edges import attainable, updates_for
from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.records import UpdateEvent, WaitEvent

__all__ = ["prove"]


def prove(machine: Machine, nodes: Iterable[int]) -> bool:
    """Add the edges from each of ``nodes`` to the waits that are visibly after it; whether any is new.

    The graph is closed, and has the edges of :func:`.edges.add_wait_edges`.
    """
    graph, new = machine.graph, False
    for node in sorted(nodes):
        check_budget()
        mine = 0
        for end, narrow in sorted(_after(machine, node)):
            if not graph.visible[end] & mine:  # else it is after one that has its edge
                new |= graph.order(node, end, True, narrow)
            mine |= 1 << end
    return new


def _after(machine: Machine, node: int) -> list[tuple[int, bool]]:
    """Nodes after the largest set of waits of which none can return before ``node``, but those known already, and
    whether a signal of scope ``gpu`` is among those that they wait for."""
    visible = machine.graph.visible
    asked = {_end(wait): wait for wait in machine.waits if _end(wait) > node and not visible[_end(wait)] >> node & 1}
    possible = {
        end: [updates_for(machine, wait, machine.cell(cell)) for cell in wait.cells if not machine.cell(cell).doubtful]
        for end, wait in asked.items()
    }
    while True:
        known = sum(1 << end for end in asked) | 1 << node

        def publishes(writer: UpdateEvent, wait: WaitEvent, known: int = known) -> bool:
            """Whether the node happens before any wait that observes this update."""
            return (
                bool((visible[writer.node] | 1 << writer.node) & known)
                and writer.release
                and reaches(machine, writer, wait.task.rank, wait.scope)
            )

        kept = {
            end: wait
            for end, wait in asked.items()
            if any(
                not attainable((w for w in writers if not publishes(w, wait)), wait, base)
                for writers, base in possible[end]
            )
        }
        if len(kept) == len(asked):
            return [(end, any(w.scope == "gpu" for writers, _ in possible[end] for w in writers)) for end in kept]
        asked = kept


def _end(wait: WaitEvent) -> int:
    """The node that is ordered by what the wait has observed: for a relaxed wait, the fence after it, or -1."""
    return wait.after if wait.acquire else wait.fenced
