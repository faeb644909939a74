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
def take_if_there(x, box, flag, out, HOW: tl.constexpr, LEAST: tl.constexpr, LIMIT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    right = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(box, right) + at, tl.load(x + at))
    dl.notify(flag, right, 1)
    if HOW == "fetch":
        seen = dl.signal_fetch(flag)
    else:
        seen = dl.ld(flag, scope="world", semantic="relaxed" if HOW == "relaxed" else "acquire")
    if HOW == "for":
        for _ in range(LIMIT):
            if seen < 1:
                seen = dl.ld(flag, scope="world", semantic="acquire")
    elif HOW == "while":
        tries = 0
        while (seen < 1) & (tries < LIMIT):
            seen = dl.ld(flag, scope="world", semantic="acquire")
            tries += 1
    if seen >= LEAST:
        tl.store(out + at, tl.load(box + at))  # loads


def report_of(how, least=1):
    def run():
        ditron.init()
        x, out = torch.ones(N), torch.zeros(N)
        box = ditron.symm_zeros(N, dtype=torch.float32, name="box")
        flag = ditron.symm_zeros(1, dtype=torch.int64, name="flag")
        take_if_there[(1,)](x, box, flag, out, HOW=how, LEAST=least, LIMIT=5, N=N)

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
