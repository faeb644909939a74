"""Remove waits that an earlier wait implies."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.call_graph import OPAQUE, functions, operations, pointers
from ditron_compiler.analysis.equivalence import varies
from ditron_compiler.analysis.linear import Polynomial, address, split_constant
from ditron_compiler.analysis.rank_variance import is_query, is_within
from ditron_compiler.analysis.slicing import Known, backward_slice, in_dominance_order
from ditron_compiler.ir.dialects.enums import keyword, number
from ditron_compiler.ir.matchers import constant_int, defining_op, is_function_argument
from ditron_compiler.ir.pass_base import Pass

__all__ = ["MergeWaits"]


@dataclass(frozen=True)
class MergeWaits(Pass):
    """Remove a wait that an earlier wait implies.

    Signals increase monotonically, so a condition that has held keeps holding. A wait is removed if a wait that
    dominates it covers all of its signals, with at least its value, scope and memory order; uses of its token get the
    earlier one. Only ``ge`` and ``gt`` can be implied, never ``eq``, ``ne``, ``lt`` or ``le``. A wait is kept if the
    kernel may reset its signals: by stores, by waits for ``lt`` or ``le``, by a ``set`` to a value that may be less
    than the one waited for (another constant, or a value that cannot be compared), or out of sight of this pass, in a
    function that it calls, in inline assembly, or through a pointer to an unknown object. Assumes that different
    arguments do not alias, and that no other kernel resets the signals concurrently.

    Before::

        %all = ditron.wait %sig[%num_ranks] ge %epoch : !tt.ptr<i64>
        %own = "tt.addptr"(%sig, %rank) : (!tt.ptr<i64>, i32) -> !tt.ptr<i64>
        %one = ditron.wait %own[%c1] ge %epoch : !tt.ptr<i64>
        %ptr = ditron.consume_token %box, %one : !tt.ptr<bf16>

    After::

        %all = ditron.wait %sig[%num_ranks] ge %epoch : !tt.ptr<i64>
        %ptr = ditron.consume_token %box, %all : !tt.ptr<bf16>
    """

    name: ClassVar[str] = "merge-waits"

    def run(self, op: ir.Operation) -> None:
        for function in functions(op):
            found = operations(function)
            if sum(o.name in _WAITS for o in found) > 1:
                self._merge(function.regions[0], _set_back(found))

    def _merge(self, region: ir.Region, set_back: list[_SetBack]) -> None:
        known: _Waits = Known()
        for op in in_dominance_order(region, known):
            if op.name not in _WAITS:
                continue
            wait = _Wait.of(op)
            earlier = wait.implied_by(known)
            if earlier is not None and (undone := next((by for by in set_back if by.may_undo(wait)), None)) is not None:
                op.emit_remark(
                    "kept, although an earlier wait implies it: its signals may be reset",
                    [(earlier.op, "the earlier wait"), (undone.op, "may reset the signals")],
                )
                self.count("waits kept because signals may be reset")
            elif earlier is None or not self._replace(op, earlier.op):
                wait.note(known)

    def _replace(self, op: ir.Operation, earlier: ir.Operation) -> bool:
        """Put ``earlier`` for ``op``, unless a result is used that it does not have."""
        if op.results[0].has_uses:
            if op.name != earlier.name or op.name != "ditron.wait":
                return False
            op.results[0].replace_all_uses_with(earlier.results[0])
        op.emit_remark("removed: an earlier wait implies it", [(earlier, "the earlier wait")])
        op.erase()
        self.count("waits removed")
        return True


_WAITS = ("ditron.wait", "ditron.signal_wait_until")

_Count = ir.Value | int | str  # of signals; the ranks of the group or node by the name of the query
_COUNTS = ("num_ranks", "num_local_ranks")
_RELAXED, _WORLD = -1, 2  # the ends of `_Wait.order`


@dataclass(frozen=True)
class _Wait:
    """A wait, taken apart: of signals ``base + symbols + first`` and the ``count - 1`` after that.

    ``order`` is the scope within which it acquires, as a number.
    """

    op: ir.Operation
    base: ir.Value
    symbols: Polynomial
    first: int
    count: _Count
    value: tuple[ir.Value | None, int]
    cmp: str
    order: int

    @staticmethod
    def of(op: ir.Operation) -> _Wait:
        count, value, order = 1, op.operands[1], _WORLD
        if op.name == "ditron.wait":
            count, value = _count(op.operands[1]), op.operands[2]
            acquires = keyword(op.attributes["semantic"]) == "acquire"
            order = number(op.attributes["scope"]) if acquires else _RELAXED
        base, offset = address(op.operands[0])
        return _Wait(
            op,
            base,
            offset.without_constant,
            offset.constant_term,
            count,
            split_constant(value),
            keyword(op.attributes["cmp"]),
            order,
        )

    @property
    def least(self) -> int:
        """What the signal is at least, on top of the symbol of the value."""
        return self.value[1] + (self.cmp == "gt")

    @property
    def _is_range(self) -> bool:
        return isinstance(self.count, int) and self.count != 1

    def note(self, known: _Waits) -> None:
        """Let later waits that this one implies find it."""
        if self.cmp in ("ge", "gt", "eq"):
            which = _RANGE if self._is_range else (self.first, self.count)
            known.add((self.base, self.symbols, which, self.value[0], self.order), self)

    def implied_by(self, known: _Waits) -> _Wait | None:
        """A wait among ``known``, which all come before, that is over only when this one is."""
        if self.cmp not in ("ge", "gt"):
            return None
        exact = [(self.symbols, (self.first, self.count))]
        if self.count == 1 and self.first == 0 and len(index := self.symbols.summands) == 1:
            exact += [(Polynomial.constant(0), (0, count)) for count in _COUNTS if is_within(index[0], count)]
        for order in range(self.order, _WORLD + 1):
            # Of those that are alike but for the value the last has waited for the most, or it would not be there.
            alike = [
                wait
                for symbols, which in exact
                for wait in known.about((self.base, symbols, which, self.value[0], order))[-1:]
            ]
            ranges = known.about((self.base, self.symbols, _RANGE, self.value[0], order))
            found = next(
                (wait for wait in [*alike, *(r for r in ranges if r.contains(self))] if wait.least >= self.least), None
            )
            if found is not None:
                return found
        return None

    def contains(self, other: _Wait) -> bool:
        """Whether this range of signals holds those of ``other``, which differ by where they begin and how many."""
        return (
            isinstance(other.count, int)
            and self.first <= other.first
            and (other.first + other.count <= self.first + self.count)
        )


# Whose signals, by which symbols, from which on and how many (or any range), on top of what, in which order.
_RANGE = "a range"
_Waits = Known[tuple[ir.Value, Polynomial, "tuple[int, _Count] | str", "ir.Value | None", int], _Wait]


def _count(value: ir.Value) -> _Count:
    known = constant_int(value)
    if known is not None:
        return known
    return next((count for count in _COUNTS if is_query(value, count)), value)


def _narrow(value: ir.Value | None) -> ir.Value | None:
    """``value`` before it was made wider, which is done anew at each use."""
    while value is not None and (op := defining_op(value)) is not None and op.name == "arith.extsi":
        value = op.operands[0]
    return value


def _is_steady(symbol: ir.Value | None) -> bool:
    """Whether it is the same number on every rank, and in every turn of every loop."""
    return (
        symbol is None
        or not varies(symbol)
        and all(defining_op(value) is not None or is_function_argument(value) for value in backward_slice(symbol))
    )


@dataclass(frozen=True)
class _SetBack:
    """An operation that may make signals smaller, what those signals come from, and what they then are, if known."""

    op: ir.Operation
    roots: frozenset[ir.Value]
    value: tuple[ir.Value | None, int] | None = None

    def may_undo(self, wait: _Wait) -> bool:
        """Whether what ``wait`` waits for may be so no longer; what is of unknown origin may be anything."""
        symbol = _narrow(wait.value[0])
        if self.value is not None and self.value[1] >= wait.least and self.value[0] == symbol and _is_steady(symbol):
            return False
        roots = _roots(wait.op.operands[0])
        return bool(roots & self.roots) or not all(map(is_function_argument, roots | self.roots))


def _set_back(every: list[ir.Operation]) -> list[_SetBack]:
    """What may set signals back; of all that set the same ones to the same symbol, the one to the least."""
    found: dict[Hashable, _SetBack] = {}
    for op in every:
        for pointer in _written_back(op):
            roots = _roots(pointer)
            found.setdefault(roots, _SetBack(op, roots))
        if op.name in _SETS and keyword(op.attributes["op"]) == "set":
            signal, value = _signal_and_value(op)
            roots, (symbol, offset) = _roots(signal), split_constant(value)
            by = _SetBack(op, roots, (_narrow(symbol), offset))
            known = found.setdefault((roots, by.value[0]), by)
            if offset < known.value[1]:
                found[roots, by.value[0]] = by
    return list(found.values())


def _signal_and_value(op: ir.Operation) -> list[ir.Value]:
    return list(op.operands)[3:5] if op.name == "ditron.putmem_signal" else list(op.operands)[:2]


def _roots(pointer: ir.Value) -> frozenset[ir.Value]:
    return frozenset(origin.root for origin in underlying_objects(pointer))


def _written_back(op: ir.Operation) -> list[ir.Value]:
    """The pointers through which ``op`` may make a signal smaller."""
    name = op.name
    if name in OPAQUE or name == "tt.ptr_to_int":
        return pointers(op)
    if name in _WRITES:
        return [op.operands[0]]
    if name in ("ditron.red", "ditron.atomic_add"):
        kind = keyword(op.attributes["op"]) if name == "ditron.red" else "add"
        value = constant_int(op.operands[1])
        grows = kind == "max" or kind == "add" and value is not None and value >= 0
        return [] if grows else [op.operands[0]]
    if name in _SETS:
        signal, value = _signal_and_value(op)
        known = constant_int(value)
        back = [signal] if keyword(op.attributes["op"]) == "add" and known is not None and known < 0 else []
        return [op.operands[0], *back] if name == "ditron.putmem_signal" else back
    if name in _WAITS and keyword(op.attributes["cmp"]) in ("lt", "le"):
        return [op.operands[0]]
    return []


_SETS = ("ditron.notify", "ditron.signal_op", "ditron.putmem_signal")
_WRITES = (
    "tt.store",
    "tt.atomic_rmw",
    "tt.atomic_cas",
    "tt.descriptor_store",
    "tt.descriptor_scatter",
    "tt.descriptor_reduce",
    "ditron.st",
    "ditron.atomic_cas",
    "ditron.putmem",
    "ditron.getmem",
    "ditron.multimem_st",
    "ditron.multimem_red",
)
