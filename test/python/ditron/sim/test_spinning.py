"""Loops that poll: those that nobody will ever end are deadlocks, however they look; all others end."""

from __future__ import annotations

import re

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
    with pytest.raises(
        ditron.DeadlockError,
        match=r"test_spinning.py:\d+(.|\n)*spins: reads "
        r".*flags\[0\] = 0",
    ):
        run(how, ranks=ranks, races=ranks == 1 and how not in ("put", "signal"), weak=True)


def test_the_report_says_what_the_loop_writes(impatient):
    with pytest.raises(ditron.DeadlockError, match=r"flags\[0\] = 0; writes scratch\[0\]"):
        run("heartbeat", races=False)


@ditron.jit
def poll_after(flags, WHAT: tl.constexpr):
    """Polls flags[0] in vain. What it did before is nothing that it waits for, even if that changes."""
    if dl.rank() == 0:
        if WHAT == "add":
            dl.atomic_add(flags + 1, 1)
        elif WHAT == "swap":
            tl.atomic_xchg(flags + 1, 1)
        elif WHAT == "read":
            dl.ld(flags + 1)
        else:
            while dl.ld(flags + 1) != 0:
                pass
        dl.notify(flags + 2, 1, 1)
        while dl.ld(flags, scope="node", semantic="acquire") == 0:
            pass
    else:
        dl.wait(flags + 2, 1, 1)
        dl.atomic_add(dl.symm_at(flags, 0) + 1, 1, scope="node")


@pytest.mark.parametrize("what", ["add", "swap", "read", "poll"])
def test_what_changed_before_the_loop_ends_it_not(impatient, what):
    def main():
        ditron.init()
        poll_after[(1,)](ditron.symm_zeros(4, dtype=torch.int64, name="flags"), WHAT=what)

    with pytest.raises(ditron.DeadlockError) as found:
        ditron.sim.run(main, ranks=2, races=False)
    assert re.search(r"rank 0, .*spins: reads flags\[0\] = 0$", str(found.value), re.MULTILINE)


@ditron.jit
def poll_many(values, LAST, COUNT: tl.constexpr):
    """Rank 0 polls COUNT elements until none is -1; rank 1 writes those before LAST, the last of all late."""
    at = tl.arange(0, COUNT)
    if dl.rank() == 0:
        missing = COUNT
        while missing > 0:
            got = dl.ld(values + at, scope="node", semantic="acquire")
            missing = tl.sum((got == -1).to(tl.int32))
    else:
        theirs = dl.symm_at(values, 0)
        for i in range(LAST):
            dl.atomic_add(theirs + i, 1, scope="node")


@pytest.mark.parametrize("count", [32, 128, 1024])
@pytest.mark.parametrize("races", [False, True])
def test_a_poll_of_many_elements(impatient, count, races):
    def main(last):
        ditron.init()
        values = ditron.symm_empty(count, dtype=torch.int32, name="values")
        values.fill_(-1)
        ditron.barrier()
        poll_many[(1,)](values, last, COUNT=count)

    ditron.sim.run(main, ranks=2, races=races, args=(count,))
    with pytest.raises(ditron.DeadlockError) as found:
        ditron.sim.run(main, ranks=2, races=races, args=(count - 3,))
    text = str(found.value)
    assert "values[0] = 0, " in text and f", and {count - 8} more places" in text
    with pytest.raises(ditron.DeadlockError, match=r"values\[1\] = -1"):
        ditron.sim.run(main, ranks=2, races=races, args=(1,))


@pytest.mark.parametrize("how", QUIETLY + WRITING)
def test_a_loop_that_somebody_ends_is_none(impatient, how):
    for seed in range(4):
        run(how, grid=2, seed=seed, races=False, weak=True)


@pytest.mark.parametrize("how", ["fence", "heartbeat", "lock"])
def test_a_loop_that_counts_and_gives_up_is_none(how):
    run(how, turns=20000)


@ditron.jit
def slow(x, flags, turns, HOW: tl.constexpr):
    """Read the same four words `turns` times."""
    acc = tl.zeros((), tl.int64)
    i = 0
    if HOW == "for":
        for k in range(turns):
            acc += dl.ld(x + k % 4)
    elif HOW == "while":
        while i < turns:
            acc += dl.ld(x + i % 4)
            i += 1
    elif HOW == "downwards":
        i = turns
        while (i >= 1) & (dl.ld(flags) == 0):
            acc += 1
            i -= 1
    else:  # counted in a way that the compiler does not see through
        while i < turns:
            acc += dl.ld(x + i % 4)
            i += 1 + i % 2 // 2
    return acc


