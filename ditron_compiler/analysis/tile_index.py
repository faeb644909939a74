"""The line of tiles that programs go along, and whether their work depends on their place in it alone."""

from __future__ import annotations

from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import operations, reached
from ditron_compiler.analysis.path_conditions import BELOW, NOT_BELOW, conditions, exclusive
from ditron_compiler.analysis.tile_mapping import NotFound, Shards, computed_by, program_of
from ditron_compiler.ir.dialects.enums import predicate
from ditron_compiler.ir.matchers import constant_int, defining_op

__all__ = ["Line", "available", "line_of"]

_REMAINDERS = ("arith.remsi", "arith.remui")


@dataclass(frozen=True)
class Line:
    """All tiles in a row, of which programs take one or several: ``index`` is in ``[0, end)``.

    A program takes one, and is number ``index + first`` along ``axis``; ``end`` is None if there is no other end than
    the number of programs. With ``steps`` programs step through all tiles, so many (0: however many) along ``axis``.
    """

    index: ir.Value
    end: ir.Value | None
    axis: int
    first: int = 0
    steps: int | None = None


def line_of(shards: Shards) -> Line:
    """The line that the tiles are a part of. NotFound if a program's work depends on more than its place in it."""
    index, at = shards.index, shards.origin
    pid, first = program_of(index)
    if pid is None:
        return _loop(shards, at)
    if first and not any(
        c.operands[0] == pid and constant_int(c.operands[1]) == first for c in conditions(at, NOT_BELOW, BELOW)
    ):
        raise NotFound(f"no condition separates the programs below {first} from those that have a tile", at)
    guards = [c.operands[1] for c in conditions(at, BELOW, NOT_BELOW) if c.operands[0] == index]
    if len(guards) > 1:
        raise NotFound("more than one condition guards the linearized tile index", at)
    _check_conditions(at, {index, pid} if first else {index})
    _check_uses(index, shards, at)
    if pid != index:
        _check_uses(pid, shards, at, allowed=defining_op(index))
    _check_programs(pid, at)
    axis = ir.IntegerAttr(defining_op(pid).attributes["axis"]).value
    return Line(index, guards[0] if guards else None, axis, first)


def available(value: ir.Value, at: ir.Operation) -> bool:
    """Whether ``value`` is computed before ``at`` on every path to it."""
    op = defining_op(value)
    block = value.owner if op is None else op.block
    while at is not None and at.block != block:
        at = at.parent
    return at is not None and (op is None or op.is_before_in_block(at))


def _loop(shards: Shards, at: ir.Operation) -> Line:
    index = shards.index
    loop = index.owner.owner
    pid, end, step = list(loop.operands)[:3]
    if len(loop.operands) > 3:
        raise NotFound("the loop over tiles has loop-carried values, which another order would change", loop)
    axis = defining_op(pid).attributes["axis"]
    all_programs, steps = defining_op(step), constant_int(step)
    if steps is not None:
        if steps < 1 or not any(
            c.operands[0] == pid and constant_int(c.operands[1]) == steps for c in conditions(loop, BELOW, NOT_BELOW)
        ):
            raise NotFound(f"the loop over tiles steps by {steps}, but is not run by the first {steps} programs", loop)
    elif all_programs is None or all_programs.name != "tt.get_num_programs" or all_programs.attributes["axis"] != axis:
        raise NotFound(
            "the loop over tiles does not step by the number of programs along the axis of its lower bound", loop
        )
    _check_conditions(at, set() if steps is None else {pid})
    _check_uses(index, shards, at)
    _check_uses(pid, shards, loop, allowed=loop)
    _check_programs(pid, loop)
    return Line(index, end, ir.IntegerAttr(axis).value, steps=steps or 0)


def _check_conditions(at: ir.Operation, understood: set[ir.Value]) -> None:
    """All programs must come to the tile that a comparison of an ``understood`` number does not keep away."""
    op = at
    while (op := op.parent) is not None:
        if op.name != "scf.if":
            continue
        test = defining_op(op.operands[0])
        known = (
            test is not None
            and test.name == "arith.cmpi"
            and test.operands[0] in understood
            and predicate(test) in BELOW + NOT_BELOW
        )
        if not known and any(step.name == "tt.get_program_id" for step in computed_by(op.operands[0])):
            raise NotFound("which programs reach the tile depends on a condition other than 'index < tiles'", op)


def _check_uses(index: ir.Value, shards: Shards, at: ir.Operation, allowed: ir.Operation | None = None) -> None:
    """Other work than the tile's own must not depend on ``index``: it would stay when the tile goes elsewhere."""
    loop = index.owner.owner if defining_op(index) is None else None
    for use in index.uses:
        op = use.owner
        # Another quotient than the tile would stay, too.
        divided = use.operand_number == 0 and (
            op == defining_op(shards.tile) or op.name in _REMAINDERS and op.operands[1] == shards.others
        )
        condition = op.name == "arith.cmpi" and all(
            user.name == "scf.if" and user.is_ancestor(at) for user in op.results[0].users
        )
        # Who is told apart by a number that is a tile, would be another.
        reached = index == shards.tile and op.name != "arith.cmpi" and shards.reaches(use)
        if not (divided or condition or reached or op == allowed or exclusive(op, at, loop)):
            raise NotFound(
                f"the linearized tile index is also used by this '{op.name}', which would not be reordered: "
                "compute it from the quotient and the remainder",
                op,
            )


def _check_programs(pid: ir.Value, at: ir.Operation) -> None:
    """Nobody but ``pid`` must ask for the program's number along its axis, nor a function that the kernel calls."""
    axis = defining_op(pid).attributes["axis"]
    function = at
    while function.name != "tt.func":
        function = function.parent
    for op in _asking(function, axis):
        if op.name == "tt.call" and not exclusive(op, at):
            raise NotFound(
                "this call may depend on the program id, which would not be reordered: pass the tile index to "
                "the function",
                op,
            )
        if (
            op.name == "tt.get_program_id"
            and op != defining_op(pid)
            and not all(exclusive(use.owner, at) for use in op.results[0].uses)
        ):
            raise NotFound(
                "the program id is also read here, where it would not be reordered: compute from the tile's "
                "quotient and remainder",
                op,
            )


def _asking(function: ir.Operation, axis: ir.Attribute) -> list[ir.Operation]:
    """What in ``function`` asks for the program's number along ``axis``, and calls of functions that may."""

    def asks(op: ir.Operation) -> bool:
        return op.name == "tt.get_program_id" and op.attributes["axis"] == axis

    # A call that is reached has no body to look into.
    return [
        op
        for op in operations(function)
        if asks(op) or op.name == "tt.call" and any(asks(o) or o.name == "tt.call" for o in reached(op))
    ]
