"""Tokens to the ranks of their experts and back, without products, on the GPUs of one host.

    torchrun --nproc-per-node 2 benchmark/ep_exchange.py --models Qwen3-30B DSV3 --rows 128 4096 --table out.md

torch + NCCL: rows by rank of their experts, a copy for each route, ``all_to_all_single`` with splits that the host
knows, rows by expert; and the reverse, with the weighted sum at the owner (torchtitan's way). *copies alone*: what has
to travel, a token once to each rank that needs it, and a sum of it from each of these. Uniform routing.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import Case, Run, arguments, copies_alone, measure, parse_schedule  # noqa: E402
from grouped_gemm import MODELS, Model  # noqa: E402
from measuring import random  # noqa: E402
from moe import RowsCase, route, rows_of  # noqa: E402

from ditron import kernels  # noqa: E402
from ditron.kernels.route_draws import RouteDistribution  # noqa: E402


class Exchange:
    """One model's routes of ``tokens`` tokens of each rank, as torch's way needs them."""

    def __init__(self, model: Model, tokens: int, device: torch.device):
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.ids = route(RouteDistribution(), model, tokens, device)  # [ranks, tokens, top_k]
        self.top_k, self.tokens, self.H = model.top_k, tokens, model.hidden
        self.x = random(tokens, self.H, self.rank, device)
        self.weights = torch.rand(tokens, self.top_k, device=device)
        self.plan = kernels.moe_plan(self.ids[self.rank], self.weights, num_experts=model.experts)
        of_rank = self.ids.long() * self.ranks // model.experts
        mine = of_rank[self.rank].flatten()
        self.order = mine.argsort(stable=True)  # this rank's routes by rank of their expert
        self.token = self.order // self.top_k
        self.sent = torch.bincount(mine, minlength=self.ranks).tolist()
        self.received = [int((of_rank[source] == self.rank).sum()) for source in range(self.ranks)]
        experts = [
            self.ids[source].flatten()[of_rank[source].flatten().argsort(stable=True)][
                of_rank[source].flatten().sort(stable=True).values == self.rank
            ]
            for source in range(self.ranks)
        ]
        self.by_expert = torch.cat(experts).argsort(stable=True)
        self.back = self.by_expert.argsort()
        needed = torch.stack([(of_rank == rank).any(2) for rank in range(self.ranks)])  # [owner, source, token]
        self.needed = needed[:, self.rank].sum(1).tolist()  # this rank's tokens that each rank needs
        self.summed = needed[self.rank].sum(1).tolist()  # tokens of each rank that have a sum here

    def send(self, rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        out = rows.new_empty(sum(received), self.H)
        dist.all_to_all_single(out, rows, received, sent)
        return out

    def dispatch(self) -> torch.Tensor:
        return self.send(self.x[self.token], self.sent, self.received)[self.by_expert]

    def combine(self, y: torch.Tensor) -> torch.Tensor:
        """Of ``y``, rows as :meth:`dispatch` has them."""
        rows = self.send(y[self.back], self.received, self.sent)
        routes = torch.empty_like(rows)
        routes[self.order] = rows
        return torch.einsum("tkh,tk->th", routes.view(self.tokens, self.top_k, self.H).float(), self.weights).bfloat16()


def quantized_dispatch(e: Exchange, name: str, calls: int, args: argparse.Namespace) -> Case:
    """Tokens in fp8 with a scale for 128 columns."""
    x, scales = e.x.to(torch.float8_e4m3fn), torch.rand(e.tokens, e.H // 128, device=e.x.device)
    rows = torch.zeros(e.plan.max_rows, e.H, dtype=torch.int8, device=x.device).view(x.dtype)
    scale_rows = torch.zeros(e.plan.max_rows, e.H // 128, device=x.device)
    everybody = [torch.empty(e.ranks * len(t), t.shape[1], device=x.device) for t in (x, scales)]
    for whole, part in zip(everybody, (x.float(), scales), strict=True):
        dist.all_gather_into_tensor(whole, part)
    token = e.plan.row_route[rows_of(e.plan)].long() // e.top_k
    dispatch = functools.partial(kernels.ep_dispatch, x, e.plan, out=rows, scale_x=scales, scale_out=scale_rows)
    runs: dict[str, Run] = {
        "copies alone": copies_alone([n * e.H * 33 // 32 for n in e.needed], x.device),
        "ditron": dispatch,
    }
    runs |= {f"ditron, {how}": functools.partial(dispatch, **schedule) for how, schedule in args.dispatch_schedules}
    case = RowsCase("ep_exchange", name, runs, tuple(whole[token] for whole in everybody), 1e-9, calls)
    case.plans = {n: e.plan for n in runs if n.startswith("ditron")}
    return case


def exchanges(args: argparse.Namespace, device: torch.device) -> Iterator[tuple[str, Exchange, int]]:
    """Of each case: its name, its routes, and how many calls a sample has."""
    for name in args.models:
        for tokens in args.rows:
            yield f"{name}, {tokens} tokens", Exchange(MODELS[name], tokens, device), 10 if tokens <= 512 else 2


def sources_of(e: Exchange) -> tuple[torch.Tensor, torch.Tensor]:
    """Places of the rows that are no padding, and the route of each."""
    places = torch.nonzero(e.plan.row_slot[: int(e.plan.num_tiles) * e.plan.block_m] >= 0)[:, 0]
    return places, e.plan.row_route[places].long()


def dispatch(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for name, e, calls in exchanges(args, device):
        rows = torch.zeros(e.plan.max_rows, e.H, dtype=torch.bfloat16, device=device)
        everybody = torch.empty(e.ranks * e.tokens, e.H, dtype=torch.bfloat16, device=device)
        dist.all_gather_into_tensor(everybody, e.x)
        expected = everybody[sources_of(e)[1] // e.top_k].float()
        runs: dict[str, Run] = {
            "copies alone": copies_alone([n * e.H * 2 for n in e.needed], device),
            "ditron": lambda e=e, rows=rows: kernels.ep_dispatch(e.x, e.plan, out=rows),
            "torch + NCCL": lambda e=e: (e.dispatch(), None)[1],
        }
        for how, schedule in args.dispatch_schedules:
            runs[f"ditron, {how}"] = lambda e=e, rows=rows, s=schedule: kernels.ep_dispatch(e.x, e.plan, out=rows, **s)
        case = RowsCase("ep_exchange", f"dispatch, {name}", runs, expected, 1e-9, calls)
        case.plans = {n: e.plan for n in runs if n.startswith("ditron")}
        yield case
        yield quantized_dispatch(e, f"dispatch in fp8, {name}", calls, args)


def combine(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for name, e, calls in exchanges(args, device):
        y, out = random(e.plan.max_rows, e.H, 5, device), torch.empty_like(e.x)
        of_nccl = random(sum(e.received), e.H, 6, device)
        sums = torch.zeros(e.ranks * e.tokens, e.H, device=device)
        all_weights = torch.empty(e.ranks * e.tokens, e.top_k, device=device)
        dist.all_gather_into_tensor(all_weights, e.weights)
        places, route_of = sources_of(e)
        sums.index_add_(0, route_of // e.top_k, y[places].float() * all_weights.view(-1)[route_of][:, None])
        mine = torch.empty(e.tokens, e.H, device=device)
        dist.reduce_scatter_tensor(mine, sums)
        del sums
        runs: dict[str, Run] = {
            "copies alone": copies_alone([n * e.H * 2 for n in e.summed], device),
            "ditron": lambda e=e, y=y, out=out: kernels.ep_combine(y, e.plan, out=out),
            "torch + NCCL": lambda e=e, y=of_nccl: (e.combine(y), None)[1],
        }
        for how, schedule in args.combine_schedules:
            runs[f"ditron, {how}"] = lambda e=e, y=y, out=out, s=schedule: kernels.ep_combine(y, e.plan, out=out, **s)
        yield Case("ep_exchange", f"combine, {name}", runs, mine, 6e-3, calls)


OPERATORS = {"dispatch": dispatch, "combine": combine}


def main() -> None:
    parser = arguments(__doc__, OPERATORS)
    parser.add_argument("--models", nargs="*", default=["Qwen3-30B", "DSV3"], choices=list(MODELS))
    parser.add_argument("--rows", nargs="*", type=int, default=[128, 4096], help="tokens of a rank")
    for operator in ("dispatch", "combine"):
        parser.add_argument(
            f"--{operator}-schedules", nargs="*", type=parse_schedule, default=[], metavar="programs=132,num_warps=8"
        )
    measure(OPERATORS, parser.parse_args())


if __name__ == "__main__":
    main()
