"""Mixture-of-experts operators on the GPUs of one host, against torch + NCCL.

    torchrun --nproc-per-node 2 benchmark/moe.py ag_moe plan --json moe.json --table out.md
    torchrun --nproc-per-node 2 benchmark/moe.py ag_moe --models Mixtral --rows 4096

``ag_moe``: every rank's tokens times the first matrices of their experts, which are divided between the ranks (ep) or
each of which is (tp). Floors: the grouped product alone, of tokens that are there; the copies alone. torch + NCCL:
all-gather, rows sorted by expert (their indices given), ``torch._grouped_mm``. ``plan``: from the experts of this
rank's tokens to tables on every rank; torch: all-gather, sort, counts. Uniform routing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import Case, Run, arguments, copies_alone, floor, measure, parse_schedule  # noqa: E402
from grouped_gemm import MODELS, Model  # noqa: E402
from measuring import random  # noqa: E402

import ditron  # noqa: E402
from ditron.kernels.ag_moe import ag_moe, moe_plan  # noqa: E402


def route(model: Model, tokens: int, device: torch.device) -> torch.Tensor:
    """Experts of every rank's tokens, [ranks, tokens, top_k], the same on every rank."""
    generator = torch.Generator(device).manual_seed(tokens)
    scores = torch.rand(dist.get_world_size(), tokens, model.experts, device=device, generator=generator)
    return scores.topk(model.top_k).indices.int()


class RowsCase(Case):
    """Of results with padding: ours are compared where ``places`` says."""

    places: torch.Tensor

    def error(self, name: str, results: tuple[torch.Tensor, ...]) -> float:
        return super().error(name, (results[0][self.places],) if name.startswith("ditron") else results)


def ag_moe_case(name: str, model: Model, tokens: int, parallel: str, schedules: list, device: torch.device) -> Case:
    """The first product of a layer; ``tokens`` of each rank."""
    rank, ranks, K = dist.get_rank(), dist.get_world_size(), model.hidden
    is_ep = parallel == "ep"
    experts = model.experts // ranks if is_ep else model.experts
    N = 2 * model.intermediate // (1 if is_ep else ranks)
    ids = route(model, tokens, device)
    x = random(tokens, K, rank, device)
    w = torch.empty(experts, N, K, dtype=x.dtype, device=device).normal_(std=K**-0.25)
    gathered = torch.empty(ranks * tokens, K, dtype=x.dtype, device=device)
    dist.all_gather_into_tensor(gathered, x)
    options = {"num_experts": model.experts, "parallel": parallel}
    plans = {groups: moe_plan(ids[rank], stage_groups=groups, **options) for groups in {1, ranks}}
    plan = moe_plan(ids[rank], **options)
    out = torch.empty(plan.max_rows, N, dtype=x.dtype, device=device)
    placed = torch.nonzero(plan.row_slot[: int(plan.num_tiles) * plan.block_m] >= 0)[:, 0]
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
    alone = moe_plan_alone(ids, model, parallel, groups[rank])

    def nccl() -> torch.Tensor:
        dist.all_gather_into_tensor(gathered, x)
        torch.index_select(gathered, 0, slots, out=rows)
        return torch._grouped_mm(rows, w.transpose(1, 2), offs=ends)

    runs: dict[str, Run] = {
        "grouped alone": floor(lambda: ag_moe(gathered, w, alone, group=groups[rank])),
        "copies alone": copies_alone(x.nbytes, device),
        "torch + NCCL": nccl,
        "ditron": lambda: ag_moe(x, w, plan, out=out),
    }
    for count, grouped in plans.items():
        runs[f"ditron, stage_groups={count}"] = lambda p=grouped: ag_moe(x, w, p, out=out)
    for how, schedule in schedules:
        runs[f"ditron, {how}"] = lambda s=schedule: ag_moe(x, w, plan, out=out, **s)
    case = RowsCase("ag_moe", name, runs, expected, 4e-3)
    case.places = placed
    return case


def moe_plan_alone(ids: torch.Tensor, model: Model, parallel: str, group: ditron.Group):
    """Of all ranks' tokens as those of one, with the experts of this rank numbered from 0 on."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = model.experts // ranks if parallel == "ep" else model.experts
    shifted = ids.view(-1, model.top_k) - (rank * own if parallel == "ep" else 0)
    shifted = torch.where((shifted >= 0) & (shifted < own), shifted, -1)
    average = len(shifted) * model.top_k // model.experts
    block_m = 128 if average > 128 else 64 if average > 48 else 16
    return moe_plan(shifted, num_experts=max(own, model.top_k), block_m=block_m, stage_groups=1, group=group)


def ag_moe_cases(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for name in args.models:
        for tokens in args.rows:
            for parallel in args.parallel:
                title = f"{name} {tokens} tokens {parallel}"
                yield ag_moe_case(title, MODELS[name], tokens, parallel, args.schedules, device)


def plan_cases(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank = dist.get_rank()
    for name in args.models:
        for tokens in args.rows:
            model = MODELS[name]
            ids = route(model, tokens, device)[rank].contiguous()
            gathered = torch.empty(dist.get_world_size() * tokens, model.top_k, dtype=torch.int32, device=device)
            counts = torch.zeros(model.experts, dtype=torch.int32, device=device)
            one = torch.ones_like(gathered)

            def nccl(ids=ids, gathered=gathered, counts=counts, one=one) -> None:
                dist.all_gather_into_tensor(gathered, ids)
                torch.sort(gathered.view(-1), stable=True)
                counts.zero_().scatter_add_(0, gathered.view(-1).long(), one.view(-1))

            runs: dict[str, Run] = {
                "torch + NCCL": nccl,
                "ditron": lambda ids=ids, model=model: floor(lambda: moe_plan(ids, num_experts=model.experts))(),
            }
            yield Case("plan", f"{name} {tokens} tokens", runs, (), 0)


OPERATORS = {"ag_moe": ag_moe_cases, "plan": plan_cases}


def main() -> None:
    parser = arguments(__doc__, OPERATORS)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rows", nargs="*", type=int, default=[128, 4096], help="tokens of each rank")
    parser.add_argument("--parallel", nargs="*", default=["ep", "tp"], choices=["ep", "tp"])
    parser.add_argument("--schedules", nargs="*", type=parse_schedule, default=[], help="e.g. group_m=4,stages=3")
    args = parser.parse_args()
    measure(OPERATORS, args, "bf16, ")


if __name__ == "__main__":
    main()
