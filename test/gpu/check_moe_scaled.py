"""Experts' products in fp8 with scales of blocks on GPUs: as check_moe.py, bit by bit.

    torchrun --nproc-per-node 2 test/gpu/check_moe_scaled.py
    torchrun --nproc-per-node 2 test/gpu/share_gpu.py test/gpu/check_moe_scaled.py --replays 20   # on one GPU
    ditron run --sim 2 test/gpu/check_moe_scaled.py --replays 3 --small

Elements are integers and scales powers of two, so that products and sums in fp32 are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from check_moe import SecondProduct
from replays import Calls, check, parser

import ditron
from ditron import kernels

FP8 = torch.float8_e4m3fn


class ScaledSecond(SecondProduct):
    """Calls of ``moe_rs`` or ``moe_ar``."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        blocks = [
            torch.arange(extent, device=self.device) for extent in (self.experts, -(-self.H // 128), self.K // 128)
        ]
        expert, row, column = blocks[0][:, None, None], blocks[1][None, :, None], blocks[2][None, None, :]
        first, self.w8 = self.first[self.rank], self.mine.to(FP8)
        for rank in range(self.ranks):
            scale = 2.0 ** ((expert + row + 2 * column + (rank if self.parallel == "tp" else 0)) % 3 - 1)
            if rank == self.rank:
                self.scale_w = scale[first : first + self.own].contiguous()
            whole = scale.repeat_interleave(128, 1)[:, : self.H].repeat_interleave(128, 2)
            self.w[rank] = self.w[rank] * whole.bfloat16()

    def quantized(self) -> tuple[torch.Tensor, ...]:
        """Experts, weights, rows of fp8, their scales, and what they stand for."""
        ids, weights, of_route = self.routes()
        at = torch.arange(len(of_route) * (self.K // 128), device=self.device)
        scale = (2.0 ** ((at * 3 // 2 + self.count) % 3 - 1)).view(-1, self.K // 128)
        return ids, weights, of_route.to(FP8), scale, of_route * scale.repeat_interleave(128, 1).bfloat16()

    def plan(self, ids: torch.Tensor, weights: torch.Tensor) -> kernels.Plan:
        own = slice(self.rank * self.tokens, (self.rank + 1) * self.tokens)
        options = {"num_experts": self.experts, "parallel": self.parallel, "block_m": self.block_m}
        return kernels.moe_plan(ids[own], weights[own], **options)

    def __call__(self) -> None:
        self.count += 1
        ids, weights, of_route, of_scale, exact = self.quantized()
        plan = self.plan(ids, weights)
        row = plan.route_row.view(-1).long()
        row = torch.where(row < 0, plan.max_rows, row)
        rows = torch.full((plan.max_rows + 1, self.K), 0x7F, dtype=torch.uint8, device=self.device)  # NaN
        rows.index_copy_(0, row, of_route.view(torch.uint8))
        scale = torch.full((plan.max_rows + 1, self.K // 128), float("nan"), device=self.device)
        scale.index_copy_(0, row, of_scale)
        scales = {"scale_rows": scale[:-1], "scale_w": self.scale_w}
        got = getattr(kernels, self.what)(rows[:-1].view(FP8), self.w8, plan, **scales, **self.schedule)
        expected = self.expected(ids, weights, exact)
        own = slice(self.rank * self.tokens, (self.rank + 1) * self.tokens)
        self.bad += (got != (expected if self.what == "moe_ar" else expected[own])).sum()


class ScaledFirst(ScaledSecond):
    """Calls of ``ag_moe``, and of ``ep_dispatch`` and ``grouped_mm``."""

    def __call__(self) -> None:
        self.count += 1
        ids, weights, of_route, of_scale, exact = self.quantized()
        of_token = slice(None, None, self.top_k)
        x, scale_x, exact = of_route[of_token].contiguous(), of_scale[of_token].contiguous(), exact[of_token]
        own = slice(self.rank * self.tokens, (self.rank + 1) * self.tokens)
        plan, first = self.plan(ids, weights), self.first[self.rank]
        row, expert = plan.route_row.view(-1).long(), ids.view(-1)
        here = (expert >= first) & (expert < first + self.own)
        expected = torch.zeros(len(expert), self.H, device=self.device)
        for e, w in enumerate(self.w[self.rank].float()):
            products = exact.repeat_interleave(self.top_k, 0).float() @ w.T
            expected = torch.where((here & (expert == e))[:, None], products, expected)
        if self.what == "ag_moe":
            rows = kernels.ag_moe(x[own], self.w8, plan, scale_x=scale_x[own], scale_w=self.scale_w, **self.schedule)
        else:
            rows, scale_rows = (kernels.ep_dispatch(t[own], plan) for t in (x, scale_x))
            rows = kernels.grouped_mm(rows, self.w8, plan, scale_rows=scale_rows, scale_w=self.scale_w)
        self.bad += ((row >= 0) != here).sum()
        self.bad += (here[:, None] & (rows[row.clamp(min=0)] != expected.bfloat16())).sum()


def cases(small: bool) -> Iterator[tuple[str, Callable[[], Calls]]]:
    H, K = (136, 128) if small else (1032, 640)  # two and a half iterations of two products

    def first(what: str, tokens: int, block_m: int, **options: Any) -> Callable[[], Calls]:
        return partial(ScaledFirst, what, tokens, parallel, block_m, options, H, K)

    def second(what: str, tokens: int, block_m: int, **options: Any) -> Callable[[], Calls]:
        return partial(ScaledSecond, what, tokens, parallel, block_m, options, H, K)

    for parallel in ("ep", "tp"):
        yield f"ag_moe {parallel} few", first("ag_moe", 20, 16)
        yield f"grouped_mm {parallel}", first("grouped_mm", 40, 16 if small else 32)
        for what in ("moe_rs", "moe_ar"):
            yield f"{what} {parallel} few", second(what, 20, 16 if small else 32)
        if not small:
            yield f"ag_moe {parallel} 64 copied", first("ag_moe", 300, 64, algorithm="copied")
            yield f"ag_moe {parallel} 128", first("ag_moe", 1000, 128)
            yield f"grouped_mm {parallel} 128", first("grouped_mm", 1000, 128)
            yield f"moe_rs {parallel} 64", second("moe_rs", 300, 64)
            yield f"moe_rs {parallel} 128", second("moe_rs", 1000, 128)


def main() -> None:
    options = parser(__doc__, replays=60, limit=60)
    options.add_argument("--small", action="store_true")
    args = options.parse_args()
    ditron.init()
    check(cases(args.small), args, latest=200_000)


if __name__ == "__main__":
    main()
