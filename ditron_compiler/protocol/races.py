"""Accesses to the same bytes, of which one writes, and are not ordered by happens-before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ditron_compiler.ir.dialects import ditron
from ditron_compiler.protocol.budget import check_budget
from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.memory import HeapBuffer, Span, common, parts
from ditron_compiler.protocol.records import AccessRecord, Task, UpdateEvent, WaitEvent
from ditron_compiler.protocol.sites import Site
from ditron_compiler.protocol.values import UNKNOWN

__all__ = [
    "Conflict",
    "Pair",
    "conflicts",
    "ranges",
    "unordered",
    "missing_token_dependences",
    "open_looks",
    "unseen_beyond_gpu",
]


@dataclass(frozen=True)
class Conflict:
    """``first`` was first in the machine's run. ``offset``: a byte of ``root`` on ``rank`` that both access."""

    first: AccessRecord
    second: AccessRecord
    rank: int
    root: HeapBuffer
    offset: int
    together: tuple[AccessRecord, ...]  # all that access that byte


@dataclass(frozen=True)
class Pair:
    """Two unordered accesses, the earlier of the run first. ``start``: first byte that all of ``together`` access."""

    first: AccessRecord
    second: AccessRecord
    start: int
    together: tuple[AccessRecord, ...]


def unordered(machine: Machine) -> Iterator[Pair]:
    """All accesses to the same bytes, of which one writes, that nothing orders."""
    for accesses in machine.accesses.values():
        if not any(a.write and not a.atomic for a in accesses) and not (
            any(a.write for a in accesses) and not all(a.atomic for a in accesses)
        ):
            continue
        compared: set[tuple[int, int]] = set()
        for start, active in _places(accesses):
            check_budget()
            for i, j in _pairs(active, accesses, compared):
                compared.add((i, j))
                first, second = sorted((accesses[i], accesses[j]), key=lambda a: a.node)
                if not machine.graph.happens_before(first.node, second.node) and not _may_be_equal(first, second):
                    yield Pair(first, second, start, tuple(accesses[k] for k in active))
    yield from _lost_additions(machine)
    yield from _unordered_looks(machine)


def _unordered_looks(machine: Machine) -> Iterator[Pair]:
    """Atomic loads of data and other programs' atomic stores to it, in no order: which of them is read is open.

    Who decides by what it reads, as one that polls, reads on until it is there; but it may be taken for there what an
    earlier call has stored. Later loads see nothing older.
    """
    for accesses in machine.accesses.values():
        stores = [access for access in accesses if access.how == "an atomic store"]
        loads = [access for access in accesses if access.how == "an atomic load"] if stores else []
        decisive = [load for load in loads if _site(load).get("decides", "")]
        for load in loads:
            if not _site(load).get("data", ""):
                continue
            for store in stores:
                check_budget()
                first, second = sorted((load, store), key=lambda access: access.node)
                if (
                    store.task is load.task
                    or machine.graph.precedes(first.node, second.node)
                    or not len(both := common(load.span, store.span))
                ):
                    continue
                looks = [d for d in decisive if d.task is load.task and len(common(d.span, both))]
                if not looks or (looks[-1] is load and load.task.done and _reads_older(load, store, both, accesses)):
                    yield Pair(first, second, int(both[0, 0]), (first, second))


def open_looks(machine: Machine) -> Iterator[str]:
    """Notes about relaxed loads that decide, not in a poll, and relaxed stores that are in no order with them."""
    for accesses in machine.accesses.values():
        relaxed = [
            access
            for access in accesses
            if access.how in ("an atomic load", "an atomic store")
            and _site(access).get("semantic", "relaxed") == "relaxed"
        ]
        for load in relaxed:
            facts = _site(load).attributes
            if load.write or "decides" not in facts or facts.keys() & {"repeats", "polls", "gives_up"}:
                continue
            for store in relaxed:
                check_budget()
                first, second = sorted((load, store), key=lambda access: access.node)
                if (
                    store.write
                    and store.task is not load.task
                    and not machine.graph.precedes(first.node, second.node)
                    and len(common(load.span, store.span))
                ):
                    yield (
                        f"{load.loc}: whether this relaxed load reads what the relaxed store at {store.loc} stores is "
                        "not ordered, and control or an address depends on it: not every order is looked at"
                    )


