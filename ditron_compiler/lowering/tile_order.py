"""The order in which a rank visits the tiles of a sharded dimension, in closed form.

The dimension has ``size`` elements, cut in tiles of ``block`` (the last may be short) and sharded over the ranks:
rank ``r`` has ``ceil(size / num_ranks)`` elements from ``r * ceil(size / num_ranks)`` on; the last shards may be short
or empty. A tile *straddles* when several ranks have elements of it. Ranks are numbered node by node.

**gather** (shards arrive): the own shard first, then those of the ranks that follow on the own node, round to the one
before; then the next nodes, nearest first, each from the rank with the own local number on. Tiles stand in the order in
which the last of their ranks arrives, and among those of one arrival the straddling ones last.

**scatter** (shards are sent): the next node first and the own one last; on each node the rank that follows the own
local number first, the one with it last, so that the own shard comes at the very end. Tiles stand in the order of the
first of their ranks, and of one rank the straddling ones, which two ranks wait for, first. All ranks begin at different
owners.

That is: tiles sorted by (arrival of the last rank, straddles) or (turn of the first rank, does not straddle). Nobody
sorts, though. A tile's place is found by two rotations and a swap:

1. rotate all tiles so that the own (scatter: the next) node's come first, and find the node of the tile;
2. rotate the node's tiles so that the own (scatter: the next) rank's come first, and find the rank of the tile;
3. within the rank's tiles, move the straddling one from the front to the back (scatter: from the back to the front).

A tile that straddles the very place where a rotation begins is its exception: it is left to the end (scatter: it comes
at the beginning), and is not moved again. Finding the node or rank is one remainder by the length of its shard.

The functions work on Python integers, and on whatever else has their operators, as :mod:`.swizzle` needs: each line is
one or two operations of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ORDERS", "Nodes", "gather", "scatter", "swizzled"]


@dataclass(frozen=True)
class Nodes:
    """Where the rank is among several nodes: its node, its number there, and how many ranks each node has."""

    node: Any
    local_rank: Any
    num_local_ranks: Any


def swizzled(
    tile: int, size: int, block: int, rank: int, num_ranks: int, mode: str, ranks_per_node: int | None = None
) -> int:
    """The tile that ``rank`` works on ``tile``-th. ``ranks_per_node`` divides ``num_ranks``; default: all of them.

    >>> [swizzled(t, 8, 1, rank=1, num_ranks=4, mode="gather") for t in range(8)]
    [2, 3, 4, 5, 6, 7, 0, 1]
    >>> [swizzled(t, 8, 1, rank=1, num_ranks=4, mode="scatter") for t in range(8)]
    [4, 5, 6, 7, 0, 1, 2, 3]
    >>> [swizzled(t, 8, 1, rank=1, num_ranks=4, mode="gather", ranks_per_node=2) for t in range(8)]
    [2, 3, 0, 1, 6, 7, 4, 5]
    >>> [swizzled(t, 18, 4, rank=0, num_ranks=3, mode="gather") for t in range(5)]  # 1 straddles ranks 0 and 1
    [0, 2, 1, 3, 4]
    """
    nodes = None if ranks_per_node in (None, num_ranks) else Nodes(*divmod(rank, ranks_per_node), ranks_per_node)
    return ORDERS[mode](tile, size, block, rank, num_ranks, nodes)


def gather(tile: Any, size: Any, block: Any, rank: Any, num_ranks: Any, nodes: Nodes | None) -> Any:
    """The tile at place ``tile`` of the order of arrival."""
    tiles, shard = ceildiv(size, block), ceildiv(size, num_ranks)
    if nodes is None:
        low, high, begin = 0, tiles, rank * shard
    else:
        node_shard = nodes.num_local_ranks * shard
        node_begin = minimum(nodes.node * node_shard, size)
        first = ceildiv(node_begin, block)
        tile = tile + first
        wrapped = tile >= tiles
        tile = where(wrapped, tile - tiles, tile)
        # The node is that of the tile's last row; the tile that straddles the beginning of ours counts as before it.
        end = where(wrapped, node_begin, size)
        row = minimum(tile * block + block, end) - 1
        start = row - row % node_shard
        stop = start + node_shard
        low = maximum(start // block, where(wrapped, 0, first))
        high = where(stop < end, stop // block, where(wrapped, first, tiles))
        # From the node's first rank on there is nothing to rotate.
        begin = start + where(nodes.local_rank > 0, nodes.local_rank * shard, node_shard)
    tile = tile + minimum(ceildiv(begin, block), high) - low
    tile = where(tile >= high, tile - (high - low), tile)

    # The rank is that of the tile's last row; other tiles end in its shard if they end at or before `last`.
    end = tile * block + block
    row = minimum(end, size) - 1
    start = row - row % shard
    stop = start + shard
    last = where(stop < size, stop, size + (block - 1))
    # How far the shard's start is inside its tile, and behind the nearest place where a rotation began.
    inside = start % block
    behind = start - begin if nodes is None else minimum_unsigned(start - begin, start - node_begin)
    moved = where(end + block > last, start // block, tile + 1)
    return where(both(inside > 0, at_least_unsigned(behind, inside)), moved, tile)


def scatter(tile: Any, size: Any, block: Any, rank: Any, num_ranks: Any, nodes: Nodes | None) -> Any:
    """The tile at place ``tile`` of the order of sending."""
    tiles, shard = ceildiv(size, block), ceildiv(size, num_ranks)
    if nodes is None:
        low, high = 0, tiles
        begin = rank * shard + shard
        first = where(begin < size, begin // block, high)
    else:
        node_shard = nodes.num_local_ranks * shard
        node_begin = nodes.node * node_shard + node_shard
        first = where(node_begin < size, node_begin // block, tiles)
        tile = tile + first
        wrapped = tile >= tiles
        tile = where(wrapped, tile - tiles, tile)
        # The node is that of the tile's first row; the tile that straddles the end of ours counts as behind it.
        row = maximum(tile * block, where(wrapped, 0, node_begin))
        start = row - row % node_shard
        rounded = start + (block - 1)
        low = where(start == node_begin, first, rounded // block)
        high = minimum((rounded + node_shard) // block, where(wrapped, first, tiles))
        following = nodes.local_rank + 1
        begin = start + where(following < nodes.num_local_ranks, following * shard, 0)
        first = where(begin < size, maximum(begin // block, low), high)
    tile = tile + first - low
    tile = where(tile >= high, tile - (high - low), tile)

    # The rank is that of the tile's first row; `row - start < block` says that no tile before begins in its shard.
    row = tile * block
    after_start = row % shard
    stop = row - after_start + shard
    straddles = both(both(stop % block > 0, stop < size), stop != begin)
    if nodes is not None:
        straddles = both(straddles, stop != node_begin)
    return where(straddles, where(after_start < block, stop // block, tile - 1), tile)


#: The order of each mode of ``ditron.swizzle``.
ORDERS = {"gather": gather, "scatter": scatter}


# --- what Python's operators do not say, on integers or on anything that has these as methods -----------------------


def where(condition: Any, yes: Any, no: Any) -> Any:
    return (yes if condition else no) if isinstance(condition, bool) else condition.where(yes, no)


def minimum(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) else a.minimum(b)


def maximum(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) else a.maximum(b)


def minimum_unsigned(a: Any, b: Any) -> Any:
    """Of 32-bit words: something negative is larger than all that is not."""
    return min(a % 2**32, b % 2**32) if isinstance(a, int) else a.minimum_unsigned(b)


def at_least_unsigned(a: Any, b: Any) -> Any:
    return a % 2**32 >= b if isinstance(a, int) else a.at_least_unsigned(b)


def both(a: Any, b: Any) -> Any:
    return a and b if isinstance(a, bool) else a.both(b)


def ceildiv(a: Any, b: Any) -> Any:
    """``a`` is 0 or more and ``b`` positive: rounding towards zero is rounding down."""
    return (a + (b - 1)) // b
