"""Tile mapping: which rank owns a tile, as a kernel computes it from the linearized tile index ("must").

The linearized tile index counts the tiles of all dimensions; it is the program id, or the induction variable of a loop
over tiles. A tile index is its quotient by the number of tiles of the other dimensions, or the index itself. The owner
of a tile is the quotient of a tile index, or of its first row, by the tiles or rows of a rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ditron_compiler import ir
from ditron_compiler.analysis.slicing import backward_slice, incoming_values
from ditron_compiler.ir.dialects import arith, ditron, scf, tt
from ditron_compiler.ir.matchers import INTEGER_CASTS, constant_int, defining_op, is_query

_DIVISIONS = (arith.DivSIOp, arith.DivUIOp)
# Operations whose result is a rank if an operand is, and whose result is a signal of a rank if an operand is its index.
_KEEP_RANK = (*INTEGER_CASTS, arith.MinSIOp, arith.MaxSIOp)
_KEEP_OWNER = (*_KEEP_RANK, arith.AddIOp, arith.SubIOp, arith.MulIOp, tt.AddPtrOp)


@dataclass(frozen=True)
class TileOwner:
    """How a kernel computes the owner of a tile: ``tile * block / shard``, ``tile / shard``, or ``tile``.

    ``block`` and ``shard`` are None where they are 1. ``tile`` is the quotient of the linearized tile index by
    ``others``, the number of tiles of the other dimensions, or with ``others`` None the index itself. ``at`` is the
    operation that uses it.
    """

    tile: ir.Value
    others: ir.Value | None
    shard: ir.Value | None = None
    block: ir.Value | None = None
    at: ir.Operation = field(default=None, compare=False)

    @property
    def linear_index(self) -> ir.Value:
        """The linearized tile index."""
        return self.tile if self.others is None else self.tile.owner.lhs

    @property
    def anchor(self) -> ir.Operation:
        """The operation that defines the tile index, or uses it if that is the linearized index itself."""
        return self.at if self.others is None else self.tile.owner

    def is_reordered(self, use: ir.OpOperand) -> bool:
        """Whether a use of the linearized index itself is in the part of the kernel that is reordered."""
        return self.others is None and _is_nested(use.owner, self.at.block)


def tile_owners(value: ir.Value, user: ir.Operation, is_rank: bool, quotient: bool = True) -> Iterator[TileOwner]:
    """The owners of tiles that ``value``, an operand of ``user``, depends on; ``is_rank``: it is a rank, not a signal.

    With ``quotient``, tile indices are quotients of the linearized index; without, the index itself.
    """
    for source in _owner_sources(value, is_rank):
        if is_rank and (tile := _tile_index(source, quotient)):
            yield TileOwner(*tile, at=user)
            continue
        op = defining_op(source)
        if not isinstance(op, _DIVISIONS):
            continue
        row, shard = op.lhs, op.rhs
        product = defining_op(row)
        if tile := _tile_index(row, quotient):
            yield TileOwner(*tile, shard, at=op)
        elif isinstance(product, arith.MulIOp):
            for factor, block in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
                if tile := _tile_index(factor, quotient):
                    yield TileOwner(*tile, shard, block, at=product)
                    break


def unsupported_tile_index(value: ir.Value, is_rank: bool) -> ir.Operation | None:
    """The operation other than a division that makes a tile index for ``value`` of the linearized index; None if none.

    None too if ``value`` does not depend on a linearized index.
    """
    for source in filter(_depends_on_linear_index, _owner_sources(value, is_rank)):
        while not _is_linear_index(source):
            op = defining_op(source)
            if not isinstance(op, (*_DIVISIONS, *INTEGER_CASTS, arith.MulIOp)):
                return op
            source = next(filter(_depends_on_linear_index, op.operands))
    return None


def is_rotated_by_rank(value: ir.Value) -> bool:
    """Whether ``value`` is computed from this rank and from a tile index."""
    operations = list(scalar_operations(value))
    return any(is_query(result, ditron.RankOp) for op in operations for result in op.results) and any(
        _tile_index(result) for op in operations for result in op.results
    )


def scalar_operations(value: ir.Value) -> Iterator[ir.Operation]:
    """The scalar operations in the backward slice of ``value``."""
    for source in backward_slice(value):
        op = defining_op(source)
        if op is not None and not len(op.regions) and not ir.ShapedType.isinstance(source.type):
            yield op


def program_id_of(index: ir.Value) -> tuple[ir.Value | None, int]:
    """The program id and the offset that is subtracted from it, if ``index`` is that; None and 0 if not."""
    op, offset = defining_op(index), 0
    if isinstance(op, (arith.SubIOp, arith.AddIOp)) and constant_int(op.rhs) is not None:
        offset = constant_int(op.rhs) * (1 if isinstance(op, arith.SubIOp) else -1)
        index = op.lhs
        op = defining_op(index)
    return (index, offset) if isinstance(op, tt.GetProgramIdOp) else (None, 0)


def _owner_sources(value: ir.Value, is_rank: bool) -> Iterator[ir.Value]:
    """The values in the backward slice of ``value`` through which an owner can reach it unchanged, or as an index.

    The slice ends at quotients, remainders and differences: an owner is the outermost quotient.
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
        if _is_linear_index(value):
            yield value
        elif isinstance(loop, scf.ForOp) and value.arg_number == 0:
            worklist.append(loop.lowerBound)
        elif incoming := incoming_values(value):
            worklist += incoming
        elif (
            op is None
            or not isinstance(op, _KEEP_RANK if is_rank else _KEEP_OWNER)
            or (isinstance(op, arith.SubIOp) and _depends_on_linear_index(op.rhs))
        ):
            yield value
        else:
            worklist += op.operands


def _tile_index(value: ir.Value, quotient: bool = True) -> tuple[ir.Value, ir.Value | None] | None:
    """``value`` and its divisor, if it is a quotient of a linearized index; without ``quotient``, if it is one."""
    if not quotient:
        return (value, None) if _is_linear_index(value) else None
    op = defining_op(value)
    return (value, op.rhs) if isinstance(op, _DIVISIONS) and _is_linear_index(op.lhs) else None


def _depends_on_linear_index(value: ir.Value) -> bool:
    return any(map(_is_linear_index, backward_slice(value)))


def _is_linear_index(value: ir.Value) -> bool:
    return program_id_of(value)[0] is not None or _iterates_over_tiles(value)


def _iterates_over_tiles(index: ir.Value) -> bool:
    """Whether ``index`` is the induction variable of ``for tile in range(program_id, end, step)``."""
    loop = index.owner.owner if defining_op(index) is None else None
    return (
        isinstance(loop, scf.ForOp)
        and index == loop.induction_variable
        and isinstance(defining_op(loop.lowerBound), tt.GetProgramIdOp)
    )


def _is_nested(op: ir.Operation | None, block: ir.Block) -> bool:
    while op is not None and op.block != block:
        op = op.parent
    return op is not None