def _reads_older(load: AccessRecord, store: AccessRecord, both: Span, accesses: list[AccessRecord]) -> bool:
    """Whether a load of a tile, in the run, has read what the same line has stored in an earlier call."""
    if np.diff(load.span).sum() <= _site(load).itemsize or store.call != load.call or store.moment < load.moment:
        return False
    writes = [a for a in accesses if a.write and a.moment < load.moment and len(common(a.span, both))]
    last = max(writes, key=lambda access: access.moment, default=store)
    return last.loc == store.loc and last.call < load.call and last.task is not load.task


def _site(access: AccessRecord) -> Site:
    return access.task.kernel.sites[access.site]


def _lost_additions(machine: Machine) -> Iterator[Pair]:
    """Atomic stores to what other programs add to, unless one follows the other in time: an addition may be lost.

    Who has read the sum since an addition has it: in another order it would have read, and done, something else.
    """
    for pointer, cell in machine.cells.items():
        additions = [update for update in cell.writers if update.op == "add"]
        stores = [update for update in cell.writers if update.how == "st"] if additions else []
        for store in stores:
            check_budget()
            for addition in additions:
                first, second = sorted((store, addition), key=lambda update: update.node)
                if (
                    addition.task is not store.task
                    and not machine.graph.precedes(first.node, second.node)
                    and not (second is store and _reads(machine, store.task, pointer, addition.node, store.node))
                ):
                    pair = [_access_of(update, cell.size) for update in (first, second)]
                    yield Pair(*pair, pointer, tuple(pair))

    for accesses in machine.accesses.values():  # of floats, whose values are not followed
        atomic = [access for access in accesses if access.atomic and access.write]
        cleared = [access for access in atomic if access.how == "an atomic store"]
        for access in cleared:
            check_budget()
            for update in atomic:
                if (
                    _adds_floats(update)
                    and update.task is not access.task
                    and len(overlap := common(access.span, update.span))
                ):
                    first, last = sorted((access, update), key=lambda a: a.node)
                    if not machine.graph.precedes(first.node, last.node) and not (
                        last is access and _reads(machine, access.task, overlap[0, 0], update.node, access.node)
                    ):
                        yield Pair(first, last, int(overlap[0, 0]), (first, last))


def _adds_floats(access: AccessRecord) -> bool:
    if access.how != "an atomic update" or access.site is None:
        return False
    site = access.task.kernel.sites[access.site]
    return site.get("integer", UNKNOWN) is UNKNOWN and site.get("op", "") == "add"


def _reads(machine: Machine, task: Task, pointer: int, since: int, until: int) -> bool:
    """Whether a program has read a cell by an atomic access between two nodes."""
    return any(
        access.task is task
        and access.how in ("an atomic load", "an atomic update")
        and since <= access.node <= until
        and ((access.span[:, 0] <= pointer) & (pointer < access.span[:, 1])).any()
        for accesses in machine.accesses.values()
        for access in accesses
    )


def _access_of(update: UpdateEvent, size: int) -> AccessRecord:
    how = "an atomic store" if update.how == "st" else "an atomic addition"
    span = np.array([[update.cell, update.cell + size]])
    task = update.task
    return AccessRecord(update.node, task, True, True, how, update.loc, None, span, update.call, task.step)


def _may_be_equal(first: AccessRecord, second: AccessRecord) -> bool:
    """Whether two stores may store equal values: programs of one launch of plain Triton are taken to."""
    return (
        first.write
        and second.write
        and (first.task.rank, first.step) == (second.task.rank, second.step)
        and getattr(first.task.kernel, "plain", False)
    )


def conflicts(machine: Machine, pairs: Iterable[Pair]) -> Iterator[Conflict]:
    """The unordered pairs, each pair of operations once."""
    seen: set[tuple] = set()
    for pair in pairs:
        first, second = pair.first, pair.second
        key = (first.loc, first.how, second.loc, second.how, first.call == second.call)
        if key not in seen:
            seen.add(key)
            rank, number, offset = parts(pair.start)
            yield Conflict(first, second, rank, machine.scenario.roots[number], offset, pair.together)


def _pairs(active: tuple[int, ...], accesses: list[AccessRecord], compared: set) -> Iterator[tuple[int, int]]:
    plain = [i for i in active if not accesses[i].atomic]
    for i in active if plain else ():
        if not accesses[i].write:
            continue
        for j in plain if accesses[i].atomic else active:
            pair = (i, j) if i < j else (j, i)
            if i != j and pair not in compared:
                yield pair


