"""Linearized tile index: its range, and whether the work of a program depends on it alone ("must").

If it does, the tiles can be computed in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import function_of, operations, reachable_operations
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.analysis.path_conditions import LESS, NOT_LESS, are_mutually_exclusive, comparisons_on_path
from ditron_compiler.analysis.tile_mapping import TileOwner, program_id_of, scalar_operations
from ditron_compiler.ir.dialects import arith, scf, tt
from ditron_compiler.ir.matchers import constant_int, defining_op


@dataclass(frozen=True)
class TileRange:
    """The linearized indices of all tiles, ``[0, end)``; ``end`` is None if the number of programs is the only bound.

    Without ``stride`` a program computes one tile, of index ``program_id - first`` along ``axis``. With ``stride``
    programs loop over tiles with that step, or with the number of programs along ``axis`` if it is 0.
    """

    index: ir.Value
    end: ir.Value | None
    axis: int
    first: int = 0
    stride: int | None = None


def tile_range(owner: TileOwner) -> TileRange:
    """The range of the linearized index. MatchFailure if a program's work depends on more than the index."""
    index, at = owner.linear_index, owner.anchor
    pid, first = program_id_of(index)
    if pid is None:
        return _loop_range(owner, at)
    if first and not any(
        test.lhs == pid and constant_int(test.rhs) == first for test in comparisons_on_path(at, NOT_LESS, LESS)
    ):
        raise MatchFailure(f"no condition separates the programs below {first} from those that have a tile", at)
    guards = [test.rhs for test in comparisons_on_path(at, LESS, NOT_LESS) if test.lhs == index]
    if len(guards) > 1:
        raise MatchFailure("more than one condition guards the linearized tile index", at)
    _check_conditions(at, {index, pid} if first else {index})
    _check_uses(index, owner, at)
    if pid != index:
        _check_uses(pid, owner, at, allowed=defining_op(index))
    _check_program_ids(pid, at)
    return TileRange(index, guards[0] if guards else None, pid.owner.axis.value, first)


def _loop_range(owner: TileOwner, at: ir.Operation) -> TileRange:
    loop = owner.linear_index.owner.owner
    pid = loop.lowerBound
    if len(loop.initArgs):
        raise MatchFailure("the loop over tiles has loop-carried values, which another order would change", loop)
    axis = pid.owner.axis
    num_programs, stride = defining_op(loop.step), constant_int(loop.step)
    if stride is not None:
        if stride < 1 or not any(
            test.lhs == pid and constant_int(test.rhs) == stride for test in comparisons_on_path(loop, LESS, NOT_LESS)
        ):
            raise MatchFailure(
                f"the loop over tiles steps by {stride}, but is not run by the first {stride} programs", loop
            )
    elif not isinstance(num_programs, tt.GetNumProgramsOp) or num_programs.axis != axis:
        raise MatchFailure(
            "the loop over tiles does not step by the number of programs along the axis of its lower bound", loop
        )
    _check_conditions(at, set() if stride is None else {pid})
    _check_uses(owner.linear_index, owner, at)
    _check_uses(pid, owner, loop, allowed=loop)
    _check_program_ids(pid, loop)
    return TileRange(owner.linear_index, loop.upperBound, axis.value, stride=stride or 0)


def _check_conditions(at: ir.Operation, understood: set[ir.Value]) -> None:
    """Which programs reach ``at`` may depend only on comparisons of the ``understood`` values."""
    op = at
    while (op := op.parent) is not None:
        if not isinstance(op, scf.IfOp):
            continue
        test = defining_op(op.condition)
        known = isinstance(test, arith.CmpIOp) and test.lhs in understood and test.predicate in LESS + NOT_LESS
        if not known and any(isinstance(step, tt.GetProgramIdOp) for step in scalar_operations(op.condition)):
            raise MatchFailure("which programs reach the tile depends on a condition other than 'index < tiles'", op)


def _check_uses(index: ir.Value, owner: TileOwner, at: ir.Operation, allowed: ir.Operation | None = None) -> None:
    """No work but the tile's own may depend on ``index``: it would not be reordered with the tile."""
    loop = index.owner.owner if defining_op(index) is None else None
    for use in index.uses:
        op = use.owner
        # Another quotient than the tile index would not be reordered.
        divided = use.operand_number == 0 and (
            op == defining_op(owner.tile) or isinstance(op, (arith.RemSIOp, arith.RemUIOp)) and op.rhs == owner.others
        )
        guard = isinstance(op, arith.CmpIOp) and all(
            isinstance(user, scf.IfOp) and user.is_ancestor(at) for user in op.result.users
        )
        # A comparison of the tile index would select other programs.
        reordered = index == owner.tile and not isinstance(op, arith.CmpIOp) and owner.is_reordered(use)
        if not (divided or guard or reordered or op == allowed or are_mutually_exclusive(op, at, loop)):
            raise MatchFailure(
                f"the linearized tile index is also used by this '{op.name}', which would not be reordered: "
                "compute it from the quotient and the remainder",
                op,
            )


def _check_program_ids(pid: ir.Value, at: ir.Operation) -> None:
    """Nothing else in the kernel, or in a function that it calls, may read the program id along that axis."""
    for op in _program_id_reads(function_of(at), pid.owner.axis):
        if isinstance(op, tt.CallOp) and not are_mutually_exclusive(op, at):
            raise MatchFailure(
                "this call may depend on the program id, which would not be reordered: pass the tile index to "
                "the function",
                op,
            )
        if (
            isinstance(op, tt.GetProgramIdOp)
            and op != pid.owner
            and not all(are_mutually_exclusive(use.owner, at) for use in op.result.uses)
        ):
            raise MatchFailure(
                "the program id is also read here, where it would not be reordered: compute from the tile's "
                "quotient and remainder",
                op,
            )


def _program_id_reads(function: tt.FuncOp, axis: ir.Attribute) -> Iterator[ir.Operation]:
    """The operations of ``function`` that read the program id along ``axis``, and calls of functions that may."""

    def reads(op: ir.Operation) -> bool:
        return isinstance(op, tt.GetProgramIdOp) and op.axis == axis

    for op in operations(function):
        if reads(op) or (
            isinstance(op, tt.CallOp)
            # A call in the result is of a function without a body.
            and any(reads(inner) or isinstance(inner, tt.CallOp) for inner in reachable_operations(op))
        ):
            yield op
