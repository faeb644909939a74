"""Mixture-of-experts operators on the GPUs of one host, against torch + NCCL.

    torchrun --nproc-per-node 2 benchmark/moe.py ag_moe plan --json moe.json --table out.md
    torchrun --nproc-per-node 2 benchmark/moe.py ag_moe --models Mixtral --rows 4096

``ag_moe``: every rank's tokens times the first matrices of their experts, which are divided between the ranks (ep) or
each of which is (tp). Floors: the grouped product alone, of tokens that are there; the copies alone. torch + NCCL:
all-gather, rows sorted by expert (their indices given), ``torch._grouped_mm``. ``plan``: from the experts of this
rank's tokens and their weights to tables on every rank; torch: all-gathers, sort, counts. ``moe_rs`` and ``moe_ar``:
the second product and the sums (moe_layer.py). ``ep_moe``: the layer, with nothing given. Routes are drawn,
uniformly or as ``--routing`` says: the floor is then the rank that has most of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import Case, Run, arguments, copies_alone, floor, measure, parse_schedule  # noqa: E402
from grouped_gemm import MODELS, Model  # noqa: E402
from measuring import random  # noqa: E402
from moe_layer import layer_cases, second_cases  # noqa: E402

import ditron  # noqa: E402
from ditron.kernels import Plan, ag_moe, ag_moe_backward, moe_plan  # noqa: E402
from ditron.kernels.expert_schedules import groups_of_stages  # noqa: E402
from ditron.kernels.route_draws import RouteDistribution  # noqa: E402
from ditron.kernels.routing import tables_on_host  # noqa: E402


def route(routing: RouteDistribution, model: Model, tokens: int, device: torch.device) -> torch.Tensor:
    """Experts of every rank's tokens, [ranks, tokens, top_k], the same on every rank."""
    ranks = dist.get_world_size()
    return routing.draw(ranks * tokens, model.experts, model.top_k, tokens, device)[0].view(ranks, tokens, -1)


class RowsCase(Case):
    """Of results with padding: ours are compared where the plan has rows."""

    plans: dict[str, Plan]

    def error(self, name: str, results: tuple[torch.Tensor, ...]) -> float:
        if name not in self.plans:
            return super().error(name, results)
        placed = rows_of(self.plans[name])
        return super().error(name, tuple(result[placed] for result in results))


def rows_of(plan: Plan) -> torch.Tensor:
    """Rows of a plan that are not padding."""
    return torch.nonzero(plan.row_slot[: int(plan.num_tiles) * plan.block_m] >= 0)[:, 0]


def ag_moe_case(name: str, model: Model, tokens: int, parallel: str, args: Any, device: torch.device) -> Case:
    """The first product of a layer; ``tokens`` of each rank."""
    rank, ranks, K = dist.get_rank(), dist.get_world_size(), model.hidden
    is_ep = parallel == "ep"
    experts = model.experts // ranks if is_ep else model.experts
    N = 2 * model.intermediate // (1 if is_ep else ranks)
    ids = args.route(model, tokens, device)
    x = random(tokens, K, rank, device)
    w = torch.empty(experts, N, K, dtype=x.dtype, device=device).normal_(std=K**-0.25)
    gathered = torch.empty(ranks * tokens, K, dtype=x.dtype, device=device)
    dist.all_gather_into_tensor(gathered, x)
    options = {"num_experts": model.experts, "parallel": parallel}
    plan = moe_plan(ids[rank], **options)
    placed = rows_of(plan)
    slots = (plan.row_slot[placed].long() + rank * tokens) % (ranks * tokens)
    expert = ids.view(-1)[plan.row_route[placed].long()] - (rank * experts if is_ep else 0)
    ends = torch.bincount(expert, minlength=experts).cumsum(0).int()
    rows = torch.empty(len(slots), K, dtype=x.dtype, device=device)
    expected = torch.empty(len(slots), N, device=device)
    begin = 0
    for e, end in enumerate(ends.tolist()):
        torch.mm(gathered[slots[begin:end]].float(), w[e].float().T, out=expected[begin:end])
        begin = end
    groups = [ditron.new_group([r]) for r in range(ranks)]
    alone = moe_plan_alone(ids, model, parallel, plan.block_m, groups[rank])

    def nccl() -> torch.Tensor:
        dist.all_gather_into_tensor(gathered, x)
        torch.index_select(gathered, 0, slots, out=rows)
        return torch._grouped_mm(rows, w.transpose(1, 2), offs=ends)

    runs: dict[str, Run] = {
        "grouped alone": floor(lambda: ag_moe(gathered, w, alone, group=groups[rank], algorithm="copied")),
        "copies alone": copies_alone(x.nbytes, device),
        "torch + NCCL": nccl,
    }
    variants = {"ditron": (plan, {})} | {f"ditron, {how}": (plan, schedule) for how, schedule in args.schedules}
    for how, of_plan in args.plans:
        variants[f"ditron, {how}"] = moe_plan(ids[rank], **options, **of_plan), {}
    for how, (planned, schedule) in variants.items():
        out = torch.empty(planned.max_rows, N, dtype=x.dtype, device=device)
        runs[how] = lambda p=planned, o=out, s=schedule: ag_moe(x, w, p, out=o, **s)
    case = RowsCase("ag_moe", name, runs, expected, 4e-3)
    case.plans = {how: planned for how, (planned, _) in variants.items()}
    return case