@ditron.jit
def handed_over(x, flags, beats, out, turns, HOW: tl.constexpr, BEAT: tl.constexpr, TELL: tl.constexpr):
    """Program 0 reads for long and then sets the flag of every rank, if it is to TELL; the others poll theirs."""
    me = tl.program_id(0)
    if (dl.rank() == 0) & (me == 0):
        acc = slow(x, flags, turns, HOW)
        if TELL:
            for peer in range(dl.num_ranks()):
                dl.notify(flags, peer, acc)
    i = 0
    while dl.ld(flags, semantic="acquire") == 0:
        if BEAT:
            dl.st(beats + me, i)
        i += 1
    tl.store(out + me, dl.ld(flags))


def hand_over(how: str, beat: bool, tell: bool, turns: int) -> list:
    ditron.init()
    x, flags = (ditron.symm_zeros(4, dtype=torch.int64, name=name) for name in ("x", "flags"))
    beats, out = ditron.symm_zeros(4, dtype=torch.int64, name="beats"), torch.zeros(4, dtype=torch.int64)
    x += 1
    handed_over[(4,)](x, flags, beats, out, turns, HOW=how, BEAT=beat, TELL=tell)
    return out.tolist()


@pytest.mark.parametrize("beat", [False, True])
@pytest.mark.parametrize("how", ["for", "while", "downwards"])
def test_a_slow_producer_is_no_deadlock(impatient, how, beat):
    """Where the compiler knows that its loop ends."""
    turns = 40000
    assert ditron.sim.run(hand_over, ranks=2, args=(how, beat, True, turns), races=False) == [[turns] * 4] * 2


@pytest.mark.parametrize("beat", [False, True])
@pytest.mark.parametrize("how", ["for", "while", "downwards"])
def test_a_slow_producer_that_forgets_to_tell_is_one(impatient, how, beat):
    with pytest.raises(ditron.DeadlockError, match=r"spins: reads flags\[0\] = 0"):
        ditron.sim.run(hand_over, ranks=2, args=(how, beat, False, 2000), races=False)


@ditron.jit
def toggle(flag, turns, WRONG: tl.constexpr):
    """Ping-pong on flags that go up and down; the turns are counted in a register, and WRONG is one too many."""
    peer = 1 - dl.rank()
    for _ in range(turns):
        if dl.rank() == 0:
            dl.st(dl.symm_at(flag, peer), 1, scope="node", semantic="release")
        while dl.ld(flag, scope="node", semantic="acquire") == 0:
            pass
        dl.st(flag, 0, scope="node")
        if dl.rank() == 1:
            dl.st(dl.symm_at(flag, peer), 1, scope="node", semantic="release")
    if WRONG:
        while dl.ld(flag, scope="node", semantic="acquire") == 0:
            pass


def play(turns: int, wrong: bool) -> None:
    ditron.init()
    flag = ditron.symm_zeros(1, dtype=torch.int64, name="flag")
    toggle[(1,)](flag, turns, WRONG=wrong)


def test_ping_pong_that_is_counted_nowhere_else_is_no_deadlock(impatient):
    ditron.sim.run(play, ranks=2, args=(20000, False), races=False)


def test_ping_pong_that_waits_once_more_is_one(impatient):
    with pytest.raises(ditron.DeadlockError, match=r"spins: reads flag\[0\] = 0"):
        ditron.sim.run(play, ranks=2, args=(200, True), races=False)


def test_how_long_a_loop_may_count_unseen(monkeypatch):
    for looks, turns in (20000, 200000), (2000000, 200000):
        monkeypatch.setenv(knobs.sim_looks.name, str(looks))
        args = ("unseen", False, True, turns)
        if looks < turns:
            with pytest.raises(ditron.DeadlockError, match=knobs.sim_looks.name):
                ditron.sim.run(hand_over, ranks=1, args=args, races=False)
        else:
            assert ditron.sim.run(hand_over, ranks=1, args=args, races=False) == [[turns] * 4]


def test_how_long_a_loop_may_count_with_its_end_in_sight(monkeypatch):
    """One that is out of reach is reported, too."""
    monkeypatch.setenv(knobs.sim_looks.name, "2000")
    run("load", turns=100000)
    with pytest.raises(ditron.DeadlockError, match=rf"flags\[0\] = 0(.|\n)*{knobs.sim_looks.name}"):
        run("load", turns=1 << 30)
