"""Integer ranges: bounds that are constants, or the number of ranks ("must": a bound that is found holds)."""

from __future__ import annotations

from collections.abc import Collection

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, ditron, scf, tt
from ditron_compiler.ir.matchers import constant_int, defining_op, is_query, strip_integer_casts

RankCount = type[ditron.NumRanksOp] | type[ditron.NumLocalRanksOp]

#: Queries whose results are positive.
RANK_COUNTS: tuple[RankCount, ...] = (ditron.NumRanksOp, ditron.NumLocalRanksOp)
_NON_NEGATIVE = (
    *RANK_COUNTS,
    ditron.RankOp,
    ditron.LocalRankOp,
    ditron.NodeOp,
    tt.GetProgramIdOp,
    tt.GetNumProgramsOp,
)


def upper_bound(value: ir.Value) -> int | None:
    """A constant that ``value`` never exceeds; None if none is found."""
    known = constant_int(value)
    if known is not None:
        return known
    op = defining_op(value)
    if op is None or not len(op.operands):
        return None
    bounds = [upper_bound(operand) for operand in op.operands]
    if isinstance(
        op, arith.MinSIOp
    ):  # not minui, not extui: what is less than an unsigned bound may be above it, signed
        return min((bound for bound in bounds if bound is not None), default=None)
    if isinstance(op, arith.ExtSIOp):
        return bounds[0]
    if isinstance(op, arith.DivSIOp) and (constant_int(op.rhs) or 0) > 0 and bounds[0] is not None:
        return max(bounds[0], 0)
    if None in bounds:
        return None
    if isinstance(op, arith.AddIOp):
        return sum(bounds)
    if isinstance(op, arith.MulIOp) and any(constant_int(v) is not None for v in op.operands) and min(bounds) >= 0:
        return bounds[0] * bounds[1]
    if isinstance(op, arith.ShLIOp) and constant_int(op.rhs) is not None and bounds[0] >= 0:
        return bounds[0] << bounds[1]
    return max(bounds) if isinstance(op, arith.MaxSIOp) else None


def is_below(index: ir.Value, count: RankCount, assumed: Collection[ir.Value] = ()) -> bool:
    """Whether ``0 <= index < count``, the number of ranks or of local ranks; that is taken as given of ``assumed``."""
    index = strip_integer_casts(index)
    if constant_int(index) == 0 or index in assumed:  # there is at least one rank
        return True
    if is_query(index, ditron.RankOp if count is ditron.NumRanksOp else ditron.LocalRankOp):
        return True
    if count is ditron.NumRanksOp and is_query(index, ditron.LocalRankOp):
        return True
    op = defining_op(index)
    if isinstance(op, arith.RemUIOp):
        return is_query(op.rhs, count)
    if isinstance(op, arith.RemSIOp):
        return is_query(op.rhs, count) and _is_non_negative(op.lhs, count, assumed)
    return is_induction_variable(index, first=0, count=count)


def is_induction_variable(value: ir.Value, first: int, count: RankCount | None) -> bool:
    """Whether ``value`` counts upwards in a loop from ``first`` or more, to below ``count`` if that is given."""
    if isinstance(value, ir.OpResult):
        return False
    loop = value.owner.owner
    if not isinstance(loop, scf.ForOp) or value.arg_number != 0:
        return False
    lower, step = constant_int(loop.lowerBound), constant_int(loop.step)
    return (
        lower is not None
        and lower >= first
        and step is not None
        and step > 0
        and (count is None or is_query(loop.upperBound, count))
    )


def signed_terms(value: ir.Value, sign: int = 1) -> list[tuple[int, ir.Value]]:
    """The terms of a sum, each with the sign 1 or -1."""
    value = strip_integer_casts(value)
    op = defining_op(value)
    if not isinstance(op, (arith.AddIOp, arith.SubIOp)):
        return [(sign, value)]
    return signed_terms(op.lhs, sign) + signed_terms(op.rhs, sign if isinstance(op, arith.AddIOp) else -sign)


def _is_non_negative(value: ir.Value, count: RankCount, assumed: Collection[ir.Value]) -> bool:
    """Whether ``value >= 0``, for sums of ranks and counts of them, such as ``rank + num_ranks - step``."""
    value = strip_integer_casts(value)
    number = constant_int(value)
    if number is not None:
        return number >= 0
    op = defining_op(value)
    if op is None:
        return is_induction_variable(value, first=0, count=None)
    if isinstance(op, (arith.AddIOp, arith.SubIOp)):
        terms = signed_terms(value)
        subtracted = [term for sign, term in terms if sign < 0]
        counts = sum(
            sign > 0 and is_query(term, count) for sign, term in terms
        )  # each outweighs one that is subtracted
        return (
            len(subtracted) <= counts
            and all(constant_int(term) == 1 or is_below(term, count, assumed) for term in subtracted)
            and all(sign < 0 or _is_non_negative(term, count, assumed) for sign, term in terms)
        )
    if isinstance(op, (arith.MulIOp, arith.DivSIOp, arith.RemSIOp, arith.MinSIOp)):
        return all(_is_non_negative(operand, count, assumed) for operand in op.operands)
    return isinstance(op, _NON_NEGATIVE)
