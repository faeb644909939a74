"""Consumers of messages: whether each program of a rank waits for messages of its own ("must").

That holds if the signal that it waits for determines its program id, along every axis on which programs differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import OPAQUE, operations, reachable_operations
from ditron_compiler.analysis.integer_range import RANK_COUNTS, is_below
from ditron_compiler.analysis.linear import address, index_sum
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.analysis.message_matching import signal_count
from ditron_compiler.analysis.path_conditions import LESS, NOT_LESS, comparisons_on_path
from ditron_compiler.analysis.slicing import backward_slice
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.ir.matchers import (
    INTEGER_CASTS,
    constant_int,
    defining_op,
    is_function_argument,
    is_query,
    strip_integer_casts,
)


def axes_bounded_by_ranks(wait: ditron.SignalWaitOpInterface, function: tt.FuncOp) -> frozenset[int]:
    """The axes of the grid along which each program has messages of its own only if there are at most num_ranks.

    Raises MatchFailure if programs may share a message even then.
    """
    terms = [term for term in address(wait.signal, index_sum).offset.summands if not _is_uniform(term)]
    bounded = _bounded_axes(terms, signal_count(wait) is not None, _axes_of_programs(function))
    return frozenset(
        axis
        for axis in bounded
        if not any(
            _is_program_id(test.lhs, axis) and is_query(test.rhs, ditron.NumRanksOp)
            for test in comparisons_on_path(wait, LESS, NOT_LESS)
        )
    )


def _axes_of_programs(function: tt.FuncOp) -> frozenset[int]:
    """The axes along which programs of ``function`` may do different things."""
    return frozenset(
        inner.axis.value
        for op in operations(function)
        for inner in (reachable_operations(op) if isinstance(op, tt.CallOp) else (op,))
        if isinstance(inner, tt.GetProgramIdOp)
    )


def _bounded_axes(terms: Sequence[ir.Value], several: bool, axes: frozenset[int]) -> frozenset[int]:
    """``axes_bounded_by_ranks`` for the sum of ``terms``, which must determine the program id along each of ``axes``.

    With ``several``, any rank is added to the sum.
    """
    if not axes:
        return frozenset()
    if len(terms) == 1 and not several and len(axes) == 1:
        bounded = _determines_program(terms[0], *axes)
        if bounded is not None:
            return axes if bounded else frozenset()
    for number, term in enumerate(terms):
        rest = [*terms[:number], *terms[number + 1 :]]
        head, strides = _factor(term)
        inner = axes & {program.owner.axis.value for program in _program_ids_in(head)}
        if not inner or not all(map(_is_positive, strides)):
            continue
        programs = [program for value in rest for program in _program_ids_in(value)]
        for assumed in ((), programs):  # first without, then with the assumption that there are at most num_ranks
            # head * stride + rest, where 0 <= rest < stride, determines both.
            if any(_is_remainder(rest, stride, several, assumed) for stride in strides):
                return (
                    frozenset(program.owner.axis.value for program in assumed)
                    | _bounded_axes(list(_summands(head)), False, inner)
                    | _bounded_axes(rest, several, axes - inner)
                )
    raise MatchFailure(
        "several programs may wait for it, but a message has one consumer; give each program its own signals: "
        "sig + program_id * num_ranks + rank"
    )


def _determines_program(value: ir.Value, axis: int, adjacent: bool = False) -> bool | None:
    """Whether ``value`` is injective in the program id along ``axis``: False; for at most num_ranks programs: True.

    None if it is not. With ``adjacent``, values of adjacent programs must be adjacent.
    """
    op = defining_op(value)
    if op is None:
        return None
    if isinstance(op, tt.GetProgramIdOp):
        return False if op.axis.value == axis else None
    if isinstance(op, INTEGER_CASTS):
        return _determines_program(op.in_, axis, adjacent)
    if len(op.operands) != 2:
        return None
    variant = [operand for operand in op.operands if not _is_uniform(operand)]
    if isinstance(op, (arith.AddIOp, arith.SubIOp)):
        return _determines_program(variant[0], axis, adjacent) if len(variant) == 1 else None
    if isinstance(op, arith.MulIOp) and len(variant) == 1 and not adjacent:
        factor = next(operand for operand in op.operands if operand != variant[0])
        return _determines_program(variant[0], axis) if constant_int(factor) or _is_positive(factor) else None
    if isinstance(op, (arith.RemSIOp, arith.RemUIOp)) and is_query(op.rhs, ditron.NumRanksOp):
        return None if _determines_program(op.lhs, axis, adjacent=True) is None else True
    return None


def _is_uniform(value: ir.Value) -> bool:
    """Whether ``value`` is the same in all programs of a rank, wherever it is used."""
    return all(map(_is_uniform_source, backward_slice(value)))


def _is_uniform_source(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None:
        return is_function_argument(value)
    return not isinstance(op, (tt.GetProgramIdOp, *OPAQUE)) and op.is_memory_effect_free


def _factor(value: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
    """``value`` as the part that differs between programs or iterations, and the uniform factors of that part."""
    strides: list[ir.Value] = []
    while (op := defining_op(value)) is not None:
        if isinstance(op, INTEGER_CASTS):
            value = op.in_
            continue
        variant = [operand for operand in op.operands if not _is_uniform(operand)]
        if not isinstance(op, arith.MulIOp) or len(variant) != 1:
            break
        strides += _factors(next(operand for operand in op.operands if operand != variant[0]))
        value = variant[0]
    return value, strides


def _factors(value: ir.Value) -> Iterator[ir.Value]:
    op = defining_op(value)
    if isinstance(op, (*INTEGER_CASTS, arith.MulIOp)):
        for operand in op.operands:
            yield from _factors(operand)
    else:
        yield value


def _summands(value: ir.Value) -> Iterator[ir.Value]:
    """The terms of the sum ``value`` that are not uniform."""
    op = defining_op(value)
    if isinstance(op, (*INTEGER_CASTS, arith.AddIOp)):
        for operand in op.operands:
            yield from _summands(operand)
    elif not _is_uniform(value):
        yield value


def _is_remainder(rest: Sequence[ir.Value], stride: ir.Value, several: bool, assumed: Sequence[ir.Value]) -> bool:
    """Whether the sum of ``rest``, and of any rank with ``several``, is in ``[0, stride)``.

    The program ids ``assumed`` are taken to be less than num_ranks.
    """
    if len(rest) + several > 1:
        return False
    if is_query(stride, ditron.NumRanksOp):
        return not rest or is_below(rest[0], ditron.NumRanksOp, assumed)
    if several or not rest:
        return not several
    op = defining_op(_factor(stride)[0])
    return isinstance(op, tt.GetNumProgramsOp) and _is_program_id(rest[0], op.axis.value)


def _is_positive(factor: ir.Value) -> bool:
    """Whether ``factor`` is positive in every launch."""
    return (
        (constant_int(factor) or 0) > 0
        or any(is_query(factor, count) for count in RANK_COUNTS)
        or isinstance(defining_op(factor), tt.GetNumProgramsOp)
    )


def _program_ids_in(value: ir.Value) -> list[ir.Value]:
    """The program ids that ``value`` is computed from."""
    return [source for source in backward_slice(value) if isinstance(defining_op(source), tt.GetProgramIdOp)]


def _is_program_id(value: ir.Value, axis: int) -> bool:
    op = defining_op(strip_integer_casts(value))
    return isinstance(op, tt.GetProgramIdOp) and op.axis.value == axis
