"""What ``arith`` operations mean for Python numbers: integers wrap at their width and are signed, but i1 is 0 or 1."""

from __future__ import annotations

import operator
from collections.abc import Callable

from ditron_compiler import ir

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
BINARY: dict[str, Callable[[int, int, int], int]] = {
    "arith.addi": lambda a, b, _: a + b,
    "arith.subi": lambda a, b, _: a - b,
    "arith.muli": lambda a, b, _: a * b,
    "arith.divsi": lambda a, b, _: _quotient(a, b),
    "arith.remsi": lambda a, b, _: a - b * _quotient(a, b),
    "arith.floordivsi": lambda a, b, _: a // b,
    "arith.ceildivsi": lambda a, b, _: -(-a // b),
    "arith.divui": _unsigned_too(operator.floordiv),
    "arith.remui": _unsigned_too(operator.mod),
    "arith.ceildivui": _unsigned_too(lambda a, b: -(-a // b)),
    "arith.andi": lambda a, b, _: a & b,
    "arith.ori": lambda a, b, _: a | b,
    "arith.xori": lambda a, b, _: a ^ b,
    "arith.shli": lambda a, b, width: a << _bits(b, width),
    "arith.shrsi": lambda a, b, width: a >> _bits(b, width),
    "arith.shrui": lambda a, b, width: _unsigned(a, width) >> _bits(b, width),
    "arith.minsi": lambda a, b, _: min(a, b),
    "arith.maxsi": lambda a, b, _: max(a, b),
    "arith.minui": _unsigned_too(min),
    "arith.maxui": _unsigned_too(max),
}

#: Operation -> function of the operand and its width; as above.
CASTS: dict[str, Callable[[int, int], int]] = {
    "arith.extsi": lambda a, width: -a if width == 1 else a,
    "arith.extui": _unsigned,
    "arith.trunci": lambda a, _: a,
    "arith.index_cast": lambda a, _: a,
    "arith.index_castui": _unsigned,
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
