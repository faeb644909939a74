"""Divisibility of integers and addresses by powers of two, as in Triton's axis analysis."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import gcd

from ditron_compiler import ir
from ditron_compiler.analysis.alias import SAME_OBJECT
from ditron_compiler.analysis.slicing import incoming_values
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.ir.matchers import INTEGER_CASTS, constant_int, defining_op

__all__ = ["divisibility", "pointee_bytes"]

_ANY = 1 << 30  # the divisibility of 0


def divisibility(value: ir.Value) -> int:
    """The largest known power of two that divides ``value``, an integer or an address in bytes; 1 when none is known.

    Of a tensor, that divides its first element.
    """
    return max(_divisibility(value, set()), 1)


def _divisibility(value: ir.Value, open_loops: set[ir.Value]) -> int:
    if value in open_loops:
        return _ANY  # carried by a loop that is being looked at: its initial value decides
    op = defining_op(value)
    if op is None:
        function = value.owner.owner
        if isinstance(function, tt.FuncOp):
            return _of_argument(function, value.arg_number)
    else:
        if "tt.divisibility" in op.attributes:
            return _annotated(op.attributes["tt.divisibility"])
        if (number := constant_int(value)) is not None:
            return _power(number)
        if type(op) in _COMBINED:
            return _COMBINED[type(op)](*(_divisibility(operand, open_loops) for operand in op.operands))
        if isinstance(op, tt.AddPtrOp):
            base, offset = (_divisibility(operand, open_loops) for operand in (op.ptr, op.offset))
            return gcd(base, offset * pointee_bytes(op.ptr.type))
        if isinstance(op, (*SAME_OBJECT, *INTEGER_CASTS, ditron.SymmAtOp)):
            return _divisibility(op.operands[0], open_loops)
    incoming = incoming_values(value)
    return gcd(*(_divisibility(source, open_loops | {value}) for source in incoming)) if incoming else 1


_COMBINED: dict[type, Callable[[int, int], int]] = {
    arith.AddIOp: gcd,
    arith.SubIOp: gcd,
    arith.MinSIOp: gcd,
    arith.MaxSIOp: gcd,
    arith.MulIOp: lambda a, b: min(a * b, _ANY),
}


def _of_argument(function: ir.Operation, index: int) -> int:
    if "arg_attrs" not in function.attributes:
        return 1
    arguments = ir.ArrayAttr(function.attributes["arg_attrs"])
    known = ir.DictAttr(arguments[index]) if index < len(arguments) else {}
    return _annotated(known["tt.divisibility"]) if "tt.divisibility" in known else 1


def _annotated(attribute: ir.Attribute) -> int:
    """What Triton's ``tt.divisibility`` says: an integer, or a vector of one per dimension."""
    if ir.IntegerAttr.isinstance(attribute):
        return _power(ir.IntegerAttr(attribute).value)
    return _power(gcd(*ir.DenseIntElementsAttr(attribute)))


def _power(number: int) -> int:
    """The largest power of two that divides ``number``; arithmetic that wraps around keeps it."""
    return number & -number if number else _ANY


def pointee_bytes(type_: ir.Type) -> int:
    """The bytes of what a pointer, or each of a tensor of them, points to."""
    bits = re.search(r"!tt\.ptr<[a-z]+(\d+)", str(type_))
    return max(int(bits[1]) // 8, 1) if bits else 1
