"""decompose-all-at-once and decompose-ring: the same result, and the same signals, on every group and schedule."""

from __future__ import annotations

import pytest
import torch

import ditron
import ditron.host as dh
from ditron_compiler import host

CALLS = 3


def make(decompose: str):
    """An all-gather whose shards are copied out one by one, in the order in which they arrive."""

    @ditron.program(passes=(decompose, "canonicalize", "cse"))
    def gather(a, out):
        rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
        rows, cols = a.shape
        both = dh.symm_empty(2, ranks * rows, cols, dtype=a.dtype, name="both")
        arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
        shards = both[epoch % 2]
        dh.all_gather(a, shards, arrived, epoch)
        for step in dh.range(ranks):
            source = (rank + step) % ranks
            dh.signal_wait(arrived[source], epoch)
            dh.copy(shards[source * rows : (source + 1) * rows], out[source * rows : (source + 1) * rows])

    return gather


PROGRAMS = {name: make(name) for name in ("decompose-all-at-once", "decompose-ring")}


def run_rank(name: str) -> bool:
    ditron.init()
    right = True
    for call in range(CALLS):
        shards = [torch.arange(12).reshape(3, 4).float() + 100 * call + 1000 * r for r in range(ditron.num_ranks())]
        out = torch.zeros(3 * ditron.num_ranks(), 4, device=ditron.device())
        PROGRAMS[name](shards[ditron.rank()].to(ditron.device()), out)
        right &= torch.equal(out.cpu(), torch.cat(shards))
    return right


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_rank_has_every_shard(name, ranks):
    for seed in range(5):
        assert all(ditron.sim.run(run_rank, ranks=ranks, seed=seed, args=(name,)))


def steps_of(name: str, rank: int, ranks: int) -> list[host.Step]:
    module = PROGRAMS[name].module(a="f32[3, 4]", out=f"f32[{3 * ranks}, 4]")
    program = next(op for op in module.body.operations if op.name == "ditron.program")
    shapes = ((3, 4), (4, 1), "f32"), ((3 * ranks, 4), (4, 1), "f32")
    return host.evaluate(program, host.RankPlacement(rank, ranks, rank, ranks, 0), shapes, 1).steps


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_both_tell_each_rank_of_each_shard_once(ranks):
    for name in PROGRAMS:
        told = [
            (step.signal.offset, step.peer)
            for rank in range(ranks)
            for step in steps_of(name, rank, ranks)
            if isinstance(step, host.SignalWrite)
        ]
        assert sorted(told) == [(shard, peer) for shard in range(ranks) for peer in range(ranks)], name


def test_peers_of_each_way():
    copies = {
        name: [(step.peer, step.dst.offset // 12) for step in steps_of(name, 1, 4) if isinstance(step, host.RankCopy)]
        for name in PROGRAMS
    }
    # Call 1 uses the second half, which begins with shard 4.
    assert copies["decompose-all-at-once"] == [(0, 5), (3, 5), (2, 5)]  # its own shard, nearest needer first
    assert copies["decompose-ring"] == [(0, 5), (0, 6), (0, 7)]  # to the left: its own, then what came from the right
