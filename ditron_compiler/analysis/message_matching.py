"""Message matching: which rank sends the message that a wait is for ("must": a match that is found is the only one).

The sender indexes its signal by its own rank, the receiver by the sender's: ``sig + rank`` at the put is ``sig + peer``
at the wait, if ``peer`` has sent. Solving for the sender's rank and substituting it for ``ditron.rank`` gives what else
the sender has computed: the destination and the size of the message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.dominance import is_available
from ditron_compiler.analysis.equivalence import (
    bit_width,
    is_equivalent,
    is_injective,
    is_same_operation,
)
from ditron_compiler.analysis.integer_range import is_below
from ditron_compiler.analysis.linear import Address
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.analysis.rank_variance import RANK_LOCAL, is_rank_variant
from ditron_compiler.ir.dialects import arith, ditron
from ditron_compiler.ir.matchers import constant_int, defining_op, is_query, strip_index_casts

# create(name, operands, result type, attributes): the result of a new operation.
CreateOp = Callable[[str, list[ir.Value], ir.Type, dict[str, ir.Attribute]], ir.Value]


@dataclass(frozen=True)
class SignaledPut:
    """A put and the update of the signal after it: one operation, or two."""

    put: ditron.PutmemOp | ditron.PutmemSignalOp
    update: ditron.SignalUpdateOpInterface

    @staticmethod
    def of(update: ditron.SignalUpdateOpInterface) -> SignaledPut | None:
        """The put whose data ``update`` signals; None if there is none."""
        if isinstance(update, ditron.PutmemSignalOp):
            return SignaledPut(update, update)
        put = update.prev_op
        while put is not None and put.is_memory_effect_free:
            put = put.prev_op
        if not isinstance(put, ditron.PutmemOp) or not is_equivalent(put.rank, update.rank):
            return None
        return SignaledPut(put, update)


def signal_count(wait: ditron.SignalWaitOpInterface) -> ir.Value | None:
    """The number of signals of a wait; None if it is known to be 1."""
    return None if wait.count is None or constant_int(wait.count) == 1 else wait.count


def match_sender(sent: Address, awaited: Address, several: bool) -> ir.Value | None:
    """The rank that sends the message for ``awaited``; None if the index does not depend on the sender.

    With ``several``, ``awaited`` is the first of several signals, which must be indexed by rank; the result is None.
    Raises MatchFailure if the two are different signals.
    """
    variant = [term for term in sent.offset.summands if is_rank_variant(term)]
    others = list(awaited.offset.summands)
    for term in sent.offset.summands:
        if not is_rank_variant(term):
            index = next((i for i, other in enumerate(others) if is_equivalent(term, other)), None)
            if index is None:
                raise MatchFailure("it waits for a different signal than the put sets")
            del others[index]
    if sent.offset.constant_term != awaited.offset.constant_term:
        raise MatchFailure("it waits for a different signal than the put sets")
    if several:
        if others or len(variant) != 1 or not _is_own_rank(variant[0]):
            raise MatchFailure(
                "a wait for several signals needs them contiguous and indexed by the sender's rank: sig + rank"
            )
        return None
    if not variant and not others:
        return None
    sender = _solve_for_rank(variant[0], others[0]) if len(variant) == len(others) == 1 else None
    if sender is None:
        raise MatchFailure("the signal does not identify its sender; index signals by the sender's rank")
    return sender


def rematerialize(value: ir.Value, rank: ir.Value | None, at: ir.Operation, create: CreateOp) -> ir.Value:
    """``value``, as the sender computes it, computed before ``at`` with the sender's ``rank`` for its own.

    Raises MatchFailure if the receiver cannot compute it; ``rank`` is None if the sender is not known.
    """
    op = defining_op(value)
    if not is_rank_variant(value) and is_available(value, at):
        return value
    if _is_own_rank(value):
        if rank is None:
            raise MatchFailure(
                "the destination or the size depends on the sender, which the signal does not identify; index "
                "signals by the sender's rank"
            )
        if rank.type == value.type:
            return rank
        cast = arith.ExtSIOp if bit_width(value) > bit_width(rank) else arith.TruncIOp
        return create(cast.OPERATION_NAME, [rank], value.type, {})
    if (
        op is None
        or not op.is_memory_effect_free
        or isinstance(op, RANK_LOCAL)
        or len(op.regions)
        or len(op.results) != 1
    ):
        what = f"'{op.name}'" if op is not None else "a loop around the put"
        raise MatchFailure(f"the destination or the size depends on {what}, which the receiver cannot rematerialize")
    operands = [rematerialize(operand, rank, at, create) for operand in op.operands]
    return create(op.name, operands, value.type, {name: op.attributes[name] for name in op.attributes.keys()})


def _is_own_rank(value: ir.Value) -> bool:
    """Whether ``value`` is the result of ``ditron.rank`` itself, not cast."""
    return isinstance(defining_op(value), ditron.RankOp) and is_query(value, ditron.RankOp)


def _solve_for_rank(sent: ir.Value, awaited: ir.Value, modulo: bool = False) -> ir.Value | None:
    """What ``ditron.rank`` in ``sent`` must be for ``sent`` to equal ``awaited``; None if no solution is found.

    Only injective operations are looked through. With ``modulo``, the two are equal modulo the number of ranks.
    """
    sent, awaited = strip_index_casts(sent), strip_index_casts(awaited)
    if _is_own_rank(sent):
        return awaited if not modulo or is_below(awaited, ditron.NumRanksOp) else None
    one, other = defining_op(sent), defining_op(awaited)
    if one is None or other is None or not is_same_operation(one, other):
        return None
    different = [
        i
        for i, (x, y) in enumerate(zip(one.operands, other.operands, strict=True))
        if is_rank_variant(x) or not is_equivalent(x, y)
    ]
    if len(different) != 1 or not is_injective(one, different[0], modulo):
        return None
    modulo = modulo or isinstance(one, arith.RemSIOp)
    return _solve_for_rank(one.operands[different[0]], other.operands[different[0]], modulo)
