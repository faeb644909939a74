"""Integers and pointers as a value plus constants."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.ir.matchers import constant_int, defining_op

__all__ = ["Sum", "plus_constant"]


def plus_constant(value: ir.Value) -> tuple[ir.Value | None, int]:
    """``value`` as something plus a constant; the something is None when all of it is constant."""
    offset = 0
    while (op := defining_op(value)) is not None and op.name in ("arith.addi", "arith.subi"):
        right = constant_int(op.operands[1])
        if right is None:
            break
        offset += right if op.name == "arith.addi" else -right
        value = op.operands[0]
    known = constant_int(value)
    return (value, offset) if known is None else (None, offset + known)


@dataclass(frozen=True)
class Sum:
    """A scalar pointer or integer, taken apart: ``base + symbols + number``; ``base`` is None for an integer.

    ``symbols`` has how often each is added: ``base + k + k`` is not ``base + k``.
    """

    base: ir.Value | None
    symbols: frozenset[tuple[ir.Value, int]]
    number: int

    @staticmethod
    def of(value: ir.Value) -> Sum:
        number = 0
        symbols: Counter[ir.Value] = Counter()
        terms: list[ir.Value] = []
        while (op := defining_op(value)) is not None and op.name == "tt.addptr":
            terms.append(op.operands[1])
            value = op.operands[0]
        base: ir.Value | None = value
        if ir.IntegerType.isinstance(value.type):
            base = None
            terms.append(value)
        for term in terms:
            symbol, offset = plus_constant(term)
            number += offset
            if symbol is not None:
                symbols[symbol] += 1
        return Sum(base, frozenset(symbols.items()), number)

    def differs(self, other: Sum) -> bool:
        """Whether the two are never equal, as far as their constants tell."""
        return self.base == other.base and self.symbols == other.symbols and self.number != other.number
