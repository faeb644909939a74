"""Plans, experts' products and their sums on GPUs: replays of graphs with other routes each, ranks out of step, bits compared.

    torchrun --nproc-per-node 2 test/gpu/check_moe.py
    ditron run --sim 2 test/gpu/check_moe.py --replays 3 --small

How: replays.py. ``ag_moe`` and its backward, ``moe_rs`` and ``moe_ar`` get integers, whose sums in fp32 are exact.
Layers (``ep_moe``) are compared with the same call outside of a graph, plans with plain loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from replays import Calls, check, parser

import ditron
from ditron import kernels
from ditron.kernels.routing import tables_on_host


class SecondProduct(Calls):
    """Calls of ``moe_rs`` or ``moe_ar``."""

    def __init__(self, what: str, tokens: int, parallel: str, block_m: int, options: dict, H: int, K: int):
        super().__init__()
        self.what, self.parallel, self.block_m, self.schedule = what, parallel, block_m, options
        self.tokens, self.top_k, self.experts, self.H, self.K = tokens, 2, 8, H, K
        self.token = torch.arange(self.ranks * tokens, device=self.device)
        at = torch.arange(self.experts * H * K, device=self.device)
        w = [((at * 7 // 3 + rank) % 3 - 1).bfloat16().view(self.experts, H, K) for rank in range(self.ranks)]
        self.w = w if parallel == "tp" else w[:1] * self.ranks  # of each rank, of all experts
        own = self.experts // self.ranks
        self.first = [rank * own if parallel == "ep" else 0 for rank in range(self.ranks)]
        self.own = own if parallel == "ep" else self.experts
        first = self.first[self.rank]
        self.mine = self.w[self.rank][first : first + self.own].contiguous()

    def routes(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of all ranks in this call: experts, weights, and a row for each."""
        base = (self.token * 5 + self.token // 7 + self.count * 3) % self.experts
        skew = torch.where(self.count % 4 == 3, base % 2, base)  # every fourth call to few experts
        ids = torch.stack([skew, (skew + 1 + self.count % 3) % self.experts], 1)
        ids = torch.where(((self.token + self.count) % 11 == 0)[:, None], -1, ids)
        weights = 2.0 ** ((self.token[:, None] + ids + self.count) % 3 - 1)
        at = torch.arange(ids.numel() * self.K, device=self.device)
        rows = ((at + self.count * 5 + at // 13) % 3 - 1).bfloat16().view(-1, self.K)
        return ids, weights.float(), rows

    def expected(self, ids: torch.Tensor, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(len(ids), self.H, device=self.device)
        expert = ids.view(-1)
        for rank in range(self.ranks):
            here = (expert >= self.first[rank]) & (expert < self.first[rank] + self.own)
            y = torch.zeros(len(expert), self.H, device=self.device)
            for e in range(self.experts):
                product = rows.float() @ self.w[rank][e].float().T
                y = torch.where((here & (expert == e))[:, None], product, y)
            weighted = y.bfloat16().float() * weights.view(-1, 1)
            total += weighted.view(-1, self.top_k, self.H).sum(1).bfloat16().float()
        return total.bfloat16()

    def __call__(self) -> None:
        self.count += 1
        ids, weights, of_route = self.routes()
        own = slice(self.rank * self.tokens, (self.rank + 1) * self.tokens)
        plan = kernels.moe_plan(
            ids[own], weights[own], num_experts=self.experts, parallel=self.parallel, block_m=self.block_m
        )
        row = plan.route_row.view(-1).long()
        rows = torch.full((plan.max_rows + 1, self.K), float("nan"), dtype=torch.bfloat16, device=self.device)
        rows.index_copy_(0, torch.where(row < 0, plan.max_rows, row), of_route)
        got = getattr(kernels, self.what)(rows[:-1], self.mine, plan, **self.schedule)
        expected = self.expected(ids, weights, of_route)
        self.bad += (got != (expected if self.what == "moe_ar" else expected[own])).sum()


class Tables(SecondProduct):
    """Calls of ``moe_plan``, of which the latest one is compared with plain loops."""

    def __init__(self, tokens: int, parallel: str, options: dict):
        super().__init__("moe_plan", tokens, parallel, 16, options, 1, 1)
        self.kept = [torch.zeros_like(table) for table in self.plan().tables]

    def plan(self) -> kernels.Plan:
        ids, weights, _ = self.routes()
        own = slice(self.rank * self.tokens, (self.rank + 1) * self.tokens)
        options = {"num_experts": self.experts, "parallel": self.parallel, "block_m": self.block_m, "stage_groups": 2}
        return kernels.moe_plan(ids[own], weights[own], **options, **self.schedule)

    def __call__(self) -> None:
        self.count += 1
        for kept, table in zip(self.kept, self.plan().tables, strict=True):
            kept.copy_(table)

    def compare(self) -> None:
        ids, weights, _ = (each.cpu() for each in self.routes())
        plan, shape = kernels.Plan.of(self.kept), (self.ranks, self.tokens, self.top_k)
        first, weights = self.first[self.rank], weights.view(shape)
        divided = None if self.parallel == "tp" else self.experts
        expected = tables_on_host(ids.view(shape), self.rank, first, self.own, self.block_m, 2, weights, divided)
        for field in (
            "num_tiles",
            "row_slot",
            "row_route",
            "tiles",
            "expert_tiles",
            "route_row",
            "route_weight",
            "expert_rows",
            "errors",
            "token_ranks",
        ):
            table = getattr(expected, field)
            self.bad += int((getattr(plan, field)[: len(table)].cpu() != table).sum())


class FirstProduct(SecondProduct):
    """Calls of ``ag_moe`` and its backward, with integers."""

    def of_routes(self, rows: torch.Tensor, ids: torch.Tensor, rank: int, is_transposed: bool) -> torch.Tensor:
        """Each route's row times the matrix of its expert, if ``rank`` has that, or the transposed one; else zeros."""
        expert = ids.view(-1)
        here = (expert >= self.first[rank]) & (expert < self.first[rank] + self.own)
        out = torch.zeros(len(expert), self.H if is_transposed else self.K, device=self.device)
        for e, w in enumerate(self.w[rank].float()):
            out = torch.where((here & (expert == e))[:, None], rows.float() @ (w.T if is_transposed else w), out)
        return out

    def __call__(self) -> None:
        self.count += 1
        ids, weights, of_route = self.routes()
        x = of_route[:: self.top_k].contiguous()
        own = slice(self.rank * self.tokens, (self.rank + 1) * self.tokens)
        plan = kernels.moe_plan(
            ids[own], weights[own], num_experts=self.experts, parallel=self.parallel, block_m=self.block_m
        )
        self.bad += (plan.route_weight != weights).sum() + plan.errors.sum()
        row, expert, first = plan.route_row.view(-1).long(), ids.view(-1), self.first[self.rank]
        here = (expert >= first) & (expert < first + self.own)
        self.bad += ((row >= 0) != here).sum()
        rows = kernels.ag_moe(x[own], self.mine, plan, **self.schedule)
        of_token = x.repeat_interleave(self.top_k, 0)
        expected = self.of_routes(of_token, ids, self.rank, True).bfloat16()
        self.bad += (here[:, None] & (rows[row.clamp(min=0)] != expected)).sum()

        at = torch.arange(len(row) * self.H, device=self.device)
        of_rows = ((at * 3 // 2 + self.count) % 3 - 1).bfloat16().view(-1, self.H)
        grad = torch.full((plan.max_rows + 1, self.H), float("nan"), dtype=torch.bfloat16, device=self.device)
        grad.index_copy_(0, torch.where(row < 0, plan.max_rows, row), of_rows)
        of_x, of_w = kernels.ag_moe_backward(grad[:-1], x[own], self.mine, plan)
        total = torch.zeros(len(x), self.K, device=self.device)
        for rank in range(self.ranks):  # rounded as rows, as a rank's sums, and as the ranks' sum
            parts = self.of_routes(of_rows, ids, rank, False).bfloat16().float()
            total += parts.view(-1, self.top_k, self.K).sum(1).bfloat16().float()
        self.bad += (of_x != total.bfloat16()[own]).sum()
        for e in range(self.own):
            is_of_e = (expert == first + e)[:, None]
            exact = torch.where(is_of_e, of_rows, 0).float().T @ of_token.float()
            self.bad += (of_w[e] != exact.bfloat16()).sum()


class Exchange(SecondProduct):
    """Calls of ``ep_dispatch``, of tokens and of quantized ones with scales, and of ``ep_combine``."""

    def __call__(self) -> None:
        self.count += 1
        ids, weights, of_route = self.routes()
        x = of_route[:: self.top_k].contiguous()
        scale = (torch.arange(4 * len(x), device=self.device).view(-1, 4) * 3 + self.count).float()
        own = slice(self.rank * self.tokens, (self.rank + 1) * self.tokens)
        plan = kernels.moe_plan(
            ids[own], weights[own], num_experts=self.experts, parallel=self.parallel, block_m=self.block_m
        )
        quantized = x.to(torch.float8_e4m3fn)
        rows, scale_rows = kernels.ep_dispatch(quantized[own], plan, scale_x=scale[own])
        row = plan.route_row.view(-1).long()
        at, here = row.clamp(min=0), (row >= 0)[:, None]
        of_tile = torch.arange(plan.max_rows, device=self.device) < plan.num_tiles * plan.block_m
        is_padding = (of_tile & (plan.row_route < 0))[:, None]
        for got, sent in ((rows, quantized), (scale_rows, scale), (kernels.ep_dispatch(x[own], plan), x)):
            got, of_routes = got.float(), sent.float().repeat_interleave(self.top_k, 0)
            self.bad += (here & (got[at] != of_routes)).sum() + (is_padding & (got != 0)).sum()

        made = torch.full((plan.max_rows + 1, self.K), float("nan"), dtype=torch.bfloat16, device=self.device)
        made.index_copy_(0, torch.where(row < 0, plan.max_rows, row), of_route)
        expert, total = ids.view(-1), torch.zeros(len(x), self.K, device=self.device)
        for first in self.first:
            is_there = ((expert >= first) & (expert < first + self.own))[:, None]
            weighted = torch.where(is_there, of_route.float() * weights.view(-1, 1), 0)
            total += weighted.view(-1, self.top_k, self.K).sum(1)
        self.bad += (kernels.ep_combine(made[:-1], plan) != total.bfloat16()[own]).sum()


class Layer(SecondProduct):
    """Calls of ``ep_moe``; what a graph has computed is compared with calls outside."""

    def __init__(self, tokens: int, parallel: str, H: int, K: int, **options: Any):
        super().__init__("ep_moe", tokens, parallel, 0, {}, H, K)
        self.of_layer = options
        torch.manual_seed(1 + self.rank)
        self.w13 = torch.randn(self.own, 2 * K, H, device=self.device).bfloat16() / H**0.5
        self.w2 = torch.randn(self.own, H, K, device=self.device).bfloat16() / K**0.5
        self.x = torch.randn(tokens, H, device=self.device).bfloat16()
        self.y = torch.zeros_like(self.x)

    def layer(self) -> torch.Tensor:
        ids, weights, _ = self.routes()
        own = slice(self.rank * self.tokens, (self.rank + 1) * self.tokens)
        options = {"num_experts": self.experts, "parallel": self.parallel} | self.of_layer
        return kernels.ep_moe(self.x, ids[own], weights[own], self.w13, self.w2, **options)

    def __call__(self) -> None:
        self.count += 1
        self.y.copy_(self.layer())

    def compare(self) -> None:
        """With the latest call."""
        self.bad += (self.y != self.layer()).sum() + (~self.y.isfinite()).sum()


def cases(small: bool) -> Iterator[tuple[str, Callable[[], Calls]]]:
    H, K = (96, 64) if small else (1024, 256)

    def first(tokens: int, block_m: int, **options: Any) -> Callable[[], Calls]:
        return partial(FirstProduct, "ag_moe", tokens, parallel, block_m, options, H, K)

    def second(what: str, tokens: int, block_m: int, **options: Any) -> Callable[[], Calls]:
        return partial(SecondProduct, what, tokens, parallel, block_m, options, H, K)

    for parallel in ("ep", "tp"):
        yield f"moe_plan {parallel} at once", partial(Tables, 20 if small else 500, parallel, {"at_once": True})
        yield f"moe_plan {parallel} at once, few", partial(Tables, 20, parallel, {"at_once": True})
        yield f"moe_plan {parallel} by segments", partial(Tables, 40 if small else 3000, parallel, {"at_once": False})
        yield f"ep_exchange {parallel} few", partial(Exchange, "exchange", 20, parallel, 16, {}, 1, K)
        if not small:
            for tokens in (128, 777, 3000):
                yield (
                    f"ep_exchange {parallel} {tokens}",
                    partial(Exchange, "exchange", tokens, parallel, 64, {}, 1, 1024),
                )
        for what in ("moe_rs", "moe_ar"):
            yield f"{what} {parallel} few", second(what, 20, 16 if small else 32)
        yield f"ag_moe {parallel} few", first(20, 16)
        if not small:
            yield f"ag_moe {parallel} 32", first(100, 32, algorithm="copied")
            yield f"ag_moe {parallel} 64", first(300, 64)
            yield f"ag_moe {parallel} 128", first(1000, 128)
            yield f"ag_moe {parallel} 128 copied", first(777, 128, algorithm="copied")
            yield f"moe_rs {parallel} 64", second("moe_rs", 300, 64)
            yield f"moe_rs {parallel} 128", second("moe_rs", 1000, 128)
            yield f"moe_rs {parallel} one by one", second("moe_rs", 500, 128, algorithm="after")
            yield f"moe_rs {parallel} by stage", second("moe_rs", 1000, 128, algorithm="by_stage")
            yield f"moe_rs {parallel} by stage, few", second("moe_rs", 20, 32, algorithm="by_stage")
        yield f"ep_moe {parallel}", partial(Layer, 20 if small else 700, parallel, H, K)
        yield (
            f"ep_moe {parallel} dispatched",
            partial(Layer, 20 if small else 128, parallel, H, K, algorithm="dispatched"),
        )
        if not small:
            yield f"ep_moe {parallel} many", partial(Layer, 3000, parallel, 2048, 768)


def main() -> None:
    options = parser(__doc__, replays=120, limit=60)
    options.add_argument("--small", action="store_true")
    args = options.parse_args()
    ditron.init()
    check(cases(args.small), args, latest=200_000)


if __name__ == "__main__":
    main()
