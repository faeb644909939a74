"""Words that hold a float's bits beside an integer, as an epoch by which their reader knows them (exchange.py).

Who stores one writes 0 for the float, which is not known. So only a load whose low half nothing depends on may read
them: a buffer is marked when a word is stored in it, and of any other load of it nothing is known.
"""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.protocol.ir_values import constant, element_of

__all__ = ["is_low_half_of_words", "is_word", "shifts_out_low_half"]

_SPLATS = (tt.SplatOp, tt.BroadcastOp)
_KEEPS_BITS = (arith.ExtSIOp, arith.ExtUIOp, *_SPLATS, tt.ReshapeOp, tt.ExpandDimsOp)
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
    """Whether it is an ``and`` that leaves the 32 bits of a float of an integer that was extended."""
    if not isinstance(op, arith.AndIOp) or _constant(op.operands[1]) != _LOW:
        return False
    op = op.operands[0].owner
    if not isinstance(op, (arith.ExtSIOp, arith.ExtUIOp)):
        return False
    while isinstance(op, _KEEPS_BITS):
        op = op.operands[0].owner
    return isinstance(op, tt.BitcastOp) and str(element_of(op.operands[0].type)) == "f32"


def is_word(value: ir.Value) -> bool:
    """Whether it is an integer shifted by 32 bits or more, with a float's bits below."""
    op = value.owner
    if not isinstance(op, arith.OrIOp):
        return False
    for high, low in (tuple(op.operands), tuple(op.operands)[::-1]):
        if _shifts(_scalar(high.owner), arith.ShLIOp) and _is_low_bits_of_float(low.owner):
            return True
    return False


def is_low_half_of_words(op: ir.Operation) -> bool:
    """Whether it is a float's bits, and nothing but words that are stored is made of them."""
    if not _is_low_bits_of_float(op):
        return False
    words = [use.owner for use in op.results[0].uses]
    return all(
        isinstance(word, arith.OrIOp)
        and is_word(word.results[0])
        and all(
            isinstance(use.owner, (tt.StoreOp, ditron.StOp)) and use.operand_number == 1 for use in word.results[0].uses
        )
        for word in words
    )


def shifts_out_low_half(op: ir.Operation) -> bool:
    """Whether the result has nothing of the low 32 bits of the first operand."""
    return _shifts(op, arith.ShRSIOp, arith.ShRUIOp)
