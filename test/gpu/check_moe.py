"""Experts' products and their sums on GPUs: replays of graphs with other routes each, ranks out of step, bits compared.

    torchrun --nproc-per-node 2 test/gpu/check_moe.py
    ditron run --sim 2 test/gpu/check_moe.py --replays 3 --small

On GPUs a graph holds one call, or three, with new routes, weights and rows for each, which a counter on the device
makes; a delay of random length stands before every other replay. ``ag_moe`` and its backward, ``moe_rs`` and ``moe_ar``
get integers, whose sums in fp32 are exact. Layers (``ep_moe``) are compared with the same call outside of a graph.
"""

from __future__ import annotations

import argparse
import faulthandler
import random

import torch

import ditron
from ditron import kernels


class Calls:
    """Calls of ``moe_rs`` or ``moe_ar``; counts wrong elements."""

    def __init__(self, what: str, tokens: int, parallel: str, block_m: int, options: dict, H: int, K: int):
        self.what, self.parallel, self.block_m, self.schedule = what, parallel, block_m, options
        self.device, self.rank, self.ranks = ditron.device(), ditron.rank(), ditron.num_ranks()
        self.tokens, self.top_k, self.experts, self.H, self.K = tokens, 2, 8, H, K
        self.count, self.bad = (torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(2))
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


class FirstProduct(Calls):
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


class Layer(Calls):
    """Calls of ``ep_moe``; what a graph has computed is compared with calls outside."""

    def __init__(self, tokens: int, parallel: str, H: int, K: int):
        super().__init__("ep_moe", tokens, parallel, 0, {}, H, K)
        torch.manual_seed(1 + self.rank)
        self.w13 = torch.randn(self.own, 2 * K, H, device=self.device).bfloat16() / H**0.5
        self.w2 = torch.randn(self.own, H, K, device=self.device).bfloat16() / K**0.5
        self.x = torch.randn(tokens, H, device=self.device).bfloat16()
        self.y = torch.zeros_like(self.x)

    def layer(self) -> torch.Tensor:
        ids, weights, _ = self.routes()
        own = slice(self.rank * self.tokens, (self.rank + 1) * self.tokens)
        options = {"num_experts": self.experts, "parallel": self.parallel}
        return kernels.ep_moe(self.x, ids[own], weights[own], self.w13, self.w2, **options)

    def __call__(self) -> None:
        self.count += 1
        self.y.copy_(self.layer())

    def compare(self) -> None:
        """With the latest call."""
        self.bad += (self.y != self.layer()).sum() + (~self.y.isfinite()).sum()


def check(calls: Calls, replays: int) -> int:
    """Number of wrong elements."""
    late = random.Random(calls.rank)
    runs = [calls]
    if calls.token.is_cuda:
        for _ in range(2):
            calls()
        torch.cuda.synchronize()
        ditron.barrier()
        for number in (1, 3):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="relaxed"):
                for _ in range(number):
                    calls()
            runs.append(graph.replay)
        torch.cuda.synchronize()
        ditron.barrier()
    for turn in range(replays):
        if turn % 2 and calls.token.is_cuda:
            torch.cuda._sleep(late.randrange(200_000))
        runs[turn % len(runs)]()
        if isinstance(calls, Layer):
            calls.compare()
    return int(calls.bad)


def cases(small: bool):
    H, K = (96, 64) if small else (1024, 256)
    for parallel in ("ep", "tp"):
        for what in ("moe_rs", "moe_ar"):
            yield f"{what} {parallel} few", Calls(what, 20, parallel, 16 if small else 32, {}, H, K)
        yield f"ag_moe {parallel} few", FirstProduct("", 20, parallel, 16, {}, H, K)
        if not small:
            yield f"ag_moe {parallel} 32", FirstProduct("", 100, parallel, 32, {"algorithm": "copied"}, H, K)
            yield f"ag_moe {parallel} 64", FirstProduct("", 300, parallel, 64, {}, H, K)
            yield f"ag_moe {parallel} 128", FirstProduct("", 1000, parallel, 128, {}, H, K)
            yield f"ag_moe {parallel} 128 copied", FirstProduct("", 777, parallel, 128, {"algorithm": "copied"}, H, K)
            yield f"moe_rs {parallel} 64", Calls("moe_rs", 300, parallel, 64, {}, H, K)
            yield f"moe_rs {parallel} 128", Calls("moe_rs", 1000, parallel, 128, {}, H, K)
            yield f"moe_rs {parallel} chunks of a tile", Calls("moe_rs", 777, parallel, 128, {"chunk_tiles": 1}, H, K)
            yield f"moe_rs {parallel} one by one", Calls("moe_rs", 500, parallel, 128, {"overlap": False}, H, K)
        yield f"ep_moe {parallel}", Layer(20 if small else 700, parallel, H, K)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replays", type=int, default=120)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--limit", type=int, default=60, help="seconds a case may take")
    args = parser.parse_args()
    faulthandler.dump_traceback_later(args.limit, exit=True)
    ditron.init()
    wrong = 0
    for name, calls in cases(args.small):
        if args.only not in name:
            continue
        faulthandler.dump_traceback_later(args.limit, exit=True)
        bad = check(calls, args.replays)
        wrong += bad
        print(f"rank {calls.rank}: {name}: {'ok' if not bad else f'{bad} wrong elements'}", flush=True)
    ditron.finalize()
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
