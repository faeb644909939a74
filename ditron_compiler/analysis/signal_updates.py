"""Abstract signal updates: what is known of an update that is still unordered, and which later ones it may disturb.

The lattice element of memory-order analysis for updates: joined, an update keeps what both have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ditron_compiler import ir
from ditron_compiler.analysis.alias import may_alias, underlying_objects
from ditron_compiler.analysis.equivalence import is_injective
from ditron_compiler.analysis.linear import never_equal
from ditron_compiler.analysis.slicing import is_defined_in
from ditron_compiler.ir.dialects import arith, ditron, scf, tt
from ditron_compiler.ir.matchers import constant_int, defining_op, is_query


@dataclass(frozen=True)
class PreviousIteration:
    """What ``value`` was in an earlier iteration of ``loop``."""

    value: ir.Value
    loop: ir.Operation


AbstractValue = ir.Value | PreviousIteration | None
"""A value that has a name where the analysis is; None is unknown."""


@dataclass(frozen=True)
class SignalUpdate:
    """An update of a signal in the object ``root`` (None: any) on a rank; a ``set`` or an addition."""

    root: ir.Value | None
    is_set: bool
    signal: AbstractValue = None
    value: AbstractValue = None
    rank: AbstractValue = None

    @staticmethod
    def of(op: ditron.SignalUpdateOpInterface) -> Iterator[SignalUpdate]:
        """One for each underlying object of the signal."""
        signal, value, rank = op.signal, op.value, op.rank
        is_set = op.signal_op is ditron.SignalOp.Set
        for root in {origin.root for origin in underlying_objects(signal)}:
            yield SignalUpdate(root, is_set, signal, value, rank)

    def renamed(self, rename: Callable[[Any], Any]) -> SignalUpdate:
        return replace(self, signal=rename(self.signal), value=rename(self.value), rank=rename(self.rank))

    def may_conflict(self, later: SignalUpdate, is_same_op: bool) -> bool:
        """Whether the signal may end up with another value if ``later`` overtakes this update.

        ``is_same_op``: both are of one operation, in different iterations.
        """
        if not (self.is_set or later.is_set):
            return False  # additions commute
        if self.is_set and later.is_set and self.value is not None and self.value == later.value:
            return False
        return may_alias(self.root, [later.root]) and not (
            _are_different(self.signal, later.signal, is_same_op) or _are_different(self.rank, later.rank, is_same_op)
        )

    def join(self, other: SignalUpdate) -> SignalUpdate:
        """The update that stands for both."""

        def common(mine: Any, its: Any) -> Any:
            return mine if mine == its else None

        return SignalUpdate(
            common(self.root, other.root),
            self.is_set or other.is_set,
            common(self.signal, other.signal),
            common(self.value, other.value) if self.is_set == other.is_set else None,
            common(self.rank, other.rank),
        )


def _are_different(earlier: AbstractValue, later: ir.Value, is_same_op: bool) -> bool:
    """Whether two pointers or ranks are never equal ("must")."""
    if isinstance(earlier, PreviousIteration):
        return is_same_op and _differs_by_iteration(earlier.value, earlier.loop)
    return earlier is not None and never_equal(earlier, later)


def _differs_by_iteration(value: ir.Value, loop: ir.Operation) -> bool:
    """Whether ``value`` is an injective function of the induction variable of ``loop``."""
    if not isinstance(loop, scf.ForOp):
        return False
    modulo = False
    while value != loop.induction_variable:
        op = defining_op(value)
        inside = [] if op is None else [i for i, operand in enumerate(op.operands) if is_defined_in(operand, loop)]
        if len(inside) != 1 or not (isinstance(op, _INJECTIVE) or is_injective(op, inside[0], modulo)):
            return False
        modulo |= isinstance(op, arith.RemSIOp)
        value = op.operands[inside[0]]
    if not modulo:
        return True
    first = constant_int(loop.lowerBound)  # at most num_ranks iterations
    return first is not None and first >= 0 and is_query(loop.upperBound, ditron.NumRanksOp)


_INJECTIVE = (tt.AddPtrOp, arith.ExtSIOp, arith.ExtUIOp)
