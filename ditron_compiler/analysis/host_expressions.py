"""Numbers of host programs as polynomials, and their bounds on every rank of every group.

    >>> never_equal(expression(rank), expression(peer))   # peer = (rank - step + num_ranks) % num_ranks, step from 1

A symbol is ``RANK``, ``NUM_RANKS``, a dimension of a buffer, a remainder, an interval, or an SSA value that is opaque.
Numbers are 64 bits wide, and sums and products of ranks, sizes and indices are taken not to overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from ditron_compiler import ir
from ditron_compiler.analysis.linear import Monomial, NamedSymbol, Polynomial, Substitution
from ditron_compiler.ir.dialects import arith, ditron, scf
from ditron_compiler.ir.matchers import constant_int, defining_op, is_query

__all__ = [
    "NUM_RANKS",
    "RANK",
    "Dimension",
    "Interval",
    "Remainder",
    "at_least",
    "dimension",
    "expression",
    "never_equal",
    "remainder",
]

_MAX_DEPTH = 6  # of bounds that are computed from other bounds

RANK, NUM_RANKS = NamedSymbol("rank"), NamedSymbol("num_ranks")
_NUM_RANKS = Monomial((NUM_RANKS,))
_ONE = Monomial()


@dataclass(frozen=True)
class Remainder:
    """``dividend mod divisor``, in ``[0, divisor)``."""

    dividend: Polynomial
    divisor: Polynomial

    def substitute(self, substitution: Substitution) -> Polynomial:
        return remainder(self.dividend.substitute(substitution), self.divisor.substitute(substitution))


@dataclass(frozen=True)
class Dimension:
    """A size of an argument."""

    buffer: ir.Value
    index: int


@dataclass(frozen=True)
class Interval:
    """Any integer from ``low`` to ``high``, both included."""

    low: Polynomial
    high: Polynomial


def expression(value: ir.Value | int) -> Polynomial:
    """A number of a program as a polynomial."""
    if isinstance(value, int):
        return Polynomial.constant(value)
    if (number := constant_int(value)) is not None:
        return Polynomial.constant(number)
    for query, symbol in ((ditron.RankOp, RANK), (ditron.NumRanksOp, NUM_RANKS)):
        if is_query(value, query):
            return Polynomial.symbol(symbol)
    op = defining_op(value)
    if isinstance(op, arith.ExtSIOp | arith.ExtUIOp):
        return expression(op.in_)
    if type(op) in _COMBINED:
        return _COMBINED[type(op)](expression(op.lhs), expression(op.rhs))
    if isinstance(op, arith.RemSIOp):
        dividend, divisor = expression(op.lhs), expression(op.rhs)
        if at_least(dividend, 0):
            return remainder(dividend, divisor)
    if isinstance(op, ditron.DimOp):
        return dimension(op.source, op.dimension.value)
    return Polynomial.symbol(value)


_COMBINED: dict[type, Callable[[Polynomial, Polynomial], Polynomial]] = {
    arith.AddIOp: lambda a, b: a + b,
    arith.SubIOp: lambda a, b: a - b,
    arith.MulIOp: lambda a, b: a * b,
}


def dimension(buffer: ir.Value, index: int) -> Polynomial:
    """The size of a buffer along a dimension."""
    size = buffer.type.shape[index]
    if size != ir.ShapedType.get_dynamic_size():
        return Polynomial.constant(size)
    op = defining_op(buffer)
    if isinstance(op, ditron.AllocOp | ditron.SliceOp):
        sizes = op.mixed_sizes
        return expression(sizes[len(sizes) - buffer.type.rank + index])
    return Polynomial.symbol(Dimension(buffer, index))


def remainder(dividend: Polynomial, divisor: Polynomial) -> Polynomial:
    """``dividend mod divisor``, simplified: without multiples of the divisor and nested remainders by it."""
    flat = dividend.substitute(lambda symbol: _dividend(symbol, divisor))
    if len(divisor.terms) == 1 and divisor.value is None:
        ((product, factor),) = divisor.terms.items()
        flat = Polynomial({m: c for m, c in flat.terms.items() if m != product or c % factor})
    elif divisor.value:
        flat = Polynomial({m: c % divisor.value for m, c in flat.terms.items()})
    if at_least(flat, 0) and at_least(divisor - 1 - flat, 0):
        return flat
    return Polynomial.symbol(Remainder(flat, divisor))


def _dividend(symbol: Hashable, divisor: Polynomial) -> Polynomial | None:
    """The dividend of a symbol that is itself a remainder by ``divisor``."""
    return symbol.dividend if isinstance(symbol, Remainder) and symbol.divisor == divisor else None


# --- bounds -----------------------------------------------------------------------------------------------------------


def at_least(polynomial: Polynomial, bound: int, depth: int = _MAX_DEPTH) -> bool:
    """Whether ``polynomial >= bound`` in every group; False when that is not known."""
    lowest = _lower_bound(polynomial - bound, depth)
    if lowest is None:
        return False
    terms = dict(lowest.terms)
    ranks = terms.pop(_NUM_RANKS, 0)  # of which there is at least one
    return ranks >= 0 and terms.keys() <= {_ONE} and ranks + terms.get(_ONE, 0) >= 0


def _lower_bound(polynomial: Polynomial, depth: int) -> Polynomial | None:
    """A lower bound made of integers and ``NUM_RANKS``."""
    result, again = Polynomial.constant(0), False
    # An interval's ends are made of other symbols of the sum, with which they may cancel: intervals come first.
    first = any(isinstance(symbol, Interval) for symbol in polynomial.symbols)
    for product, factor in polynomial.terms.items():
        if product in (_ONE, _NUM_RANKS) or first and len(product) == 1 and not isinstance(product[0], Interval):
            result += Polynomial({product: factor})
        elif len(product) == 1:
            bound = _bounds(product[0])[0 if factor > 0 else 1]
            if bound is None:
                return None
            result += bound * factor
            again = True
        elif factor < 0 or not all(at_least(Polynomial.symbol(s), 0, depth - 1) for s in product if depth > 0):
            return None
    if not again:
        return result
    return _lower_bound(result, depth - 1) if depth > 0 else None


def _bounds(symbol: Any) -> tuple[Polynomial | None, Polynomial | None]:
    """The least and the greatest value of a symbol."""
    if symbol == RANK:
        return Polynomial.constant(0), Polynomial.symbol(NUM_RANKS) - 1
    if symbol == NUM_RANKS:
        return Polynomial.constant(1), None
    if isinstance(symbol, Interval):
        return symbol.low, symbol.high
    if isinstance(symbol, Dimension):
        return Polynomial.constant(0), None
    if isinstance(symbol, Remainder):
        return Polynomial.constant(0), symbol.divisor - 1
    if not isinstance(symbol, ir.Value):
        return None, None
    op = defining_op(symbol)
    if op is None:
        loop = symbol.owner.owner
        if isinstance(loop, scf.ForOp) and symbol.arg_number == 0 and (constant_int(loop.step) or 0) > 0:
            return expression(loop.lowerBound), expression(loop.upperBound) - 1
        return None, None
    return (Polynomial.constant(1), None) if isinstance(op, ditron.EpochOp) else (None, None)


def never_equal(a: Polynomial, b: Polynomial) -> bool:
    """Whether two numbers differ on every rank of every group; False when that is not known."""
    if a == b:
        return False
    if at_least(a - b, 1) or at_least(b - a, 1):
        return True
    for divisor in _divisors((a, b)):
        # Both lie in [0, divisor): they differ when the difference modulo the divisor is not 0.
        if all(at_least(x, 0) and at_least(divisor - 1 - x, 0) for x in (a, b)):
            distance = (a - b).substitute(lambda symbol, divisor=divisor: _dividend(symbol, divisor))
            distance = Polynomial({m: c for m, c in distance.terms.items() if Polynomial({m: 1}) != divisor})
            for d in (distance, -distance):
                if at_least(d, 1) and at_least(divisor - 1 - d, 0):
                    return True
            # -1 is num_ranks - 1, which is 0 in a group of one only: there no two ranks exist.
            if distance.value in (1, -1) and divisor == Polynomial.symbol(NUM_RANKS):
                return True
    return False


def _divisors(polynomials: Iterable[Polynomial]) -> list[Polynomial]:
    symbols = (symbol for polynomial in polynomials for symbol in polynomial.symbols)
    return list(dict.fromkeys(symbol.divisor for symbol in symbols if isinstance(symbol, Remainder)))
