"""Integers as polynomials over symbols: SSA values, and whatever else is hashable.

A `Polynomial` is exact: its coefficients are Python integers, and its arithmetic does not wrap around. Where a form is
made from SSA values, whose arithmetic does, the function that makes it states what keeps that right:

- `split_constant`, `constant_sum`: ``x + c`` only. Equal symbols with different constants differ also modulo 2^width.
- `address`: a pointer's offsets, counted in elements. An offset that wrapped around would lead out of its object.
- `index_sum`: sums through casts. Indices fit in every width that they are cast to, 32 bits or more.
- `analysis.host_expressions.expression`: a host program's numbers, 64 bits, of which products do not overflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, tt
from ditron_compiler.ir.matchers import constant_int, defining_op, strip_index_casts

__all__ = [
    "Address",
    "Monomial",
    "NamedSymbol",
    "Polynomial",
    "Substitution",
    "address",
    "constant_sum",
    "index_sum",
    "never_equal",
    "split_constant",
]


@dataclass(frozen=True)
class NamedSymbol:
    """A symbol that is no SSA value, such as the rank."""

    name: str

    def __str__(self) -> str:
        return self.name


class Monomial(tuple):
    """A product of symbols, ``()`` for 1. Products are equal whatever the order of their factors."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Monomial):
            return NotImplemented
        return len(self) == len(other) and Counter(self) == Counter(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((len(self), sum(map(hash, self))))


_ONE = Monomial()


class Polynomial:
    """A sum of monomials with integer coefficients; immutable, and iterated in the order in which it was built."""

    __slots__ = ("_terms",)

    def __init__(self, terms: Mapping[Monomial, int]):
        self._terms = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}

    @classmethod
    def constant(cls, value: int) -> Polynomial:
        return cls({_ONE: value})

    @classmethod
    def symbol(cls, symbol: Hashable) -> Polynomial:
        return cls({Monomial((symbol,)): 1})

    @classmethod
    def through(cls, symbol: Hashable, first: tuple[int, int], second: tuple[int, int]) -> Polynomial:
        """The linear form in ``symbol`` with two given (symbol, value); ValueError if its slope is no integer."""
        (x, y), (u, v) = first, second
        slope, rest = divmod(v - y, u - x)
        if rest:
            raise ValueError(f"no linear form with integer coefficients is {y} at {x} and {v} at {u}")
        return cls.symbol(symbol) * slope + (y - slope * x)

    # --- parts -----------------------------------------------------------------------------------------------------

    @property
    def terms(self) -> Mapping[Monomial, int]:
        """The coefficient, never 0, of each monomial."""
        return MappingProxyType(self._terms)

    @property
    def symbols(self) -> Iterator[Hashable]:
        """The factors of all monomials, repeated as they occur."""
        return (symbol for monomial in self._terms for symbol in monomial)

    @property
    def summands(self) -> list[Hashable]:
        """The symbols that are added up, repeated as they are; of a sum of symbols and a constant only."""
        if any(len(monomial) > 1 or c < 0 for monomial, c in self._terms.items() if monomial):
            raise ValueError(f"{self} is no sum of symbols")
        return [symbol for monomial, c in self._terms.items() for symbol in monomial for _ in range(c)]

    @property
    def value(self) -> int | None:
        """The integer that this is, if it has no symbols."""
        return self.constant_term if self._terms.keys() <= {_ONE} else None

    @property
    def as_symbol(self) -> Hashable | None:
        """The symbol that this is, if it is a symbol and nothing else."""
        symbols = list(self._terms.items())
        if len(symbols) == 1 and len(symbols[0][0]) == symbols[0][1] == 1:
            return symbols[0][0][0]
        return None

    @property
    def constant_term(self) -> int:
        return self._terms.get(_ONE, 0)

    @property
    def without_constant(self) -> Polynomial:
        return Polynomial({monomial: c for monomial, c in self._terms.items() if monomial})

    def coefficient(self, symbol: Hashable) -> int:
        """The coefficient of a symbol alone."""
        return self._terms.get(Monomial((symbol,)), 0)

    # --- arithmetic ------------------------------------------------------------------------------------------------

    def __add__(self, other: Polynomial | int) -> Polynomial:
        terms = dict(self._terms)
        for monomial, coefficient in _polynomial(other)._terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return Polynomial({monomial: -coefficient for monomial, coefficient in self._terms.items()})

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + -_polynomial(other)

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        terms: dict[Monomial, int] = {}
        for p, i in self._terms.items():
            for q, j in _polynomial(other)._terms.items():
                product = Monomial(p + q)
                terms[product] = terms.get(product, 0) + i * j
        return Polynomial(terms)

    def divided_by(self, divisor: Polynomial) -> Polynomial | None:
        """The quotient by a single monomial; None when it does not divide every term."""
        if len(divisor._terms) != 1:
            return None
        ((product, factor),) = divisor._terms.items()
        terms: dict[Monomial, int] = {}
        for monomial, coefficient in self._terms.items():
            rest = list(monomial)
            for symbol in product:
                if symbol not in rest:
                    return None
                rest.remove(symbol)
            if coefficient % factor:
                return None
            terms[Monomial(rest)] = coefficient // factor
        return Polynomial(terms)

    def substitute(self, substitution: Substitution) -> Polynomial:
        """This with polynomials for the symbols for which ``substitution`` has one.

        A symbol that is itself made of polynomials, as a remainder, has a method ``substitute`` that gives the new one.
        """
        result = Polynomial.constant(0)
        for monomial, coefficient in self._terms.items():
            term = Polynomial.constant(coefficient)
            for symbol in monomial:
                new = substitution(symbol)
                if new is None and (inside := getattr(symbol, "substitute", None)) is not None:
                    new = inside(substitution)
                term *= new if new is not None else Polynomial.symbol(symbol)
            result += term
        return result

    # --- comparison ------------------------------------------------------------------------------------------------

    def differs(self, other: Polynomial) -> bool:
        """Whether the two differ whatever the symbols are; False when that is not known."""
        return (self - other).value not in (0, None)

    def __eq__(self, other: object) -> bool:
        return self._terms == other._terms if isinstance(other, Polynomial) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._terms.items()))

    def __repr__(self) -> str:
        terms = [" * ".join(map(str, (c, *m) if c != 1 or not m else m)) for m, c in self._terms.items()]
        return " + ".join(terms) or "0"


