"""The lattice of memory-order analysis: which effects may be pending, unordered or incomplete, at a point of a kernel.

A state maps each kind of effect, and what the effect is on, to the operations that may have caused it. The order is
inclusion and the join is union ("may"); ``WAITED`` alone is not pending, but says that a wait may be over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ditron_compiler import ir
from ditron_compiler.analysis.signal_updates import PreviousIteration, SignalUpdate
from ditron_compiler.ir.dialects import tt

# Kinds of effects. A fence orders the first five, a quiet completes all.
PUT, STORE, LOCAL_STORE, LOAD, UPDATE = "put", "store", "local store", "load", "update"
SIGNAL, SOURCE, DESTINATION = "signal", "source", "destination"
WAITED = "waited"
PUBLISHED = (PUT, STORE, LOCAL_STORE, LOAD)
FENCED = (*PUBLISHED, UPDATE)
INCOMPLETE = (SIGNAL, SOURCE, DESTINATION)

_DESCRIPTIONS = {
    PUT: "a put",
    STORE: "a store to another rank",
    LOCAL_STORE: "a store",
    LOAD: "a load after a wait",
    UPDATE: "an earlier update of this signal",
    SIGNAL: "a signal in flight",
    SOURCE: "a non-blocking put",
    DESTINATION: "a non-blocking get",
}
_MAX_UPDATES = 64  # of one object; more are joined, since in long unrolled loops a fence too many does not matter

# What an effect is on: a rank, an underlying object or a signal update; None is any.
Key = ir.Value | SignalUpdate | None
Causes = frozenset[ir.Operation]


@dataclass(frozen=True)
class PendingEffect:
    """An effect that may be pending, and the operation that caused it."""

    kind: str
    op: ir.Operation

    @staticmethod
    def of(kind: str, causes: Causes) -> PendingEffect:
        return PendingEffect(kind, first_by_location(causes))

    @property
    def description(self) -> str:
        return "an operation of the called function" if isinstance(self.op, tt.CallOp) else _DESCRIPTIONS[self.kind]


def first_by_location(operations: Iterable[ir.Operation]) -> ir.Operation:
    """One of several operations, the same in every run."""
    return min(operations, key=lambda op: (op.location.file_line_col or ("", 0, 0), str(op.location)))


class MemoryOrderState:
    """An element of the lattice; without arguments the bottom, of nothing pending."""

    def __init__(self, effects: dict[str, dict[Key, Causes]] | None = None):
        self._effects = effects or {}

    def of(self, kind: str) -> Mapping[Key, Causes]:
        """The pending effects of a kind."""
        return self._effects.get(kind, {})

    def items(self) -> Iterator[tuple[str, Key, Causes]]:
        return ((kind, key, causes) for kind, keys in self._effects.items() for key, causes in keys.items())

    def first(self, kinds: Iterable[str]) -> PendingEffect | None:
        """A pending effect of one of the kinds."""
        for kind in kinds:
            for causes in self.of(kind).values():
                return PendingEffect.of(kind, causes)
        return None

    def add(self, kind: str, key: Key, *ops: ir.Operation) -> None:
        keys = self._effects.setdefault(kind, {})
        keys[key] = keys.get(key, frozenset()).union(ops)

    def add_update(self, update: SignalUpdate, op: ir.Operation) -> None:
        self.add(UPDATE, update, op)
        same_object = [other for other in self._effects[UPDATE] if other.root == update.root]
        if len(same_object) > _MAX_UPDATES:
            causes = frozenset().union(*(self._effects[UPDATE].pop(other) for other in same_object))
            for other in same_object:
                update = update.join(other)
            self.add(UPDATE, update, *causes)

    def drop(self, kinds: Iterable[str], accepts: Callable[[Any], bool] = lambda key: True) -> None:
        """Remove the effects of the kinds whose key ``accepts`` accepts: they are ordered or complete."""
        for kind in kinds:
            for key in [key for key in self.of(kind) if accepts(key)]:
                del self._effects[kind][key]

    def join(self, other: MemoryOrderState) -> bool:
        """Add what may be pending on another path; whether that changes the state."""
        changed = False
        for kind, key, causes in other.items():
            if not causes <= self.of(kind).get(key, frozenset()):
                self.add(kind, key, *causes)
                changed = True
        return changed

    def renamed(self, rename: Callable[[Any], Any]) -> MemoryOrderState:
        """The state where values have other names, or none: then ``rename`` gives None.

        Only the keys of updates keep values of an earlier iteration.
        """
        result = MemoryOrderState()
        for kind, key, causes in self.items():
            if isinstance(key, SignalUpdate):
                new = key.renamed(rename)
            else:
                new = None if isinstance(name := rename(key), PreviousIteration) else name
            result.add(kind, new, *causes)
        return result

    def only(self, kind: str) -> MemoryOrderState:
        return MemoryOrderState({kind: dict(self.of(kind))})

    def copy(self) -> MemoryOrderState:
        return MemoryOrderState({kind: dict(keys) for kind, keys in self._effects.items()})

    def frozen(self) -> frozenset:
        return frozenset(self.items())
