"""Steps of a library in programs, and ``dl.symm_at`` on tensors of ranks, on GPUs.

torchrun --nproc-per-node 2 test/gpu/check_calls.py
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl


def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b, out=c)


@ditron.program
def gather_and_multiply(a, b, c):
    """c = the ranks' a, one below the other, times b: each shard is multiplied by cuBLAS when it has arrived."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    rows, k = a.shape
    shards = dh.symm_empty(ranks, rows, k, dtype=a.dtype, name="shards")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    used = dh.symm_zeros(ranks, dtype=torch.int64, name="used")
    with dh.stream("copy"):
        for distance in dh.range(1, ranks):
            peer = (rank + distance) % ranks
            dh.signal_wait(used[peer], epoch - 1)
            dh.rank_copy(a, shards[rank], peer)
            dh.signal_write(arrived[rank], epoch, peer)
    dh.call(product, reads=[a, b], writes=[c[rank * rows : (rank + 1) * rows]])
    with dh.stream("late"):  # a product on another stream too
        for distance in dh.range(1, ranks):
            source = (rank - distance) % ranks
            dh.signal_wait(arrived[source], epoch)
            dh.call(product, reads=[shards[source], b], writes=[c[source * rows : (source + 1) * rows]])
            dh.signal_write(used[rank], epoch, source)


@ditron.jit
def gather_rows(x, out, W: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)[None, :]
    rows = tl.arange(0, W)[:, None]
    ranks = rows % dl.num_ranks()
    tl.store(out + rows * B + at, tl.load(dl.symm_at(x + at, ranks)))
    pointers = tl.where(rows % 2 == 0, x + at, x + at)  # without a common base
    tl.store(out + (W + rows) * B + at, tl.load(dl.symm_at(pointers, ranks)))


def check_products() -> None:
    rank, ranks = ditron.rank(), ditron.num_ranks()
    device = ditron.device()
    for rows, k, n in ((64, 128, 256), (1024, 2048, 1024), (7, 96, 40)):
        static_a = torch.empty(rows, k, device=device, dtype=torch.bfloat16)
        b = torch.randn(k, n, device=device, generator=torch.Generator(device).manual_seed(1)).bfloat16()
        c = torch.empty(ranks * rows, n, device=device, dtype=torch.bfloat16)

        def fill(call: int, static_a: torch.Tensor = static_a, rows: int = rows, k: int = k) -> torch.Tensor:
            whole = torch.randn(ranks * rows, k, generator=torch.Generator().manual_seed(call)).bfloat16().to(device)
            static_a.copy_(whole[rank * rows : (rank + 1) * rows])
            return whole

        def check(whole: torch.Tensor, what: str, b: torch.Tensor = b, c: torch.Tensor = c) -> None:
            torch.cuda.synchronize()
            exact = whole.float() @ b.float()
            error = ((c.float() - exact).abs().max() / exact.abs().max()).item()
            assert error < 1e-2, (what, error)

        for call in range(5):
            whole = fill(call)
            c.zero_()
            gather_and_multiply(static_a, b, c)
            check(whole, f"call {call}")
        graph = torch.cuda.CUDAGraph()
        ditron.barrier()
        with torch.cuda.graph(graph):
            gather_and_multiply(static_a, b, c)
            gather_and_multiply(static_a, b, c)
        for replay in range(200):
            if replay % 20 == 0:
                whole = fill(100 + replay)
                c.zero_()
            graph.replay()
            if replay % 20 == 0:
                check(whole, f"replay {replay}")
        torch.cuda.synchronize()
        whole = fill(999)
        gather_and_multiply(static_a, b, c)
        check(whole, "a call after the replays")
        if rank == 0:
            print(f"dh.call: {rows} x {k} x {n}: 5 calls, a graph of 2 replayed 200 times, 1 call: right", flush=True)


def check_ranks() -> None:
    rank, ranks, width = ditron.rank(), ditron.num_ranks(), 2048
    x = ditron.symm_zeros(width, dtype=torch.bfloat16, name="x")
    out = torch.empty(8, width, device=ditron.device(), dtype=torch.bfloat16)
    x.copy_(torch.arange(width, device=x.device) % 100 + rank)
    torch.cuda.synchronize()
    ditron.barrier()
    gather_rows[(1,)](x, out, W=4, B=width)
    torch.cuda.synchronize()
    ditron.barrier()
    expected = torch.stack([torch.arange(width) % 100 + row % ranks for row in range(4)] * 2).bfloat16()
    assert torch.equal(out.cpu(), expected)
    if rank == 0:
        print("symm_at on tensors of ranks: right", flush=True)


def main() -> int:
    ditron.init()
    check_ranks()
    check_products()
    ditron.finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
