"""``arith`` operations on Python numbers: integers wrap at their width and are signed, but i1 is 0 or 1."""

from __future__ import annotations

import operator
from collections.abc import Callable

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith

__all__ = ["BINARY", "CASTS", "compare", "width_of", "wrap"]


def wrap(value: int, width: int) -> int:
    """``value`` in ``width`` bits."""
    value &= (1 << width) - 1
    return value if width == 1 or value < 1 << (width - 1) else value - (1 << width)


def _unsigned(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


def _quotient(a: int, b: int) -> int:
    """Division that rounds to zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _unsigned_too(function: Callable[[int, int], int]) -> Callable[[int, int, int], int]:
    return lambda a, b, width: function(_unsigned(a, width), _unsigned(b, width))


def _bits(count: int, width: int) -> int:
    if not 0 <= count < width:
        raise ValueError(f"shifted by {count} bits")
    return count


#: Operation -> function of both operands and the width; ZeroDivisionError for a division by zero, ValueError for a
#: shift by less than 0 bits or by all of them. The result may be beyond the width.
BINARY: dict[type, Callable[[int, int, int], int]] = {
    arith.AddIOp: lambda a, b, _: a + b,
    arith.SubIOp: lambda a, b, _: a - b,
    arith.MulIOp: lambda a, b, _: a * b,
    arith.DivSIOp: lambda a, b, _: _quotient(a, b),
    arith.RemSIOp: lambda a, b, _: a - b * _quotient(a, b),
    arith.FloorDivSIOp: lambda a, b, _: a // b,
    arith.CeilDivSIOp: lambda a, b, _: -(-a // b),
    arith.DivUIOp: _unsigned_too(operator.floordiv),
    arith.RemUIOp: _unsigned_too(operator.mod),
    arith.CeilDivUIOp: _unsigned_too(lambda a, b: -(-a // b)),
    arith.AndIOp: lambda a, b, _: a & b,
    arith.OrIOp: lambda a, b, _: a | b,
    arith.XOrIOp: lambda a, b, _: a ^ b,
    arith.ShLIOp: lambda a, b, width: a << _bits(b, width),
    arith.ShRSIOp: lambda a, b, width: a >> _bits(b, width),
    arith.ShRUIOp: lambda a, b, width: _unsigned(a, width) >> _bits(b, width),
    arith.MinSIOp: lambda a, b, _: min(a, b),
    arith.MaxSIOp: lambda a, b, _: max(a, b),
    arith.MinUIOp: _unsigned_too(min),
    arith.MaxUIOp: _unsigned_too(max),
}

#: Operation -> function of the operand and its width.
CASTS: dict[type, Callable[[int, int], int]] = {
    arith.ExtSIOp: lambda a, width: -a if width == 1 else a,
    arith.ExtUIOp: _unsigned,
    arith.TruncIOp: lambda a, _: a,
    arith.IndexCastOp: lambda a, _: a,
    arith.IndexCastUIOp: _unsigned,
}

_PREDICATES = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


def compare(predicate: int, width: int) -> Callable[[int, int], int]:
    """The comparison of ``arith.cmpi``: eq ne slt sle sgt sge, then ult ule ugt uge."""
    if predicate < 6:
        function = _PREDICATES[predicate]
        if width == 1:  # a true i1 is -1 where numbers are signed
            return lambda a, b: int(function(-a, -b))
        return lambda a, b: int(function(a, b))
    function = _PREDICATES[predicate - 4]
    return lambda a, b: int(function(_unsigned(a, width), _unsigned(b, width)))


def width_of(kind: ir.Type) -> int:
    """Bits of an integer type; 64 for index."""
    return kind.width if isinstance(kind, ir.IntegerType) else 64
