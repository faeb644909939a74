"""Remove waits that an earlier wait implies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.dominance import ScopedTable, walk_in_dominance_order
from ditron_compiler.analysis.integer_range import RANK_COUNTS, RankCount, is_below
from ditron_compiler.analysis.linear import Polynomial, address, split_constant
from ditron_compiler.analysis.signal_resets import SignalReset, signal_resets
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.ir.dialects.ditron import Cmp, Scope, Semantic
from ditron_compiler.ir.matchers import constant_int, is_query
from ditron_compiler.ir.pass_base import Pass

__all__ = ["MergeWaits"]


@dataclass(frozen=True)
class MergeWaits(Pass):
    """Remove a wait that an earlier wait implies.

    Signals increase monotonically, so a condition that has held keeps holding. A wait is removed if a wait that
    dominates it covers all of its signals, with at least its value, scope and memory order; uses of its token get the
    earlier one. Only ``ge`` and ``gt`` can be implied, never ``eq``, ``ne``, ``lt`` or ``le``. A wait is kept if the
    kernel may reset its signals: by stores, by atomics (but for ``max`` and the addition of a constant that is not
    negative), by waits for ``lt`` or ``le``, by a ``set`` to a value that may be less
    than the one waited for (another constant, or a value that cannot be compared), or out of sight of this pass, in a
    function that it calls, in inline assembly, or through a pointer to an unknown object. Assumes that different
    arguments do not alias, and that no other kernel resets the signals concurrently.

    Before::

        %all = ditron.wait %sig[%num_ranks] ge %epoch : !tt.ptr<i64>
        %own = tt.addptr %sig, %rank : !tt.ptr<i64>, i32
        %one = ditron.wait %own[%c1] ge %epoch : !tt.ptr<i64>
        %ptr = ditron.consume_token %box, %one : !tt.ptr<bf16>

    After::

        %all = ditron.wait %sig[%num_ranks] ge %epoch : !tt.ptr<i64>
        %ptr = ditron.consume_token %box, %all : !tt.ptr<bf16>
    """

    name: ClassVar[str] = "merge-waits"

    def run(self, op: ir.Operation) -> None:
        for function in functions(op):
            every = operations(function)
            if sum(isinstance(o, ditron.SignalWaitOpInterface) for o in every) > 1:
                self._merge(function.body, signal_resets(every))

    def _merge(self, region: ir.Region, resets: list[SignalReset]) -> None:
        table: _Waits = ScopedTable()
        for op in walk_in_dominance_order(region, table):
            if not isinstance(op, ditron.SignalWaitOpInterface):
                continue
            wait = _Wait.of(op)
            earlier = wait.implied_by(table)
            if earlier is not None and (
                reset := next((r for r in resets if r.may_invalidate(op, wait.value[0], wait.least)), None)
            ):
                op.emit_remark(
                    "kept, although an earlier wait implies it: its signals may be reset",
                    [(earlier.op, "the earlier wait"), (reset.op, "may reset the signals")],
                )
                self.count("waits kept because signals may be reset")
            elif earlier is None or not self._replace(op, earlier.op):
                wait.insert(table)

    def _replace(self, op: ditron.SignalWaitOpInterface, earlier: ditron.SignalWaitOpInterface) -> bool:
        """Replace ``op`` by ``earlier``, unless a result is used that ``earlier`` does not have."""
        result = op.results[0]
        if result.has_uses:
            if not (isinstance(op, ditron.WaitOp) and isinstance(earlier, ditron.WaitOp)):
                return False
            result.replace_all_uses_with(earlier.token)
        op.emit_remark("removed: an earlier wait implies it", [(earlier, "the earlier wait")])
        op.erase()
        self.count("waits removed")
        return True


_Count = ir.Value | int | RankCount  # of signals; the number of ranks by its query
_RELAXED = -1  # below every scope, in `_Wait.order`


@dataclass(frozen=True)
class _Wait:
    """A wait for the ``count`` signals from ``base + symbols + first`` on.

    ``order`` is the scope within which it acquires.
    """

    op: ditron.SignalWaitOpInterface
    base: ir.Value
    symbols: Polynomial
    first: int
    count: _Count
    value: tuple[ir.Value | None, int]
    order: int

    @staticmethod
    def of(op: ditron.SignalWaitOpInterface) -> _Wait:
        base, offset = address(op.signal)
        count = 1 if op.count is None else _count(op.count)
        order = int(op.scope) if op.semantic is Semantic.Acquire else _RELAXED
        return _Wait(op, base, offset.without_constant, offset.constant_term, count, split_constant(op.value), order)

    @property
    def least(self) -> int:
        """The least value of the signals after the wait, on top of the symbol of ``value``."""
        return self.value[1] + (self.op.cmp is Cmp.GT)

    @property
    def _is_range(self) -> bool:
        return isinstance(self.count, int) and self.count != 1

    def insert(self, table: _Waits) -> None:
        """Make this wait visible to later ones that it may imply."""
        if self.op.cmp in (Cmp.GE, Cmp.GT, Cmp.EQ):
            which = _RANGE if self._is_range else (self.first, self.count)
            table.insert((self.base, self.symbols, which, self.value[0], self.order), self)

    def implied_by(self, table: _Waits) -> _Wait | None:
        """A wait in ``table``, all of which dominate this one, that returns only if this one does."""
        if self.op.cmp not in (Cmp.GE, Cmp.GT):
            return None
        exact = [(self.symbols, (self.first, self.count))]
        if self.count == 1 and self.first == 0 and len(index := self.symbols.summands) == 1:
            exact += [(Polynomial.constant(0), (0, count)) for count in RANK_COUNTS if is_below(index[0], count)]
        for order in range(self.order, int(Scope.World) + 1):
            # Of waits that differ in the value only, the last waits for the most: others were removed.
            candidates = [
                wait
                for symbols, which in exact
                for wait in table.lookup((self.base, symbols, which, self.value[0], order))[-1:]
            ]
            ranges = table.lookup((self.base, self.symbols, _RANGE, self.value[0], order))
            candidates += [wait for wait in ranges if wait.contains(self)]
            implying = next((wait for wait in candidates if wait.least >= self.least), None)
            if implying is not None:
                return implying
        return None

    def contains(self, other: _Wait) -> bool:
        """Whether this range of signals includes that of ``other``, which has the same base and symbols."""
        return (
            isinstance(other.count, int)
            and self.first <= other.first
            and other.first + other.count <= self.first + self.count
        )


# Base, symbols, first and count (or any range), symbol of the value, order.
_RANGE = "range"
_Waits = ScopedTable[tuple[ir.Value, Polynomial, "tuple[int, _Count] | str", "ir.Value | None", int], _Wait]


def _count(value: ir.Value) -> _Count:
    known = constant_int(value)
    if known is not None:
        return known
    return next((count for count in RANK_COUNTS if is_query(value, count)), value)
