"""Steps of host programs that several operators take: a shard's way to all ranks by copy engines."""

from __future__ import annotations

from typing import Any

import torch

import ditron.host as dh
from ditron.tuning.problem import Options

__all__ = ["ShardPushes", "copy_streams_for"]


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
        for step in dh.range(1, self.ranks):  # all that this rank was sent in the call before has been read
            dh.signal_write(self.done[self.rank], self.epoch, (self.rank + step) % self.ranks)
        for step in dh.range(1, self.ranks):
            peer = (self.rank - step) % self.ranks
            dh.signal_wait(self.done[peer], self.epoch)
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
