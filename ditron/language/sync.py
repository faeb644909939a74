"""Barriers of ranks in a kernel, and the order in which a program takes its tiles."""

from __future__ import annotations

from triton.language import core as tl

from ditron.language._core import attributes, emit, emit_void, enum, integer, primitive

__all__ = ["barrier", "barrier_all", "swizzle", "sync_all"]


@primitive
def barrier_all(_semantic=None):
    """Wait until every rank of the kernel's group has come here, and all puts before it have landed.

    OpenSHMEM: ``shmem_barrier_all``; the group is the kernel's world. One program of each rank calls it; two at once
    would be counted as two ranks.
    """
    emit_void("barrier_all", [], _semantic)


@primitive
def barrier(team="group", _semantic=None):
    """:func:`barrier_all` of a team: ``"group"``, ``"node"`` or ``"world"``; ``shmem_team_sync`` and ``quiet``."""
    emit_void("barrier", [], _semantic, attributes(team=enum("barrier", team, "team")))


@primitive
def sync_all(team="group", _semantic=None):
    """As :func:`barrier`, but puts need not have landed: ``shmem_sync_all`` / ``shmem_team_sync``."""
    emit_void("sync_all", [], _semantic, attributes(team=enum("sync_all", team, "team")))


@primitive
def swizzle(tile, size, block, mode="gather", team="group", _semantic=None):
    """The tile to work on in place of ``tile``, so that each rank starts where its data is or is needed (int32 scalar).

    Args:
        tile: index of a tile along the sharded dimension (int scalar), ``0 <= tile < cdiv(size, block)``.
        size: elements along that dimension, over all ranks. Rank ``r`` has the ``cdiv(size, num_ranks)`` elements from
            ``r * cdiv(size, num_ranks)`` on; the last ranks may have fewer or none. block: elements of a tile.
        mode: ``"gather"``, as shards arrive from the others: first the own shard, then those of the following ranks of
            the node, then the next nodes', nearest first. ``"scatter"``, as they are sent to others: first the next
            nodes' shards, then the own node's, the own at the end. Tiles that straddle ranks come when the last of them
            has arrived, after its other tiles (gather), or before the other tiles of the first of them (scatter).
        team: whose ranks share the dimension; the ranks of ``"node"`` and ``"world"`` count as one node.

    A permutation of the tiles, for any size: ranks need not divide it. It takes some 30 integer operations where all
    ranks are on one node, 60 across nodes. Tiles of rows that are sorted by expert have a table instead
    (:func:`ditron.kernels.expert_tile`).

        pid_m = dl.swizzle(tl.program_id(0), M, BLOCK_M)
    """
    tile = integer("swizzle", tile, "tile", tl.int32, _semantic, minimum=0)
    size = integer("swizzle", size, "size", tl.int32, _semantic, minimum=1)
    block = integer("swizzle", block, "block", tl.int32, _semantic, minimum=1)
    attrs = {"mode": enum("swizzle", mode, "swizzle_mode", "mode"), "team": enum("swizzle", team, "team")}
    return emit("swizzle", [tile, size, block], tl.int32, _semantic, attributes(**attrs), pure=True)
