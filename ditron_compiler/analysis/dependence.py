"""Dependence analysis of host programs: which operations must complete before another."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.buffer_effects import BufferAccess, ProgramAccesses
from ditron_compiler.analysis.host_expressions import RANK, Interval, expression, never_equal
from ditron_compiler.analysis.linear import Polynomial, Substitution
from ditron_compiler.analysis.slicing import is_defined_in
from ditron_compiler.ir.dialects import ditron, scf
from ditron_compiler.ir.host_builders import WITH_COPY

__all__ = ["Dependences", "enclosing_loops", "is_queued"]

#: Operations that are put on a stream.
_QUEUED = (
    ditron.RecordOp,
    ditron.AwaitOp,
    ditron.RankCopyOp,
    ditron.CopyOp,
    ditron.FillOp,
    ditron.SignalWriteOp,
    ditron.SignalWaitOp,
    ditron.StreamBarrierOp,
    ditron.LaunchOp,
    ditron.CallOp,
    ditron.AllGatherOp,
)


def is_queued(op: ir.Operation) -> bool:
    """Whether an operation is put on a stream."""
    return isinstance(op, _QUEUED)


def enclosing_loops(op: ir.Operation) -> list[scf.ForOp]:
    """The loops of the program around ``op``, the innermost first."""
    found = []
    while (op := op.parent) is not None and not isinstance(op, ditron.ProgramOp):
        if isinstance(op, scf.ForOp):
            found.append(op)
    return found


@dataclass(frozen=True)
class _EarlierValue:
    """What ``value`` was in an earlier iteration; nothing is known of it."""

    value: ir.Value


class Dependences:
    """Dependences between the operations of a program that have no stream, in program order.

    ``adjacent``: a signal next to a copy orders that copy only, marked or not.
    """

    def __init__(self, accesses: ProgramAccesses, adjacent: bool = False):
        self._accesses, self._adjacent = accesses, adjacent
        self._of: dict[ir.Operation, list[BufferAccess]] = {}

    def goes_with_copies(self, op: ir.Operation) -> bool:
        """Whether an operation is a copy between ranks, a signal write right after one, or a wait right before."""
        if op.stream is not None:
            return False
        if isinstance(op, ditron.RankCopyOp):
            return True
        copy = self._adjacent_copy(op)
        return isinstance(copy, ditron.RankCopyOp) and copy.stream is None

    def _adjacent_copy(self, op: ir.Operation) -> ditron.RankCopyOp | ditron.CopyOp | None:
        """The copy next to a signal, which the signal is for: before a write, after a wait."""
        if not isinstance(op, ditron.SignalWriteOp | ditron.SignalWaitOp):
            return None
        step = (lambda o: o.prev_op) if isinstance(op, ditron.SignalWriteOp) else (lambda o: o.next_op)
        other = step(op)
        while other is not None and other.is_memory_effect_free and not len(other.regions):
            other = step(other)
        if not isinstance(other, ditron.RankCopyOp | ditron.CopyOp):
            return None
        same_peer = (
            isinstance(op, ditron.SignalWaitOp)
            or isinstance(other, ditron.CopyOp)
            or expression(other.peer) == expression(op.peer)
        )
        return other if same_peer else None

    def depends(self, later: ir.Operation, earlier: ir.Operation) -> bool:
        """Whether ``later`` depends on ``earlier`` of the same iteration of the loops around both."""
        return self._depends(later, earlier)

    def loop_carried(self, earlier: ir.Operation, later: ir.Operation, loop: scf.ForOp) -> bool:
        """Whether ``later`` depends on ``earlier`` of an earlier iteration of ``loop``."""
        indices = {
            inner.induction_variable: Interval(*_bounds(inner))
            for inner in enclosing_loops(earlier)
            if loop.is_ancestor(inner)
        }
        index = loop.induction_variable
        indices[index] = Interval(_bounds(loop)[0], Polynomial.symbol(index) - 1)

        def in_earlier_iteration(symbol: Hashable) -> Polynomial | None:
            if symbol in indices:
                return Polynomial.symbol(indices[symbol])
            if isinstance(symbol, ir.Value) and is_defined_in(symbol, loop):
                return Polynomial.symbol(_EarlierValue(symbol))
            return None

        return self._depends(later, earlier, in_earlier_iteration)

    def _depends(
        self, later: ir.Operation, earlier: ir.Operation, in_earlier_iteration: Substitution | None = None
    ) -> bool:
        """``in_earlier_iteration`` has the values of symbols at ``earlier``; None for those of the same iteration."""
        if _has_stream_semantics(later) or _has_stream_semantics(earlier):
            return True
        if isinstance(later, ditron.SignalWaitOp):
            return False  # it depends on peers only
        if isinstance(earlier, ditron.SignalWriteOp) or isinstance(later, ditron.SignalWriteOp):
            return self._signal_write_depends(later, earlier, in_earlier_iteration)
        if isinstance(earlier, ditron.SignalWaitOp):
            return not self._orders_copy_only(earlier) and any(
                access.peer is not None or access.region.root.type.is_symmetric for access in self._all(later)
            )
        first = self._all(earlier)
        if in_earlier_iteration is not None:
            first = [access.substitute(in_earlier_iteration) for access in first]
        return any(_conflict(a, b) for a in first for b in self._all(later))

    def _signal_write_depends(
        self, later: ir.Operation, earlier: ir.Operation, in_earlier_iteration: Substitution | None
    ) -> bool:
        if isinstance(later, ditron.SignalWriteOp) and isinstance(earlier, ditron.SignalWriteOp):  # a signal only grows
            peer = expression(earlier.peer)
            peer = peer if in_earlier_iteration is None else peer.substitute(in_earlier_iteration)
            return later.signal == earlier.signal and not never_equal(expression(later.peer), peer)
        if not isinstance(later, ditron.SignalWriteOp):
            return False  # nothing on this rank depends on a signal at a peer
        if not self._orders_copy_only(later):
            return True
        return in_earlier_iteration is None and earlier == self._adjacent_copy(later)

    def _orders_copy_only(self, op: ir.Operation) -> bool:
        """Whether a signal orders the copy next to it, and nothing else."""
        return (WITH_COPY in op.attributes or self._adjacent) and self._adjacent_copy(op) is not None

    def _all(self, op: ir.Operation) -> list[BufferAccess]:
        if op not in self._of:
            self._of[op] = self._accesses.of(op)
        return self._of[op]


def _bounds(loop: scf.ForOp) -> tuple[Polynomial, Polynomial]:
    """The first and the last index of a loop with step 1; bounds of the index for another step."""
    return expression(loop.lowerBound), expression(loop.upperBound) - 1


def _has_stream_semantics(op: ir.Operation) -> bool:
    """Whether the author orders an operation by streams: it keeps its place in program order."""
    return op.stream is not None or isinstance(
        op, ditron.RecordOp | ditron.AwaitOp | ditron.StreamBarrierOp | ditron.AllGatherOp
    )


def _conflict(a: BufferAccess, b: BufferAccess) -> bool:
    """Whether two accesses may be of the same memory, and one of them writes."""
    if not (a.writes or b.writes) or a.region.is_disjoint(b.region):
        return False
    peers = [Polynomial.symbol(RANK) if access.peer is None else access.peer for access in (a, b)]
    return "any" in peers or not never_equal(*peers)
