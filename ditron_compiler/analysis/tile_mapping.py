"""Whom the tiles of a kernel belong to, as it computes that of a place in a line of tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ditron_compiler import ir
from ditron_compiler.analysis.rank_variance import is_query
from ditron_compiler.analysis.slicing import backward_slice, incoming_values
from ditron_compiler.ir.matchers import INTEGER_CASTS, constant_int, defining_op

__all__ = ["NotFound", "Shards", "computed_by", "depends_on_rank", "other_index", "owners", "program_of"]

_DIVISIONS = ("arith.divsi", "arith.divui")
# What an owner passes through and stays the owner, and what else leaves a signal its own.
_SAME_RANK = (*INTEGER_CASTS, "arith.minsi", "arith.maxsi")
_OF_THE_RANK = (*_SAME_RANK, "arith.addi", "arith.subi", "arith.muli", "tt.addptr")


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


def owners(value: ir.Value, user: ir.Operation, is_rank: bool, divided: bool = True) -> Iterator[Shards]:
    """The owners of tiles that ``value`` is computed from, for ``user``; ``is_rank`` says that it is a rank itself.

    ``divided``: tiles are quotients of the place in a line of tiles, else the place itself.
    """
    for end in _ends(value, is_rank):
        if is_rank and (tile := _tile(end, divided)):
            yield Shards(*tile, at=user)
            continue
        op = defining_op(end)
        if op is None or op.name not in _DIVISIONS:
            continue
        row, shard = op.operands
        product = defining_op(row)
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
            op = defining_op(end)
            if op is None or op.name not in (*_DIVISIONS, *INTEGER_CASTS, "arith.muli"):
                return op
            end = next(filter(_depends_on_place, op.operands))
    return None


def depends_on_rank(value: ir.Value) -> bool:
    """Whether ``value`` is computed from this rank's number and from a tile."""
    operations = list(computed_by(value))
    return any(is_query(result, "rank") for op in operations for result in op.results) and any(
        _tile(result) for op in operations for result in op.results
    )


def computed_by(value: ir.Value) -> Iterator[ir.Operation]:
    """The scalar operations that ``value`` is computed by."""
    for source in backward_slice(value):
        op = defining_op(source)
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
        op = defining_op(value)
        loop = value.owner.owner if op is None else None
        if _is_place(value):
            yield value
        elif loop is not None and loop.name == "scf.for" and value.arg_number == 0:
            worklist.append(loop.operands[0])
        elif passed_on := incoming_values(value):
            worklist += passed_on
        elif (
            op is None
            or op.name not in (_SAME_RANK if is_rank else _OF_THE_RANK)
            or (op.name == "arith.subi" and _depends_on_place(op.operands[1]))
        ):
            yield value
        else:
            worklist += op.operands


def _tile(value: ir.Value, divided: bool = True) -> tuple[ir.Value, ir.Value | None] | None:
    """``value`` and what it divides by, if it is a place in a line of tiles that is divided, or the place itself."""
    op = defining_op(value)
    if not divided:
        return (value, None) if _is_place(value) else None
    return (value, op.operands[1]) if op is not None and op.name in _DIVISIONS and _is_place(op.operands[0]) else None


def _depends_on_place(value: ir.Value) -> bool:
    return any(map(_is_place, backward_slice(value)))


def _is_place(value: ir.Value) -> bool:
    return program_of(value)[0] is not None or _steps_through_tiles(value)


def program_of(index: ir.Value) -> tuple[ir.Value | None, int]:
    """The program's number that ``index`` is, and what is taken from it; None if it is something else."""
    op, first = defining_op(index), 0
    if op is not None and op.name in ("arith.subi", "arith.addi") and constant_int(op.operands[1]) is not None:
        first = constant_int(op.operands[1]) * (1 if op.name == "arith.subi" else -1)
        index = op.operands[0]
        op = defining_op(index)
    return (index, first) if op is not None and op.name == "tt.get_program_id" else (None, 0)


def _steps_through_tiles(index: ir.Value) -> bool:
    """``for tile in range(program_id, end, step)``."""
    loop = index.owner.owner if defining_op(index) is None else None
    if loop is None or loop.name != "scf.for" or index != index.owner.arguments[0]:
        return False
    low = defining_op(loop.operands[0])
    return low is not None and low.name == "tt.get_program_id"


def _under(op: ir.Operation | None, block: ir.Block) -> bool:
    while op is not None and op.block != block:
        op = op.parent
    return op is not None
