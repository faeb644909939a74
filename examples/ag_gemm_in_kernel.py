"""AllGather + GEMM all in one kernel: C = all_gather(A) @ B, tiles start as soon as the rows they need have arrived.

    ditron run --sim 4 examples/ag_gemm_in_kernel.py
    torchrun --nproc-per-node 4 examples/ag_gemm_in_kernel.py

The first ``NUM_PUSH`` programs are the producers: they push this rank's rows of A to every rank, nearest needer first,
and count up a signal there. The others are the consumers: each waits for the ranks whose rows its tile covers.
"""

import argparse

import torch
import triton
import triton.language as tl

import ditron
import ditron.language as dl

EXAMPLE = {
    "signature": {
        "a_ptr": "*bf16",
        "workspace_ptr": "*bf16",
        "b_ptr": "*bf16",
        "c_ptr": "*bf16",
        "signal_ptr": "*i64",
        "rows_per_rank": "i32",
        "N": "i32",
        "K": "i32",
        "epoch": "i32",
    },
    "constexprs": {"NUM_PUSH": 8, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "PUSH_ROWS": 16},
    "options": {"num_warps": 8, "num_stages": 3},
}


@ditron.jit
def push_rows(a_ptr, workspace_ptr, signal_ptr, rows_per_rank, K, NUM_PUSH: tl.constexpr, PUSH_ROWS: tl.constexpr):
    """Producer: every ``NUM_PUSH``-th slab of ``PUSH_ROWS`` rows goes to each rank, whose signal then counts one."""
    rank = dl.rank()
    num_ranks = dl.num_ranks()
    row_bytes = tl.cast(K, tl.int64) * (a_ptr.dtype.element_ty.primitive_bitwidth // 8)
    mine = workspace_ptr + rank.to(tl.int64) * rows_per_rank * K
    for step in range(num_ranks):
        # Consumers begin with their own rows and go up, so the left neighbour is the first to need ours.
        peer = (rank + num_ranks - step) % num_ranks
        for row in range(tl.program_id(0) * PUSH_ROWS, rows_per_rank, NUM_PUSH * PUSH_ROWS):
            rows = tl.minimum(PUSH_ROWS, rows_per_rank - row)
            start = row.to(tl.int64) * K
            dl.putmem_nbi(mine + start, a_ptr + start, rows * row_bytes, peer)
        dl.notify(signal_ptr + rank, peer, 1, op="add")
    # A signal of this call that lands after one of the next would be counted as its; none is under way after quiet.
    dl.quiet()


@ditron.jit
def consume_tile(
    workspace_ptr,
    b_ptr,
    c_ptr,
    signal_ptr,
    rows_per_rank,
    N,
    K,
    epoch,
    tile,
    NUM_PUSH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Consumer: one tile of C, after the rows of A it covers have arrived."""
    M = rows_per_rank * dl.num_ranks()
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid_m = dl.swizzle(tile // tiles_n, M, BLOCK_M, mode="gather")
    pid_n = tile % tiles_n

    first_row = pid_m * BLOCK_M
    first_rank = first_row // rows_per_rank
    last_rank = (tl.minimum(first_row + BLOCK_M, M) - 1) // rows_per_rank
    token = dl.wait(signal_ptr + first_rank, last_rank - first_rank + 1, epoch.to(tl.int64) * NUM_PUSH)
    a_ptr = dl.consume_token(workspace_ptr, token)

    rows = first_row + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    # Rows past the end are the last one, which has been waited for: rows % M would read what another rank still sends.
    a_ptrs = a_ptr + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * K + ks[None, :]
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


@ditron.jit(do_not_specialize=["epoch"])
def ag_gemm_kernel(
    a_ptr,
    workspace_ptr,
    b_ptr,
    c_ptr,
    signal_ptr,
    rows_per_rank,
    N,
    K,
    epoch,
    NUM_PUSH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PUSH_ROWS: tl.constexpr,
):
    pid = tl.program_id(0)
    # Producers come first in launch order, so consumers that wait can never keep them off the GPU.
    if pid < NUM_PUSH:
        push_rows(a_ptr, workspace_ptr, signal_ptr, rows_per_rank, K, NUM_PUSH, PUSH_ROWS)
    else:
        consume_tile(
            workspace_ptr,
            b_ptr,
            c_ptr,
            signal_ptr,
            rows_per_rank,
            N,
            K,
            epoch,
            pid - NUM_PUSH,
            NUM_PUSH,
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
        )


class AllGatherGemm:
    """Workspaces for ``all_gather(A) @ B`` with A ``[rows_per_rank, K]`` on each rank; two by parity.

    A rank that starts call ``e + 2`` has seen every rank's rows of call ``e + 1``, so every rank has finished call
    ``e`` and its workspace is free: no barrier and no reset between calls.
    """

    def __init__(
        self,
        rows_per_rank: int,
        K: int,
        dtype: torch.dtype = torch.bfloat16,
        *,
        num_push: int = 8,
        block: tuple[int, int, int] = (128, 128, 64),
        push_rows: int = 16,
        **options,
    ):
        self.rows_per_rank, self.K, self.epoch = rows_per_rank, K, 0
        self.num_push, self.block, self.push_rows, self.options = num_push, block, push_rows, options
        num_ranks = ditron.num_ranks()
        self.workspaces = ditron.symm_empty(2, num_ranks * rows_per_rank, K, dtype=dtype, name="workspaces")
        self.signals = ditron.symm_zeros(num_ranks, dtype=torch.int64, name="signals")

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """``[rows_per_rank, K]`` on each rank times ``[K, N]`` -> ``[num_ranks * rows_per_rank, N]``; row-major."""
        self.epoch += 1
        M, N = self.rows_per_rank * ditron.num_ranks(), b.shape[1]
        c = torch.empty(M, N, dtype=a.dtype, device=a.device)
        block_m, block_n, block_k = self.block
        grid = (self.num_push + triton.cdiv(M, block_m) * triton.cdiv(N, block_n),)
        ag_gemm_kernel[grid](
            a,
            self.workspaces[self.epoch % 2],
            b,
            c,
            self.signals,
            self.rows_per_rank,
            N,
            self.K,
            self.epoch,
            NUM_PUSH=self.num_push,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            PUSH_ROWS=self.push_rows,
            **self.options,
        )
        return c


def check(rows_per_rank: int, N: int, K: int, calls: int = 3, **config) -> float:
    """Multiply random bf16 data ``calls`` times; largest error against fp32 torch, relative to the largest entry."""
    op, worst = AllGatherGemm(rows_per_rank, K, **config), 0.0
    rank, num_ranks, device = ditron.rank(), ditron.num_ranks(), ditron.device()
    for call in range(calls):
        shards = [
            torch.randn(rows_per_rank, K, generator=torch.Generator().manual_seed(1000 * call + r)).bfloat16()
            for r in range(num_ranks)
        ]
        b = torch.randn(K, N, generator=torch.Generator().manual_seed(1000 * call + 500 + rank)).bfloat16()
        out = op(shards[rank].to(device), b.to(device))
        expected = torch.cat(shards).to(device).float() @ b.to(device).float()
        worst = max(worst, ((out.float() - expected).abs().max() / expected.abs().max()).item())
    return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows-per-rank", type=int, default=75, help="rows of A on each rank, any number")
    parser.add_argument("--n", type=int, default=96)
    parser.add_argument("--k", type=int, default=80)
    parser.add_argument("--calls", type=int, default=3, help="how often to multiply, each time other data")
    args = parser.parse_args()
    ditron.init()
    config = dict(num_warps=8, num_stages=3)
    if ditron.world().is_sim:  # small tiles for small matrices, so that there are several
        config = dict(num_push=2, block=(32, 32, 32) if args.n <= 256 else (128, 128, 64))
    error = check(args.rows_per_rank, args.n, args.k, args.calls, **config)
    assert error < 8e-3, f"rank {ditron.rank()}: relative error {error}"
    print(
        f"rank {ditron.rank()} of {ditron.num_ranks()}: AG+GEMM M={args.rows_per_rank * ditron.num_ranks()} "
        f"N={args.n} K={args.k} PASS, relative error {error:.1e}"
    )
    ditron.finalize()
