"""hoist-symm-at changes no result: one translation in place of many."""

from __future__ import annotations

import torch
import triton.language as tl
from pass_helpers import count, run

import ditron
import ditron.language as dl

N, CHUNKS = 16, 5


@ditron.jit
def shift(box_ptr, x_ptr, ready_ptr, out_ptr, n, N: tl.constexpr):
    """A row to the right, chunk by chunk through tensors of pointers, twice over; then it is read."""
    rank, ranks = dl.rank(), dl.num_ranks()
    i = tl.arange(0, N)
    for chunk in range(n):
        right = (rank + 1) % ranks
        here = box_ptr + chunk * N + i
        tl.store(dl.symm_at(here, right), tl.load(x_ptr + chunk * N + i))
        tl.store(dl.symm_at(box_ptr + (n + chunk) * N, right) + i, tl.load(x_ptr + chunk * N + i) + 1)
    dl.notify(ready_ptr, (rank + 1) % ranks, 1)
    box = dl.consume_token(box_ptr, dl.wait(ready_ptr, 1, 1))
    for chunk in range(2 * n):
        tl.store(out_ptr + chunk * N + i, tl.load(box + chunk * N + i))


def main():
    ditron.init()
    box, ready = ditron.symm_empty(2 * CHUNKS, N, dtype=torch.float32), ditron.symm_zeros(1, dtype=torch.int64)
    x = torch.arange(CHUNKS * N, dtype=torch.float32) + 1000 * ditron.rank()
    out = torch.empty(2 * CHUNKS, N)
    shift[(1,)](box, x, ready, out, CHUNKS, N=N)
    return out.flatten().tolist()


def test_the_same_result_with_one_translation():
    signature = {"box_ptr": "*fp32", "x_ptr": "*fp32", "ready_ptr": "*i64", "out_ptr": "*fp32", "n": "i32"}
    found = [
        count(shift, "ditron.symm_at", name, signature=signature, constexprs={"N": N})
        for name in ("as-written", "default")
    ]
    assert found == [2, 1]
    expected = run("as-written", main, ranks=3)
    assert run("default", main, ranks=3) == expected
    assert expected[0][:3] == [2000.0, 2001.0, 2002.0] and expected[0][CHUNKS * N] == 2001.0


@ditron.jit
def is_null(x_ptr, out_ptr):
    """Whether the address on the other node is null."""
    peer = (dl.rank() + dl.num_local_ranks()) % dl.num_ranks()
    there = dl.symm_at(x_ptr + 5, peer)
    tl.store(out_ptr, (there.to(tl.int64) == 0).to(tl.int32))


def test_null_stays_null():
    def main():
        ditron.init()
        x, out = ditron.symm_zeros(16, dtype=torch.float32), torch.zeros(1, dtype=torch.int32)
        is_null[(1,)](x, out)
        return out.tolist()

    assert run("default", main, seeds=1, ranks=4, ranks_per_node=2) == [[1]] * 4
