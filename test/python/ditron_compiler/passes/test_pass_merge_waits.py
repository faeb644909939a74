"""merge-waits changes no result: fewer waits, the same data, on every schedule."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from pass_helpers import count, run

import ditron
import ditron.language as dl

N = 32


@ditron.jit(do_not_specialize=["epoch"])
def gather(box_ptr, ready_ptr, out_ptr, epoch, N: tl.constexpr):
    """Everybody's row to everybody; waits for all, then again for each before reading it."""
    rank, ranks = dl.rank(), dl.num_ranks()
    i = tl.arange(0, N)
    for step in range(ranks):
        peer = (rank + step) % ranks
        tl.store(dl.symm_at(box_ptr, peer) + rank * N + i, rank * 100.0 + i + epoch)
        dl.notify(ready_ptr + rank, peer, epoch)
    dl.wait(ready_ptr, ranks, epoch)
    for step in range(ranks):
        peer = (rank + step) % ranks
        token = dl.wait(ready_ptr + peer, 1, epoch)
        row = tl.load(dl.consume_token(box_ptr, token) + peer * N + i)
        tl.store(out_ptr + peer * N + i, row)
    dl.quiet()


def main():
    ditron.init()
    ranks = ditron.num_ranks()
    box, ready = ditron.symm_empty(2, ranks, N, dtype=torch.float32), ditron.symm_zeros(ranks, dtype=torch.int64)
    out = torch.empty(ranks, N)
    for epoch in (1, 2, 3):
        gather[(1,)](box[epoch % 2], ready, out, epoch, N=N)
    return out.tolist()


def test_the_same_result_with_fewer_waits():
    signature = {"box_ptr": "*fp32", "ready_ptr": "*i64", "out_ptr": "*fp32", "epoch": "i32"}
    found = [
        count(gather, "ditron.wait", name, signature=signature, constexprs={"N": N})
        for name in ("as-written", "default")
    ]
    assert found == [2, 1]
    expected = run("as-written", main, ranks=4)
    assert run("default", main, ranks=4) == expected
    assert expected[0] == [[r * 100.0 + i + 3 for i in range(N)] for r in range(4)]


@triton.jit(noinline=True)
def reset(ready_ptr):
    tl.store(ready_ptr, 0)


@ditron.jit
def twice(box_ptr, ready_ptr, out_ptr):
    """To the right, twice, over the same signal, which a function sets back in between."""
    right = (dl.rank() + 1) % dl.num_ranks()
    for k in tl.static_range(2):
        tl.store(dl.symm_at(box_ptr, right), 10.0 * k + dl.rank())
        dl.notify(ready_ptr, right, 1)
        token = dl.wait(ready_ptr, 1, 1)
        tl.store(out_ptr + k, tl.load(dl.consume_token(box_ptr, token)))
        reset(ready_ptr)
        dl.barrier_all()


@ditron.jit
def two_then_one(box_ptr, ready_ptr, out_ptr):
    """The same, but the signal is 2 when it is there, and each rank sets its own to 1 again."""
    right = (dl.rank() + 1) % dl.num_ranks()
    for k in tl.static_range(2):
        tl.store(dl.symm_at(box_ptr, right), 10.0 * k + dl.rank())
        dl.notify(ready_ptr, right, 2)
        token = dl.wait(ready_ptr, 1, 2)
        tl.store(out_ptr + k, tl.load(dl.consume_token(box_ptr, token)))
        dl.notify(ready_ptr, dl.rank(), 1)
        dl.barrier_all()


def _main_back(kernel):
    ditron.init()
    box, ready = ditron.symm_zeros(1, dtype=torch.float32), ditron.symm_zeros(1, dtype=torch.int64)
    out = torch.zeros(2)
    kernel[(1,)](box, ready, out)
    return out.tolist()


@pytest.mark.parametrize("kernel", [twice, two_then_one], ids=lambda kernel: kernel.fn.__name__)
def test_a_wait_for_what_was_set_back_stays(kernel):
    assert run("default", lambda: _main_back(kernel), ranks=4) == [[(r - 1) % 4, 10.0 + (r - 1) % 4] for r in range(4)]
