"""Dominance in structured control flow: values that are available, and tables scoped by dominance (both "must")."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ditron_compiler import ir

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def is_available(value: ir.Value, at: ir.Operation | None) -> bool:
    """Whether ``value`` is defined before ``at``, in its block or in one around it."""
    block = value.owner.block if isinstance(value, ir.OpResult) else value.owner
    while at is not None and at.block != block:
        at = at.parent
    return at is not None and (not isinstance(value, ir.OpResult) or value.owner.is_before_in_block(at))


class ScopedTable(Generic[K, V]):
    """A scoped hash table, as in LLVM's common subexpression elimination, with several values for a key."""

    def __init__(self) -> None:
        self._values: dict[K, list[V]] = {}
        self._keys: list[K] = []  # in the order of insertion

    def lookup(self, key: K) -> Sequence[V]:
        """The values that are visible here, in the order of insertion."""
        return self._values.get(key, ())

    def insert(self, key: K, value: V) -> None:
        """Make ``value`` visible to all that the current operation dominates."""
        self._values.setdefault(key, []).append(value)
        self._keys.append(key)

    def __len__(self) -> int:
        return len(self._keys)

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` entries."""
        while len(self._keys) > length:
            self._values[self._keys.pop()].pop()


def walk_in_dominance_order(region: ir.Region, table: ScopedTable[Any, Any]) -> Iterator[ir.Operation]:
    """Every operation of ``region``, after all that dominate it, and after those in its own regions.

    An entry that the caller inserts into ``table`` while it is given an operation is visible to what that operation
    dominates. In a region of several blocks only the entry block is known to dominate others.
    """
    outer = len(table)
    for index, block in enumerate(region):
        before = len(table)
        for op in list(block):
            for inner in op.regions:
                yield from walk_in_dominance_order(inner, table)
            yield op
        if index:
            table.truncate(before)
    table.truncate(outer)
