"""Whether each program of a rank takes messages of its own: whether the signal that it waits for tells which it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import OPAQUE, operations, reached
from ditron_compiler.analysis.linear import address, index_sum
from ditron_compiler.analysis.message_matching import NoMatch, Wait
from ditron_compiler.analysis.path_conditions import BELOW, NOT_BELOW, conditions
from ditron_compiler.analysis.rank_variance import is_query, is_within
from ditron_compiler.analysis.slicing import backward_slice
from ditron_compiler.ir.matchers import (
    INTEGER_CASTS,
    constant_int,
    defining_op,
    is_function_argument,
    strip_integer_casts,
)

__all__ = ["axes_by_rank"]

_REMAINDERS = ("arith.remsi", "arith.remui")
_COUNTS = ("num_ranks", "num_local_ranks")


def axes_by_rank(wait: Wait, function: ir.Operation) -> frozenset[int]:
    """The axes along which there must not be more programs than ranks, or two of them take the same message.

    Raises NoMatch when more than the number of programs is needed for each to take its own.
    """
    axes = _axes_asked(function)
    terms = [term for term in address(wait.signal, index_sum).offset.summands if not _is_uniform(term)]
    by_rank = _told_apart(terms, wait.count is not None, axes)
    return frozenset(
        axis
        for axis in by_rank
        if not any(
            _is_program(test.operands[0], axis) and is_query(test.operands[1], "num_ranks")
            for test in conditions(wait.op, BELOW, NOT_BELOW)
        )
    )


def _axes_asked(function: ir.Operation) -> frozenset[int]:
    """The axes along which programs of ``function`` may do different things."""
    return frozenset(
        _axis(inner)
        for op in operations(function)
        for inner in (reached(op) if op.name == "tt.call" else (op,))
        if inner.name == "tt.get_program_id"
    )


def _told_apart(terms: Sequence[ir.Value], several: bool, axes: frozenset[int]) -> frozenset[int]:
    """What ``axes_by_rank`` gives, of the sum of ``terms``: it is to tell a program's number along each of ``axes``.

    With ``several``, any rank's number is added to the sum.
    """
    if not axes:
        return frozenset()
    if len(terms) == 1 and not several and len(axes) == 1:
        by_rank = _tells(terms[0], *axes)
        if by_rank is not None:
            return axes if by_rank else frozenset()
    for number, term in enumerate(terms):
        rest = [*terms[:number], *terms[number + 1 :]]
        head, strides = _product(term)
        inner = axes & {_axis(program.owner) for program in _programs_in(head)}
        if not inner or not all(map(_is_positive, strides)):
            continue
        programs = [program for value in rest for program in _programs_in(value)]
        for few in ((), programs):  # as they are, and if there are no more than ranks
            # Of head * stride + rest, where rest is less than stride, both are known.
            if any(_holds(stride, rest, several, few) for stride in strides):
                by_rank = frozenset(_axis(program.owner) for program in few)
                return (
                    by_rank
                    | _told_apart(list(_summands(head)), False, inner)
                    | _told_apart(rest, several, axes - inner)
                )
    raise NoMatch(
        "several programs may wait for it, but a message has one consumer; give each program its own signals: "
        "sig + program_id * num_ranks + rank"
    )


def _tells(value: ir.Value, axis: int, by_one: bool = False) -> bool | None:
    """Whether ``value`` tells a program's number along ``axis``: False; of no more programs than ranks: True; None: no.

    With ``by_one``, programs side by side must have values that do not differ by more.
    """
    op = defining_op(value)
    if op is None:
        return None
    if op.name == "tt.get_program_id":
        return False if _axis(op) == axis else None
    if op.name in INTEGER_CASTS:
        return _tells(op.operands[0], axis, by_one)
    if len(op.operands) != 2:
        return None
    varied = [operand for operand in op.operands if not _is_uniform(operand)]
    if op.name in ("arith.addi", "arith.subi"):
        return _tells(varied[0], axis, by_one) if len(varied) == 1 else None
    if op.name == "arith.muli" and len(varied) == 1 and not by_one:
        factor = next(operand for operand in op.operands if operand != varied[0])
        return _tells(varied[0], axis) if constant_int(factor) or _is_positive(factor) else None
    if op.name in _REMAINDERS and is_query(op.operands[1], "num_ranks"):
        return None if _tells(op.operands[0], axis, by_one=True) is None else True
    return None


def _is_uniform(value: ir.Value) -> bool:
    """Whether ``value`` is the same in all programs of a rank, wherever it is used."""
    return all(map(_is_shared, backward_slice(value)))


def _is_shared(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None:
        return is_function_argument(value)
    return op.name != "tt.get_program_id" and op.name not in OPAQUE and op.is_memory_effect_free


def _product(value: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
    """``value`` as what depends on programs or turns, and the factors by which that is multiplied."""
    strides: list[ir.Value] = []
    while (op := defining_op(value)) is not None:
        if op.name in INTEGER_CASTS:
            value = op.operands[0]
            continue
        varied = [operand for operand in op.operands if not _is_uniform(operand)]
        if op.name != "arith.muli" or len(varied) != 1:
            break
        strides += _factors(next(operand for operand in op.operands if operand != varied[0]))
        value = varied[0]
    return value, strides


def _factors(value: ir.Value) -> Iterator[ir.Value]:
    op = defining_op(value)
    if op is not None and op.name in (*INTEGER_CASTS, "arith.muli"):
        for operand in op.operands:
            yield from _factors(operand)
    else:
        yield value


def _summands(value: ir.Value) -> Iterator[ir.Value]:
    """What is added up to ``value``, but for what is the same in all programs."""
    op = defining_op(value)
    if op is not None and op.name in (*INTEGER_CASTS, "arith.addi"):
        for operand in op.operands:
            yield from _summands(operand)
    elif not _is_uniform(value):
        yield value


def _holds(stride: ir.Value, rest: Sequence[ir.Value], several: bool, few: Sequence[ir.Value]) -> bool:
    """Whether the sum of ``rest``, and any rank's number with ``several``, is 0 or more and less than ``stride``.

    The programs' numbers ``few`` are less than the number of ranks.
    """
    if len(rest) + several > 1:
        return False
    if is_query(stride, "num_ranks"):
        return not rest or is_within(rest[0], "num_ranks", few)
    if several or not rest:
        return not several
    op = defining_op(_product(stride)[0])
    return op is not None and op.name == "tt.get_num_programs" and _is_program(rest[0], _axis(op))


def _is_positive(factor: ir.Value) -> bool:
    """Whether ``factor`` is more than 0 in every launch."""
    op = defining_op(factor)
    return (
        (constant_int(factor) or 0) > 0
        or any(is_query(factor, count) for count in _COUNTS)
        or (op is not None and op.name == "tt.get_num_programs")
    )


def _programs_in(value: ir.Value) -> list[ir.Value]:
    """The programs' numbers that ``value`` is computed from."""
    return [
        source
        for source in backward_slice(value)
        if (op := defining_op(source)) is not None and op.name == "tt.get_program_id"
    ]


def _is_program(value: ir.Value, axis: int) -> bool:
    op = defining_op(strip_integer_casts(value))
    return op is not None and op.name == "tt.get_program_id" and _axis(op) == axis


def _axis(op: ir.Operation) -> int:
    return ir.IntegerAttr(op.attributes["axis"]).value
