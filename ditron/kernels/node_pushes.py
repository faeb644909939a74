"""Steps of host programs over several nodes: a shard's way to all ranks, by NICs and then by copy engines."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.group import Group
from ditron.kernels.operands import QUANTIZED
from ditron.kernels.schedules import fits_tile_kernel
from ditron.kernels.tiles import piece_rows
from ditron_compiler.errors import DitronError, NodesError

__all__ = ["HierarchicalPushes", "algorithm_on_nodes", "nearest_shard"]


@ditron.jit
def nearest_shard(order, own, ranks):
    """The shard that a rank comes to as its ``order``-th: of its own node first, then of the nodes after it."""
    local = dl.num_local_ranks()
    node = (own // local + order // local) % (ranks // local)
    return node * local + (own % local + order % local) % local


@ditron.jit(do_not_specialize=["epoch"])
def put_shard_kernel(
    gathered_ptr, arrived_ptr, done_ptr, rows, K, epoch, BLOCK_ROWS: tl.constexpr, PIECES: tl.constexpr
):
    """One program: this rank's shard to the rank of the same number on every other node, which needs it first first."""
    own = dl.rank()
    ranks = dl.num_ranks()
    local = dl.num_local_ranks()
    for step in range(local, ranks, local):  # all that this rank was sent in the call before has been read
        dl.notify(done_ptr + own, (own + step) % ranks, epoch)
    tiles = tl.cdiv(rows, BLOCK_ROWS)
    row_bytes = tl.cast(K, tl.int64) * (gathered_ptr.dtype.element_ty.primitive_bitwidth // 8)
    for step in range(local, ranks, local):
        peer = (own + ranks - step) % ranks
        dl.wait(done_ptr + peer, 1, epoch)
        for piece in tl.static_range(PIECES):
            first = tl.minimum(tiles * piece // PIECES * BLOCK_ROWS, rows)
            last = tl.minimum(tiles * (piece + 1) // PIECES * BLOCK_ROWS, rows)
            here_ptr = gathered_ptr + (own.to(tl.int64) * rows + first) * K
            arrived = arrived_ptr + own * PIECES + piece
            dl.putmem_signal_nbi(here_ptr, here_ptr, (last - first) * row_bytes, arrived, epoch, peer)
    dl.quiet()


class HierarchicalPushes:
    """Every rank's shard [rows, K] in ``gathered`` [ranks * capacity, K] of each, on nodes of equally many ranks.

    A NIC puts a shard to the rank of the same number on every other node, whose copy engine sends it on to the others
    of that node; so it comes to a node once. ``arrived`` [ranks * pieces] is by shard and piece, of ``block_rows`` rows
    each or multiples. The shards follow each other without gaps, and the own one is there too: NICs read symmetric
    memory.
    """

    def __init__(self, shard: Any, capacity: int, block_rows: int, pieces: int):
        self.shard, self.rank, self.ranks, self.epoch = shard, dh.rank(), dh.num_ranks(), dh.epoch()
        self.local = dh.num_local_ranks()
        self.block_rows, self.pieces = block_rows, pieces
        self.gathered = dh.symm_empty(self.ranks * capacity, shard.shape[1], dtype=shard.dtype, name="gathered")
        self.arrived = dh.symm_zeros(self.ranks * pieces, dtype=torch.int64, name="arrived")
        self.done = dh.symm_zeros(self.ranks, dtype=torch.int64, name="done")

    def of(self, rank: Any) -> Any:
        """The place of a rank's shard."""
        rows = self.shard.shape[0]
        return self.gathered[rank * rows : (rank + 1) * rows]

    def push(self) -> None:
        """Copy the own shard, on the main stream, then enqueue all that the others get, on streams "net" and "copy".

        The put is a kernel of one program, which needs a part of an SM while programs of other kernels wait for shards.
        """
        rows, K = self.shard.shape
        dh.copy(self.shard, self.of(self.rank))
        copied = dh.record()
        with dh.stream("net"):
            dh.await_event(copied)
            put_shard_kernel[(1,)](
                self.gathered,
                self.arrived,
                self.done,
                rows,
                K,
                self.epoch,
                BLOCK_ROWS=self.block_rows,
                PIECES=self.pieces,
                num_warps=1,
            )
        first = self.rank - dh.local_rank()
        with dh.stream("copy"):
            for step in dh.range(1, self.local):
                peer = first + (dh.local_rank() + step) % self.local
                dh.signal_write(self.done[self.rank], self.epoch, peer)
            for step in dh.range(1, self.local):
                peer = first + (dh.local_rank() - step) % self.local
                dh.signal_wait(self.done[peer], self.epoch)
                for piece in range(self.pieces):
                    self._send_on(self.shard, self.rank, piece, peer)
            for far in dh.range(1, self.ranks // self.local):
                sender = (self.rank + far * self.local) % self.ranks
                for piece in range(self.pieces):
                    self.await_piece(sender, piece)
                    for step in dh.range(1, self.local):
                        peer = first + (dh.local_rank() - step) % self.local
                        self._send_on(self.of(sender), sender, piece, peer)

    def _send_on(self, shard: Any, sender: Any, piece: int, peer: Any) -> None:
        begin, end = piece_rows(self.shard.shape[0], self.block_rows, piece, self.pieces)
        dh.rank_copy(shard[begin:end], self.of(sender)[begin:end], peer)
        dh.signal_write(self.arrived[sender * self.pieces + piece], self.epoch, peer)

    def await_piece(self, sender: Any, piece: int) -> None:
        """Let the stream wait for a piece of another rank's shard."""
        dh.signal_wait(self.arrived[sender * self.pieces + piece], self.epoch)

    def await_all(self) -> None:
        """Let the stream wait for the other ranks' shards."""
        for step in dh.range(1, self.ranks):
            for piece in range(self.pieces):
                self.await_piece((self.rank + step) % self.ranks, piece)


def algorithm_on_nodes(what: str, group: Group, algorithm: str | None, *operands: torch.Tensor) -> str:
    """The algorithm for a group of several nodes. Raises DitronError for what only one node has."""
    if algorithm == "nccl":
        return algorithm
    if algorithm not in (None, "overlapped"):
        raise NodesError(
            f"{what}: algorithm={algorithm!r} in a group on {len(group.nodes)} nodes: expected 'overlapped' or 'nccl'"
        )
    if not fits_tile_kernel(group, *operands):
        raise NodesError(
            f"{what} on {len(group.nodes)} nodes takes bfloat16 or float16 matrices with rows of a multiple of 16 "
            "bytes, on GPUs from Hopper on: pad them, or use algorithm='nccl'"
        )
    if operands[0].dtype in QUANTIZED:
        raise NodesError(
            f"{what} on {len(group.nodes)} nodes takes no quantized operands: use algorithm='nccl', or a group of one "
            "node"
        )
    _require_even(what, group)
    return "overlapped"


def _require_even(what: str, group: Group) -> None:
    """Raise DitronError unless every node has equally many ranks of the group, one after another."""
    nodes = [rank // group.ranks_per_node for rank in group.ranks]
    local = group.num_ranks // len(group.nodes)
    if any(len(set(nodes[at : at + local])) > 1 for at in range(0, len(nodes), local)) or len(nodes) % local:
        raise DitronError(
            f"{what}: over several nodes the group must have equally many ranks on each, and those of a node one after "
            f"another, got world ranks {group.ranks} on nodes of {group.ranks_per_node}"
        )
