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
    is a wait for signals that the kernel sets back (stores of its own, ``set`` of a constant below 1, waits for ``lt``
    or ``le``).

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

    def _merge(self, region: ir.Region, unsteady: set[ir.Value]) -> None:
        for op, known in in_dominance_order(region):
            if op.name not in _WAITS or any(origin.root in unsteady for origin in origins(op.operands[0])):
                continue
            wait = _Wait.of(op)
            earlier = next((other for other in known if other.implies(wait)), None)
            if earlier is None or not self._replace(op, earlier.op):
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

    def _holds(self, other: _Wait) -> bool:
        if self.cmp not in ("ge", "gt", "eq") or other.cmp not in ("ge", "gt") or self.value[0] != other.value[0]:
            return False
        least = self.value[1] + (self.cmp == "gt")  # the signal is at least so much
        return least >= other.value[1] + (other.cmp == "gt")

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


def _set_back(operations: list[ir.Operation]) -> set[ir.Value]:
    """What signals come from that the kernel does not only let grow."""
    return {origin.root for op in operations if (pointer := _written_back(op)) is not None
            for origin in origins(pointer)}


def _written_back(op: ir.Operation) -> ir.Value | None:
    """The pointer through which ``op`` may make a signal smaller, if it may."""
    name = op.name
    if name in ("tt.store", "tt.atomic_rmw", "tt.atomic_cas", "ditron.st", "ditron.atomic_cas", "ditron.putmem",
                "ditron.getmem", "ditron.putmem_signal", "ditron.multimem_st", "ditron.multimem_red"):
        data = op.operands[0]
        if name != "ditron.putmem_signal":
            return data
    if name in ("ditron.red", "ditron.atomic_add"):
        kind = keyword(op.attributes["op"]) if name == "ditron.red" else "add"
        value = constant(op.operands[1])
        grows = kind == "max" or kind == "add" and value is not None and value >= 0
        return None if grows else op.operands[0]
    if name in ("ditron.notify", "ditron.signal_op", "ditron.putmem_signal"):
        signal, value = (op.operands[3], op.operands[4]) if name == "ditron.putmem_signal" else list(op.operands)[:2]
        known = constant(value)
        least = 0 if keyword(op.attributes["op"]) == "add" else 1
        return signal if known is not None and known < least else None
    if name in _WAITS and keyword(op.attributes["cmp"]) in ("lt", "le"):
        return op.operands[0]
    return None
