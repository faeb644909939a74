"""Loops that poll: those that nobody will ever end are deadlocks, however they look; all others end."""
from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron_compiler import knobs


@ditron.jit
def turn(flags, scratch, i, HOW: tl.constexpr):
    """One turn of a loop that polls: what it saw."""
    if HOW == "fence":
        dl.fence()
    if HOW == "quiet":
        dl.quiet()
    if HOW == "atomic":
        return tl.atomic_add(flags, 0)
    if HOW == "get":
        dl.getmem(scratch, flags, 8, dl.rank())
        return dl.ld(scratch)
    if HOW == "get_nbi":
        dl.getmem_nbi(scratch, flags, 8, dl.rank())
        dl.quiet()
        return dl.ld(scratch)
    if HOW == "ring":
        return dl.ld(flags + i % 4, semantic="acquire")
    if HOW == "same_store":
        tl.store(scratch, 5)
    if HOW == "heartbeat":
        tl.store(scratch, i)
    if HOW == "released_heartbeat":
        dl.st(scratch, i, semantic="release")
    if HOW == "put":
        dl.putmem(scratch, scratch + 3, 8, dl.rank())
    if HOW == "signal":
        dl.notify(scratch, dl.rank(), 1, op="add")
    if HOW == "lock":
        seen = 0 * dl.ld(flags)
        if tl.atomic_cas(scratch, tl.full((), 0, tl.int64), tl.full((), 1, tl.int64)) == 0:
            seen = dl.ld(flags)
            tl.atomic_xchg(scratch, 0)
        return seen
    return dl.ld(flags, semantic="acquire")


@ditron.jit
def poll(flags, scratch, HOW: tl.constexpr, TURNS: tl.constexpr):
    """Until the flag is there; with TURNS not longer than that. Program 1, if there is one, sets it in the end."""
    if tl.program_id(0) == 0:
        i = 1
        while (turn(flags, scratch, i, HOW) == 0) & ((TURNS == 0) | (i < TURNS)):
            i += 1
    else:
        done = 0 * dl.ld(flags)
        while done < 2000:
            done = tl.atomic_add(scratch + 1, 1) + 1
        tl.store(scratch + 2, done)
        for which in range(4):
            dl.st(flags + which, 1, semantic="release")


def on_rank(how: str, grid: int, turns: int) -> None:
    ditron.init()
    flags = ditron.symm_zeros(4, dtype=torch.int64, name="flags")
    scratch = ditron.symm_zeros(4, dtype=torch.int64, name="scratch")
    poll[(grid,)](flags, scratch, HOW=how, TURNS=turns)


def run(how: str, *, grid: int = 1, turns: int = 0, ranks: int = 1, seed: int = 0, **machine) -> None:
    ditron.sim.run(on_rank, ranks=ranks, seed=seed, args=(how, grid, turns), **machine)


QUIETLY = ["load", "atomic", "fence", "quiet", "get", "get_nbi", "ring"]
WRITING = ["same_store", "heartbeat", "released_heartbeat", "put", "signal", "lock"]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setenv(knobs.sim_looks.name, "20000")


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("how", QUIETLY + WRITING)
def test_a_loop_that_nobody_ends_is_a_deadlock(impatient, how, ranks):
    with pytest.raises(ditron.DeadlockError, match=r"test_spinning.py:\d+(.|\n)*reads the same again and again: "
                                                   r".*flags\[0\] is 0"):
        run(how, ranks=ranks, races=ranks == 1 and how not in ("put", "signal"), weak=True)


def test_the_report_says_what_the_loop_writes(impatient):
    with pytest.raises(ditron.DeadlockError, match=r"flags\[0\] is 0; in between it writes scratch\[0\]"):
        run("heartbeat", races=False)


@pytest.mark.parametrize("how", QUIETLY + WRITING)
def test_a_loop_that_somebody_ends_is_none(impatient, how):
    for seed in range(4):
        run(how, grid=2, seed=seed, races=False, weak=True)


@pytest.mark.parametrize("how", ["fence", "heartbeat", "lock"])
def test_a_loop_that_counts_and_gives_up_is_none(how):
    run(how, turns=20000)


def test_how_long_a_loop_may_count(monkeypatch):
    monkeypatch.setenv(knobs.sim_looks.name, "20000")
    with pytest.raises(ditron.DeadlockError, match="DITRON_SIM_LOOKS"):
        run("load", turns=200000)
    monkeypatch.setenv(knobs.sim_looks.name, "300000")
    run("load", turns=200000)
