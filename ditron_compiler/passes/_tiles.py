"""Which part of a kernel's work a tile index is, and what depends on it."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ditron_compiler import ir
from ditron_compiler.passes._calls import reached
from ditron_compiler.passes._conditions import BELOW, NOT_BELOW, conditions, exclusive
from ditron_compiler.passes._flow import computed_from
from ditron_compiler.passes._pointers import constant, defining, sources
from ditron_compiler.passes._ranks import is_query

__all__ = ["Line", "NotFound", "Shards", "available", "depends_on_rank", "line_of", "other_index", "owners"]

_DIVISIONS = ("arith.divsi", "arith.divui")
_WIDTH = ("arith.extsi", "arith.extui", "arith.trunci")
# What an owner passes through and stays the owner, and what else leaves a signal its own.
_SAME_RANK = (*_WIDTH, "arith.minsi", "arith.maxsi")
_OF_THE_RANK = (*_SAME_RANK, "arith.addi", "arith.subi", "arith.muli", "tt.addptr")
_REMAINDERS = ("arith.remsi", "arith.remui")


class NotFound(Exception):
    """Something that is needed of a kernel cannot be proved; says what, and at which operation."""

    def __init__(self, why: str, at: ir.Operation | None = None):
        super().__init__(why)
        self.at = at


@dataclass(frozen=True)
class Shards:
    """How a kernel computes who owns a tile: ``tile * block / shard``, or ``tile / shard``, or ``tile``.

    ``block`` and ``shard`` are None where they are 1. ``tile`` is a place in a line of tiles, divided by ``others``,
    the tiles of other dimensions; with ``others`` None it is the place itself. ``at`` computes with it.
    """

    tile: ir.Value
    others: ir.Value | None
    shard: ir.Value | None = None
    block: ir.Value | None = None
    at: ir.Operation = field(default=None, compare=False)

    @property
    def index(self) -> ir.Value:
        """The place in the line of tiles."""
        return self.tile if self.others is None else self.tile.owner.operands[0]

    @property
    def origin(self) -> ir.Operation:
        """What makes the tile, or if nothing does, computes with it."""
        return self.at if self.others is None else self.tile.owner

    def reaches(self, use: ir.OpOperand) -> bool:
        """Whether a use of a tile that is the place itself is one that another order reaches."""
        return self.others is None and _under(use.owner, self.at.block)


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


def owners(value: ir.Value, user: ir.Operation, is_rank: bool, divided: bool = True) -> Iterator[Shards]:
    """The owners of tiles that ``value`` is computed from, for ``user``; ``is_rank`` says that it is a rank itself.

    ``divided``: tiles are quotients of the place in a line of tiles, else the place itself.
    """
    for end in _ends(value, is_rank):
        if is_rank and (tile := _tile(end, divided)):
            yield Shards(*tile, at=user)
            continue
        op = defining(end)
        if op is None or op.name not in _DIVISIONS:
            continue
        row, shard = op.operands
        product = defining(row)
        if tile := _tile(row, divided):
            yield Shards(*tile, shard, at=op)
        elif product is not None and product.name == "arith.muli":
            for factor, block in (product.operands, list(product.operands)[::-1]):
                if tile := _tile(factor, divided):
                    yield Shards(*tile, shard, block, at=product)
                    break


def other_index(value: ir.Value, is_rank: bool) -> ir.Operation | None:
    """What makes of a place in a line of tiles the index that ``value`` depends on, and is no division of the place.

    None when ``value`` does not depend on a place, or only on what ``owners`` takes for a tile.
    """
    for end in filter(_depends_on_place, _ends(value, is_rank)):
        while not _is_place(end):
            op = defining(end)
            if op is None or op.name not in (*_DIVISIONS, *_WIDTH, "arith.muli"):
                return op
            end = next(filter(_depends_on_place, op.operands))
    return None


def depends_on_rank(value: ir.Value) -> bool:
    """Whether ``value`` is computed from this rank's number and from a tile."""
    operations = list(_slice(value))
    return (any(is_query(result, "rank") for op in operations for result in op.results)
            and any(_tile(result) for op in operations for result in op.results))


