"""Words that hold floats' bits beside an integer, as an epoch by which their reader knows them (ditron/kernels/words.py).

Who stores one writes 0 for the floats, which are not known. So only a load whose low half nothing depends on may read
them: a buffer is marked when a word is stored in it, and of any other load of it nothing is known.
"""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.protocol.ir_values import constant, element_of

__all__ = ["is_low_half_of_words", "is_word", "shifts_out_low_half"]

_SPLATS = (tt.SplatOp, tt.BroadcastOp)
_PURE = (tt.BitcastOp, tt.ExpandDimsOp, tt.ReduceOp, tt.ReshapeOp, tt.TransOp, *_SPLATS)
_LOW = (1 << 32) - 1


def _scalar(op: ir.Operation) -> ir.Operation:
    """What all elements are."""
    while isinstance(op, _SPLATS):
        op = op.operands[0].owner
    return op


def _constant(value: ir.Value) -> object:
    op = _scalar(value.owner)
    return constant(op) if isinstance(op, arith.ConstantOp) else None


def _shifts(op: ir.Operation, *classes: type) -> bool:
    return isinstance(op, classes) and isinstance(by := _constant(op.operands[1]), int) and by >= 32


def _is_low_bits_of_float(op: ir.Operation) -> bool:
    """Whether it is an ``and`` that leaves 32 bits, made of a float's, of an integer that was extended."""
    if not isinstance(op, arith.AndIOp) or _constant(op.operands[1]) != _LOW:
        return False
    op = op.operands[0].owner
    return isinstance(op, (arith.ExtSIOp, arith.ExtUIOp)) and _is_made_of_float(op.operands[0])


def _is_made_of_float(value: ir.Value) -> bool:
    """Whether the bits of a float are in the value, perhaps beside others: 16 bits have half of a word."""
    seen, worklist = set(), [value]
    while worklist:
        value = worklist.pop()
        if value in seen or isinstance(value.owner, ir.Block):
            continue
        seen.add(value)
        op = value.owner
        if isinstance(op, tt.BitcastOp) and isinstance(element_of(op.operands[0].type), ir.FloatType):
            return True
        if isinstance(op, _PURE) or op.name.startswith("arith."):
            worklist.extend(op.operands)
    return False


def is_word(value: ir.Value) -> bool:
    """Whether it is an integer shifted by 32 bits or more, with floats' bits below."""
    op = _scalar(value.owner)
    if not isinstance(op, arith.OrIOp):
        return False
    for high, low in (tuple(op.operands), tuple(op.operands)[::-1]):
        if _shifts(_scalar(high.owner), arith.ShLIOp) and _is_low_bits_of_float(_scalar(low.owner)):
            return True
    return False


def is_low_half_of_words(op: ir.Operation) -> bool:
    """Whether it is floats' bits, and nothing but words that are stored is made of them."""
    if not _is_low_bits_of_float(op):
        return False
    words = [use.owner for use in _uses(op)]
    stored = [use for word in words for use in _uses(word)]
    return all(isinstance(word, arith.OrIOp) and is_word(word.results[0]) for word in words) and all(
        isinstance(use.owner, (tt.StoreOp, ditron.StOp)) and use.operand_number == 1 for use in stored
    )


def _uses(op: ir.Operation) -> list[ir.OpOperand]:
    """Where the result is used, or a tensor whose elements are all what it is, or repeat its own."""
    found = []
    for use in op.results[0].uses:
        found += _uses(use.owner) if isinstance(use.owner, _SPLATS) else [use]
    return found


def shifts_out_low_half(op: ir.Operation) -> bool:
    """Whether the result has nothing of the low 32 bits of the first operand."""
    return _shifts(op, arith.ShRSIOp, arith.ShRUIOp)
