"""Who sends what a wait waits for: puts with a signal, waits, and the sender that both name.

The sender of a message names its signal by its own rank, the receiver by that of the sender: ``sig + rank`` at the put
is ``sig + peer`` at the wait, when ``peer`` has sent. Setting the two equal gives the sender; put in place of
``ditron.rank``, it gives what else the sender computed: where the data went, and how much it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.equivalence import ELSEWHERE, alike, bits, same, tells_apart, varies
from ditron_compiler.analysis.linear import Address
from ditron_compiler.analysis.rank_variance import is_query, is_within
from ditron_compiler.ir.dialects.enums import keyword
from ditron_compiler.ir.matchers import constant_int, defining_op, strip_index_casts

__all__ = ["Make", "NoMatch", "Put", "Wait", "at_sender", "sender"]


# make(name, operands, result type, attributes): the result of a new operation.
Make = Callable[[str, list[ir.Value], ir.Type, dict[str, ir.Attribute]], ir.Value]


class NoMatch(Exception):
    """Why a put and a wait cannot be brought together."""


@dataclass(frozen=True)
class Put:
    """A put and the signal behind it: one operation, or two."""

    op: ir.Operation
    notify: ir.Operation | None  # of a putmem
    dst: ir.Value
    src: ir.Value
    nbytes: ir.Value
    rank: ir.Value
    signal: ir.Value
    epoch: ir.Value

    @staticmethod
    def of(op: ir.Operation) -> Put | None:
        """The put whose signal ``op`` updates; None when ``op`` only signals."""
        if op.name == "ditron.putmem_signal":
            dst, src, nbytes, signal, epoch, rank = op.operands
            return Put(op, None, dst, src, nbytes, rank, signal, epoch)
        put = op.prev_op
        while put is not None and put.is_memory_effect_free:
            put = put.prev_op
        signal, epoch, rank = op.operands
        if put is None or put.name != "ditron.putmem" or not same(put.operands[3], rank):
            return None
        dst, src, nbytes, _ = put.operands
        return Put(put, op, dst, src, nbytes, rank, signal, epoch)

    @property
    def sets(self) -> bool:
        return keyword((self.notify or self.op).attributes["op"]) == "set"


@dataclass(frozen=True)
class Wait:
    """A wait for one signal, or for ``count`` of them from ``signal`` on."""

    op: ir.Operation

    @property
    def signal(self) -> ir.Value:
        return self.op.operands[0]

    @property
    def count(self) -> ir.Value | None:
        """None when it is known to be 1."""
        if self.op.name != "ditron.wait" or constant_int(self.op.operands[1]) == 1:
            return None
        return self.op.operands[1]

    @property
    def epoch(self) -> ir.Value:
        return self.op.operands[2 if self.op.name == "ditron.wait" else 1]


def sender(sent: Address, waited: Address, several: bool) -> ir.Value | None:
    """The rank that sends what is waited for at ``waited``; None when the place is the same for every sender.

    With ``several``, ``waited`` is the first of several signals, and those must be by rank: the result is None too.
    Raises NoMatch when the two name different signals.
    """
    own = [term for term in sent.offset.summands if varies(term)]
    others = list(waited.offset.summands)
    for term in sent.offset.summands:
        if not varies(term):
            index = next((i for i, other in enumerate(others) if same(term, other)), None)
            if index is None:
                raise NoMatch("it waits for a different signal than the put sets")
            del others[index]
    if sent.offset.constant_term != waited.offset.constant_term:
        raise NoMatch("it waits for a different signal than the put sets")
    if several:
        if others or len(own) != 1 or not _is_rank(own[0]):
            raise NoMatch(
                "a wait for several signals needs them contiguous and indexed by the sender's rank: sig + rank"
            )
        return None
    if not own and not others:
        return None
    found = _solve(own[0], others[0]) if len(own) == len(others) == 1 else None
    if found is None:
        raise NoMatch("the signal does not identify its sender; index signals by the sender's rank")
    return found


def at_sender(value: ir.Value, rank: ir.Value | None, at: ir.Operation, make: Make) -> ir.Value:
    """``value``, which the sender computes, computed anew before ``at`` with the sender's ``rank`` for its own.

    Raises NoMatch when the receiver cannot know it; ``rank`` None is a sender that is not known.
    """
    op = defining_op(value)
    if not varies(value) and _reaches(value, at):
        return value
    if op is not None and op.name == "ditron.rank" and is_query(value, "rank"):
        if rank is None:
            raise NoMatch(
                "the destination or the size depends on the sender, which the signal does not identify; index "
                "signals by the sender's rank"
            )
        return (
            rank
            if rank.type == value.type
            else make("arith.extsi" if bits(value) > bits(rank) else "arith.trunci", [rank], value.type, {})
        )
    if op is None or not op.is_memory_effect_free or op.name in ELSEWHERE or len(op.regions) or len(op.results) != 1:
        what = f"'{op.name}'" if op is not None else "a loop around the put"
        raise NoMatch(f"the destination or the size depends on {what}, which the receiver cannot rematerialize")
    operands = [at_sender(operand, rank, at, make) for operand in op.operands]
    return make(op.name, operands, value.type, {name: op.attributes[name] for name in op.attributes.keys()})


def _is_rank(value: ir.Value) -> bool:
    """Whether ``value`` is this rank's number, and not some bits of it."""
    op = defining_op(value)
    return op is not None and op.name == "ditron.rank" and is_query(value, "rank")


def _solve(sent: ir.Value, waited: ir.Value, modulo: bool = False) -> ir.Value | None:
    """What ``ditron.rank`` in ``sent`` must be for it to equal ``waited``; None when that is not seen.

    Only operations are looked through that give different results for different ranks. With ``modulo``, the two are
    equal but for a multiple of the number of ranks.
    """
    sent, waited = strip_index_casts(sent), strip_index_casts(waited)
    if _is_rank(sent):
        return waited if not modulo or is_within(waited, "num_ranks") else None
    one, other = defining_op(sent), defining_op(waited)
    if one is None or other is None or not alike(one, other):
        return None
    differ = [
        i for i, (x, y) in enumerate(zip(one.operands, other.operands, strict=True)) if varies(x) or not same(x, y)
    ]
    if len(differ) != 1 or not tells_apart(one, differ[0], modulo):
        return None
    modulo = modulo or one.name == "arith.remsi"
    return _solve(one.operands[differ[0]], other.operands[differ[0]], modulo)


def _reaches(value: ir.Value, at: ir.Operation) -> bool:
    """Whether ``value`` is there before ``at``."""
    block = value.owner.block if isinstance(value, ir.OpResult) else value.owner
    while at is not None and at.block != block:
        at = at.parent
    return at is not None and (not isinstance(value, ir.OpResult) or value.owner.is_before_in_block(at))
