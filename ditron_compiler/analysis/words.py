"""Words that hold floats' bits and tell a reader that they are there (ditron/kernels/words.py).

A flagged word has an integer in its high half, as an epoch by which readers know it; a data word has only
floats' bits, and is anything but 0. Where floats are not known, or not computed, who stores a word writes 0 for the low
half of the one, and 1 for the other. So only a load of which nothing but the high half is needed may read flagged
words, and only one that is compared with 0 data words: of any other load of the same buffer nothing is known.
"""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis.costs import is_float
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.ir.matchers import constant_int, defining_op

__all__ = [
    "compares_with_zero",
    "is_data_word",
    "is_low_half_of_words",
    "shifts_out_low_half",
    "word_kind",
]

_SPLATS = (tt.SplatOp, tt.BroadcastOp)
_PURE = (tt.BitcastOp, tt.ExpandDimsOp, tt.ReduceOp, tt.ReshapeOp, tt.TransOp, *_SPLATS)
_EXTENSIONS = (arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp)
_BITWISE = (arith.AndIOp, arith.MulIOp, arith.OrIOp, arith.ShLIOp, arith.XOrIOp, *_EXTENSIONS)
_EQUALITY = (arith.CmpIPredicate.eq, arith.CmpIPredicate.ne)
_LOW = (1 << 32) - 1


def _element(value: ir.Value) -> ir.Value:
    """What all elements are, or what they repeat."""
    while isinstance(op := defining_op(value), _SPLATS):
        value = op.operands[0]
    return value


def _shifts(op: ir.Operation | None, *classes: type) -> bool:
    if not isinstance(op, classes):
        return False
    by = constant_int(_element(op.operands[1]))
    return by is not None and by >= 32


def _is_low_bits_of_float(op: ir.Operation | None) -> bool:
    """Whether it is an ``and`` that leaves 32 bits, made of a float's, of an integer that was extended."""
    if not isinstance(op, arith.AndIOp) or constant_int(_element(op.operands[1])) != _LOW:
        return False
    op = defining_op(op.operands[0])
    return isinstance(op, (arith.ExtSIOp, arith.ExtUIOp)) and _is_made_of_float(op.operands[0])


def _is_made_of_float(value: ir.Value) -> bool:
    """Whether the value is the bits of floats, and of nothing else: 16 bits have half of a word."""
    seen, worklist, is_float_there = set(), [value], False
    while worklist:
        value = worklist.pop()
        if value in seen:
            continue
        seen.add(value)
        op = defining_op(value)
        if isinstance(op, tt.BitcastOp) and is_float(op.operands[0].type):
            is_float_there = True
        elif isinstance(op, (*_PURE, *_BITWISE)):
            worklist.extend(op.operands)
        elif not isinstance(op, (arith.ConstantOp, tt.MakeRangeOp)):
            return False
    return is_float_there


def word_kind(value: ir.Value) -> str:
    """``"flagged"`` or ``"data"``, as the value that is stored is such a word; ``""`` for neither."""
    if _is_flagged_word(value):
        return "flagged"
    op = defining_op(_element(value))
    return "data" if op is not None and is_data_word(op) else ""


def _is_flagged_word(value: ir.Value) -> bool:
    """Whether it is an integer shifted by 32 bits or more, with floats' bits below."""
    op = defining_op(_element(value))
    if not isinstance(op, arith.OrIOp):
        return False
    for high, low in (tuple(op.operands), tuple(op.operands)[::-1]):
        if _shifts(defining_op(_element(high)), arith.ShLIOp) and _is_low_bits_of_float(defining_op(_element(low))):
            return True
    return False


def is_low_half_of_words(op: ir.Operation) -> bool:
    """Whether it is floats' bits, and nothing but words that are stored is made of them."""
    if not _is_low_bits_of_float(op):
        return False
    words = [use.owner for use in _uses(op)]
    if not all(isinstance(word, arith.OrIOp) and _is_flagged_word(word.results[0]) for word in words):
        return False
    return all(_is_only_stored(word) for word in words)


def is_data_word(op: ir.Operation) -> bool:
    """Whether it is floats' bits, or another number where these are 0, and is only stored."""
    if not isinstance(op, arith.SelectOp):
        return False
    compare, instead = defining_op(op.condition), constant_int(_element(op.true_value))
    if not isinstance(compare, arith.CmpIOp) or compare.predicate is not arith.CmpIPredicate.eq or not instead:
        return False
    return (
        compare.lhs == op.false_value
        and constant_int(_element(compare.rhs)) == 0
        and _is_made_of_float(op.false_value)
        and _is_only_stored(op)
    )


def _is_only_stored(op: ir.Operation) -> bool:
    return all(isinstance(use.owner, (tt.StoreOp, ditron.StOp)) and use.operand_number == 1 for use in _uses(op))


def _uses(op: ir.Operation) -> list[ir.OpOperand]:
    """Where the result is used, or a tensor whose elements are all what it is, or repeat its own."""
    found = []
    for use in op.results[0].uses:
        found += _uses(use.owner) if isinstance(use.owner, _SPLATS) else [use]
    return found


def shifts_out_low_half(op: ir.Operation) -> bool:
    """Whether the result has nothing of the low 32 bits of the first operand."""
    return _shifts(op, arith.ShRSIOp, arith.ShRUIOp)


def compares_with_zero(op: ir.Operation) -> bool:
    """Whether the result is whether the first operand is 0."""
    return isinstance(op, arith.CmpIOp) and op.predicate in _EQUALITY and constant_int(_element(op.rhs)) == 0
