"""All-to-alls on GPUs: replays of graphs with other splits and elements in each, ranks out of step, elements compared.

    torchrun --nproc-per-node 2 test/gpu/check_a2a.py
    ditron run --sim 3 test/gpu/check_a2a.py --replays 6

On GPUs a graph holds one call, or three; a delay of random length stands before every other replay. The simulator makes
the calls without graphs.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
from collections.abc import Callable

import torch

import ditron
from ditron import kernels


class Calls:
    """Calls of one operator, with elements that a counter on the device makes; counts wrong elements."""

    def __init__(self, **options):
        self.rank, self.ranks, self.options = ditron.rank(), ditron.num_ranks(), options
        self.count, self.bad = (torch.zeros(1, dtype=torch.int64, device=ditron.device()) for _ in range(2))

    def integers(self, rank: int, rows: int, columns: int) -> torch.Tensor:
        """-1, 0 and 1, others in each call: products of up to some hundreds of them are exact."""
        row, column = (torch.arange(n, device=self.bad.device) for n in (rows, columns))
        return ((row[:, None] * 5 // 3 + column * 7 // 4 + (rank + 1) * self.count) % 3 - 1).bfloat16()

    def __call__(self) -> None:
        self.count += 1
        for got, expected in self.pairs():
            self.bad += (got != expected).sum()


class Equal(Calls):
    def __init__(self, rows: int, width: int, **options):
        super().__init__(**options)
        self.shape = rows * self.ranks, width

    def pairs(self):
        x = [self.integers(rank, *self.shape) for rank in range(self.ranks)]
        expected = torch.cat([each.chunk(self.ranks)[self.rank] for each in x])
        yield kernels.all_to_all(x[self.rank], **self.options), expected


class Unequal(Calls):
    """Splits of ``rows`` or fewer; with ``max_rows`` for half of all, rows are dropped in some calls."""

    def __init__(self, rows: int, width: int, max_rows: int, dtype: torch.dtype = torch.int64, **options):
        super().__init__(**options)
        self.shape, self.rows, self.max_rows, self.dtype = (rows * self.ranks, width), rows, max_rows, dtype
        self.dropped = torch.zeros_like(self.bad)

    def pairs(self):
        own, ranks = self.rank, self.ranks
        at = torch.arange(ranks, device=self.bad.device)
        splits = (self.count * 11 + at[:, None] * 5 + at * (3 + self.count % 4)) % (self.rows + 1)  # [sender, owner]
        splits = torch.where((self.count + at[:, None] + at) % 5 == 0, 0, splits)
        x = torch.stack([self.integers(rank, *self.shape) for rank in range(ranks)])
        before = self.dropped.clone()
        out = torch.full((self.max_rows, self.shape[1]), 7.0, dtype=x.dtype, device=x.device)
        got, counts, offsets = kernels.all_to_all_v(
            x[own], splits[own].to(self.dtype), max_rows=self.max_rows, out=out, dropped=self.dropped, **self.options
        )
        mine = splits[:, own]
        ends = mine.cumsum(0)
        row = torch.arange(self.max_rows, device=x.device)
        sender = (row[:, None] >= ends).sum(1).clamp(max=ranks - 1)
        source = splits[:, :own].sum(1)[sender] + row - (ends - mine)[sender]
        expected = x[sender, source.clamp(max=self.shape[0] - 1)]
        yield got, torch.where((row < ends[-1])[:, None], expected, 7.0)
        yield counts, mine
        yield offsets, torch.cat([torch.zeros_like(ends[:1]), ends]).clamp(max=self.max_rows)
        yield self.dropped - before, (ends[-1:] - self.max_rows).clamp(min=0)


class GemmA2A(Calls):
    def __init__(self, rows: int, N: int, K: int, **options):
        super().__init__(**options)
        self.rows, self.w = rows, self.integers(9, N * self.ranks, K)

    def pairs(self):
        x = [self.integers(rank, self.rows, self.w.shape[1]) for rank in range(self.ranks)]
        mine = self.w.chunk(self.ranks)[self.rank]
        expected = (torch.cat(x).float() @ mine.float().T).bfloat16()
        yield kernels.gemm_a2a(x[self.rank], self.w, **self.options), expected


class A2AGemm(Calls):
    def __init__(self, rows: int, N: int, K: int, **options):
        super().__init__(**options)
        self.rows, self.w = rows, self.integers(9, N, K * self.ranks)

    def pairs(self):
        x = [self.integers(rank, self.rows * self.ranks, self.w.shape[1] // self.ranks) for rank in range(self.ranks)]
        mine = torch.cat([each.chunk(self.ranks)[self.rank] for each in x], 1)
        yield kernels.a2a_gemm(x[self.rank], self.w, **self.options), (mine.float() @ self.w.float().T).bfloat16()


def check(calls: Calls, replays: int) -> int:
    """Number of wrong elements."""
    late = random.Random(calls.rank)
    runs: list[Callable[[], None]] = [calls]
    if calls.bad.is_cuda:
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
        if calls.bad.is_cuda and replay % 2:
            torch.cuda._sleep(late.randrange(100_000))
        runs[1 + replay % 2 if len(runs) > 1 and replay % 17 else 0]()
    ditron.barrier()
    return int(calls.bad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replays", type=int, default=300)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--limit", type=float, default=100, help="seconds until a rank that hangs is ended")
    args = parser.parse_args()
    faulthandler.dump_traceback_later(args.limit, exit=True)
    ditron.init()
    cases = {}
    for algorithm in ("ll", "ll128", "stored"):
        for rows, width in ((1, 1), (50, 128), (300, 512)):
            cases[f"all_to_all {algorithm} {rows} x {width}"] = Equal(rows, width, algorithm=algorithm)
        for rows, width, factor, dtype in ((3, 40, 1, torch.int32), (300, 512, 2, torch.int64)):
            room = max(rows * ditron.num_ranks() // factor, 1)
            name = f"all_to_all_v {algorithm} {rows} x {width}, room for 1 in {factor}"
            cases[name] = Unequal(rows, width, room, dtype, algorithm=algorithm)
    for rows, N, K in ((333, 136, 72), (2048, 512, 256)) if torch.cuda.is_available() else ((70, 40, 72),):
        for operator in (GemmA2A, A2AGemm):
            cases[f"{operator.__name__} {rows} x {N} x {K}"] = operator(rows, N, K, algorithm="overlapped")
    wrong = {}
    for name, case in cases.items():
        if args.only not in name:
            continue
        wrong[name] = check(case, args.replays)
        if ditron.rank() == 0:
            print(f"{name}: {wrong[name]} wrong elements", flush=True)
    if ditron.rank() == 0:
        print(f"{len(wrong)} cases, {args.replays} replays each: {sum(wrong.values())} wrong elements", flush=True)
    assert not any(wrong.values()), {case: count for case, count in wrong.items() if count}
    ditron.finalize()


if __name__ == "__main__":
    main()
