"""AllGather + GEMM as a host program: C = all_gather(A) @ B, tiles start as soon as the rows they need have arrived.

    ditron run --sim 4 examples/ag_gemm.py
    torchrun --nproc-per-node 4 examples/ag_gemm.py

Copy engines push this rank's rows of A to every rank, nearest needer first, and set a signal there; meanwhile one
kernel computes tiles of C, the own rows first, each after the rows it covers have arrived. The own rows are read where
they are. ``ag_gemm_in_kernel.py`` does the same with stores, from programs of the kernel itself.
"""

import argparse

import torch
import triton.language as tl

import ditron
import ditron.host as dh
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
        "epoch": "i64",
    },
    "constexprs": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64},
    "options": {"num_warps": 8, "num_stages": 3},
}


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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of C per program, after the rows of A it covers have arrived."""
    M = rows_per_rank * dl.num_ranks()
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0)
    pid_m = dl.swizzle(tile // tiles_n, M, BLOCK_M, mode="gather")
    pid_n = tile % tiles_n

    first_row = pid_m * BLOCK_M
    first_rank = first_row // rows_per_rank
    last_rank = (tl.minimum(first_row + BLOCK_M, M) - 1) // rows_per_rank
    token = dl.wait(signal_ptr + first_rank, last_rank - first_rank + 1, epoch)
    workspace_ptr = dl.consume_token(workspace_ptr, token)

    # Rows past the end are the last one, which has been waited for: rows % M would read what another rank still sends.
    rows = tl.minimum(first_row + tl.arange(0, BLOCK_M), M - 1)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    own = rows // rows_per_rank == dl.rank()
    own_rows = a_ptr + (rows % rows_per_rank).to(tl.int64) * K
    a_rows = tl.where(own, own_rows, workspace_ptr + rows.to(tl.int64) * K)
    a_ptrs = a_rows[:, None] + ks[None, :]
    b_ptrs = b_ptr + ks.to(tl.int64)[:, None] * N + (cols % N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=ks[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=ks[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * tl.cast(N, tl.int64)
    c_rows = first_row + tl.arange(0, BLOCK_M)
    c_ptrs = c_ptr + c_rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(c_rows[:, None] < M) & (cols[None, :] < N))


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
def ag_gemm(a, b, c, *, block=(128, 128, 64), num_warps=8, num_stages=3):
    """``c`` = all ranks' ``a`` [rows, K], one below the other, times ``b`` [K, N]; row-major."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (rows, K), N = a.shape, b.shape[1]
    workspace = dh.symm_empty(ranks * rows, K, dtype=a.dtype, name="workspace")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")

    for step in dh.range(1, ranks):  # nobody reads any more what the previous call put into its workspace
        dh.signal_wait(done[(rank + step) % ranks], epoch - 1)
    dh.signal_write(arrived[rank], epoch, rank)
    begin = dh.record()
    with dh.stream("copy"):
        dh.await_event(begin)
        for step in dh.range(1, ranks):  # the left neighbour comes to our rows first
            peer = (rank - step) % ranks
            dh.rank_copy(a, workspace[rank * rows : (rank + 1) * rows], peer)
            dh.signal_write(arrived[rank], epoch, peer)

    block_m, block_n, block_k = block
    grid = (dh.cdiv(ranks * rows, block_m) * dh.cdiv(N, block_n),)
    ag_gemm_kernel[grid](
        a,
        workspace,
        b,
        c,
        arrived,
        rows,
        N,
        K,
        epoch,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        num_warps=num_warps,
        num_stages=num_stages,
    )
    for step in dh.range(1, ranks):
        dh.signal_write(done[rank], epoch, (rank + step) % ranks)


def all_gather_gemm(a: torch.Tensor, b: torch.Tensor, **config) -> torch.Tensor:
    """``[rows, K]`` on each rank times ``[K, N]`` -> ``[num_ranks * rows, N]``."""
    c = torch.empty(a.shape[0] * ditron.num_ranks(), b.shape[1], dtype=a.dtype, device=a.device)
    ag_gemm(a, b, c, **config)
    return c


def check(rows_per_rank: int, N: int, K: int, calls: int = 3, multiply=all_gather_gemm, **config) -> float:
    """Multiply random bf16 data ``calls`` times; largest error against fp32 torch, relative to the largest entry."""
    worst = 0.0
    rank, num_ranks, device = ditron.rank(), ditron.num_ranks(), ditron.device()
    for call in range(calls):
        shards = [
            torch.randn(rows_per_rank, K, generator=torch.Generator().manual_seed(1000 * call + r)).bfloat16()
            for r in range(num_ranks)
        ]
        b = torch.randn(K, N, generator=torch.Generator().manual_seed(1000 * call + 500 + rank)).bfloat16()
        out = multiply(shards[rank].to(device), b.to(device), **config)
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
    config = {}
    if ditron.world().is_sim:  # small tiles for small matrices, so that there are several
        config = dict(block=(32, 32, 32) if args.n <= 256 else (128, 128, 64))
    error = check(args.rows_per_rank, args.n, args.k, args.calls, **config)
    assert error < 8e-3, f"rank {ditron.rank()}: relative error {error}"
    print(
        f"rank {ditron.rank()} of {ditron.num_ranks()}: AG+GEMM M={args.rows_per_rank * ditron.num_ranks()} "
        f"N={args.n} K={args.k} PASS, relative error {error:.1e}"
    )
    ditron.finalize()
