"""What an operation of a host program needs to come before it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.buffer_effects import Access, Accesses, Rename
from ditron_compiler.analysis.copy_forwarding import loops_around
from ditron_compiler.analysis.polynomial import RANK, Index, Poly, expression, never_equal
from ditron_compiler.analysis.slicing import is_defined_in

__all__ = ["WITH_COPY", "Dependences", "is_queued"]

#: On a signal write or wait: it is about the copy right beside it, and about nothing else.
WITH_COPY = "ditron.with_copy"

_QUEUED = {
    f"ditron.{name}"
    for name in (
        "record",
        "await",
        "rank_copy",
        "copy",
        "fill",
        "signal_write",
        "signal_wait",
        "stream_barrier",
        "launch",
        "all_gather",
    )
}
_SIGNALS = ("ditron.signal_write", "ditron.signal_wait")


def is_queued(op: ir.Operation) -> bool:
    """Whether an operation is put on a stream."""
    return op.name in _QUEUED


@dataclass(frozen=True)
class _Before:
    """What ``value`` was in an earlier turn."""

    value: ir.Value


class Dependences:
    """Of the operations of a program that have no stream, in the order of the text.

    ``adjacent``: a signal right beside a copy is about that copy only, marked or not.
    """

    def __init__(self, accesses: Accesses, adjacent: bool = False):
        self._accesses, self._adjacent = accesses, adjacent
        self._of: dict[ir.Operation, list[Access]] = {}

    def goes_with_copies(self, op: ir.Operation) -> bool:
        """Whether an operation is a copy between ranks, a signal write right after one, or a wait right before."""
        if op.stream is not None:
            return False
        if op.name == "ditron.rank_copy":
            return True
        beside = self._copy_beside(op)
        return beside is not None and beside.name == "ditron.rank_copy" and beside.stream is None

    def _copy_beside(self, op: ir.Operation) -> ir.Operation | None:
        """The copy that a signal is about, by where it stands."""
        if op.name not in _SIGNALS:
            return None
        step = (lambda o: o.prev_op) if op.name == "ditron.signal_write" else (lambda o: o.next_op)
        other = step(op)
        while other is not None and other.is_memory_effect_free and not len(other.regions):
            other = step(other)
        if other is None or other.name not in ("ditron.rank_copy", "ditron.copy"):
            return None
        same_peer = (
            op.name == "ditron.signal_wait"
            or other.name == "ditron.copy"
            or (expression(other.peer) == expression(op.peer))
        )
        return other if same_peer else None

    def needs(self, later: ir.Operation, earlier: ir.Operation) -> bool:
        """Whether ``later`` has to come after ``earlier``, of the same turns of loops around both."""
        return self._needs(later, earlier)

    def carried(self, earlier: ir.Operation, later: ir.Operation, loop: ir.Operation) -> bool:
        """Whether ``later`` has to come after ``earlier`` of a turn of ``loop`` before."""
        turns = {_index(inner): Index(*_bounds(inner)) for inner in loops_around(earlier) if loop.is_ancestor(inner)}
        index = _index(loop)
        turns[index] = Index(_bounds(loop)[0], Poly.atom(index) - 1)

        def before(atom: Hashable) -> Poly | None:
            if atom in turns:
                return Poly.atom(turns[atom])
            # What else the loop computes was something else then, of which nothing is known.
            return Poly.atom(_Before(atom)) if isinstance(atom, ir.Value) and is_defined_in(atom, loop) else None

        return self._needs(later, earlier, before)

    def _needs(self, later: ir.Operation, earlier: ir.Operation, before: Rename | None = None) -> bool:
        """``before`` says what atoms were when ``earlier`` was reached; None in the same turn."""
        if _is_about_streams(later) or _is_about_streams(earlier):
            return True
        if later.name == "ditron.signal_wait":
            return False  # it waits for peers, whatever this rank does
        if earlier.name == "ditron.signal_write" or later.name == "ditron.signal_write":
            return self._signal_write_needs(later, earlier, before)
        if earlier.name == "ditron.signal_wait":
            return not self._is_about_copy(earlier) and any(
                access.peer is not None or access.region.root.type.is_symmetric for access in self._all(later)
            )
        first = self._all(earlier) if before is None else [access.renamed(before) for access in self._all(earlier)]
        return any(_conflict(a, b) for a in first for b in self._all(later))

    def _signal_write_needs(self, later: ir.Operation, earlier: ir.Operation, before: Rename | None) -> bool:
        if later.name == earlier.name:  # a signal only grows
            peer = expression(earlier.peer)
            peer = peer if before is None else peer.replace(before)
            return later.signal == earlier.signal and not never_equal(expression(later.peer), peer)
        if later.name != "ditron.signal_write":
            return False  # nothing has to wait for having told a peer
        return not self._is_about_copy(later) or before is None and earlier == self._copy_beside(later)

    def _is_about_copy(self, op: ir.Operation) -> bool:
        """Whether a signal is about the copy beside it only."""
        return (WITH_COPY in op.attributes or self._adjacent) and self._copy_beside(op) is not None

    def _all(self, op: ir.Operation) -> list[Access]:
        if op not in self._of:
            self._of[op] = self._accesses.of(op)
        return self._of[op]


def _index(loop: ir.Operation) -> ir.Value:
    return loop.regions[0].blocks[0].arguments[0]


def _bounds(loop: ir.Operation) -> tuple[Poly, Poly]:
    """The first and the last index of a loop with step 1; not more than those with another step."""
    return expression(loop.operands[0]), expression(loop.operands[1]) - 1


def _is_about_streams(op: ir.Operation) -> bool:
    """Whether an operation is ordered by what the author says about streams: it stays where it is in the order."""
    return op.stream is not None or op.name in (
        "ditron.record",
        "ditron.await",
        "ditron.stream_barrier",
        "ditron.all_gather",
    )


def _conflict(a: Access, b: Access) -> bool:
    """Whether two accesses may meet, and one of them writes."""
    if not (a.writes or b.writes) or a.region.is_disjoint(b.region):
        return False
    peers = [Poly.atom(RANK) if access.peer is None else access.peer for access in (a, b)]
    return "any" in peers or not never_equal(*peers)