#: What is put for a symbol, or None to leave it.
Substitution = Callable[[Hashable], Polynomial | None]


def _polynomial(value: Polynomial | int) -> Polynomial:
    return value if isinstance(value, Polynomial) else Polynomial.constant(value)


# --- from SSA values -------------------------------------------------------------------------------------------------


def split_constant(value: ir.Value) -> tuple[ir.Value | None, int]:
    """``value`` as a symbol plus a constant; the symbol is None when all of it is constant."""
    offset = 0
    while isinstance(op := defining_op(value), arith.AddIOp | arith.SubIOp):
        right = constant_int(op.rhs)
        if right is None:
            break
        offset += right if isinstance(op, arith.AddIOp) else -right
        value = op.lhs
    known = constant_int(value)
    return (value, offset) if known is None else (None, offset + known)


def constant_sum(value: ir.Value) -> Polynomial:
    """The same as a polynomial."""
    symbol, offset = split_constant(value)
    return Polynomial.constant(offset) if symbol is None else Polynomial.symbol(symbol) + offset


def index_sum(value: ir.Value) -> Polynomial:
    """An index as a sum of SSA values, through all additions."""
    value = strip_index_casts(value)
    op = defining_op(value)
    if isinstance(op, arith.AddIOp):
        return index_sum(op.lhs) + index_sum(op.rhs)
    known = constant_int(value)
    return Polynomial.symbol(value) if known is None else Polynomial.constant(known)


class Address(NamedTuple):
    """The element that a scalar pointer points to: ``base[offset]``."""

    base: ir.Value
    offset: Polynomial

    def differs(self, other: Address) -> bool:
        """Whether the two are different elements whatever the symbols are; False when that is not known."""
        return self.base == other.base and self.offset.differs(other.offset)


def address(pointer: ir.Value, expand: Callable[[ir.Value], Polynomial] = constant_sum) -> Address:
    """A pointer as the base of its ``tt.addptr`` and the sum of their offsets, each made a polynomial by ``expand``."""
    offsets: list[Polynomial] = []
    while isinstance(op := defining_op(pointer), tt.AddPtrOp):
        offsets.append(expand(op.offset))
        pointer = op.ptr
    return Address(pointer, sum(offsets, Polynomial.constant(0)))


def never_equal(a: ir.Value, b: ir.Value) -> bool:
    """Whether two integers, or two scalar pointers, differ by a constant; False when that is not known."""
    if ir.IntegerType.isinstance(a.type):
        return constant_sum(a).differs(constant_sum(b))
    return address(a).differs(address(b))
