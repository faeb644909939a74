"""GEMM + ReduceScatter as a host program: each rank gets its rows of sum over ranks of A_r @ B_r.

    ditron run --sim 4 examples/gemm_rs_chunks.py
    torchrun --nproc-per-node 4 examples/gemm_rs_chunks.py

One GEMM per rank that owns rows of the result, its own last; as soon as one is ready, a copy engine sends it to its
owner while the next is computed. At the end each rank adds up what it got. ``gemm_rs.py`` does the same tile by tile,
with stores from the kernel.
"""

import argparse

import torch
import triton.language as tl
from ag_gemm_ring import gemm_kernel
from gemm_rs import check

import ditron
import ditron.host as dh


@ditron.jit
def add_chunks_kernel(parts_ptr, out_ptr, parts, elements, BLOCK: tl.constexpr):
    """``out`` = sum of ``parts`` chunks of ``elements``, in rank order and in fp32: the same in every run."""
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = where < elements
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(parts):
        total += tl.load(parts_ptr + part * tl.cast(elements, tl.int64) + where, mask=mask).to(tl.float32)
    tl.store(out_ptr + where, total.to(out_ptr.dtype.element_ty), mask=mask)


@ditron.program(
    example={"a": "bf16[8192, 1024]", "b": "bf16[1024, 4096]", "out": "bf16[2048, 4096]"},
    sample_args=lambda ranks: {
        "a": f"bf16[{20 * ranks}, 16]",
        "b": "bf16[16, 16]",
        "out": "bf16[20, 16]",
        "block": (16, 16, 16),
    },
    max_nodes=1,
)
def gemm_rs(a, b, out, *, block=(128, 128, 64), num_warps=8, num_stages=3):
    """``out`` [rows, N] = this rank's rows of the sum over ranks of ``a`` [num_ranks * rows, K] times ``b`` [K, N]."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (rows, N), K = out.shape, a.shape[1]
    outbox = dh.empty(ranks, rows, N, dtype=out.dtype, name="outbox")
    inbox = dh.symm_empty(ranks, rows, N, dtype=out.dtype, name="inbox")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    block_m, block_n, block_k = block
    grid = (dh.cdiv(rows, block_m) * dh.cdiv(N, block_n),)

    def multiply(owner, result):
        gemm_kernel[grid](
            a[owner * rows : (owner + 1) * rows],
            b,
            result,
            rows,
            N,
            K,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            num_warps=num_warps,
            num_stages=num_stages,
        )

    copy = dh.stream("copy")
    for step in dh.range(1, ranks):
        owner = (rank + step) % ranks
        multiply(owner, outbox[owner])
        ready = dh.record()
        with copy:
            dh.await_event(ready)
            dh.signal_wait(done[owner], epoch - 1)  # it has added up what the previous call sent
            dh.rank_copy(outbox[owner], inbox[rank], owner)
            dh.signal_write(arrived[rank], epoch, owner)
    multiply(rank, inbox[rank])
    for step in dh.range(1, ranks):
        dh.signal_wait(arrived[(rank + step) % ranks], epoch)
    add_chunks_kernel[(dh.cdiv(rows * N, 1024),)](inbox, out, ranks, rows * N, BLOCK=1024)
    for step in dh.range(1, ranks):
        dh.signal_write(done[rank], epoch, (rank + step) % ranks)


class GemmReduceScatterChunks:
    """``reduce_scatter(A @ B)``, with the face that ``gemm_rs.check`` asks for."""

    def __init__(self, rows_per_rank: int, N: int, dtype: torch.dtype = torch.bfloat16, **config):
        self.rows_per_rank, self.N, self.dtype, self.config = rows_per_rank, N, dtype, config

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """``[num_ranks * rows_per_rank, K]`` times ``[K, N]``, summed over ranks -> own ``[rows_per_rank, N]``."""
        out = torch.empty(self.rows_per_rank, self.N, dtype=self.dtype, device=a.device)
        gemm_rs(a, b, out, **self.config)
        return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows-per-rank", type=int, default=45, help="rows of C on each rank, any number")
    parser.add_argument("--n", type=int, default=72)
    parser.add_argument("--k", type=int, default=80)
    args = parser.parse_args()
    ditron.init()
    config = dict(block=(32, 32, 32)) if ditron.world().is_sim else {}
    error = check(args.rows_per_rank, args.n, args.k, make=GemmReduceScatterChunks, **config)
    assert error < 1.5e-2, f"rank {ditron.rank()}: relative error {error}"
    print(
        f"rank {ditron.rank()} of {ditron.num_ranks()}: GEMM+RS by chunks "
        f"M={args.rows_per_rank * ditron.num_ranks()} N={args.n} K={args.k} PASS, relative error {error:.1e}"
    )
    ditron.finalize()