def line_of(shards: Shards) -> Line:
    """The line that the tiles are a part of. NotFound if a program's work depends on more than its place in it."""
    index, at = shards.index, shards.origin
    pid, first = _program(index)
    if pid is None:
        return _loop(shards, at)
    if first and not any(c.operands[0] == pid and constant(c.operands[1]) == first
                         for c in conditions(at, NOT_BELOW, BELOW)):
        raise NotFound(f"programs before number {first} are not told apart from those that have a tile", at)
    guards = [c.operands[1] for c in conditions(at, BELOW, NOT_BELOW) if c.operands[0] == index]
    if len(guards) > 1:
        raise NotFound("the tile stands under more than one condition on its place in the line", at)
    _check_conditions(at, {index, pid} if first else {index})
    _check_uses(index, shards, at)
    if pid != index:
        _check_uses(pid, shards, at, allowed=defining(index))
    _check_programs(pid, at)
    axis = ir.IntegerAttr(defining(pid).attributes["axis"]).value
    return Line(index, guards[0] if guards else None, axis, first)


def available(value: ir.Value, at: ir.Operation) -> bool:
    """Whether ``value`` is computed before ``at`` on every path to it."""
    op = defining(value)
    block = value.owner if op is None else op.block
    while at is not None and at.block != block:
        at = at.parent
    return at is not None and (op is None or op.is_before_in_block(at))


def _slice(value: ir.Value) -> Iterator[ir.Operation]:
    """The scalar operations that ``value`` is computed by."""
    for source in computed_from(value):
        op = defining(source)
        if op is not None and not len(op.regions) and not ir.ShapedType.isinstance(source.type):
            yield op


def _ends(value: ir.Value, is_rank: bool) -> Iterator[ir.Value]:
    """The values that ``value`` is computed from in such a way that if they are owners, it is one, or that of one.

    What is divided, subtracted or taken the remainder of is something else: an owner is the outermost quotient.
    """
    seen: set[ir.Value] = set()
    worklist = [value]
    while worklist:
        value = worklist.pop()
        if value in seen:
            continue
        seen.add(value)
        op = defining(value)
        loop = value.owner.owner if op is None else None
        if _is_place(value):
            yield value
        elif loop is not None and loop.name == "scf.for" and value.arg_number == 0:
            worklist.append(loop.operands[0])
        elif passed_on := sources(value):
            worklist += passed_on
        elif op is None or op.name not in (_SAME_RANK if is_rank else _OF_THE_RANK) or (
                op.name == "arith.subi" and _depends_on_place(op.operands[1])):
            yield value
        else:
            worklist += op.operands


def _tile(value: ir.Value, divided: bool = True) -> tuple[ir.Value, ir.Value | None] | None:
    """``value`` and what it divides by, if it is a place in a line of tiles that is divided, or the place itself."""
    op = defining(value)
    if not divided:
        return (value, None) if _is_place(value) else None
    return (value, op.operands[1]) if op is not None and op.name in _DIVISIONS and _is_place(op.operands[0]) else None


def _depends_on_place(value: ir.Value) -> bool:
    return any(map(_is_place, computed_from(value)))


def _is_place(value: ir.Value) -> bool:
    return _program(value)[0] is not None or _steps_through_tiles(value)


def _program(index: ir.Value) -> tuple[ir.Value | None, int]:
    """The program's number that ``index`` is, and what is taken from it; None if it is something else."""
    op, first = defining(index), 0
    if op is not None and op.name in ("arith.subi", "arith.addi") and constant(op.operands[1]) is not None:
        first = constant(op.operands[1]) * (1 if op.name == "arith.subi" else -1)
        index = op.operands[0]
        op = defining(index)
    return (index, first) if op is not None and op.name == "tt.get_program_id" else (None, 0)


def _steps_through_tiles(index: ir.Value) -> bool:
    """``for tile in range(program_id, end, step)``."""
    loop = index.owner.owner if defining(index) is None else None
    if loop is None or loop.name != "scf.for" or index != index.owner.arguments[0]:
        return False
    low = defining(loop.operands[0])
    return low is not None and low.name == "tt.get_program_id"


