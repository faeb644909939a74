"""Equivalence of values by how they are computed, and injectivity of operations.

Both are "must": two values that are not found equivalent may still be equal, and an operation that is not found
injective may still be.
"""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis.integer_range import RANK_COUNTS
from ditron_compiler.ir.dialects import arith, ditron
from ditron_compiler.ir.matchers import constant_int, defining_op, is_query, strip_index_casts


def is_equivalent(a: ir.Value, b: ir.Value) -> bool:
    """Whether two values are computed by the same pure operations from the same values."""
    a, b = strip_index_casts(a), strip_index_casts(b)
    if a == b:
        return True
    one, other = defining_op(a), defining_op(b)
    return (
        one is not None
        and other is not None
        and one.is_memory_effect_free
        and is_same_operation(one, other)
        and all(is_equivalent(x, y) for x, y in zip(one.operands, other.operands, strict=True))
    )


def is_same_operation(one: ir.Operation, other: ir.Operation) -> bool:
    """Whether two operations with one result compute the same from the same operands."""
    return (
        one.name == other.name
        and len(one.operands) == len(other.operands)
        and len(one.results) == 1
        and not len(one.regions)
        and {n: one.attributes[n] for n in one.attributes.keys()}
        == {n: other.attributes[n] for n in other.attributes.keys()}
    )


def is_injective(op: ir.Operation, index: int, modulo: bool) -> bool:
    """Whether different values of operand ``index``, the others being fixed, give different results.

    ``modulo``: values that differ modulo the number of ranks give results that differ modulo the number of ranks. After
    a remainder by the number of ranks ask for the rest of a computation with ``modulo``.
    """
    if isinstance(op, (arith.AddIOp, arith.SubIOp)):
        return True
    if isinstance(op, arith.RemSIOp):
        return index == 0 and is_query(op.rhs, ditron.NumRanksOp)
    if modulo or len(op.operands) != 2:
        return False
    factor = op.operands[1 - index]
    if isinstance(op, arith.MulIOp):
        return bool(constant_int(factor)) or any(is_query(factor, count) for count in RANK_COUNTS)
    return (
        isinstance(op, arith.XOrIOp) or isinstance(op, arith.ShLIOp) and index == 0 and constant_int(factor) is not None
    )


def bit_width(value: ir.Value) -> int:
    """The width of an integer."""
    return ir.IntegerType(value.type).width
