"""What is pending at a place of a kernel: neither ordered nor complete; the state of the analysis in ``_pending``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ditron_compiler import ir
from ditron_compiler.analysis.signal_updates import Earlier, Update

__all__ = [
    "DESTINATION",
    "FENCED",
    "INCOMPLETE",
    "LOAD",
    "LOCAL_STORE",
    "PUBLISHED",
    "PUT",
    "SIGNAL",
    "SOURCE",
    "STORE",
    "UPDATE",
    "WAITED",
    "Pending",
    "State",
    "first",
]

# Kinds of what can be pending. The first five are ordered by a fence, all are complete after a quiet.
PUT, STORE, LOCAL_STORE, LOAD, UPDATE = "put", "store", "local store", "load", "update"
SIGNAL, SOURCE, DESTINATION = "signal", "source", "destination"
WAITED = "waited"  # not pending, but known along the path: a wait is over
PUBLISHED = (PUT, STORE, LOCAL_STORE, LOAD)
FENCED = (*PUBLISHED, UPDATE)
INCOMPLETE = (SIGNAL, SOURCE, DESTINATION)

_WORDS = {
    PUT: "a put",
    STORE: "a store to another rank",
    LOCAL_STORE: "a store",
    LOAD: "a load after a wait",
    UPDATE: "an earlier update of this signal",
    SIGNAL: "a signal in flight",
    SOURCE: "a non-blocking put",
    DESTINATION: "a non-blocking get",
}
_UPDATES = 64  # so many are told apart: past that, as in a long unrolled loop, a fence too many does not matter

# Of which rank it is, from which origin in memory, or which update of a signal; None is any.
Key = ir.Value | Update | None
Began = frozenset[ir.Operation]


@dataclass(frozen=True)
class Pending:
    """One thing that is pending: its kind, and the operation that began it."""

    kind: str
    op: ir.Operation

    @staticmethod
    def of(kind: str, began: Began) -> Pending:
        """Of all that began it any, but in every run the same."""
        return Pending(kind, first(began))

    @property
    def what(self) -> str:
        return "an operation of the called function" if self.op.name == "tt.call" else _WORDS[self.kind]


def first(operations: Iterable[ir.Operation]) -> ir.Operation:
    """The first by its location."""
    return min(operations, key=lambda op: (op.location.file_line_col or ("", 0, 0), str(op.location)))


class State:
    """By kind, and by what it is about, who began it."""

    def __init__(self, of: dict[str, dict[Key, Began]] | None = None):
        self._of = of or {}

    def of(self, kind: str) -> Mapping[Key, Began]:
        return self._of.get(kind, {})

    def items(self) -> Iterator[tuple[str, Key, Began]]:
        return ((kind, key, began) for kind, keys in self._of.items() for key, began in keys.items())

    def first(self, kinds: Iterable[str]) -> Pending | None:
        """Something of one of the kinds."""
        for kind in kinds:
            for began in self.of(kind).values():
                return Pending.of(kind, began)
        return None

    def add(self, kind: str, key: Key, *ops: ir.Operation) -> None:
        keys = self._of.setdefault(kind, {})
        keys[key] = keys.get(key, frozenset()).union(ops)

    def add_update(self, update: Update, op: ir.Operation) -> None:
        self.add(UPDATE, update, op)
        alike = [other for other in self._of[UPDATE] if other.root == update.root]
        if len(alike) > _UPDATES:
            began = frozenset().union(*(self._of[UPDATE].pop(other) for other in alike))
            for other in alike:
                update = update.merged(other)
            self.add(UPDATE, update, *began)

    def drop(self, kinds: Iterable[str], key: Callable[[Any], bool] = lambda key: True) -> None:
        """What is of one of the kinds, and about what ``key`` accepts."""
        for kind in kinds:
            for gone in [known for known in self.of(kind) if key(known)]:
                del self._of[kind][gone]

    def merge(self, other: State) -> bool:
        """Add what may be pending on another path; whether that is more."""
        more = False
        for kind, key, began in other.items():
            if not began <= self.of(kind).get(key, frozenset()):
                self.add(kind, key, *began)
                more = True
        return more

    def renamed(self, rename: Callable[[Any], Any]) -> State:
        """This where values have other names: ``rename`` gives None for what has none.

        Only of updates is it remembered what they were about in an earlier turn.
        """
        result = State()
        for kind, key, began in self.items():
            if isinstance(key, Update):
                new = key.renamed(rename)
            else:
                new = None if isinstance(name := rename(key), Earlier) else name
            result.add(kind, new, *began)
        return result

    def only(self, kind: str) -> State:
        return State({kind: dict(self.of(kind))})

    def copy(self) -> State:
        return State({kind: dict(keys) for kind, keys in self._of.items()})

    def frozen(self) -> frozenset:
        return frozenset(self.items())
