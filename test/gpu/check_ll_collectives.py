"""Collectives and products by words and packets on GPUs: thousands of replays, ranks out of step, elements compared.

    torchrun --nproc-per-node 2 test/gpu/check_ll_collectives.py
    ditron run --sim 3 test/gpu/check_ll_collectives.py --replays 20
    torchrun --nproc-per-node 4 test/gpu/share_gpu.py test/gpu/check_ll_collectives.py --only rms_norm --replays 30

How: replays.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from replays import Calls, check, parser

import ditron
from ditron import kernels

SIZES = 1, 7, 40, 2048, 3000, 8192, 32768, 524288  # elements


class Collective(Calls):
    """Calls of one collective on ``n`` elements (of a rank), each with other elements."""

    def __init__(self, what: str, n: int, dtype: torch.dtype, algorithm: str):
        super().__init__()
        self.what, self.dtype, self.algorithm = what, dtype, algorithm
        self.at = torch.arange(n * (self.ranks if what == "reduce_scatter" else 1), device=self.device)

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


class Normalized(Collective):
    """Calls of ``all_reduce_rms_norm`` on ``rows`` of ``N``: the sum is exact, its norm within two roundings."""

    def __init__(self, rows: int, N: int):
        super().__init__("all_reduce_rms_norm", rows * N, torch.bfloat16, "")
        self.shape = rows, N
        self.weight = (torch.arange(N, device=self.device) % 5 + 1).to(self.dtype)

    def of(self, rank: int) -> torch.Tensor:
        return super().of(rank).view(self.shape)

    def __call__(self) -> None:
        self.count += 1
        residual = self.of(-3)
        got, total = kernels.all_reduce_rms_norm(self.of(self.rank), residual, self.weight)
        exact = residual.float() + sum(self.of(rank).float() for rank in range(self.ranks))
        self.bad += (total != exact.to(self.dtype)).sum()
        expected = torch.nn.functional.rms_norm(total.double(), total.shape[1:], self.weight.double(), 1e-6)
        self.bad += ((got - expected).abs() > 2.0**-7 * expected.abs()).sum()


class Products(Collective):
    """Calls of the fused ``gemm_ar`` with ``M`` rows, of integers whose sums are exact."""

    def __init__(self, M: int, N: int, K: int):
        super().__init__("gemm_ar", M * K, torch.bfloat16, "fused")
        self.shape = M, K
        self.b = [self._integers(N * K, rank).view(N, K) for rank in range(self.ranks)]

    def _integers(self, n: int, rank: int) -> torch.Tensor:
        return ((torch.arange(n, device=self.device) * 7 // 3 + rank) % 3 - 1).to(self.dtype)

    def of(self, rank: int) -> torch.Tensor:
        return ((self.at + (rank + 1) * self.count) % 3).to(self.dtype).view(self.shape)

    def __call__(self) -> None:
        self.count += 1
        got = kernels.gemm_ar(self.of(self.rank), self.b[self.rank], algorithm="fused")
        expected = sum(self.of(rank).float() @ self.b[rank].float().T for rank in range(self.ranks))
        self.bad += (got.float() != expected).sum()


class Gathered(Products):
    """Calls of ``ag_gemm`` with ``M`` rows on a rank whose programs divide K."""

    def __init__(self, M: int, N: int, K: int, split: int):
        super().__init__(M, N, K)
        self.split = split

    def __call__(self) -> None:
        self.count += 1
        got = kernels.ag_gemm(self.of(self.rank), self.b[self.rank], algorithm="split_k", split=self.split)
        whole = torch.cat([self.of(rank) for rank in range(self.ranks)])
        self.bad += (got.float() != whole.float() @ self.b[self.rank].float().T).sum()


def cases(products: bool) -> Iterator[tuple[str, Callable[[], Calls]]]:
    for what in ("all_reduce", "all_gather", "reduce_scatter") if not products else ():
        for n in SIZES:
            for dtype in (torch.bfloat16, torch.float32):
                for algorithm in ("ll", {"all_reduce": "two_shot_ll", "all_gather": "ll128"}.get(what)):
                    if algorithm is None:
                        continue
                    yield f"{what} {n} {dtype} {algorithm}", partial(Collective, what, n, dtype, algorithm)
    for rows, N in (
        ((1, 8192), (2, 5760), (16, 8192), (7, 300), (33, 5120), (70, 8192), (130, 8192)) if not products else ()
    ):
        yield f"all_reduce_rms_norm {rows} x {N}", partial(Normalized, rows, N)
    for M, N, K in (
        (1, 96, 40),
        (1, 1000, 520),
        (2, 96, 40),
        (5, 1000, 32),
        (16, 512, 24),
        (33, 520, 64),
        (64, 520, 32),
        (100, 520, 64),
    ):
        yield f"gemm_ar {M} x {N} x {K}", partial(Products, M, N, K)
    for M, N, K, split in (
        (1, 96, 40, 1),
        (1, 1000, 520, 2),
        (8, 1000, 1032, 4),
        (20, 520, 1536, 3),
        (31, 64, 4096, 9),
    ):
        yield f"ag_gemm {M} x {N} x {K}, {split} parts", partial(Gathered, M, N, K, split)


def main() -> None:
    options = parser(__doc__, replays=3000, limit=100)
    options.add_argument("--products", action="store_true", help="no collectives")
    args = options.parse_args()
    ditron.init()
    check(cases(args.products), args, latest=40_000)


if __name__ == "__main__":
    main()
