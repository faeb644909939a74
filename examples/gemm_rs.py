"""GEMM + ReduceScatter in one kernel: each rank gets its rows of sum over ranks of A_r @ B_r.

    ditron run --sim 4 examples/gemm_rs.py
    torchrun --nproc-per-node 4 examples/gemm_rs.py

The first programs compute tiles, the farthest owner's first, and send each to the rank that owns its rows: by stores
into the owner's memory on the same node, by a put to another node. The last programs own a tile each: they wait until
every rank's share of it has arrived and add them up in fp32.
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
        "b_ptr": "*bf16",
        "out_ptr": "*bf16",
        "inbox_ptr": "*bf16",
        "outbox_ptr": "*bf16",
        "signal_ptr": "*i64",
        "rows_per_rank": "i32",
        "N": "i32",
        "K": "i32",
        "epoch": "i32",
    },
    "constexprs": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64},
    "options": {"num_warps": 8, "num_stages": 3},
}


@ditron.jit
def produce_tile(
    a_ptr,
    b_ptr,
    inbox_ptr,
    outbox_ptr,
    signal_ptr,
    rows_per_rank,
    N,
    K,
    epoch,
    tile,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of A @ B, sent to the rank that owns its rows. Tiles are packed: BLOCK_M x BLOCK_N in a row."""
    rank = dl.rank()
    num_ranks = dl.num_ranks()
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_per_rank = tl.cdiv(rows_per_rank, BLOCK_M) * tiles_n
    # Others' tiles first, starting after this rank, own ones last: what travels longest leaves first.
    owner = (rank + 1 + tile // tiles_per_rank) % num_ranks
    owned = tile % tiles_per_rank
    pid_m = owned // tiles_n
    pid_n = owned % tiles_n

    local_rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = owner * rows_per_rank + local_rows % rows_per_rank
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + ks.to(tl.int64)[:, None] * N + (cols % N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=ks[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=ks[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * tl.cast(N, tl.int64)

    TILE: tl.constexpr = BLOCK_M * BLOCK_N
    packed = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    half = (epoch % 2).to(tl.int64) * num_ranks
    box = inbox_ptr + ((half + rank) * tiles_per_rank + owned) * TILE
    signal = signal_ptr + owned * num_ranks + rank
    partial = acc.to(inbox_ptr.dtype.element_ty)
    if owner // dl.num_local_ranks() == dl.node():
        tl.store(dl.symm_at(box, owner) + packed, partial)
        dl.notify(signal, owner, epoch)
    else:
        parcel = outbox_ptr + ((half + owner) * tiles_per_rank + owned) * TILE
        tl.store(parcel + packed, partial)
        nbytes = TILE * (inbox_ptr.dtype.element_ty.primitive_bitwidth // 8)
        dl.putmem_signal_nbi(box, parcel, nbytes, signal, epoch, owner)
    # No signal of this call may land after one of the next: it would set the counter back.
    dl.quiet()


@ditron.jit
def reduce_tile(
    out_ptr, inbox_ptr, signal_ptr, rows_per_rank, N, epoch, owned, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Sum of every rank's share of one owned tile, in rank order and in fp32, so that it is the same in every run."""
    num_ranks = dl.num_ranks()
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_per_rank = tl.cdiv(rows_per_rank, BLOCK_M) * tiles_n
    TILE: tl.constexpr = BLOCK_M * BLOCK_N
    packed = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]

    token = dl.wait(signal_ptr + owned * num_ranks, num_ranks, epoch)
    half = (epoch % 2).to(tl.int64) * num_ranks
    boxes = dl.consume_token(inbox_ptr, token) + (half * tiles_per_rank + owned) * TILE
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for source in range(num_ranks):
        total += tl.load(boxes + source * tl.cast(tiles_per_rank * TILE, tl.int64) + packed).to(tl.float32)

    rows = owned // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = owned % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    out_ptrs = out_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty), mask=(rows[:, None] < rows_per_rank) & (cols[None, :] < N))


@ditron.jit(do_not_specialize=["epoch"])
def gemm_rs_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    inbox_ptr,
    outbox_ptr,
    signal_ptr,
    rows_per_rank,
    N,
    K,
    epoch,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tile = tl.program_id(0)
    tiles = dl.num_ranks() * tl.cdiv(rows_per_rank, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    # Producers wait for nobody and come first in launch order, so the reducers' waits always end.
    if tile < tiles:
        produce_tile(
            a_ptr, b_ptr, inbox_ptr, outbox_ptr, signal_ptr, rows_per_rank, N, K, epoch, tile, BLOCK_M, BLOCK_N, BLOCK_K
        )
    else:
        reduce_tile(out_ptr, inbox_ptr, signal_ptr, rows_per_rank, N, epoch, tile - tiles, BLOCK_M, BLOCK_N)


class GemmReduceScatter:
    """Boxes for ``reduce_scatter(A @ B)`` with A ``[num_ranks * rows_per_rank, K]``, B ``[K, N]``; two by parity.

    A rank that starts call ``e + 2`` has had every rank's tiles of call ``e + 1``, so every rank has finished call
    ``e`` and its boxes are free: no barrier and no reset between calls.
    """

    def __init__(
        self,
        rows_per_rank: int,
        N: int,
        dtype: torch.dtype = torch.bfloat16,
        *,
        block: tuple[int, int, int] = (128, 128, 64),
        **options,
    ):
        self.rows_per_rank, self.N, self.epoch, self.block, self.options = rows_per_rank, N, 0, block, options
        num_ranks = ditron.num_ranks()
        self.tiles_per_rank = triton.cdiv(rows_per_rank, block[0]) * triton.cdiv(N, block[1])
        boxes = (2, num_ranks, self.tiles_per_rank, block[0] * block[1])
        self.inbox = ditron.symm_empty(boxes, dtype=dtype, name="inbox")
        self.outbox = ditron.symm_empty(boxes, dtype=dtype, name="outbox")
        self.signals = ditron.symm_zeros(self.tiles_per_rank, num_ranks, dtype=torch.int64, name="signals")

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """``[num_ranks * rows_per_rank, K]`` times ``[K, N]``, summed over ranks -> own ``[rows_per_rank, N]``."""
        self.epoch += 1
        out = torch.empty(self.rows_per_rank, self.N, dtype=a.dtype, device=a.device)
        block_m, block_n, block_k = self.block
        grid = ((ditron.num_ranks() + 1) * self.tiles_per_rank,)
        gemm_rs_kernel[grid](
            a,
            b,
            out,
            self.inbox,
            self.outbox,
            self.signals,
            self.rows_per_rank,
            self.N,
            a.shape[1],
            self.epoch,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            **self.options,
        )
        return out


def check(rows_per_rank: int, N: int, K: int, calls: int = 3, make=GemmReduceScatter, **config) -> float:
    """Multiply random bf16 data ``calls`` times; largest error against fp32 torch, relative to the largest entry."""
    op, worst = make(rows_per_rank, N, **config), 0.0
    rank, num_ranks, device = ditron.rank(), ditron.num_ranks(), ditron.device()
    own = slice(rank * rows_per_rank, (rank + 1) * rows_per_rank)
    for call in range(calls):
        expected = torch.zeros(rows_per_rank, N, device=device)
        for r in range(num_ranks):
            generator = torch.Generator().manual_seed(1000 * call + r)
            a = torch.randn(num_ranks * rows_per_rank, K, generator=generator).bfloat16().to(device)
            b = torch.randn(K, N, generator=generator).bfloat16().to(device)
            expected += a[own].float() @ b.float()
            if r == rank:
                out = op(a, b)
        worst = max(worst, ((out.float() - expected).abs().max() / expected.abs().max()).item())
    return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows-per-rank", type=int, default=45, help="rows of C on each rank, any number")
    parser.add_argument("--n", type=int, default=72)
    parser.add_argument("--k", type=int, default=80)
    args = parser.parse_args()
    ditron.init()
    simulated = ditron.world().is_sim
    config = dict(block=(32, 32, 32)) if simulated else dict(num_warps=8, num_stages=3)
    error = check(args.rows_per_rank, args.n, args.k, **config)
    assert error < 1.5e-2, f"rank {ditron.rank()}: relative error {error}"
    print(
        f"rank {ditron.rank()} of {ditron.num_ranks()}: GEMM+RS M={args.rows_per_rank * ditron.num_ranks()} "
        f"N={args.n} K={args.k} PASS, relative error {error:.1e}"
    )
    ditron.finalize()
