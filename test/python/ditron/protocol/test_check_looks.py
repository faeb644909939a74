"""The checker on flags that are looked at without a wait: once, or in a loop that gives up."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.protocol.api import check_function

N = 16


@ditron.jit
def take_if_there(x, box, flag, out, HOW: tl.constexpr, LEAST: tl.constexpr, SIGNAL: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    right = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(box, right) + at, tl.load(x + at))
    if SIGNAL == "right":
        dl.notify(flag, right, 1)
    elif SIGNAL == "other":
        dl.notify(flag + 1, right, 1)
    if HOW == "fetch":
        seen = dl.signal_fetch(flag)
    else:
        seen = dl.ld(flag, scope="world", semantic="relaxed" if HOW == "relaxed" else "acquire")
    if HOW == "for":
        for _ in range(5):
            if seen < 1:
                seen = dl.ld(flag, scope="world", semantic="acquire")  # for
    elif HOW == "while":
        tries = 0
        while (seen < 1) & (tries < 5):
            seen = dl.ld(flag, scope="world", semantic="acquire")  # while
            tries += 1
    if seen >= LEAST:
        tl.store(out + at, tl.load(box + at))  # loads


def report_of(how, least=1, signal="right"):
    def run():
        ditron.init()
        x, out = torch.ones(N), torch.zeros(N)
        box = ditron.symm_zeros(N, dtype=torch.float32, name="box")
        flag = ditron.symm_zeros(2, dtype=torch.int64, name="flag")
        take_if_there[(1,)](x, box, flag, out, HOW=how, LEAST=least, SIGNAL=signal, N=N)

    return check_function(run, [(2, None), (3, None)])


@pytest.mark.parametrize("how", ["fetch", "once", "for", "while"])
def test_what_is_loaded_only_if_the_flag_is_there_is_ordered(how):
    report = report_of(how)
    assert not report.findings and report.is_complete, str(report)


@pytest.mark.parametrize("how", ["fetch", "once", "for", "while"])
def test_what_is_loaded_in_any_case_is_not(how):
    report = report_of(how, least=0)
    assert {finding.kind for finding in report.findings} <= {"unordered", "reuse"} and report.findings, str(report)
    lines = open(__file__).read().splitlines()
    first = report.findings[0]
    found = [lines[int(loc.split(":")[1]) - 1] for loc in (first.loc, *(loc for _, loc in first.others))]
    assert any(line.endswith("# loads") for line in found), str(report)


def test_a_relaxed_look_orders_nothing():
    report = report_of("relaxed")
    assert report.findings and report.findings[0].kind in ("unordered", "semantic"), str(report)


@pytest.mark.parametrize("signal", ["none", "other"])
@pytest.mark.parametrize("how", ["for", "while"])
def test_a_loop_that_gives_up_on_what_nobody_signals(how, signal):
    report = report_of(how, signal=signal)
    (first, *more) = report.findings
    assert first.kind == "never-signalled" and not more and "gives up" in first.message, str(report)
    lines = open(__file__).read().splitlines()
    assert lines[int(first.loc.split(":")[1]) - 1].endswith(f"# {how}"), str(report)
    assert ("is the index right?" in str(first)) == (signal == "other"), str(report)


@ditron.jit
def stop_flag(flag, stop, out):
    """Waits for a flag, or for a stop that nobody asks for; then works as long as nobody does."""
    dl.notify(flag, (dl.rank() + 1) % dl.num_ranks(), 1)
    while (dl.ld(flag, scope="world", semantic="acquire") < 1) & (dl.ld(stop, scope="world") == 0):
        pass
    for i in range(4):
        if dl.ld(stop, scope="world") == 0:
            tl.store(out + i, i)


def test_a_stop_that_nobody_asks_for_is_no_mistake():
    def run():
        ditron.init()
        flag, stop = (ditron.symm_zeros(1, dtype=torch.int64, name=name) for name in ("flag", "stop"))
        stop_flag[(1,)](flag, stop, torch.zeros(4, dtype=torch.int32))

    report = check_function(run, [(2, None)])
    assert not report.findings and report.is_complete, str(report)


@ditron.jit
def exchange_a_number(box, out, HOW: tl.constexpr):
    """Reads what the neighbour stores here; nothing says that it has."""
    here = dl.symm_at(box, (dl.rank() + 1) % dl.num_ranks())
    dl.st(here, 5, scope="world", semantic="relaxed")
    if HOW == "barrier":
        dl.barrier_all()
    got = dl.ld(box, scope="world", semantic="relaxed")  # got
    if HOW == "poll":
        while got == 0:
            got = dl.ld(box, scope="world", semantic="relaxed")
    if HOW == "poll first":
        while dl.ld(box, scope="world", semantic="relaxed") == 0:
            pass
        got = dl.ld(box, scope="world", semantic="relaxed")
    tl.store(out, got)


@pytest.mark.parametrize(("how", "found"), [("", ["unordered"]), ("barrier", []), ("poll", []), ("poll first", [])])
def test_a_number_that_may_not_have_been_stored_yet(how, found):
    def run():
        ditron.init()
        box = ditron.symm_zeros(1, dtype=torch.int32, name="box")
        exchange_a_number[(1,)](box, torch.zeros(1, dtype=torch.int32), HOW=how)

    report = check_function(run, [(2, None), (3, None)])
    assert [finding.kind for finding in report.findings] == found and report.is_complete, str(report)
    lines = open(__file__).read().splitlines()
    assert all(lines[int(one.loc.split(":")[1]) - 1].endswith("# got") for one in report.findings), str(report)


@ditron.jit
def branch_on_a_number(box, out, HOW: tl.constexpr):
    here = dl.symm_at(box, (dl.rank() + 1) % dl.num_ranks())
    dl.st(here, 2, scope="world", semantic="relaxed")  # st
    if HOW == "barrier":
        dl.barrier_all()
    got = dl.ld(box, scope="world", semantic="relaxed")  # ld
    if HOW == "poll":
        while got == 0:
            got = dl.ld(box, scope="world", semantic="relaxed")
    if HOW == "address":
        tl.store(out + got, 1)
    elif got == 2:
        tl.store(out, 1)


@pytest.mark.parametrize(("how", "noted"), [("branch", True), ("address", True), ("barrier", False), ("poll", False)])
def test_a_relaxed_look_that_decides_has_a_note(how, noted):
    def run():
        ditron.init()
        box = ditron.symm_zeros(1, dtype=torch.int32, name="box")
        branch_on_a_number[(1,)](box, torch.zeros(4, dtype=torch.int32), HOW=how)

    report = check_function(run, [(2, None)])
    assert not report.findings and report.is_complete != noted, str(report)
    lines = open(__file__).read().splitlines()
    for note in report.not_followed:
        places = [lines[int(part.split(":")[1]) - 1].split("# ")[-1] for part in note.split() if ".py:" in part]
        assert places == ["ld", "st"], note
