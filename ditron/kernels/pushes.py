"""Steps of host programs that several operators take: a shard's way to all ranks by copy engines."""

from __future__ import annotations

from typing import Any

import torch

import ditron.host as dh
from ditron.tuning.problem import Options
from ditron.tuning.registry import Rule

__all__ = ["ShardPushes", "copy_streams_for", "handshake", "tell_done", "with_copy_streams"]


def tell_done(done: Any) -> None:
    """Let the stream tell all ranks that this one has read what it was sent in the call before; ``done`` [ranks].

    To be called where the stream comes behind whatever reads that.
    """
    rank, ranks = dh.rank(), dh.num_ranks()
    for step in dh.range(1, ranks):
        dh.signal_write(done[rank], dh.epoch(), (rank + step) % ranks)


def handshake(done: Any) -> None:
    """Let the stream go on when no rank reads any more what it was sent in the call before; ``done`` [ranks].

    To be called where the stream comes behind whatever reads that on this rank. Nothing comes between the writes and
    the waits, so that captured calls fuse them (execute/signal_runs.py).
    """
    tell_done(done)
    rank, ranks = dh.rank(), dh.num_ranks()
    for step in dh.range(1, ranks):
        dh.signal_wait(done[(rank - step) % ranks], dh.epoch())


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

    def push(self, *, one_by_one: bool = False) -> None:
        """Enqueue the pushes on the stream of the enclosing ``with``, to the rank first that needs it first.

        ``one_by_one``: wait for each rank before its push, not for all before the first, so that nothing is fused.
        """
        if one_by_one:
            tell_done(self.done)
        else:
            handshake(self.done)
        for step in dh.range(1, self.ranks):
            peer = (self.rank - step) % self.ranks
            if one_by_one:
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


def with_copy_streams(rule: Rule, ranks: int) -> Rule:
    """The rule, with as many streams as copies of so many ranks need, if it overlaps."""
    if rule.options["algorithm"] != "overlapped":
        return rule
    return Rule(rule.options | copy_streams_for(ranks), rule.why)