def _places(accesses: list[AccessRecord]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Ranges of memory that the same accesses overlap in, each set of accesses once: its first byte, and the set."""
    known: set[tuple[int, ...]] = set()
    for start, _, group in ranges([a.span for a in accesses]):
        if group not in known:
            known.add(group)
            yield start, group


def ranges(spans: Sequence[Span]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Ranges of memory that are in the same spans, two at least: begin, end, and the numbers of the spans."""
    starts = np.concatenate([span[:, 0] for span in spans])
    ends = np.concatenate([span[:, 1] for span in spans])
    owners = np.repeat(np.arange(len(spans)), [len(span) for span in spans])
    order = np.argsort(np.concatenate([starts, ends]), kind="stable")
    points = np.concatenate([starts, ends])[order].tolist()
    which = np.concatenate([owners, owners])[order].tolist()
    opens = (order < len(starts)).tolist()
    active: dict[int, int] = {}
    for at, point in enumerate(points):
        owner = which[at]
        if opens[at]:
            active[owner] = active.get(owner, 0) + 1
        elif active[owner] == 1:
            del active[owner]
        else:
            active[owner] -= 1
        if len(active) > 1 and at + 1 < len(points) and points[at + 1] != point:
            yield point, points[at + 1], tuple(sorted(active))


def unseen_beyond_gpu(machine: Machine) -> Iterator[tuple[AccessRecord, AccessRecord, UpdateEvent]]:
    """Writes, puts to another node or streams' copies of what they have written, and the signals of scope ``gpu`` that
    alone are between: such a signal is for programs of its GPU, and what carries these out reads memory by itself.

    Each pair of lines once. Of what streams copy, symmetric memory only: other memory is coherent on its GPU.
    """
    per_node = machine.scenario.ranks_per_node
    seen: set[tuple[str, str]] = set()
    visible: list[int] = []

    def is_beyond(access: AccessRecord, rank: int, root: int) -> bool:
        if access.copy is None or access.write:
            return False
        if access.task.pid is None:
            return machine.scenario.roots[root].symmetric
        target = machine.copies[access.copy][1]
        return access.how == "the source of a put" and parts(int(target[0, 0]))[0] // per_node != rank // per_node

    for (rank, root), accesses in machine.accesses.items() if machine.graph.narrow else ():
        for put in accesses:
            if not is_beyond(put, rank, root):
                continue
            visible = visible or machine.graph.visible_beyond_gpu()
            for write in accesses:
                check_budget()
                if (
                    write.write
                    and (put.loc, write.loc) not in seen
                    and machine.graph.happens_before(write.node, put.node)
                    and write.node != put.node
                    and not visible[put.node] >> write.node & 1
                    and len(common(write.span, put.span))
                ):
                    seen.add((put.loc, write.loc))
                    between = [
                        signal
                        for cell in machine.cells.values()
                        for signal in cell.writers
                        if signal.scope == "gpu"
                        and machine.graph.happens_before(write.node, signal.node)
                        and machine.graph.happens_before(signal.node, put.node)
                    ]
                    yield write, put, max(between, key=lambda signal: signal.node)


def missing_token_dependences(machine: Machine) -> Iterator[tuple[WaitEvent, AccessRecord, AccessRecord]]:
    """Loads in one loop with the wait they rely on that do not depend on its token: wait, load, write.

    The token of a later wait does as well. A wait before the loop is safe: the pipeliner hoists loads no further than
    to the loop's preheader.
    """
    waits: dict[int, list[WaitEvent]] = {}
    for wait in machine.waits:
        if wait.site is not None:
            waits.setdefault(id(wait.task), []).append(wait)
    seen: set[tuple] = set()
    for accesses in machine.accesses.values():
        writes = [a for a in accesses if a.write and not a.atomic]
        for read in accesses if writes else ():
            if read.write or read.site is None or read.how != "a load" or id(read.task) not in waits:
                continue
            sites = read.task.kernel.sites
            site = sites[read.site]
            token_node = max(
                (
                    wait.after
                    for wait in waits[id(read.task)]
                    if sites[wait.site].ordinal in site.tokens and wait.after <= read.node
                ),
                default=-1,
            )
            for wait in waits[id(read.task)]:
                waited = sites[wait.site]
                key = (read.task.kernel.name, waited.number, site.number)
                if (
                    key in seen
                    or not waited.isa(ditron.WaitOp)
                    or not token_node < wait.after <= read.node
                    or not set(waited.loops) & set(site.loops)
                ):
                    continue
                low, high = read.span[0, 0], read.span[-1, 1]
                for write in writes:
                    if (
                        write.task is not read.task
                        and machine.graph.happens_before(write.node, wait.after)
                        and not machine.graph.happens_before(write.node, wait.before)
                        and write.span[0, 0] < high
                        and low < write.span[-1, 1]
                    ):
                        seen.add(key)
                        yield wait, read, write
                        break
