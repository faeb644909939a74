"""Tile order: ``ditron.swizzle`` becomes arithmetic."""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.lowering.enums import keyword
from ditron_compiler.passes.base import Pass

__all__ = ["LowerSwizzle", "swizzled"]


def swizzled(tile: int, size: int, block: int, rank: int, num_ranks: int, mode: str) -> int:
    """The tile that ``rank`` works on ``tile``-th; what the pass computes, in Python.

    >>> [swizzled(t, 8, 1, rank=1, num_ranks=4, mode="gather") for t in range(8)]
    [2, 3, 4, 5, 6, 7, 0, 1]
    >>> [swizzled(t, 8, 1, rank=1, num_ranks=4, mode="scatter") for t in range(8)]
    [4, 5, 6, 7, 0, 1, 2, 3]
    """
    tiles = -(-size // block)
    shard = -(-size // num_ranks)
    if mode == "gather":
        first = -(-rank * shard // block)
    else:
        first = (rank + 1) % num_ranks * shard // block
    return (tile + first) % tiles


@dataclass(frozen=True)
class LowerSwizzle(Pass):
    """Compute the order in which a rank visits tiles.

    The tiles of a sharded dimension are rotated. ``gather`` begins with the first tile that lies wholly at or after the
    beginning of the own shard: a tile that reaches into the shard before comes last, when that shard has arrived.
    ``scatter`` begins with the tile that holds the beginning of the next rank's shard, so that the own shard comes
    last. A rotation visits every tile once for any size, block and number of ranks.

    Before::

        %m = ditron.swizzle gather %tile of %size by %block

    After::

        %rank = ditron.rank
        %num_ranks = ditron.num_ranks
        // tiles = ceil(size / block); shard = ceil(size / num_ranks); first = ceil(rank * shard / block)
        // m = (tile + first) mod tiles
    """

    name: ClassVar[str] = "lower-swizzle"
    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        found: list[ir.Operation] = []
        op.walk(lambda o: found.append(o) if o.name == "ditron.swizzle" else None)
        for swizzle in found:
            _lower(swizzle)


def _lower(op: ir.Operation) -> None:
    i32 = ir.IntegerType.get_signless(32)
    tile, size, block = op.operands
    team = {"team": op.attributes["team"]}
    with op.location, ir.InsertionPoint(op):

        def make(name: str, *operands: ir.Value, **attributes: ir.Attribute) -> ir.Value:
            return ir.Operation.create(name, results=[i32], operands=list(operands), attributes=attributes).result

        def ceildiv(a: ir.Value, b: ir.Value) -> ir.Value:
            # Not arith.ceildivsi, which Triton's conversion does not know; both operands are positive.
            return make("arith.divsi", make("arith.subi", make("arith.addi", a, b), one), b)

        one = make("arith.constant", value=ir.IntegerAttr.get(i32, 1))
        rank, num_ranks = make("ditron.rank", **team), make("ditron.num_ranks", **team)
        tiles, shard = ceildiv(size, block), ceildiv(size, num_ranks)
        if keyword(op.attributes["mode"]) == "gather":
            first = ceildiv(make("arith.muli", rank, shard), block)
        else:
            following = make("arith.remsi", make("arith.addi", rank, one), num_ranks)
            first = make("arith.divsi", make("arith.muli", following, shard), block)
        result = make("arith.remsi", make("arith.addi", tile, first), tiles)
    op.result.replace_all_uses_with(result)
    op.erase()
