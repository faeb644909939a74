"""Thousands of calls of the operators in random order: sizes, lagging ranks, other streams, graphs; every result checked.

    torchrun --nproc-per-node 2 test/gpu/soak_operators.py --calls 10000

Each result is compared with torch's on NCCL's collectives, element by element, within the bounds of bf16 sums. Memory
must not grow after the first tenth of the calls. A rank that hangs ends itself after ``--limit`` seconds without progress.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import os
import random
import time

import torch
import torch.distributed as dist

import ditron
from ditron import kernels

LARGEST = 1200  # rows of a rank


def wrong(got: torch.Tensor, exact: torch.Tensor, parts: torch.Tensor | float, products: torch.Tensor | float) -> int:
    """Elements that differ by more than rounding: of the result and of its ``parts`` to bf16, of fp32 sums of products.

    ``parts``: the sum of their magnitudes, where they are rounded; ``products``: the sum of the products' magnitudes.
    """
    bound = 2.0**-8 * (exact.abs() + parts) + 2.0**-16 * products
    return int(((got.float() - exact).abs() > bound).sum()) + int(got.isnan().sum())


def gathered(x: torch.Tensor) -> torch.Tensor:
    whole = torch.empty(dist.get_world_size() * x.shape[0], *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(whole, x)
    return whole


def summed(x: torch.Tensor) -> torch.Tensor:
    x = x.float().clone()
    dist.all_reduce(x)
    return x


def count(bad: dict[str, int], burst: list, results: list[torch.Tensor]) -> None:
    """Add up the wrong elements by operator."""
    for (kind, _, check), got in zip(burst, results, strict=True):
        if elements := check(got):
            bad[kind] = bad.get(kind, 0) + elements


class Calls:
    """Calls that all ranks draw alike from one generator."""

    def __init__(self, seed: int, device: torch.device):
        self.draw, self.rank, self.ranks = random.Random(seed), dist.get_rank(), dist.get_world_size()
        generator = torch.Generator(device).manual_seed(seed * 100 + self.rank)
        self.pool = torch.randn(self.ranks * LARGEST + 64, 1024, device=device, generator=generator).bfloat16()
        self.weights = {
            (n, k): torch.randn(n, k, device=device, generator=generator).bfloat16()
            for n in (256, 776)
            for k in (64, 520, 1024)
        }

    def rows(self, count: int, columns: int) -> torch.Tensor:
        first = self.draw.randrange(self.pool.shape[0] - count)
        return self.pool[first : first + count, :columns].contiguous()

    def one(self):
        """An operator's name, its call, and what counts the wrong elements of its result."""
        kind = self.draw.choice(["ag_gemm", "gemm_rs", "gemm_ar", "all_gather", "reduce_scatter", "all_reduce"])
        rows = self.draw.choice([self.draw.randint(1, LARGEST), self.draw.randint(1, 64), 128])
        (n, k), b = self.draw.choice(list(self.weights.items()))
        per_rank = rows if kind in ("ag_gemm", "all_gather") else rows * self.ranks
        x = self.rows(per_rank, k)
        own = slice(self.rank * rows, (self.rank + 1) * rows)
        if kind == "ag_gemm":
            return kind, lambda: kernels.ag_gemm(x, b), lambda got: self.check(got, gathered(x).float(), b)
        if kind == "all_gather":
            return kind, lambda: kernels.all_gather(x), lambda got: int((got != gathered(x)).sum())
        if kind in ("gemm_rs", "gemm_ar"):
            part = own if kind == "gemm_rs" else slice(None)

            def check(got):
                mine = x.float() @ b.float().T
                products = summed(x.float().abs() @ b.float().abs().T)
                return wrong(got, summed(mine)[part], summed(mine.abs())[part], products[part])

            return kind, lambda: getattr(kernels, kind)(x, b), check
        part = own if kind == "reduce_scatter" else slice(None)
        return (
            kind,
            lambda: getattr(kernels, kind)(x),
            lambda got: wrong(got, summed(x)[part], 0.0, summed(x.abs())[part]),
        )

    def check(self, got: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> int:
        return wrong(got, a @ b.float().T, 0.0, a.abs() @ b.float().abs().T)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--replays", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=60, help="seconds without progress")
    args = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    faulthandler.dump_traceback_later(args.limit, exit=True)
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=args.limit))
    torch.backends.cuda.matmul.allow_tf32 = False
    ditron.init(transport="p2p", heap_bytes=2 << 30)
    calls, local = Calls(args.seed, device), random.Random(1000 + args.seed + dist.get_rank())
    other, noise = torch.cuda.Stream(), torch.randn(2048, 2048, device=device)
    bad, used, begin, done = {}, 0, time.time(), 0
    while done < args.calls:
        faulthandler.dump_traceback_later(args.limit, exit=True)
        burst = [calls.one() for _ in range(calls.draw.randint(1, 8))]
        if local.random() < 0.2:
            torch.cuda._sleep(local.randint(1, 3_000_000))
        if local.random() < 0.2:
            with torch.cuda.stream(other):
                noise @ noise
        results = [call() for _, call, _ in burst]
        count(bad, burst, results)
        done += len(burst)
        torch.cuda.synchronize()
        if used == 0 and done > args.calls // 10:
            used = torch.cuda.mem_get_info()[0]
        if dist.get_rank() == 0 and done // 1000 != (done - len(burst)) // 1000:
            print(f"{done} calls, wrong elements {bad}, {time.time() - begin:.0f} s", flush=True)
    grown = used - torch.cuda.mem_get_info()[0]
    print(
        f"rank {dist.get_rank()}: {done} calls, wrong elements {bad}, free memory fell by {grown >> 20} MiB", flush=True
    )
    dist.barrier()

    faulthandler.dump_traceback_later(args.limit, exit=True)
    burst = [calls.one() for _ in range(12)]
    for _, call, _ in burst:
        call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        results = [call() for _, call, _ in burst]
    dist.barrier()
    for replay in range(args.replays):
        if local.random() < 0.05:
            torch.cuda._sleep(local.randint(1, 3_000_000))
        graph.replay()
        if replay % 100 == 99:
            torch.cuda.synchronize()
            faulthandler.dump_traceback_later(args.limit, exit=True)
            count(bad, burst, results)
            for got in results:
                got.fill_(float("nan"))
    torch.cuda.synchronize()
    print(f"rank {dist.get_rank()}: {args.replays} replays of 12 calls, wrong elements {bad} in all", flush=True)
    dist.barrier()
    ditron.finalize()
    assert not bad


if __name__ == "__main__":
    main()
