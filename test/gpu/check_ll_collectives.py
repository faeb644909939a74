"""Collectives and products by packets on GPUs: thousands of replays of graphs, ranks out of step, elements compared.

    torchrun --nproc-per-node 2 test/gpu/check_ll_collectives.py
    ditron run --sim 3 test/gpu/check_ll_collectives.py --replays 20

On GPUs a graph holds one call, or three, with new elements for each, which a counter on the device makes; a delay of
random length stands before every other replay. The simulator makes the calls without graphs.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
from collections.abc import Callable

import torch

import ditron
from ditron import kernels

SIZES = 1, 7, 40, 2048, 3000, 8192, 32768  # elements


class Calls:
    """Calls of one collective on ``n`` elements (of a rank), each with other elements; counts wrong results."""

    def __init__(self, what: str, n: int, dtype: torch.dtype, algorithm: str):
        self.algorithm = algorithm
        device, self.rank, self.ranks, self.what = ditron.device(), ditron.rank(), ditron.num_ranks(), what
        self.count, self.bad = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self.at = torch.arange(n * (self.ranks if what == "reduce_scatter" else 1), device=device)
        self.dtype = dtype

    def of(self, rank: int) -> torch.Tensor:
        """A rank's elements in this call: integers whose sums have few bits."""
        return (self.at % 7 + (rank + 1) * (self.count % 13)).to(self.dtype)

    def __call__(self) -> None:
        self.count += 1
        got = getattr(kernels, self.what)(self.of(self.rank), algorithm=self.algorithm)
        everybody = torch.stack([self.of(rank) for rank in range(self.ranks)])
        expected = {
            "all_reduce": lambda: everybody.float().sum(0),
            "all_gather": lambda: everybody.view(-1),
            "reduce_scatter": lambda: everybody.float().sum(0).chunk(self.ranks)[self.rank],
        }[self.what]()
        self.bad += (got != expected.to(self.dtype)).sum()


class Products(Calls):
    """Calls of the fused ``gemm_ar`` with ``M`` rows, of integers whose sums are exact."""

    def __init__(self, M: int, N: int, K: int):
        super().__init__("gemm_ar", M * K, torch.bfloat16, "fused")
        self.shape = M, K
        self.b = [self._integers(N * K, rank).view(N, K) for rank in range(self.ranks)]

    def _integers(self, n: int, rank: int) -> torch.Tensor:
        return ((torch.arange(n, device=self.at.device) * 7 // 3 + rank) % 3 - 1).to(self.dtype)

    def of(self, rank: int) -> torch.Tensor:
        return ((self.at + (rank + 1) * self.count) % 3).to(self.dtype).view(self.shape)

    def __call__(self) -> None:
        self.count += 1
        got = kernels.gemm_ar(self.of(self.rank), self.b[self.rank], algorithm="fused")
        expected = sum(self.of(rank).float() @ self.b[rank].float().T for rank in range(self.ranks))
        self.bad += (got.float() != expected).sum()


def check(calls: Calls, replays: int) -> int:
    """Number of wrong elements."""
    late = random.Random(calls.rank)
    runs: list[Callable[[], None]] = [calls]
    if calls.at.is_cuda:
        for _ in range(2):
            calls()
        torch.cuda.synchronize()
        ditron.barrier()
        for length in (1, 3):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(length):
                    calls()
            runs.append(graph.replay)
    for replay in range(replays):
        if calls.at.is_cuda and replay % 2:
            torch.cuda._sleep(late.randrange(40_000))
        runs[1 + replay % 2 if len(runs) > 1 and replay % 17 else 0]()
    ditron.barrier()
    return int(calls.bad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replays", type=int, default=3000)
    parser.add_argument("--products", action="store_true", help="only of gemm_ar")
    parser.add_argument("--limit", type=float, default=100, help="seconds until a rank that hangs is ended")
    args = parser.parse_args()
    faulthandler.dump_traceback_later(args.limit, exit=True)
    ditron.init()
    wrong = {}
    for what in ("all_reduce", "all_gather", "reduce_scatter") if not args.products else ():
        for n in SIZES:
            for dtype in (torch.bfloat16, torch.float32):
                for algorithm in ("ll", "ll128"):
                    calls = Calls(what, n, dtype, algorithm)
                    wrong[what, n, dtype, algorithm] = check(calls, args.replays)
    for M, N, K in ((1, 96, 40), (1, 1000, 520), (2, 96, 40), (5, 1000, 32), (16, 512, 24), (64, 520, 32)):
        wrong["gemm_ar", M, N, K] = check(Products(M, N, K), args.replays)
    if ditron.rank() == 0:
        print(f"{len(wrong)} cases, {args.replays} replays each: {sum(wrong.values())} wrong elements", flush=True)
    assert not any(wrong.values()), {case: count for case, count in wrong.items() if count}
    ditron.finalize()


if __name__ == "__main__":
    main()