def backward_case(name: str, model: Model, tokens: int, parallel: str, args: Any, device: torch.device) -> Case:
    """Both gradients of the first product."""
    rank, ranks, K = dist.get_rank(), dist.get_world_size(), model.hidden
    is_ep = parallel == "ep"
    experts = model.experts // ranks if is_ep else model.experts
    N = 2 * model.intermediate // (1 if is_ep else ranks)
    ids = args.route(model, tokens, device)
    x = random(tokens, K, rank, device)
    w = torch.empty(experts, N, K, dtype=x.dtype, device=device).normal_(std=K**-0.25)
    gathered = torch.empty(ranks * tokens, K, dtype=x.dtype, device=device)
    dist.all_gather_into_tensor(gathered, x)
    plan = moe_plan(ids[rank], num_experts=model.experts, parallel=parallel)
    placed = rows_of(plan)
    token = plan.row_route[placed].long() // model.top_k
    expert = ids.view(-1)[plan.row_route[placed].long()] - (rank * experts if is_ep else 0)
    ends = torch.bincount(expert, minlength=experts).cumsum(0).int()
    grad = random(len(placed), N, rank, device)
    padded = torch.full((plan.max_rows, N), float("nan"), dtype=grad.dtype, device=device)
    padded[placed] = grad
    sums = torch.zeros(ranks * tokens, K, device=device)
    of_w, of_x = torch.zeros(experts, N, K, device=device), torch.empty(tokens, K, device=device)
    begin = 0
    for e, end in enumerate(ends.tolist()):
        mine = slice(begin, end)
        sums.index_add_(0, token[mine], grad[mine].float() @ w[e].float())
        torch.mm(grad[mine].float().T, gathered[token[mine]].float(), out=of_w[e])
        begin = end
    dist.reduce_scatter_tensor(of_x, sums)
    rows = torch.empty(len(placed), K, dtype=x.dtype, device=device)
    scattered = torch.empty(tokens, K, dtype=x.dtype, device=device)

    def nccl() -> tuple[torch.Tensor, torch.Tensor]:
        partial = torch.zeros(ranks * tokens, K, dtype=x.dtype, device=device)
        partial.index_add_(0, token, torch._grouped_mm(grad, w, offs=ends))
        dist.reduce_scatter_tensor(scattered, partial)
        dist.all_gather_into_tensor(gathered, x)
        torch.index_select(gathered, 0, token, out=rows)
        return scattered, torch._grouped_mm(grad.t(), rows, offs=ends)

    runs: dict[str, Run] = {"torch + NCCL": nccl, "ditron": lambda: ag_moe_backward(padded, x, w, plan)}
    return Case("ag_moe_backward", name, runs, (of_x, of_w), 1e-2)


