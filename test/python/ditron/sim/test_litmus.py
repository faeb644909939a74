"""Litmus tests: which outcomes of a few relaxed, released and fenced accesses show over the seeds, which never."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl

SEEDS = range(40)
RELAXED, RELEASE, FENCE, QUIET = "relaxed", "release", "fence", "quiet"


@pytest.fixture(autouse=True)
def as_written(monkeypatch):
    """The default pipeline puts in the fences that are left out here."""
    monkeypatch.setenv("DITRON_PIPELINE", "as-written")


@ditron.jit
def order(HOW: tl.constexpr):
    if HOW == "fence":
        dl.fence()
    if HOW == "quiet":
        dl.quiet()


@ditron.jit
def store(place, value, HOW: tl.constexpr):
    dl.st(place, value, scope="node", semantic="release" if HOW == "release" else "relaxed")


@ditron.jit
def load(place, HOW: tl.constexpr):
    return dl.ld(place, scope="node", semantic="acquire" if HOW == "release" else "relaxed")


@ditron.jit
def store_buffering(x, y, seen, HOW: tl.constexpr):
    """Each stores, then looks for the other's store."""
    mine, other = dl.symm_at(x, 0), dl.symm_at(y, 0)
    if dl.rank() == 1:
        mine, other = other, mine
    store(mine, 1, HOW)
    order(HOW)
    tl.store(seen, load(other, HOW))


@ditron.jit
def announce_by_atomics(x, y, seen, HOW: tl.constexpr):
    mine, other = dl.symm_at(x, 0), dl.symm_at(y, 0)
    if dl.rank() == 1:
        mine, other = other, mine
    store(mine, 1, HOW)
    dl.atomic_add(mine, 1, scope="node")
    tl.store(seen, load(other, HOW))


@ditron.jit
def message_passing(x, y, seen, HOW: tl.constexpr):
    x, y = dl.symm_at(x, 0), dl.symm_at(y, 0)
    if dl.rank() == 0:
        dl.st(x, 1, scope="node")
        order(HOW)
        store(y, 1, HOW)
    else:
        tl.store(seen, load(y, HOW))
        order(HOW)
        tl.store(seen + 1, dl.ld(x, scope="node"))


@ditron.jit
def chain(x, y, seen, HOW: tl.constexpr):
    """Write-to-read causality: who sees y, which follows a sight of x, sees x."""
    x, y = dl.symm_at(x, 0), dl.symm_at(y, 0)
    if dl.rank() == 0:
        store(x, 1, HOW)
    elif dl.rank() == 1:
        if load(x, HOW) == 1:
            order(HOW)
            store(y, 1, HOW)
    else:
        tl.store(seen, load(y, HOW))
        order(HOW)
        tl.store(seen + 1, dl.ld(x, scope="node"))


@ditron.jit
def own_store(x, y, seen, HOW: tl.constexpr):
    """A program sees its own stores, and one place never goes back."""
    x = dl.symm_at(x, 0)
    last = load(x, HOW)
    right = 1
    for value in range(1, 5):
        if dl.rank() == 0:
            store(x, value, HOW)
        now = load(x, HOW)
        right = tl.where((now < last) | ((dl.rank() == 0) & (now != value)), 0, right)
        last = now
    tl.store(seen, right)


@ditron.jit
def try_lock(flags, data, seen, HOW: tl.constexpr):
    """Both announce themselves and look: if nobody else is there, go in."""
    flags, data = dl.symm_at(flags, 0), dl.symm_at(data, 0)
    store(flags + dl.rank(), 1, "relaxed" if HOW == "quiet" else HOW)
    order(HOW)
    if dl.ld(flags + 1 - dl.rank(), scope="node", semantic="acquire") == 0:
        tl.store(data, tl.load(data) + 1)


def on_rank(kernel, how: str) -> tuple[int, int]:
    ditron.init()
    x, y = (ditron.symm_zeros(2, dtype=torch.int64, name=name) for name in "xy")
    seen = torch.full((2,), -1, dtype=torch.int64)
    kernel[(1,)](x, y, seen, HOW=how)
    ditron.barrier()
    return tuple(seen.tolist())


def outcomes(kernel, how: str, ranks: int = 2) -> set[tuple[tuple[int, int], ...]]:
    return {
        tuple(ditron.sim.run(on_rank, ranks=ranks, seed=seed, args=(kernel, how), races=False, weak=True))
        for seed in SEEDS
    }


def neither_saw(outcome) -> bool:
    return all(seen[0] == 0 for seen in outcome)


def saw_the_second_alone(outcome) -> bool:
    return outcome[-1] == (1, 0)


@pytest.mark.parametrize("how", [RELAXED, RELEASE, FENCE])
def test_both_may_look_before_either_is_seen(how):
    """Neither a release nor an acq_rel fence orders a store before a later load."""
    assert any(map(neither_saw, outcomes(store_buffering, how)))


def test_quiet_makes_stores_seen_before_what_follows():
    assert not any(map(neither_saw, outcomes(store_buffering, QUIET)))


def test_an_atomic_shows_what_its_program_stored_there():
    assert not any(map(neither_saw, outcomes(announce_by_atomics, RELEASE)))


@pytest.mark.parametrize("kernel, ranks", [(message_passing, 2), (chain, 3)])
@pytest.mark.parametrize("how", [RELEASE, FENCE, QUIET])
def test_what_comes_before_a_release_is_seen_before_it(kernel, ranks, how):
    found = outcomes(kernel, how, ranks)
    assert not any(map(saw_the_second_alone, found))
    assert any(seen[-1] == (1, 1) for seen in found)  # somebody had to look for anything


def test_relaxed_stores_may_be_seen_in_either_order():
    assert any(map(saw_the_second_alone, outcomes(message_passing, RELAXED)))


@pytest.mark.parametrize("how", [RELAXED, RELEASE, FENCE])
def test_one_place_never_goes_back(how):
    assert all(seen[0] == 1 for outcome in outcomes(own_store, how, 3) for seen in outcome)


@pytest.mark.parametrize("how, wrong", [(RELAXED, True), (RELEASE, True), (FENCE, True), (QUIET, False)])
def test_a_lock_without_a_full_fence_is_a_race(how, wrong):
    """Also when both announce by releases: who looks before that is seen knows nothing of the other."""

    def races(seed: int) -> bool:
        try:
            ditron.sim.run(on_rank, ranks=2, seed=seed, args=(try_lock, how))
        except ditron.RaceError as error:
            assert "y[0] of rank 0" in str(error)
            return True
        return False

    assert any(map(races, SEEDS)) == wrong


@ditron.jit
def put_onto_a_flag(flags, source, seen, HOW: tl.constexpr):
    if dl.rank() == 0:
        dl.putmem(flags, source, 8, 1)
    else:
        tl.store(seen, dl.ld(flags, scope="node", semantic="acquire"))


def test_a_put_onto_what_another_looks_at_is_a_race():
    said = set()
    for seed in range(12):
        with pytest.raises(ditron.RaceError) as raised:
            ditron.sim.run(on_rank, ranks=2, seed=seed, args=(put_onto_a_flag, RELAXED))
        said.add(str(raised.value).partition("nothing orders ")[2].partition(" by rank")[0])
    assert said == {"this put and an atomic load", "this atomic load and a put"}
