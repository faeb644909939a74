"""What a finding of the checker, or a note, advises."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.protocol.api import check_function

N, ROWS = 16, 3


@ditron.jit
def send_rows(x, box, flags, HOW: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    right = (dl.rank() + 1) % dl.num_ranks()
    for row in range(ROWS):
        if HOW == "notify first":
            dl.notify(flags + row, right, 1)
        tl.store(dl.symm_at(box, right) + row * N + at, tl.load(x + at))
        if HOW != "notify first":
            dl.notify(flags + row, right, 1)


@ditron.jit
def take_rows(box, flags, out, HOW: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    for row in range(ROWS):
        token = dl.wait(flags + row, 1, 1) if HOW != "load first" else 0
        data = tl.load((dl.consume_token(box, token) if HOW != "load first" else box) + row * N + at)
        if HOW == "load first":
            dl.wait(flags + row, 1, 1)
        tl.store(out + row * N + at, data)


@pytest.mark.parametrize(
    ("how", "kind", "advice"),
    [
        ("", "", ""),
        ("notify first", "unpublished", "send the signal after it"),
        ("load first", "unordered", "load after the wait"),
    ],
)
def test_a_signal_too_early_and_a_load_too_early(how, kind, advice):
    def run():
        ditron.init()
        box = ditron.symm_zeros(ROWS, N, dtype=torch.float32, name="box")
        flags = ditron.symm_zeros(ROWS, dtype=torch.int64, name="flags")
        send_rows[(1,)](torch.ones(N), box, flags, HOW=how, ROWS=ROWS, N=N)
        take_rows[(1,)](box, flags, torch.empty(ROWS, N), HOW=how, ROWS=ROWS, N=N)

    report = check_function(run, [(2, None), (3, None)])
    assert {finding.kind for finding in report.findings} == ({kind} if kind else set()), str(report)
    assert all(advice in finding.hint for finding in report.findings), str(report)


@ditron.jit
def send_if(go, flag):
    if tl.load(go) > 0:
        dl.notify(flag, dl.rank(), 1)
        dl.wait(flag, 1, 1)


@pytest.mark.parametrize("floats", [True, False])
def test_floats_that_decide_are_named(floats):
    def run():
        ditron.init()
        go = torch.ones(1, dtype=torch.float32 if floats else torch.int32)
        send_if[(1,)](go, ditron.symm_zeros(1, dtype=torch.int64, name="flag"))

    report = check_function(run, [(2, None)])
    assert not report.findings and report.is_complete != floats, str(report)
    assert report.floats == (["go"] if floats else []), str(report)
    assert ("contents of go are floats, which cannot be given: let integers decide" in str(report)) == floats