def backward_cases(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for name in args.models:
        for tokens in args.rows:
            for parallel in args.parallel:
                title = args.title.format(name, tokens, parallel)
                yield backward_case(title, MODELS[name], tokens, parallel, args, device)


def moe_plan_alone(ids: torch.Tensor, model: Model, parallel: str, block_m: int, group: ditron.Group) -> Plan:
    """Of all ranks' tokens as those of one, with the experts of this rank numbered from 0 on."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = model.experts // ranks if parallel == "ep" else model.experts
    shifted = ids.view(-1, model.top_k) - (rank * own if parallel == "ep" else 0)
    shifted = torch.where((shifted >= 0) & (shifted < own), shifted, -1)
    return moe_plan(shifted, num_experts=max(own, model.top_k), block_m=block_m, stage_groups=1, group=group)


def ag_moe_cases(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for name in args.models:
        for tokens in args.rows:
            for parallel in args.parallel:
                title = args.title.format(name, tokens, parallel)
                yield ag_moe_case(title, MODELS[name], tokens, parallel, args, device)


def plan_cases(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for name in args.models:
        for tokens in args.rows:
            model = MODELS[name]
            ids = args.route(model, tokens, device)
            weights = torch.rand(
                ranks, tokens, model.top_k, device=device, generator=torch.Generator(device).manual_seed(0)
            )
            mine, of_mine = ids[rank].contiguous(), weights[rank].contiguous()
            gathered, of_gathered = torch.empty_like(ids), torch.empty_like(weights)
            counts = torch.zeros(model.experts, dtype=torch.int32, device=device)
            one = torch.ones_like(gathered)

            def nccl(mine=mine, of_mine=of_mine, to=gathered, weights_to=of_gathered, counts=counts, one=one) -> None:
                dist.all_gather_into_tensor(to, mine)
                dist.all_gather_into_tensor(weights_to, of_mine)
                torch.sort(to.view(-1), stable=True)
                counts.zero_().scatter_add_(0, to.view(-1).long(), one.view(-1))

            runs: dict[str, Run] = {"torch + NCCL": nccl}
            for how, schedule in [("", {}), *args.plans]:
                make = partial(moe_plan, mine, of_mine, num_experts=model.experts, **schedule)
                compare(make(), ids, weights, model)
                runs[f"ditron, {how}" if how else "ditron"] = floor(make)
            yield Case("plan", f"{name} {tokens} tokens", runs, (), 0)
            if tokens <= 1024:  # one behind the other, as small collectives are measured in tp.py
                yield Case("plan", f"{name} {tokens} tokens, 20 calls", runs, (), 0, calls=20)


def compare(plan: Plan, ids: torch.Tensor, weights: torch.Tensor, model: Model) -> None:
    """Fail if a plan is not what plain loops make."""
    experts = model.experts // len(ids)
    rank = dist.get_rank()
    groups = groups_of_stages(len(ids), ids.numel() // model.experts, "ep")
    host = tables_on_host(ids.cpu(), rank, rank * experts, experts, plan.block_m, groups, weights.cpu())
    count = int(host.num_tiles)
    plan.check()
    assert int(plan.num_tiles) == count, (int(plan.num_tiles), count)
    for field in ("row_slot", "row_route", "tiles", "expert_tiles", "route_row", "route_weight"):
        expected = getattr(host, field)
        assert torch.equal(getattr(plan, field)[: len(expected)].cpu(), expected), field


OPERATORS = {
    "ag_moe": ag_moe_cases,
    "ag_moe_backward": backward_cases,
    "plan": plan_cases,
    "moe_rs": lambda args, device: second_cases(args, "moe_rs", MODELS, device),
    "moe_ar": lambda args, device: second_cases(args, "moe_ar", MODELS, device),
    "ep_moe": lambda args, device: layer_cases(args, MODELS, device),
}


def main() -> None:
    parser = arguments(__doc__, OPERATORS)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rows", nargs="*", type=int, default=[128, 4096], help="tokens of each rank")
    parser.add_argument("--parallel", nargs="*", default=["ep", "tp"], choices=["ep", "tp"])
    parser.add_argument("--routing", default="uniform", help="how likely experts are: uniform, zipf:1.2, onehot")
    parser.add_argument("--plans", nargs="*", type=parse_schedule, default=[], help="of moe_plan: e.g. block_m=64")
    parser.add_argument(
        "--schedules", nargs="*", type=parse_schedule, default=[], help="of ag_moe: e.g. group_m=4,stages=3"
    )
    parser.add_argument("--fp8", action="store_true", help="ep_moe: experts in fp8 with scales of blocks, too")
    args = parser.parse_args()
    args.route = partial(route, RouteDistribution.parse(args.routing))
    args.title = "{} {} tokens {}" if args.routing == "uniform" else f"{{}} {{}} tokens {{}}, {args.routing}"
    measure(OPERATORS, args, "bf16, ")


if __name__ == "__main__":
    main()
