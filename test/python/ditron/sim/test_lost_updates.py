"""A sum that others add to atomically is cleared while they may add: a race, whatever the sum turns out to be."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl

SEEDS = range(40)


@pytest.fixture(autouse=True)
def as_written(monkeypatch):
    monkeypatch.setenv("DITRON_PIPELINE", "as-written")


@ditron.jit
def clear(sums, HOW: tl.constexpr):
    if HOW == "plain":
        tl.store(sums, 0)
    if HOW == "one GPU":
        dl.st(sums, 0, scope="gpu")
    if HOW == "relaxed":
        dl.st(sums, 0, scope="node")
    if HOW == "release":
        dl.st(sums, 0, scope="node", semantic="release")


@ditron.jit
def sum_cleared_late(sums, flags, out, HOW: tl.constexpr):
    """Rank 0 tells the others to go on before it clears the sum."""
    me = dl.rank()
    for step in range(1, 4):
        dl.red(dl.symm_at(sums, 0), me + 1, scope="node", semantic="relaxed")
        dl.notify(flags, 0, 1, op="add")
        if me == 0:
            dl.wait(flags, 1, step * dl.num_ranks())
            tl.store(out, dl.ld(sums, scope="node"))
            for peer in range(dl.num_ranks()):
                dl.notify(flags + 1, peer, step)
            clear(sums, HOW)
        dl.wait(flags + 1, 1, step)


@ditron.jit
def sum_cleared_in_time(sums, flags, out, HOW: tl.constexpr):
    me = dl.rank()
    for step in range(1, 4):
        dl.red(dl.symm_at(sums, 0), me + 1, scope="node", semantic="relaxed")
        dl.notify(flags, 0, 1, op="add")
        if me == 0:
            dl.wait(flags, 1, step * dl.num_ranks())
            tl.store(out, dl.ld(sums, scope="node"))
            clear(sums, HOW)
            for peer in range(dl.num_ranks()):
                dl.notify(flags + 1, peer, step)
        dl.wait(flags + 1, 1, step)


@ditron.jit
def last_arriver_clears(sums, flags, out, HOW: tl.constexpr):
    """Its own atomic has seen all others: they come before what it stores, without any order of memory."""
    for step in range(1, 4):
        arrived = dl.atomic_add(dl.symm_at(sums, 0), 1, scope="node", semantic="relaxed")
        if arrived == dl.num_ranks() - 1:
            dl.st(dl.symm_at(sums, 0), 0, scope="node")
            for peer in range(dl.num_ranks()):
                dl.notify(flags + 1, peer, step)
        dl.wait(flags + 1, 1, step)


def on_rank(kernel, how: str) -> None:
    ditron.init()
    sums = ditron.symm_zeros(1, dtype=torch.int32, name="sums")
    flags = ditron.symm_zeros(2, dtype=torch.int64, name="flags")
    kernel[(1,)](sums, flags, torch.zeros(1, dtype=torch.int32), HOW=how)
    ditron.barrier()


WAYS = ["plain", "one GPU", "relaxed", "release"]


@pytest.mark.parametrize("how", WAYS)
def test_a_sum_cleared_late_is_a_race(how):
    with pytest.raises(ditron.RaceError, match=r"sums\[0\] of rank 0") as caught:
        for seed in SEEDS:
            ditron.sim.run(on_rank, ranks=3, seed=seed, args=(sum_cleared_late, how))
    assert "test_lost_updates.py" in caught.value.location and "test_lost_updates.py" in caught.value.others[0]


@pytest.mark.parametrize("how", WAYS)
def test_a_sum_cleared_before_others_go_on_is_none(how):
    for seed in SEEDS:
        ditron.sim.run(on_rank, ranks=3, seed=seed, args=(sum_cleared_in_time, how))


def test_the_last_arriver_may_clear():
    for seed in SEEDS:
        ditron.sim.run(on_rank, ranks=3, seed=seed, args=(last_arriver_clears, ""))
