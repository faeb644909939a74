"""Sums that others add to by atomics, and that an atomic store clears: an addition that it does not follow may be lost."""

from pathlib import Path

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.protocol.api import check_function

N = 16


@ditron.jit
def add_and_clear(x, total, flags, out, epoch, N: tl.constexpr, CREDIT: tl.constexpr):
    """Add to the right neighbour's sum; read the own one and clear it, and let the left neighbour know if ``CREDIT``."""
    i = tl.arange(0, N)
    ranks = dl.num_ranks()
    right, left = (dl.rank() + 1) % ranks, (dl.rank() + ranks - 1) % ranks
    if CREDIT:
        dl.wait(flags + 1, 1, epoch - 1)
    dl.red(dl.symm_at(total, right) + i, tl.load(x + i), scope="node")
    dl.notify(flags, right, epoch)
    dl.wait(flags, 1, epoch)
    tl.store(out + i, dl.ld(total + i, scope="node"))
    dl.st(total + i, tl.zeros([N], total.dtype.element_ty), scope="node")
    if CREDIT:
        dl.notify(flags + 1, left, epoch)


@ditron.jit
def count(counter, N: tl.constexpr):
    """The program that comes last clears the counter: it has read all additions, in whatever order they came."""
    before = tl.atomic_add(counter, 1, sem="relaxed")
    if before == N - 1:
        dl.st(counter, 0, semantic="relaxed", scope="gpu")


def run(dtype: torch.dtype, credit: bool) -> None:
    ditron.init(max_nodes=1)
    total = ditron.symm_zeros(N, dtype=dtype, name="total")
    flags = ditron.symm_zeros(2, dtype=torch.int64, name="flags")
    out = torch.empty(N, dtype=dtype)
    for epoch in (1, 2, 3):
        add_and_clear[(1,)](torch.ones(N, dtype=dtype), total, flags, out, epoch, N=N, CREDIT=credit)


def run_count() -> None:
    ditron.init()
    counter = torch.zeros(1, dtype=torch.int32)
    for _ in range(3):
        count[(N,)](counter, N=N)


GROUPS = [(2, None), (3, None)]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
def test_a_sum_that_is_cleared_late(dtype):
    report = check_function(lambda: run(dtype, credit=False), GROUPS)
    (finding,) = report.findings
    assert finding.kind == "writers" and "total[0] of rank 0, in no order" in finding.message, str(report)
    lines = sorted(int(loc.split(":")[1]) for loc in (finding.loc, *(loc for _, loc in finding.others)))
    source = Path(__file__).read_text().splitlines()
    assert ["dl.red(" in source[lines[0] - 1], "dl.st(" in source[lines[1] - 1]] == [True, True], str(report)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
def test_a_sum_that_is_cleared_in_time(dtype):
    report = check_function(lambda: run(dtype, credit=True), GROUPS)
    assert not report.findings and report.is_complete, str(report)


def test_a_counter_that_the_last_program_clears():
    report = check_function(run_count, [(1, None)])
    assert not report.findings and report.is_complete, str(report)
