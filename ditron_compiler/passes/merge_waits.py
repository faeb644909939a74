"""Drop waits that an earlier one implies."""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.lowering.enums import keyword, number
from ditron_compiler.passes._flow import in_dominance_order
from ditron_compiler.passes._pointers import constant, defining, origins
from ditron_compiler.passes._ranks import is_query, is_within
from ditron_compiler.passes.base import Pass

__all__ = ["MergeWaits"]


@dataclass(frozen=True)
class MergeWaits(Pass):
    """Drop a wait that an earlier wait implies.

    Signals only grow, so what has been waited for stays true. A wait goes away when one that comes before it on every
    path has waited for all of its signals, for at least its value, with at least its scope and memory order; its token
    becomes the earlier one's. Only ``ge`` and ``gt`` can be implied; ``eq``, ``ne``, ``lt`` and ``le`` never are. Nor
    is a wait for signals that the kernel sets back (stores of its own, waits for ``lt`` or ``le``, ``set`` of what may
    be less than the value waited for: another constant, or a number of which nothing says how they compare), or may
    set back where this pass does not look: in a function that it calls, in assembly, through a pointer of unknown
    origin. Two arguments are taken for two memories, and no other kernel for one that sets back in the meantime.

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
        for function in [f for f in op.regions[0].blocks[0] if f.name == "tt.func"]:
            found: list[ir.Operation] = []
            function.walk(lambda o: found.append(o) if o.name.startswith(("ditron.", "tt.")) else None)
            if sum(o.name in _WAITS for o in found) > 1:
                self._merge(function.regions[0], _set_back(found))

    def _merge(self, region: ir.Region, set_back: list[_SetBack]) -> None:
        for op, known in in_dominance_order(region):
            if op.name not in _WAITS:
                continue
            wait = _Wait.of(op)
            earlier = next((other for other in known if other.implies(wait)), None)
            if earlier is not None and (undone := next((by for by in set_back if by.may_undo(wait)), None)) is not None:
                op.emit_remark("this wait stays, though an earlier one has waited for as much: its signals may be set "
                               "back", [(earlier.op, "the earlier one"), (undone.op, "may set signals back")])
            elif earlier is None or not self._replace(op, earlier.op):
                known.append(wait)

    def _replace(self, op: ir.Operation, earlier: ir.Operation) -> bool:
        """Put ``earlier`` for ``op``, unless a result is used that it does not have."""
        if op.results[0].has_uses:
            if op.name != earlier.name or op.name != "ditron.wait":
                return False
            op.results[0].replace_all_uses_with(earlier.results[0])
        op.emit_remark("this wait is over when an earlier one is, and was dropped", [(earlier, "the earlier one")])
        op.erase()
        self.count("waits dropped")
        return True


_WAITS = ("ditron.wait", "ditron.signal_wait_until")


@dataclass(frozen=True)
class _Wait:
    """A wait, taken apart: of signals ``base + symbols + first`` and the ``count - 1`` after that.

    ``symbols`` has how often each is added: ``base + k + k`` is not ``base + k``.
    """

    op: ir.Operation
    base: ir.Value
    symbols: Counter[ir.Value]
    first: int
    count: ir.Value | int
    value: tuple[ir.Value | None, int]
    cmp: str
    scope: int
    acquires: bool

    @staticmethod
    def of(op: ir.Operation) -> _Wait:
        base, first = op.operands[0], 0
        symbols: Counter[ir.Value] = Counter()
        while (step := defining(base)) is not None and step.name == "tt.addptr":
            symbol, offset = _split(step.operands[1])
            first += offset
            if symbol is not None:
                symbols[symbol] += 1
            base = step.operands[0]
        is_wait = op.name == "ditron.wait"
        count: ir.Value | int = 1
        if is_wait:
            known = constant(op.operands[1])
            count = op.operands[1] if known is None else known
        return _Wait(op, base, symbols, first, count, _split(op.operands[2 if is_wait else 1]),
                     keyword(op.attributes["cmp"]), number(op.attributes["scope"]) if is_wait else 2,
                     not is_wait or keyword(op.attributes["semantic"]) == "acquire")

    def implies(self, other: _Wait) -> bool:
        """Whether ``other``, which comes later, is over when this one is."""
        return (self.base == other.base and self._holds(other) and self._covers(other)
                and (not other.acquires or self.acquires and self.scope >= other.scope))

    @property
    def least(self) -> int:
        """What the signal is at least, on top of the symbol of the value."""
        return self.value[1] + (self.cmp == "gt")

    def _holds(self, other: _Wait) -> bool:
        if self.cmp not in ("ge", "gt", "eq") or other.cmp not in ("ge", "gt") or self.value[0] != other.value[0]:
            return False
        return self.least >= other.least

    def _covers(self, other: _Wait) -> bool:
        if self.symbols == other.symbols:
            if isinstance(self.count, int) and isinstance(other.count, int):
                return self.first <= other.first and other.first + other.count <= self.first + self.count
            return self.first == other.first and self.count == other.count
        if self.symbols or self.first or other.first or other.count != 1 or other.symbols.total() != 1:
            return False
        count = next((c for c in ("num_ranks", "num_local_ranks")
                      if not isinstance(self.count, int) and is_query(self.count, c)), None)
        return count is not None and is_within(*other.symbols, count)


def _split(value: ir.Value) -> tuple[ir.Value | None, int]:
    """``value`` as something plus a constant; the something is None when all of it is constant."""
    offset = 0
    while (op := defining(value)) is not None and op.name in ("arith.addi", "arith.subi"):
        right = constant(op.operands[1])
        if right is None:
            break
        offset += right if op.name == "arith.addi" else -right
        value = op.operands[0]
    known = constant(value)
    return (value, offset) if known is None else (None, offset + known)


def _narrow(value: ir.Value | None) -> ir.Value | None:
    """``value`` before it was made wider, which is done anew at each use."""
    while value is not None and (op := defining(value)) is not None and op.name == "arith.extsi":
        value = op.operands[0]
    return value


@dataclass(frozen=True)
class _SetBack:
    """An operation that may make signals smaller, what those signals come from, and what they then are, if known."""

    op: ir.Operation
    roots: frozenset[ir.Value]
    value: tuple[ir.Value | None, int] | None = None

    def may_undo(self, wait: _Wait) -> bool:
        """Whether what ``wait`` waits for may be so no longer; what is of unknown origin may be anything."""
        if self.value is not None and self.value[1] >= wait.least and _narrow(self.value[0]) == _narrow(wait.value[0]):
            return False
        roots = _roots(wait.op.operands[0])
        return bool(roots & self.roots) or not all(map(_is_argument, roots | self.roots))


def _set_back(operations: list[ir.Operation]) -> list[_SetBack]:
    sets = [_SetBack(op, _roots(signal), _split(value)) for op in operations if op.name in _SETS
            and keyword(op.attributes["op"]) == "set" for signal, value in [_signal_and_value(op)]]
    return sets + [_SetBack(op, _roots(pointer)) for op in operations for pointer in _written_back(op)]


def _signal_and_value(op: ir.Operation) -> list[ir.Value]:
    return list(op.operands)[3:5] if op.name == "ditron.putmem_signal" else list(op.operands)[:2]


def _roots(pointer: ir.Value) -> frozenset[ir.Value]:
    return frozenset(origin.root for origin in origins(pointer))


def _is_argument(root: ir.Value) -> bool:
    """Of the function, not of a block or the body of a loop, nor the result of an operation."""
    if isinstance(root, ir.OpResult):
        return False
    function = root.owner.owner
    return function is not None and function.name == "tt.func" and root.owner == function.regions[0].blocks[0]


def _written_back(op: ir.Operation) -> list[ir.Value]:
    """The pointers through which ``op`` may make a signal smaller."""
    name = op.name
    if name in _OPAQUE:
        return [v for v in op.operands if "!tt.ptr" in str(v.type) or "!tt.tensordesc" in str(v.type)]
    if name in _WRITES:
        return [op.operands[0]]
    if name in ("ditron.red", "ditron.atomic_add"):
        kind = keyword(op.attributes["op"]) if name == "ditron.red" else "add"
        value = constant(op.operands[1])
        grows = kind == "max" or kind == "add" and value is not None and value >= 0
        return [] if grows else [op.operands[0]]
    if name in _SETS:
        signal, value = _signal_and_value(op)
        known = constant(value)
        back = [signal] if keyword(op.attributes["op"]) == "add" and known is not None and known < 0 else []
        return [op.operands[0], *back] if name == "ditron.putmem_signal" else back
    if name in _WAITS and keyword(op.attributes["cmp"]) in ("lt", "le"):
        return [op.operands[0]]
    return []


_SETS = ("ditron.notify", "ditron.signal_op", "ditron.putmem_signal")
_WRITES = ("tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_store", "tt.descriptor_scatter",
           "tt.descriptor_reduce", "ditron.st", "ditron.atomic_cas", "ditron.putmem", "ditron.getmem",
           "ditron.multimem_st", "ditron.multimem_red")
# What becomes of the pointers that these take is not looked at.
_OPAQUE = ("tt.call", "tt.elementwise_inline_asm", "tt.extern_elementwise", "tt.ptr_to_int")