def _loop(shards: Shards, at: ir.Operation) -> Line:
    index = shards.index
    loop = index.owner.owner
    pid, end, step = list(loop.operands)[:3]
    if len(loop.operands) > 3:
        raise NotFound("the loop over tiles carries values from one tile to the next, which another order would change",
                       loop)
    axis = defining(pid).attributes["axis"]
    all_programs, steps = defining(step), constant(step)
    if steps is not None:
        if steps < 1 or not any(c.operands[0] == pid and constant(c.operands[1]) == steps
                                for c in conditions(loop, BELOW, NOT_BELOW)):
            raise NotFound(f"the loop over tiles steps by {steps}, and is not run by the first {steps} programs", loop)
    elif all_programs is None or all_programs.name != "tt.get_num_programs" or all_programs.attributes["axis"] != axis:
        raise NotFound("the loop over tiles does not step by the number of programs along the axis that it begins on",
                       loop)
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
        test = defining(op.operands[0])
        known = test is not None and test.name == "arith.cmpi" and test.operands[0] in understood \
            and ir.IntegerAttr(test.attributes["predicate"]).value in BELOW + NOT_BELOW
        if not known and any(step.name == "tt.get_program_id" for step in _slice(op.operands[0])):
            raise NotFound("which programs come to the tile depends on a condition other than 'index < tiles'", op)


def _check_uses(index: ir.Value, shards: Shards, at: ir.Operation, allowed: ir.Operation | None = None) -> None:
    """Other work than the tile's own must not depend on ``index``: it would stay when the tile goes elsewhere."""
    loop = index.owner.owner if defining(index) is None else None
    for use in index.uses:
        op = use.owner
        # Another quotient than the tile would stay, too.
        divided = use.operand_number == 0 and (
            op == defining(shards.tile) or op.name in _REMAINDERS and op.operands[1] == shards.others)
        condition = op.name == "arith.cmpi" and all(user.name == "scf.if" and user.is_ancestor(at)
                                                    for user in op.results[0].users)
        # Who is told apart by a number that is a tile, would be another.
        reached = index == shards.tile and op.name != "arith.cmpi" and shards.reaches(use)
        if not (divided or condition or reached or op == allowed or exclusive(op, at, loop)):
            raise NotFound(f"the place in the line of tiles is also used by this '{op.name}', where another order "
                           "would not reach it: compute it from the quotient and the remainder", op)


def _check_programs(pid: ir.Value, at: ir.Operation) -> None:
    """Nobody but ``pid`` must ask for the program's number along its axis, nor a function that the kernel calls."""
    axis = defining(pid).attributes["axis"]
    function = at
    while function.name != "tt.func":
        function = function.parent
    for op in _asking(function, axis):
        if op.name == "tt.call" and not exclusive(op, at):
            raise NotFound("this call of a function may depend on the program's number, which another order would not "
                           "reach: give the function what it needs of the tile", op)
        if op.name == "tt.get_program_id" and op != defining(pid) and not all(
                exclusive(use.owner, at) for use in op.results[0].uses):
            raise NotFound("the program's number is asked for once more, where another order would not reach it: "
                           "compute from the tile's quotient and remainder", op)


def _asking(function: ir.Operation, axis: ir.Attribute) -> list[ir.Operation]:
    """What in ``function`` asks for the program's number along ``axis``, and calls of functions that may."""
    found: list[ir.Operation] = []

    def asks(op: ir.Operation) -> bool:
        return op.name == "tt.get_program_id" and op.attributes["axis"] == axis

    def visit(op: ir.Operation) -> None:
        # A call that is reached has no body to look into.
        if asks(op) or op.name == "tt.call" and any(asks(o) or o.name == "tt.call" for o in reached(op)):
            found.append(op)

    function.walk(visit)
    return found


def _under(op: ir.Operation | None, block: ir.Block) -> bool:
    while op is not None and op.block != block:
        op = op.parent
    return op is not None
