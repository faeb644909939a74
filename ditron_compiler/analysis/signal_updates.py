"""Updates of signals that nothing has ordered yet, and whether two of them can be of the same signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ditron_compiler import ir
from ditron_compiler.analysis.alias import may_alias, underlying_objects
from ditron_compiler.analysis.equivalence import tells_apart
from ditron_compiler.analysis.linear import never_equal
from ditron_compiler.analysis.rank_variance import is_query
from ditron_compiler.analysis.slicing import is_defined_in
from ditron_compiler.ir.dialects.enums import keyword
from ditron_compiler.ir.matchers import constant_int, defining_op

__all__ = ["Earlier", "Update"]


@dataclass(frozen=True)
class Earlier:
    """What ``value`` was in an earlier turn of ``loop``."""

    value: ir.Value
    loop: ir.Operation


@dataclass(frozen=True)
class Update:
    """An update of a signal that comes from ``root`` (None: any), at a rank; ``sets`` it or adds to it.

    What is not known any more by the name of a value is None.
    """

    root: ir.Value | None
    sets: bool
    signal: ir.Value | Earlier | None = None
    value: ir.Value | Earlier | None = None
    rank: ir.Value | Earlier | None = None

    @staticmethod
    def of(op: ir.Operation) -> Iterator[Update]:
        """One for each argument that the signal may come from."""
        operands = list(op.operands)
        signal, value, rank = operands[3:] if op.name == "ditron.putmem_signal" else operands
        sets = keyword(op.attributes["op"]) == "set"
        for root in {origin.root for origin in underlying_objects(signal)}:
            yield Update(root, sets, signal, value, rank)

    def renamed(self, rename: Callable[[Any], Any]) -> Update:
        return replace(self, signal=rename(self.signal), value=rename(self.value), rank=rename(self.rank))

    def disturbs(self, later: Update, same_operation: bool) -> bool:
        """Whether ``later`` leaves something else behind when this one overtakes it."""
        if not (self.sets or later.sets):
            return False  # sums do not mind
        if self.sets and later.sets and self.value is not None and self.value == later.value:
            return False
        return may_alias(self.root, [later.root]) and not any(
            _differ(mine, its, same_operation) for mine, its in ((self.signal, later.signal), (self.rank, later.rank))
        )

    def merged(self, other: Update) -> Update:
        """What stands for both."""

        def common(mine: Any, its: Any) -> Any:
            return mine if mine == its else None

        value = common(self.value, other.value) if self.sets == other.sets else None
        return Update(
            common(self.root, other.root),
            self.sets or other.sets,
            common(self.signal, other.signal),
            value,
            common(self.rank, other.rank),
        )


def _differ(earlier: ir.Value | Earlier | None, later: ir.Value, same_operation: bool) -> bool:
    """Whether two pointers or ranks are certainly not the same."""
    if isinstance(earlier, Earlier):
        return same_operation and _changes(earlier.value, earlier.loop)
    return earlier is not None and never_equal(earlier, later)


def _changes(value: ir.Value, loop: ir.Operation) -> bool:
    """Whether ``value`` is another one at every turn of ``loop``."""
    if loop.name != "scf.for":
        return False
    counter, modulo = loop.regions[0].blocks[0].arguments[0], False
    while value != counter:
        op = defining_op(value)
        inside = [] if op is None else [i for i, operand in enumerate(op.operands) if is_defined_in(operand, loop)]
        if len(inside) != 1 or not (op.name in _LEAVES or tells_apart(op, inside[0], modulo)):
            return False
        modulo |= op.name == "arith.remsi"
        value = op.operands[inside[0]]
    if not modulo:
        return True
    first = constant_int(loop.operands[0])  # at most as many turns as there are ranks
    return first is not None and first >= 0 and is_query(loop.operands[1], "num_ranks")


_LEAVES = ("tt.addptr", "arith.extsi", "arith.extui")
