"""Which signals a wait is ordered after in *every* execution, and which updates may be reordered.

The machine's run shows one execution. Here, for each wait and each signal: could the wait have returned without
it? It could not when all other updates that may arrive before the wait returns, and are not themselves ordered after
that signal, do not satisfy the comparison. Then there is an edge. New edges restrict what may arrive before, so this is
repeated to a fixpoint. Counts and epochs need no rules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from ditron_compiler.protocol.atomics import reaches
from ditron_compiler.protocol.budget import check_budget
from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.records import Cell, UpdateEvent, WaitEvent, satisfies

__all__ = ["Reordering", "attainable", "overtaking", "required", "updates_for", "add_wait_edges"]

#: The consequence, two updates of a cell of which the later may arrive first, and a wait for the first.
Reordering = tuple[str, UpdateEvent, UpdateEvent, WaitEvent | None]


def add_wait_edges(machine: Machine) -> None:
    """Add the edges from signals to waits, and close the graph."""
    changed = True
    while changed:
        machine.graph.close()
        changed = False
        for wait in machine.waits:
            check_budget()
            for cell in wait.cells:
                if machine.cell(cell).doubtful:
                    continue
                writers = required(machine, wait, machine.cell(cell))
                for writer in writers:
                    changed |= _after(machine, wait, writer.node, [writer])
                if not any(satisfies(w.value, wait.cmp, wait.value) for w in writers):
                    changed |= _after_one_of(machine, wait, machine.cell(cell))


def _after(machine: Machine, wait: WaitEvent, node: int, writers: list[UpdateEvent]) -> bool:
    """Order a wait after a node, with visibility if all these signals release it; whether the edge is new."""
    visible = all(w.release and reaches(machine, w, wait.task.rank, wait.scope) for w in writers)
    narrow = any(w.scope == "gpu" for w in writers)
    changed = machine.graph.order(node, wait.after, visible and wait.acquire, narrow)
    if visible and wait.fenced >= 0:
        changed |= machine.graph.order(node, wait.fenced, True)
    return changed


def _after_one_of(machine: Machine, wait: WaitEvent, cell: Cell) -> bool:
    """Each of several signals satisfies the wait: it is ordered after what all of them are ordered after."""
    graph = machine.graph
    possible, base = updates_for(machine, wait, cell)
    if attainable((), wait, base) or any(w.op != "set" for w in possible):
        return False
    enough = [w for w in possible if satisfies(w.value, wait.cmp, wait.value)]
    common = (1 << wait.after) - 1 & ~graph.visible[wait.after]
    for writer in enough:
        common &= graph.visible[writer.node]
    changed = False
    while common and enough:
        node = common.bit_length() - 1
        changed |= _after(machine, wait, node, enough)
        common &= ~(graph.visible[node] | 1 << node)
    return changed


def required(machine: Machine, wait: WaitEvent, cell: Cell) -> list[UpdateEvent]:
    """The signals without which the wait cannot return."""
    before = machine.graph.before
    possible, base = updates_for(machine, wait, cell)
    if attainable((), wait, base):
        return []
    return [
        writer
        for writer in possible
        if writer.node < wait.after
        and not attainable(
            (other for other in possible if other is not writer and not before[other.node] >> writer.node & 1),
            wait,
            base,
        )
    ]


def updates_for(machine: Machine, wait: WaitEvent, cell: Cell) -> tuple[list[UpdateEvent], list[int]]:
    """The updates that a wait may find, and the values from which they start: what the cell holds at first, or nothing
    where it is set before the wait begins. What precedes such a reset is gone.
    """
    before = machine.graph.before
    possible = [w for w in cell.writers if not before[w.node] >> wait.after & 1]
    resets = 0
    for writer in possible:
        if writer.op == "set" and (before[wait.before] >> writer.node & 1 or writer.node == wait.before):
            resets |= 1 << writer.node
    if not resets:
        return possible, [cell.initial]
    gone = 0
    for writer in possible:
        if resets >> writer.node & 1:
            gone |= before[writer.node]
    return [w for w in possible if not gone >> w.node & 1], []


def attainable(writers: Iterable[UpdateEvent], wait: WaitEvent, base: Iterable[int] = (0,)) -> bool:
    """Whether these updates, in some order, satisfy a wait for a cell that is ``base`` at first."""
    writers = list(writers)
    sets = [*base, *(w.value for w in writers if w.op == "set")]
    adds = sum(w.value for w in writers if w.op == "add" and w.value > 0)
    if not sets:
        return False
    if wait.cmp in ("ge", "gt"):
        return satisfies(max(sets) + adds, wait.cmp, wait.value)
    if adds and wait.cmp in ("eq", "ne"):
        return max(sets) + adds >= wait.value
    return any(satisfies(value, wait.cmp, wait.value) for value in sets)


def overtaking(machine: Machine) -> Iterable[Reordering]:
    """Pairs of updates of one cell of which the later may arrive first, with a consequence.

    ``backwards``: the cell then holds less than it did. ``mixed``: one sets and one adds. ``passed``: a wait for one
    exact value may find the next one. ``wraps``: the sum is more than 64 bits hold. ``untaken``: packets are
    overwritten that nobody has waited for.
    """
    for cell in machine.cells.values():
        if cell.doubtful:
            continue
        signals = [w for w in cell.writers if w.how in ("notify", "signal_op", "putmem_signal", "signal_write")]
        if sum(w.value for w in signals if w.op == "add") >= 1 << 63:
            yield "wraps", signals[0], signals[-1], None
        sets = [w for w in signals if w.op == "set"]
        for i, first in enumerate(sets):
            for second in sets[i + 1 :]:
                lower, higher = (first, second) if first.value < second.value else (second, first)
                if lower.value != higher.value and not _ordered(machine, lower, higher):
                    yield "backwards", lower, higher, None
        yield from _unreceived(machine, cell)
        adds = [w for w in signals if w.op == "add"]
        for first in [s for s in sets if s.value != cell.initial or not all(_ordered(machine, s, a) for a in adds)][:1]:
            for second in adds[:1]:
                yield "mixed", first, second, None
    for wait in machine.waits:
        if wait.cmp in ("ge", "gt"):
            continue
        for pointer in wait.cells:
            cell = machine.cell(pointer)
            if cell.doubtful:
                continue
            good = [w for w in cell.writers if satisfies(_value_after(cell, w), wait.cmp, wait.value)]
            for writer in cell.writers:
                if satisfies(_value_after(cell, writer), wait.cmp, wait.value) or not good:
                    continue
                ends = machine.graph.precedes(wait.after, writer.node)
                if not ends and not any(machine.graph.precedes(writer.node, w.node) for w in good):
                    yield "passed", good[0], writer, wait


def _ordered(machine: Machine, first: UpdateEvent, second: UpdateEvent) -> bool:
    precedes = machine.graph.precedes
    return precedes(first.node, second.node) or precedes(second.node, first.node)


def _unreceived(machine: Machine, cell: Cell) -> Iterable[Reordering]:
    messages = sorted((w for w in cell.writers if w.how == "ll_put"), key=lambda w: w.value)
    taken = {wait.value for wait in machine.waits for c in wait.cells if machine.cells[c] is cell}
    for first, second in zip(messages, messages[1:], strict=False):
        if first.value not in taken:
            yield "untaken", first, second, None


def _value_after(cell: Cell, writer: UpdateEvent) -> int:
    """The cell's value after the update, in the order of the run."""
    value = cell.initial
    for other in cell.writers:
        value = other.value if other.op == "set" else value + other.value
        if other is writer:
            return value
    return value
