"""Launches of several streams share the SMs of a GPU: what waits for programs that find none is a deadlock."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron import sim

SEEDS = range(12)


@ditron.jit
def meet(mine, others, epoch):
    dl.notify(mine + tl.program_id(0), dl.rank(), epoch)
    dl.wait(others, tl.num_programs(0), epoch)


@ditron.jit
def produce(mine, others, epoch):
    dl.notify(mine + tl.program_id(0), dl.rank(), epoch)


@ditron.jit
def consume(mine, others, epoch):
    dl.wait(others, tl.num_programs(0), epoch)


def main(kernels, programs: int) -> None:
    ditron.init()
    view = sim.current_world()
    signals = ditron.symm_zeros(2, programs, dtype=torch.int64, name="signals")
    for number, (name, kernel) in enumerate(zip(("one", "two"), kernels, strict=True)):
        with view.stream(name):
            kernel[(programs,)](signals[number], signals[1 - number], 1)
    view.synchronize()


def test_two_launches_that_wait_for_each_other_may_not_fit():
    found = {}
    for seed in SEEDS:
        try:
            sim.run(main, ranks=1, seed=seed, args=((meet, meet), 100))
        except ditron.DeadlockError as error:
            found[seed] = str(error)
    assert len(found) >= 2
    text = next(iter(found.values()))
    assert "waits for signals[" in text
    assert "waits for a program slot: kernels on rank 0's stream one and rank 0's stream two take all of them" in text


@pytest.mark.parametrize(
    "kernels, programs, resident", [((meet, meet), 66, 132), ((meet, meet), 100, 200), ((produce, consume), 100, 132)]
)
def test_what_fits_or_waits_one_way_ends(kernels, programs, resident):
    for seed in SEEDS:
        sim.run(main, ranks=1, seed=seed, args=(kernels, programs), resident=resident)


def test_the_same_seed_is_the_same_run():
    def hash_of(seed: int) -> int:
        world = sim.World(1, seed=seed, resident=40)
        world.run(main, args=((produce, consume), 30))
        return world.trace_hash

    hashes = [hash_of(seed) for seed in (1, 2, 3, 1, 2, 3)]
    assert hashes[:3] == hashes[3:]
