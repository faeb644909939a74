"""Signals that count on one rank: its own kernels add to them, and its streams wait for the count of each call."""

from __future__ import annotations

from collections.abc import Iterator

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.buffer_effects import kernel_of
from ditron_compiler.analysis.call_graph import pointer_operands
from ditron_compiler.analysis.rank_scope import rank_scope
from ditron_compiler.ir.dialects import arith, ditron
from ditron_compiler.ir.dialects.ditron import Cmp, Scope, SignalOp
from ditron_compiler.ir.matchers import constant_int, defining_op

__all__ = ["own_counts"]


def own_counts(program: ditron.ProgramOp) -> dict[str, int]:
    """By the label of an allocation, how much each of its signals grows in a call, as far as it is awaited.

    Of signals that begin as zeros, that only kernels of this rank add to (``notify`` or ``signal_op`` to the own rank),
    and that only streams wait for, until they are at least ``number * epoch``: since that is how they grow, waiting for
    ``number`` and starting from zero in each call says the same.
    """
    found: dict[str, int] = {}
    operations: list[ir.Operation] = []
    program.walk(operations.append, ir.WalkOrder.PRE_ORDER)
    for alloc in operations:
        if isinstance(alloc, ditron.AllocOp) and alloc.zeroed and str(alloc.result.type.element_type) == "i64":
            growths = {_growth(use, operand) for use, operand in _uses(alloc.result)}
            growths.discard(0)  # launches, which only add
            if len(growths) == 1 and None not in growths:
                found[ir.StringAttr(alloc.label).value] = growths.pop()
    return found


def _uses(buffer: ir.Value) -> Iterator[tuple[ir.Operation, int]]:
    """The operations that a buffer, or a part of it, is an operand of, and the number of that operand."""
    for user in set(buffer.users):
        if isinstance(user, ditron.SliceOp):
            yield from _uses(user.result)
        else:
            yield from ((user, number) for number, value in enumerate(user.operands) if value == buffer)


def _growth(op: ir.Operation, operand: int) -> int | None:
    """The factor of the epoch that a wait is for, 0 for a launch that only adds, None for any other use."""
    if isinstance(op, ditron.SignalWaitOp):
        return _factor_of_epoch(op.value) if op.cmp is Cmp.GE else None
    if isinstance(op, ditron.LaunchOp):
        return 0 if _only_adds(op, operand - len(op.grid)) else None
    return None


def _factor_of_epoch(value: ir.Value) -> int | None:
    op = defining_op(value)
    if isinstance(op, ditron.EpochOp):
        return 1
    if isinstance(op, arith.MulIOp):
        for epoch, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            number = constant_int(factor)
            if isinstance(defining_op(epoch), ditron.EpochOp) and number is not None and number > 0:
                return number
    return None


def _only_adds(launch: ditron.LaunchOp, number: int) -> bool:
    """Whether a kernel does nothing with the memory of an argument but add to signals there, on its own rank."""
    kernel = kernel_of(launch)
    argument = kernel.arguments[number]
    uses: list[bool] = []

    def visit(op: ir.Operation) -> None:
        for pointer in pointer_operands(op):
            if any(origin.root == argument for origin in underlying_objects(pointer)):
                uses.append(_is_own_add(op, pointer) or op.is_memory_effect_free and _makes_pointers(op))

    kernel.walk(visit)
    return all(uses)


def _is_own_add(op: ir.Operation, pointer: ir.Value) -> bool:
    return (
        isinstance(op, ditron.NotifyOp | ditron.SignalOpOp)
        and op.signal == pointer
        and op.op is SignalOp.Add
        and rank_scope(op.rank, op) is Scope.GPU
    )


def _makes_pointers(op: ir.Operation) -> bool:
    """Whether an operation only computes pointers of this rank from those that it is given."""
    return not isinstance(op, ditron.SymmAtOp | ditron.MulticastPtrOp) and all(
        "!tt.ptr" in str(result.type) for result in op.results
    )
