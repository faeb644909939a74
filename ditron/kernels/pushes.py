"""Steps of host programs that several operators take: a handshake, and a shard's way to all ranks by copy engines."""

from __future__ import annotations

from typing import Any

import torch

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.tuning.problem import Options

__all__ = ["ShardPushes", "copy_streams_for", "handshake"]


@ditron.jit(do_not_specialize=["epoch"])
def handshake_kernel(done_ptr, epoch):
    """One program: write ``epoch`` to this rank's signal of ``done`` [ranks] on every peer, and wait for theirs."""
    own, ranks = dl.rank(), dl.num_ranks()
    for step in range(1, ranks):
        dl.notify(done_ptr + own, (own + step) % ranks, epoch)
    for step in range(1, ranks):
        dl.wait(done_ptr + (own + step) % ranks, 1, epoch)


def handshake(done: Any) -> None:
    """Let the stream go on when no rank reads any more what it was sent in the call before.

    To be called where this rank has read what it was sent. ``done``: a signal [ranks] for this alone. One kernel of one
    warp: in CUDA graphs a stream's write for each peer is a copy of its own, and each wait a kernel
    (docs/results/tensor-parallel-experiments.md).
    """
    handshake_kernel[(1,)](done, dh.epoch(), num_warps=1)


class ShardPushes:
    """Every rank's shard [n, ...] in symmetric memory of each: ``gathered`` [ranks * capacity, ...], without the own.

    The shards follow each other without gaps. ``arrived`` [ranks] is by distance: the shard of the rank that is so many
    after this one. ``beside``: another tensor of at most as many rows, as their scales, which are there when the shard
    is.
    """

    def __init__(self, shard: Any, capacity: int, beside: Any = None):
        self.shard, self.rank, self.ranks, self.epoch = shard, dh.rank(), dh.num_ranks(), dh.epoch()
        self.gathered = dh.symm_empty(self.ranks * capacity, *shard.shape[1:], dtype=shard.dtype, name="shards")
        self.beside = beside
        if beside is not None:
            of_rows = {"dtype": beside.dtype, "name": "beside_shards"}
            self.gathered_beside = dh.symm_empty(self.ranks * capacity, *beside.shape[1:], **of_rows)
        self.arrived = dh.symm_zeros(self.ranks, dtype=torch.int64, name="shards_arrived")
        self.done = dh.symm_zeros(self.ranks, dtype=torch.int64, name="shards_done")

    def of(self, rank: Any) -> Any:
        """The place of a rank's shard."""
        n = self.shard.shape[0]
        return self.gathered[rank * n : (rank + 1) * n]

    def beside_of(self, rank: Any) -> Any:
        """The place of what is beside a rank's shard."""
        n = self.beside.shape[0]
        return self.gathered_beside[rank * n : (rank + 1) * n]

    def push(self) -> None:
        """Enqueue the pushes on the stream of the enclosing ``with``, to the rank first that needs it first."""
        handshake(self.done)
        for step in dh.range(1, self.ranks):
            peer = (self.rank - step) % self.ranks
            if self.beside is not None:
                dh.rank_copy(self.beside, self.beside_of(self.rank), peer)
            dh.rank_copy(self.shard, self.of(self.rank), peer)
            dh.signal_write(self.arrived[step], self.epoch, peer)

    def await_one(self, step: Any) -> None:
        """Let the stream wait for the shard of the rank ``step`` after this one."""
        dh.signal_wait(self.arrived[step], self.epoch)

    def await_all(self) -> None:
        """Let the stream wait for the other ranks' shards."""
        for step in dh.range(1, self.ranks):
            self.await_one(step)


def copy_streams_for(ranks: int) -> Options:
    """With more than one peer, two streams copy: what one has between two copies would be exposed
    (docs/results/tensor-parallel.md).
    """
    return {"copy_streams": 2} if ranks > 2 else {}
