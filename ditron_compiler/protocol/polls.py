"""Loops that read one integer until a comparison holds: they wait as ``dl.wait`` does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, ditron, scf, tt
from ditron_compiler.protocol.effects import effect_of
from ditron_compiler.protocol.ir_values import constant

__all__ = ["Poll", "loop_of_looks", "poll_of", "waits_for_words"]

_KEEP_WITH_ZERO = (tt.RMWOp.ADD, tt.RMWOp.OR, tt.RMWOp.XOR)
_CASTS = (arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp)
_P = arith.CmpIPredicate
#: The comparison that ends a loop which goes on while this one holds.
_UNTIL = {
    _P.eq: "ne", _P.ne: "eq", _P.slt: "ge", _P.sle: "gt", _P.sgt: "le", _P.sge: "lt",
    _P.ult: "ge", _P.ule: "gt", _P.ugt: "le", _P.uge: "lt",
}  # fmt: skip
_SWAPPED = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt", "eq": "eq", "ne": "ne"}


@dataclass(frozen=True)
class Poll:
    """``read`` is repeated until what it reads compares to ``bound`` as ``until`` says."""

    read: ir.Operation
    until: str
    bound: ir.Value


def poll_of(loop: scf.WhileOp) -> Poll | None:
    """The poll that a loop is: nothing but one atomic read and its comparison."""
    before, after = (region.blocks[0] for region in loop.regions)
    effects = [op for op in (*before.operations, *after.operations) if effect_of(op) is not None]
    effects = [op for op in effects if not isinstance(op, (ditron.SymmAtOp, ditron.MulticastPtrOp))]
    compare = next((op for op in before.operations if loop_condition(before) in list(op.results)), None)
    if len(effects) != 1 or not _only_reads(effects[0]) or not isinstance(compare, arith.CmpIOp):
        return None
    (read,) = effects
    made = {result: op for op in before.operations for result in op.results}
    for value, other, swapped in ((compare.lhs, compare.rhs, False), (compare.rhs, compare.lhs, True)):
        while isinstance(made.get(value), _CASTS):
            value = made[value].operands[0]
        if value == read.results[0] and other not in list(before.arguments):
            until = _UNTIL[compare.predicate]
            return Poll(read, _SWAPPED[until] if swapped else until, other)
    return None


def waits_for_words(loop: ir.Operation, words: ir.Value) -> bool:
    """Whether a ``while`` loop goes on as long as any of the words (words.py) that it carries is not there.

    That is 0 for data words, and another high half than a given one for flagged words.
    """
    if not isinstance(loop, scf.WhileOp):
        return False
    compare = loop_condition(loop.regions[0].blocks[0]).owner
    if not isinstance(compare, arith.CmpIOp):
        return False
    if not ir.RankedTensorType.isinstance(words.type):
        return _is_missing(compare, words, True)
    if not _is_zero(compare.rhs) or compare.predicate not in (_P.ne, _P.sgt, _P.eq):
        return False
    goes_on_while_any = compare.predicate is not _P.eq  # is missing, else while not all are there
    value, is_reduced = compare.lhs, False
    while isinstance(value.owner, (*_CASTS, tt.ReshapeOp, tt.ReduceOp)):
        if isinstance(value.owner, tt.ReduceOp):
            if not _combines(value.owner, *(_ANY if goes_on_while_any else _ALL)):
                return False
            is_reduced = True
        value = value.owner.operands[0]
    return is_reduced and _is_missing(value.owner, words, goes_on_while_any)


_ANY = (arith.MaxSIOp, arith.OrIOp, arith.AddIOp)
_ALL = (arith.MinSIOp, arith.AndIOp)


def _combines(reduce: tt.ReduceOp, *classes: type) -> bool:
    body = list(reduce.regions[0].blocks[0].operations)
    return len(reduce.operands) == 1 and len(body) == 2 and isinstance(body[0], classes)


def _is_missing(compare: ir.Operation, words: ir.Value, missing: bool) -> bool:
    """Whether a comparison says of each of ``words`` whether it is ``missing``, or whether it is there."""
    if not isinstance(compare, arith.CmpIOp):
        return False
    value, is_flagged = compare.lhs, False
    while isinstance(value.owner, (*_CASTS, arith.ShRSIOp, arith.ShRUIOp)):
        is_flagged |= not isinstance(value.owner, _CASTS)
        value = value.owner.operands[0]
    if value != words or not is_flagged and not _is_zero(compare.rhs):
        return False
    is_one = not ir.RankedTensorType.isinstance(words.type) or isinstance(
        compare.rhs.owner, (tt.SplatOp, arith.ConstantOp)
    )
    return is_one and compare.predicate is (_P.ne if is_flagged == missing else _P.eq)


def loop_of_looks(read: ir.Operation) -> ir.Operation | None:
    """The innermost loop around a read of a flag, if all that it does is to read flags, and it is no poll."""
    loop = read.parent
    while isinstance(loop, scf.IfOp):
        loop = loop.parent
    if not isinstance(loop, (scf.ForOp, scf.WhileOp)) or not _looks(read):
        return None
    if isinstance(loop, scf.WhileOp) and poll_of(loop) is not None:
        return None
    return loop if all(_looks(op) for op in _effects_in(loop)) else None


def _looks(op: ir.Operation) -> bool:
    return isinstance(op, ditron.SignalFetchOp) or _only_reads(op)


def _effects_in(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if isinstance(inner, tt.CallOp) or (
                    effect_of(inner) is not None and not isinstance(inner, (ditron.SymmAtOp, ditron.MulticastPtrOp))
                ):
                    yield inner
                yield from _effects_in(inner)


def _only_reads(op: ir.Operation) -> bool:
    """Whether it is an atomic load, or an update that changes nothing: adds 0, or swaps a value for itself."""
    if isinstance(op, ditron.LdOp):
        return True
    if isinstance(op, (tt.AtomicCASOp, ditron.AtomicCasOp)):
        expected, desired = list(op.operands)[1:3]
        return expected == desired or _constant(expected) == _constant(desired) is not None
    if isinstance(op, ditron.AtomicAddOp):
        return _is_zero(op.value)
    return isinstance(op, tt.AtomicRMWOp) and op.atomic_rmw_op in _KEEP_WITH_ZERO and _is_zero(op.val)


def _is_zero(value: ir.Value) -> bool:
    return _constant(value) == 0


def _constant(value: ir.Value) -> object:
    return constant(value.owner) if isinstance(value.owner, arith.ConstantOp) else None


def loop_condition(before: ir.Block) -> ir.Value:
    """The condition of a ``while`` loop, by its block."""
    return before.terminator.condition
