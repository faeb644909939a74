"""Reads of what nobody has written, or of a copy of it.

A copy carries along what is unwritten, such as the end of a box that is not full, and is no mistake itself: who reads
its target there is. What was not followed may have written anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ditron_compiler.protocol.machine import Access, Machine
from ditron_compiler.protocol.memory import Root, Span, carried, common, merged, parts
from ditron_compiler.protocol.races import stretches

__all__ = ["Unwritten", "unwritten"]


@dataclass(frozen=True)
class Unwritten:
    """A read of ``root`` on ``rank`` at a byte offset; ``copy`` has brought what is there from what is unwritten."""

    read: Access
    rank: int
    root: Root
    offset: int
    copy: Access | None


def unwritten(machine: Machine) -> Iterator[Unwritten]:
    """Reads of memory that nobody can have written before, each line once. Copies and the script may read anything."""
    brought = _brought(machine)
    seen: set[str] = set()
    for rank, number in machine.accesses:
        root = machine.scenario.roots[number]
        for start, _, read, copy in _lacking(machine, (rank, number), brought):
            if read.copy is None and not read.how.startswith("a read by") and read.loc not in seen:
                seen.add(read.loc)
                yield Unwritten(read, rank, root, parts(start)[2], copy)


def _brought(machine: Machine) -> dict[int, Span]:
    """By number of the copy: the bytes of its target that it has written with unwritten ones."""
    brought: dict[int, Span] = {}
    sources: dict[tuple[int, int], None] = {}  # where copies read
    targets: dict[int, set[tuple[int, int]]] = {}
    for key, accesses in machine.accesses.items():
        for access in accesses:
            if access.copy is not None and access.write:
                targets.setdefault(access.copy, set()).add(key)
            elif access.copy is not None:
                sources[key] = None
    worklist = list(sources)
    while worklist:  # more that is brought makes more that is unwritten: this ends
        lacking: dict[int, list[tuple[int, int]]] = {}
        for start, end, read, _ in _lacking(machine, worklist.pop(), brought):
            if read.copy is not None:
                lacking.setdefault(read.copy, []).append((start, end))
        for copy, spans in lacking.items():
            more = carried(*machine.copies[copy], merged(np.array(spans)))
            known = brought.get(copy, more[:0])
            brought[copy] = merged(np.concatenate((known, more)))
            if not np.array_equal(brought[copy], known):
                worklist += [key for key in targets.get(copy, ()) if key in sources and key not in worklist]
    return brought


def _lacking(
    machine: Machine, key: tuple[int, int], brought: dict[int, Span]
) -> Iterator[tuple[int, int, Access, Access | None]]:
    """Stretches of a buffer that an access reads unwritten: from, to, the access, and the copy that brought them."""
    accesses, root = machine.accesses[key], machine.scenario.roots[key[1]]
    filled = root.zeroed or root.given
    reads = [i for i, a in enumerate(accesses) if not a.write]
    writes = [i for i, a in enumerate(accesses) if a.write and a.copy in brought]
    if not reads or filled and not writes:
        return
    # Each read twice, so that a stretch that one read alone touches counts, too; then what copies have brought.
    spans = [a.span for a in accesses]
    marks = [common(spans[i], brought[accesses[i].copy]) for i in writes]
    first_mark = len(spans) + len(reads)
    for start, end, group in stretches([*spans, *(spans[i] for i in reads), *marks]):
        here = [accesses[i] for i in group if i < len(spans)]
        empty = [accesses[writes[i - first_mark]] for i in group if i >= first_mark]
        good = [a for a in here if a.write and not any(a is copy for copy in empty)]
        for read in here:
            if not read.write:
                lacks, copy = _lacks(machine, read, good, empty, filled)
                if lacks:
                    yield start, end, read, copy


def _lacks(
    machine: Machine, read: Access, good: Sequence[Access], empty: Sequence[Access], filled: bool
) -> tuple[bool, Access | None]:
    """Whether ``read`` finds what nobody has written: of writes that may come before, the last brings nothing.

    ``good``: writes of something. ``empty``: copies of what is unwritten. ``filled``: something was there before.
    """
    sees = machine.graph.sees
    if not all(sees(read.node, node) for node in machine.astray):
        return False, None
    good, empty = ([w for w in some if w.node == read.node or not sees(read.node, w.node)] for some in (good, empty))
    if not good and not filled:
        return True, empty[-1] if empty else None
    for copy in empty:
        if sees(copy.node, read.node) and all(sees(write.node, copy.node) for write in good):
            return True, copy
    return False, None
