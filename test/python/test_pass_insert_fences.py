"""insert-fences makes wrong kernels right, and leaves right ones alone (test_broken_kernels.py has more of both)."""
from __future__ import annotations

import pytest
import torch
import triton.language as tl
from pass_helpers import count, pipeline, run

import ditron
import ditron.language as dl

N = 64
SIGNATURE = {"box_ptr": "*fp32", "x_ptr": "*fp32", "ready_ptr": "*i64", "out_ptr": "*fp32", "epoch": "i32"}


@ditron.jit(do_not_specialize=["epoch"])
def put_and_flag(box_ptr, x_ptr, ready_ptr, out_ptr, epoch, N: tl.constexpr):
    """No fence, no quiet: two puts, a signal; the answer's flag is a plain store behind a store."""
    rank, ranks = dl.rank(), dl.num_ranks()
    right = (rank + 1) % ranks
    i = tl.arange(0, N)
    tl.store(x_ptr + i, rank * 1000.0 + epoch * 100 + i)
    dl.putmem_nbi(box_ptr, x_ptr, N * 2, right)
    dl.putmem_nbi(box_ptr + N // 2, x_ptr + N // 2, N * 2, right)
    dl.signal_op(ready_ptr, epoch, right)
    box = dl.consume_token(box_ptr, dl.wait(ready_ptr, 1, epoch))
    tl.store(out_ptr + i, tl.load(box + i))
    left = (rank + ranks - 1) % ranks
    tl.store(dl.symm_at(box_ptr + N, left) + i, tl.load(box + i) + 1)
    dl.st(dl.symm_at(ready_ptr + 1, left), epoch, scope="node")
    answer = dl.consume_token(box_ptr + N, dl.wait(ready_ptr + 1, 1, epoch))
    tl.store(out_ptr + N + i, tl.load(answer + i))


def main():
    ditron.init()
    box, ready = ditron.symm_empty(2 * N, dtype=torch.float32), ditron.symm_zeros(2, dtype=torch.int64)
    x, out = ditron.symm_empty(N, dtype=torch.float32), torch.empty(2 * N)
    for epoch in (1, 2, 3):
        put_and_flag[(1,)](box, x, ready, out, epoch, N=N)
        ditron.barrier()
    return out.tolist()


def test_the_kernel_is_wrong_as_written():
    with pytest.raises(ditron.SimulationError), pipeline("as-written"):
        for seed in range(20):
            ditron.sim.run(main, ranks=3, seed=seed)


def test_the_compiler_puts_it_right():
    result = run("default", main, seeds=20, ranks=3)
    assert result[1] == [300.0 + i for i in range(N)] + [1301.0 + i for i in range(N)]
    fences = {name: (count(put_and_flag, "ditron.fence", name, signature=SIGNATURE, constexprs={"N": N}),
                     count(put_and_flag, "ditron.quiet", name, signature=SIGNATURE, constexprs={"N": N}))
              for name in ("as-written", "default")}
    assert fences == {"as-written": (0, 0), "default": (2, 1)}
