"""What is known of a number: whether another is the same, whether it is another on other ranks, how large it may be."""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis.rank_variance import is_query
from ditron_compiler.analysis.slicing import backward_slice
from ditron_compiler.ir.matchers import constant_int, defining_op, is_function_argument, strip_index_casts

__all__ = ["ELSEWHERE", "alike", "bits", "same", "tells_apart", "upper_bound", "varies"]

_COUNTS = ("num_ranks", "num_local_ranks")
#: Operations whose results differ between ranks in a way that no wait can name.
ELSEWHERE = {"ditron.local_rank", "ditron.node", "tt.ptr_to_int"}


def same(a: ir.Value, b: ir.Value) -> bool:
    """Whether two values are computed alike, by pure operations of the same values."""
    a, b = strip_index_casts(a), strip_index_casts(b)
    if a == b:
        return True
    one, other = defining_op(a), defining_op(b)
    return (
        one is not None
        and other is not None
        and one.is_memory_effect_free
        and alike(one, other)
        and all(same(x, y) for x, y in zip(one.operands, other.operands, strict=True))
    )


def varies(value: ir.Value) -> bool:
    """Whether ``value`` may differ between ranks. A kernel's scalar arguments do not: every rank passes the same."""
    return any(map(_may_vary, backward_slice(value)))


def _may_vary(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None:  # what a loop carries, other than its counter, is not looked at
        around = value.owner.owner
        return not (is_function_argument(value) or around.name == "scf.for" and value.arg_number == 0)
    return op.name in ELSEWHERE or op.name == "ditron.rank" or not op.is_memory_effect_free


def upper_bound(value: ir.Value) -> int | None:
    """A number that ``value`` never exceeds, known at compile time; None when there is none."""
    known = constant_int(value)
    if known is not None:
        return known
    op = defining_op(value)
    if op is None or not len(op.operands):
        return None
    bounds = [upper_bound(operand) for operand in op.operands]
    if op.name == "arith.minsi":  # without a sign, what is less than a bound may be above it: not minui, not extui
        return min((bound for bound in bounds if bound is not None), default=None)
    if op.name == "arith.extsi":
        return bounds[0]
    if op.name == "arith.divsi" and (constant_int(op.operands[1]) or 0) > 0 and bounds[0] is not None:
        return max(bounds[0], 0)
    if None in bounds:
        return None
    if op.name == "arith.addi":
        return sum(bounds)
    if (
        op.name == "arith.muli"
        and any(constant_int(operand) is not None for operand in op.operands)
        and min(bounds) >= 0
    ):
        return bounds[0] * bounds[1]
    if op.name == "arith.shli" and constant_int(op.operands[1]) is not None and bounds[0] >= 0:
        return bounds[0] << bounds[1]
    return max(bounds) if op.name == "arith.maxsi" else None


def tells_apart(op: ir.Operation, index: int, modulo: bool) -> bool:
    """Whether ``op`` of two numbers that differ in operand ``index`` (``modulo`` the number of ranks) differs, too.

    A remainder by the number of ranks does where the two differ by less: ask for what follows with ``modulo``.
    """
    if op.name in ("arith.addi", "arith.subi"):
        return True
    if op.name == "arith.remsi":
        return index == 0 and is_query(op.operands[1], "num_ranks")
    factor = op.operands[1 - index] if len(op.operands) == 2 else None
    if modulo or factor is None:
        return False
    if op.name == "arith.muli":
        return bool(constant_int(factor)) or any(is_query(factor, count) for count in _COUNTS)
    return op.name == "arith.xori" or op.name == "arith.shli" and index == 0 and constant_int(factor) is not None


def alike(one: ir.Operation, other: ir.Operation) -> bool:
    """Whether two operations compute the same of the same operands."""
    return (
        one.name == other.name
        and len(one.operands) == len(other.operands)
        and len(one.results) == 1
        and not len(one.regions)
        and {n: one.attributes[n] for n in one.attributes.keys()}
        == {n: other.attributes[n] for n in other.attributes.keys()}
    )


def bits(value: ir.Value) -> int:
    """The width of an integer."""
    return ir.IntegerType(value.type).width
