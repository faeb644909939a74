"""Numbers of host programs as polynomials, and what can be said of them for every rank and group.

    >>> never_equal(expression(rank), expression(peer))   # peer = (rank - step + num_ranks) % num_ranks, step from 1

An atom is ``RANK``, ``NUM_RANKS``, a dimension of a buffer, a remainder, or a value that nothing more is known of.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from ditron_compiler import ir
from ditron_compiler.analysis.rank_variance import is_query
from ditron_compiler.ir.matchers import constant_int, defining_op

__all__ = [
    "NUM_RANKS",
    "RANK",
    "Dimension",
    "Index",
    "Poly",
    "Remainder",
    "at_least",
    "dimension",
    "expression",
    "never_equal",
    "remainder",
]

_DEPTH = 6  # of bounds that are made of other bounds


@dataclass(frozen=True)
class Poly:
    """A sum of products of atoms; ``terms`` has the coefficient of each product, which is a sorted tuple of atoms."""

    terms: frozenset[tuple[tuple[Hashable, ...], int]]

    @classmethod
    def of(cls, terms: dict[tuple[Hashable, ...], int]) -> Poly:
        return cls(frozenset((product, factor) for product, factor in terms.items() if factor))

    @classmethod
    def atom(cls, atom: Hashable) -> Poly:
        return cls.of({(atom,): 1})

    @classmethod
    def number(cls, value: int) -> Poly:
        return cls.of({(): value})

    def __add__(self, other: Poly | int) -> Poly:
        terms = dict(self.terms)
        for product, factor in _poly(other).terms:
            terms[product] = terms.get(product, 0) + factor
        return Poly.of(terms)

    def __neg__(self) -> Poly:
        return Poly.of({product: -factor for product, factor in self.terms})

    def __sub__(self, other: Poly | int) -> Poly:
        return self + -_poly(other)

    def __mul__(self, other: Poly | int) -> Poly:
        terms: dict[tuple[Hashable, ...], int] = {}
        for p, f in self.terms:
            for q, g in _poly(other).terms:
                product = tuple(sorted(p + q, key=hash)) if p and q else p or q
                terms[product] = terms.get(product, 0) + f * g
        return Poly.of(terms)

    @property
    def value(self) -> int | None:
        """The number that this is, if it is one."""
        terms = dict(self.terms)
        return terms.get((), 0) if set(terms) <= {()} else None

    def divided_by(self, divisor: Poly) -> Poly | None:
        """The quotient by a single product, None when it does not divide this."""
        if len(divisor.terms) != 1:
            return None
        ((product, factor),) = divisor.terms
        terms = {}
        for p, f in self.terms:
            rest = list(p)
            for atom in product:
                if atom not in rest:
                    return None
                rest.remove(atom)
            if f % factor:
                return None
            terms[tuple(rest)] = f // factor
        return Poly.of(terms)

    def replace(self, function: Callable[[Hashable], Poly | None]) -> Poly:
        """This with atoms replaced, also in remainders, where ``function`` does not give None."""
        result = Poly.number(0)
        for product, factor in self.terms:
            term = Poly.number(factor)
            for atom in product:
                new = function(atom)
                if new is None and isinstance(atom, Remainder):
                    new = remainder(atom.dividend.replace(function), atom.divisor.replace(function))
                term *= new if new is not None else Poly.atom(atom)
            result += term
        return result


@dataclass(frozen=True)
class Remainder:
    """``dividend mod divisor``, from 0 to the divisor."""

    dividend: Poly
    divisor: Poly


@dataclass(frozen=True)
class _Named:
    name: str


RANK, NUM_RANKS = _Named("rank"), _Named("num_ranks")


@dataclass(frozen=True)
class Index:
    """Any number from ``low`` to ``high``, both included."""

    low: Poly
    high: Poly


def _poly(value: Poly | int) -> Poly:
    return value if isinstance(value, Poly) else Poly.number(value)


def expression(value: ir.Value | int) -> Poly:
    """A number of a program."""
    if isinstance(value, int):
        return Poly.number(value)
    if (number := constant_int(value)) is not None:
        return Poly.number(number)
    for query, atom in (("rank", RANK), ("num_ranks", NUM_RANKS)):
        if is_query(value, query):
            return Poly.atom(atom)
    op = defining_op(value)
    if op is not None and op.name in ("arith.extsi", "arith.extui"):
        return expression(op.operands[0])
    if op is not None and op.name in _COMBINED:
        return _COMBINED[op.name](*(expression(operand) for operand in op.operands))
    if op is not None and op.name == "arith.remsi":
        dividend, divisor = (expression(operand) for operand in op.operands)
        if at_least(dividend, 0):
            return remainder(dividend, divisor)
    if op is not None and op.name == "ditron.dim":
        return dimension(op.source, op.attributes["dimension"].value)
    return Poly.atom(value)


_COMBINED = {"arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b, "arith.muli": lambda a, b: a * b}


def dimension(buffer: ir.Value, index: int) -> Poly:
    """The size of a buffer along a dimension."""
    size = buffer.type.shape[index]
    if size != ir.ShapedType.get_dynamic_size():
        return Poly.number(size)
    op = defining_op(buffer)
    if op is not None and op.name in ("ditron.alloc", "ditron.slice"):
        sizes = op.mixed_sizes
        return expression(sizes[len(sizes) - buffer.type.rank + index])
    return Poly.atom(Dimension(buffer, index))


@dataclass(frozen=True)
class Dimension:
    """A size of an argument."""

    buffer: ir.Value
    index: int


def remainder(dividend: Poly, divisor: Poly) -> Poly:
    """``dividend mod divisor``, without what the divisor divides and remainders by it inside."""
    flat = dividend.replace(lambda atom: remainder_inside(atom, divisor))
    if len(divisor.terms) == 1 and divisor.value is None:
        ((product, factor),) = divisor.terms
        flat = Poly.of({p: f for p, f in flat.terms if p != product or f % factor})
    elif divisor.value:
        flat = Poly.of({p: f % divisor.value for p, f in flat.terms})
    if at_least(flat, 0) and at_least(divisor - 1 - flat, 0):
        return flat
    return Poly.atom(Remainder(flat, divisor))


def remainder_inside(atom: Hashable, divisor: Poly) -> Poly | None:
    """The dividend of an atom that is itself a remainder by ``divisor``."""
    return atom.dividend if isinstance(atom, Remainder) and atom.divisor == divisor else None


# What is known -------------------------------------------------------------------------------------------------------


def at_least(poly: Poly, bound: int, depth: int = _DEPTH) -> bool:
    """Whether ``poly >= bound`` in every group; False when that is not known."""
    lowest = _lowest(poly - bound, depth)
    if lowest is None:
        return False
    terms = dict(lowest.terms)
    ranks = terms.pop((NUM_RANKS,), 0)  # of which there is at least one
    return ranks >= 0 and set(terms) <= {()} and ranks + terms.get((), 0) >= 0


def _lowest(poly: Poly, depth: int) -> Poly | None:
    """A lower bound made of numbers and ``NUM_RANKS``."""
    result, again = Poly.number(0), False
    # Bounds of an index that stands for another turn are said by what else is in the sum: they come first.
    first = any(isinstance(atom, Index) for product, _ in poly.terms for atom in product)
    for product, factor in poly.terms:
        if set(product) <= {NUM_RANKS} and len(product) <= 1:
            result += Poly.of({product: factor})
        elif first and len(product) == 1 and not isinstance(product[0], Index):
            result += Poly.of({product: factor})
        elif len(product) == 1:
            bound = _bounds(product[0])[0 if factor > 0 else 1]
            if bound is None:
                return None
            result += bound * factor
            again = True
        elif factor < 0 or not all(at_least(Poly.atom(atom), 0, depth - 1) for atom in product if depth > 0):
            return None
    if not again:
        return result
    return _lowest(result, depth - 1) if depth > 0 else None


def _bounds(atom: Any) -> tuple[Poly | None, Poly | None]:
    """The least and the greatest value of an atom."""
    if atom == RANK:
        return Poly.number(0), Poly.atom(NUM_RANKS) - 1
    if atom == NUM_RANKS:
        return Poly.number(1), None
    if isinstance(atom, Index):
        return atom.low, atom.high
    if isinstance(atom, Dimension):
        return Poly.number(0), None
    if isinstance(atom, Remainder):
        return Poly.number(0), atom.divisor - 1
    if not isinstance(atom, ir.Value):
        return None, None
    op = defining_op(atom)
    if op is None:
        loop = atom.owner.owner
        if loop.name == "scf.for" and atom.arg_number == 0 and (constant_int(loop.operands[2]) or 0) > 0:
            return expression(loop.operands[0]), expression(loop.operands[1]) - 1
        return None, None
    return (Poly.number(1), None) if op.name == "ditron.epoch" else (None, None)


def never_equal(a: Poly, b: Poly) -> bool:
    """Whether two numbers differ on every rank of every group; False when that is not known."""
    if a == b:
        return False
    if at_least(a - b, 1) or at_least(b - a, 1):
        return True
    for divisor in _divisors((a, b)):
        # Both lie in [0, divisor): they differ when the difference modulo the divisor is not 0.
        if all(at_least(x, 0) and at_least(divisor - 1 - x, 0) for x in (a, b)):
            distance = (a - b).replace(lambda atom, divisor=divisor: remainder_inside(atom, divisor))
            distance = Poly.of({p: f for p, f in distance.terms if Poly.of({p: 1}) != divisor})
            for d in (distance, -distance):
                if at_least(d, 1) and at_least(divisor - 1 - d, 0):
                    return True
            # -1 is num_ranks - 1, which is 0 in a group of one only: there nobody is another.
            if distance.value in (1, -1) and divisor == Poly.atom(NUM_RANKS):
                return True
    return False


def _divisors(polys: Iterable[Poly]) -> set[Poly]:
    return {
        atom.divisor for poly in polys for product, _ in poly.terms for atom in product if isinstance(atom, Remainder)
    }
