"""All-to-alls on GPUs: replays of graphs with other splits and elements in each, ranks out of step, elements compared.

    torchrun --nproc-per-node 2 test/gpu/check_a2a.py
    ditron run --sim 3 test/gpu/check_a2a.py --replays 6

How: replays.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from replays import Calls, check, parser

import ditron
from ditron import kernels


class Integers(Calls):
    """Calls of one operator with ``options``; those below yield pairs of a result and what it should be."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def integers(self, rank: int, rows: int, columns: int) -> torch.Tensor:
        """-1, 0 and 1, others in each call: products of up to some hundreds of them are exact."""
        row, column = (torch.arange(n, device=self.device) for n in (rows, columns))
        return ((row[:, None] * 5 // 3 + column * 7 // 4 + (rank + 1) * self.count) % 3 - 1).bfloat16()

    def __call__(self) -> None:
        self.count += 1
        for got, expected in self.pairs():
            self.bad += (got != expected).sum()


class Equal(Integers):
    def __init__(self, rows: int, width: int, **options):
        super().__init__(**options)
        self.shape = rows * self.ranks, width

    def pairs(self):
        x = [self.integers(rank, *self.shape) for rank in range(self.ranks)]
        expected = torch.cat([each.chunk(self.ranks)[self.rank] for each in x])
        yield kernels.all_to_all(x[self.rank], **self.options), expected


class Unequal(Integers):
    """Splits of ``rows`` or fewer; with ``max_rows`` for half of all, rows are dropped in some calls."""

    def __init__(self, rows: int, width: int, max_rows: int, dtype: torch.dtype = torch.int64, **options):
        super().__init__(**options)
        self.shape, self.rows, self.max_rows, self.dtype = (rows * self.ranks, width), rows, max_rows, dtype
        self.dropped = torch.zeros_like(self.bad)

    def pairs(self):
        own, ranks = self.rank, self.ranks
        at = torch.arange(ranks, device=self.device)
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


class GemmA2A(Integers):
    def __init__(self, rows: int, N: int, K: int, **options):
        super().__init__(**options)
        self.rows, self.w = rows, self.integers(9, N * self.ranks, K)

    def pairs(self):
        x = [self.integers(rank, self.rows, self.w.shape[1]) for rank in range(self.ranks)]
        mine = self.w.chunk(self.ranks)[self.rank]
        expected = (torch.cat(x).float() @ mine.float().T).bfloat16()
        yield kernels.gemm_a2a(x[self.rank], self.w, **self.options), expected


class A2AGemm(Integers):
    def __init__(self, rows: int, N: int, K: int, **options):
        super().__init__(**options)
        self.rows, self.w = rows, self.integers(9, N, K * self.ranks)

    def pairs(self):
        x = [self.integers(rank, self.rows * self.ranks, self.w.shape[1] // self.ranks) for rank in range(self.ranks)]
        mine = torch.cat([each.chunk(self.ranks)[self.rank] for each in x], 1)
        yield kernels.a2a_gemm(x[self.rank], self.w, **self.options), (mine.float() @ self.w.float().T).bfloat16()


def cases() -> Iterator[tuple[str, Callable[[], Calls]]]:
    for algorithm in ("ll", "ll128", "stored"):
        for rows, width in ((1, 1), (50, 128), (300, 512)):
            yield f"all_to_all {algorithm} {rows} x {width}", partial(Equal, rows, width, algorithm=algorithm)
        for rows, width, factor, dtype in ((3, 40, 1, torch.int32), (300, 512, 2, torch.int64)):
            room = max(rows * ditron.num_ranks() // factor, 1)
            name = f"all_to_all_v {algorithm} {rows} x {width}, room for 1 in {factor}"
            yield name, partial(Unequal, rows, width, room, dtype, algorithm=algorithm)
    for rows, N, K in ((333, 136, 72), (2048, 512, 256)) if torch.cuda.is_available() else ((70, 40, 72),):
        for operator in (GemmA2A, A2AGemm):
            yield f"{operator.__name__} {rows} x {N} x {K}", partial(operator, rows, N, K, algorithm="overlapped")
            name = f"{operator.__name__} {rows} x {N} x {K}, two copy streams"
            yield name, partial(operator, rows, N, K, algorithm="overlapped", copy_streams=2, pieces=3)
        name = f"A2AGemm {rows} x {N} x {K}, stored"
        yield name, partial(A2AGemm, rows, N, K, algorithm="overlapped", pushers=12, pieces=3)


def main() -> None:
    args = parser(__doc__, replays=300, limit=100).parse_args()
    ditron.init()
    check(cases(), args, latest=100_000)


if __name__ == "__main__":
    main()
