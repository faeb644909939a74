"""Reads of unwritten memory, or of a copy of it.

A copy of unwritten bytes, such as the end of a partly filled buffer, is no error; a read of its destination there is.
What was not followed may have written anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.memory import HeapBuffer, Span, common, copied_to, merged, parts
from ditron_compiler.protocol.races import ranges
from ditron_compiler.protocol.records import AccessRecord

__all__ = ["Unwritten", "unwritten"]


@dataclass(frozen=True)
class Unwritten:
    """A read of ``root`` on ``rank`` at a byte offset; ``copy`` has copied unwritten bytes there."""

    read: AccessRecord
    rank: int
    root: HeapBuffer
    offset: int
    copy: AccessRecord | None


def unwritten(machine: Machine) -> Iterator[Unwritten]:
    """Reads of memory that no write can have reached before, each line once. Copies and host code may read anything."""
    unwritten_copies = _unwritten_copies(machine)
    seen: set[str] = set()
    for rank, number in machine.accesses:
        root = machine.scenario.roots[number]
        for start, _, read, copy in _unwritten_ranges(machine, (rank, number), unwritten_copies):
            if read.copy is None and not read.how.startswith("a read by") and read.loc not in seen:
                seen.add(read.loc)
                yield Unwritten(read, rank, root, parts(start)[2], copy)


def _unwritten_copies(machine: Machine) -> dict[int, Span]:
    """By number of the copy: the bytes of its destination to which it has copied unwritten ones."""
    unwritten_copies: dict[int, Span] = {}
    sources: dict[tuple[int, int], None] = {}  # where copies read
    targets: dict[int, set[tuple[int, int]]] = {}
    for key, accesses in machine.accesses.items():
        for access in accesses:
            if access.copy is not None and access.write:
                targets.setdefault(access.copy, set()).add(key)
            elif access.copy is not None:
                sources[key] = None
    worklist = list(sources)
    while worklist:  # monotone: copied ranges only grow
        lacking: dict[int, list[tuple[int, int]]] = {}
        for start, end, read, _ in _unwritten_ranges(machine, worklist.pop(), unwritten_copies):
            if read.copy is not None:
                lacking.setdefault(read.copy, []).append((start, end))
        for copy, spans in lacking.items():
            more = copied_to(*machine.copies[copy], merged(np.array(spans)))
            known = unwritten_copies.get(copy, more[:0])
            unwritten_copies[copy] = merged(np.concatenate((known, more)))
            if not np.array_equal(unwritten_copies[copy], known):
                worklist += [key for key in targets.get(copy, ()) if key in sources and key not in worklist]
    return unwritten_copies


def _unwritten_ranges(
    machine: Machine, key: tuple[int, int], unwritten_copies: dict[int, Span]
) -> Iterator[tuple[int, int, AccessRecord, AccessRecord | None]]:
    """Ranges of a buffer that an access reads unwritten: begin, end, the access, and the copy that wrote them."""
    accesses, root = machine.accesses[key], machine.scenario.roots[key[1]]
    filled = root.zeroed or root.given
    reads = [i for i, a in enumerate(accesses) if not a.write]
    writes = [i for i, a in enumerate(accesses) if a.write and a.copy in unwritten_copies]
    if not reads or filled and not writes:
        return
    # Each read twice, so that a range of a single read counts, too; then the ranges of copies.
    spans = [a.span for a in accesses]
    marks = [common(spans[i], unwritten_copies[accesses[i].copy]) for i in writes]
    first_mark = len(spans) + len(reads)
    for start, end, group in ranges([*spans, *(spans[i] for i in reads), *marks]):
        here = [accesses[i] for i in group if i < len(spans)]
        empty = [accesses[writes[i - first_mark]] for i in group if i >= first_mark]
        good = [a for a in here if a.write and not any(a is copy for copy in empty)]
        for read in here:
            if not read.write:
                lacks, copy = _reads_unwritten(machine, read, good, empty, filled)
                if lacks:
                    yield start, end, read, copy


def _reads_unwritten(
    machine: Machine,
    read: AccessRecord,
    good: Sequence[AccessRecord],
    empty: Sequence[AccessRecord],
    filled: bool,
) -> tuple[bool, AccessRecord | None]:
    """Whether ``read`` may observe unwritten bytes: no write of data is ordered last before it.

    ``good``: writes of something. ``empty``: copies of what is unwritten. ``filled``: something was there before.
    """
    happens_before = machine.graph.happens_before
    if not all(happens_before(read.node, node) for node in machine.unknown_writes):
        return False, None
    good, empty = (
        [w for w in some if w.node == read.node or not happens_before(read.node, w.node)] for some in (good, empty)
    )
    if not good and not filled:
        return True, empty[-1] if empty else None
    for copy in empty:
        if happens_before(copy.node, read.node) and all(happens_before(write.node, copy.node) for write in good):
            return True, copy
    return False, None
