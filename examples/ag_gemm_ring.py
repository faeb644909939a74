"""Ring AllGather + GEMM as a host program: one GEMM per chunk, in the order in which the chunks arrive.

    ditron run --sim 4 examples/ag_gemm_ring.py
    torchrun --nproc-per-node 4 examples/ag_gemm_ring.py

In step ``s`` every rank multiplies chunk ``(rank + s) % n`` and pushes its own to the rank whose turn it then is, so
that in each step each link carries one chunk. Streams wait for signals, kernels for nothing: the GEMM is an ordinary
one, and two streams take turns, so that the tail of one overlaps with the next.
"""

import argparse

import torch
import triton
import triton.language as tl
from ag_gemm import check

import ditron
import ditron.host as dh

STREAMS = 2


@triton.jit
def gemm_tile(a_ptr, b_ptr, c_ptr, tile, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """One tile of C = A @ B, row-major."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows % M).to(tl.int64)[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + ks.to(tl.int64)[:, None] * N + (cols % N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=ks[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=ks[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * tl.cast(N, tl.int64)
    c_ptrs = c_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@ditron.jit
def gemm_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    gemm_tile(a_ptr, b_ptr, c_ptr, tl.program_id(0), M, N, K, BLOCK_M, BLOCK_N, BLOCK_K)


@ditron.program(
    example={"a": "bf16[2048, 4096]", "b": "bf16[4096, 1024]", "c": "bf16[8192, 1024]"},
    sample_args=lambda ranks: {
        "a": "bf16[20, 16]",
        "b": "bf16[16, 16]",
        "c": f"bf16[{20 * ranks}, 16]",
        "block": (16, 16, 16),
    },
    max_nodes=1,
)
def ag_gemm_ring(a, b, c, *, block=(128, 128, 64), num_warps=8, num_stages=3):
    """``c`` = all ranks' ``a`` [rows, K], one below the other, times ``b`` [K, N]; row-major."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (rows, K), N = a.shape, b.shape[1]
    chunks = dh.symm_empty(ranks, rows, K, dtype=a.dtype, name="chunks")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    block_m, block_n, block_k = block
    grid = (dh.cdiv(rows, block_m) * dh.cdiv(N, block_n),)

    def multiply(chunk, source):
        gemm_kernel[grid](
            chunk,
            b,
            c[source * rows : (source + 1) * rows],
            rows,
            N,
            K,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            num_warps=num_warps,
            num_stages=num_stages,
        )

    with dh.stream("copy"):
        for step in dh.range(1, ranks):
            peer = (rank - step) % ranks  # its step is the same, and this rank's chunk is the one it then needs
            dh.signal_wait(done[peer], epoch - 1)  # it has multiplied what the previous call put there
            dh.rank_copy(a, chunks[rank], peer)
            dh.signal_write(arrived[rank], epoch, peer)

    multiply(a, rank)
    for step in dh.range(1, ranks):
        source = (rank + step) % ranks
        with dh.stream("ring", step % STREAMS):
            dh.signal_wait(arrived[source], epoch)
            multiply(chunks[source], source)
            dh.signal_write(done[rank], epoch, source)


def ring_gemm(a: torch.Tensor, b: torch.Tensor, **config) -> torch.Tensor:
    """``[rows, K]`` on each rank times ``[K, N]`` -> ``[num_ranks * rows, N]``."""
    c = torch.empty(a.shape[0] * ditron.num_ranks(), b.shape[1], dtype=a.dtype, device=a.device)
    ag_gemm_ring(a, b, c, **config)
    return c


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows-per-rank", type=int, default=75, help="rows of A on each rank, any number")
    parser.add_argument("--n", type=int, default=96)
    parser.add_argument("--k", type=int, default=80)
    args = parser.parse_args()
    ditron.init()
    config = dict(block=(32, 32, 32)) if ditron.world().is_sim else {}
    error = check(args.rows_per_rank, args.n, args.k, multiply=ring_gemm, **config)
    assert error < 8e-3, f"rank {ditron.rank()}: relative error {error}"
    print(
        f"rank {ditron.rank()} of {ditron.num_ranks()}: ring AG+GEMM M={args.rows_per_rank * ditron.num_ranks()} "
        f"N={args.n} K={args.k} PASS, relative error {error:.1e}"
    )
    ditron.finalize()
