"""Cases of the second half of a mixture-of-experts layer, and of the whole of it: what benchmark/moe.py runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import grouped_kernels
import torch
import torch.distributed as dist
import torch.nn.functional as F
from cases import Case, Run, copies_alone, floor
from grouped_gemm import Model
from measuring import random, relative_error
from triton.tools.tensor_descriptor import TensorDescriptor

from ditron.kernels import Plan, ag_moe, ep_moe, moe_ar, moe_plan, moe_rs, quantize_128x128
from ditron.kernels.expert_schedules import tiles_for
from ditron.kernels.scales import dequantized

__all__ = ["layer_cases", "second_cases"]

#: Of a layer in fp8, to fp32 with the same weights: its rows are quantized twice, which was .0435 of norms on one rank.
FP8_ERROR = 5e-2


class ComparedCase(Case):
    """Ours in bf16 may be 1.1 times as far from fp32 as torch + NCCL, and its calls are equal bit by bit."""

    def __init__(self, *args):
        super().__init__(*args)
        self.firsts: dict[str, torch.Tensor] = {}
        self.theirs = 0.0
        self.of_fp8: torch.Tensor = self.expected[0]  # of weights as fp8 has them

    def error(self, name: str, results: tuple[torch.Tensor, ...]) -> float:
        if is_fp8 := "fp8" in name:
            error = relative_error(results[0], self.of_fp8)
            assert error < FP8_ERROR, f"{self.operator} {self.name}, {name}: error {error}"
        else:
            error = super().error(name, results)
        if name == "torch + NCCL":
            self.theirs = error
        elif name.startswith("ditron"):
            assert is_fp8 or error <= 1.1 * self.theirs, (
                f"{self.operator} {self.name}, {name}: {error}, torch {self.theirs}"
            )
            first = self.firsts.setdefault(name, results[0].clone())
            assert torch.equal(first, results[0]), f"{self.operator} {self.name}, {name}: other bits"
        return error


class Layer:
    """Weights of this rank, all ranks' routes, and what the routes to this rank's experts are."""

    def __init__(self, model: Model, ids: torch.Tensor, parallel: str, device: torch.device):
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.tokens, self.top_k, self.hidden = ids.shape[1], model.top_k, model.hidden
        is_ep = parallel == "ep"
        self.experts = model.experts // self.ranks if is_ep else model.experts
        self.inner = model.intermediate if is_ep else model.intermediate // self.ranks
        self.ids, self.options = ids, {"num_experts": model.experts, "parallel": parallel}
        self.first = self.rank * self.experts if is_ep else 0
        generator = torch.Generator(device).manual_seed(7)
        scores = torch.rand(ids.shape, device=device, generator=generator)
        self.weights = scores / scores.sum(2, keepdim=True)  # of all ranks
        local = ids.view(-1) - self.first
        local = torch.where((local >= 0) & (local < self.experts), local, self.experts)
        self.count = int((local < self.experts).sum())
        self.order = torch.sort(local, stable=True).indices[: self.count]  # routes to this rank's experts, by expert
        self.token = self.order // self.top_k
        self.weight = self.weights.view(-1)[self.order]
        self.ends = torch.bincount(local, minlength=self.experts + 1)[: self.experts].cumsum(0).int()

    def random_weights(self, rows: int, depth: int, device: torch.device) -> torch.Tensor:
        return torch.empty(self.experts, rows, depth, dtype=torch.bfloat16, device=device).normal_(std=depth**-0.5)

    def of_experts(self) -> Iterator[tuple[int, slice]]:
        """Experts and where their routes are in ``order``."""
        begin = 0
        for expert, end in enumerate(self.ends.tolist()):
            if end > begin:
                yield expert, slice(begin, end)
            begin = end

    def summed(self, product: Callable[[int, slice], torch.Tensor], device: torch.device) -> torch.Tensor:
        """Of all ranks' tokens in fp32, where ``product`` is of an expert and its routes."""
        total = torch.zeros(self.ranks * self.tokens, self.hidden, device=device)
        for expert, routes in self.of_experts():
            total.index_add_(0, self.token[routes], product(expert, routes) * self.weight[routes, None])
        dist.all_reduce(total)
        return total

    def own(self, all_tokens: torch.Tensor) -> torch.Tensor:
        return all_tokens[self.rank * self.tokens :][: self.tokens].clone()


def product_alone(rows: torch.Tensor, w: torch.Tensor, plan: Plan) -> Run:
    """A grouped product, and nothing else."""
    (_, N, K), options = w.shape, tiles_for(plan.block_m, False)
    BM, BN, BK = options["block"]
    out = torch.empty(plan.max_rows, N, dtype=rows.dtype, device=rows.device)
    descriptors = (TensorDescriptor.from_tensor(rows, [BM, BK]), TensorDescriptor.from_tensor(w.view(-1, K), [BN, BK]))
    constants = {"BM": BM, "BN": BN, "BK": BK, "GATHER": False, "SWAP_AB": options.get("swap_ab", False)}
    constants |= {"GROUP": options.get("group_m", 8), "PROGRAMS": options["programs"], "PARTS": 2, "FLATTEN": True}
    constants |= {"num_warps": options.get("num_warps", 8), "num_stages": options.get("stages", 4)}
    c = TensorDescriptor.from_tensor(out[None], [1, BM, BN // 2])
    tables = (plan.row_slot, plan.tiles, plan.num_tiles, None, None, N, K)
    run = grouped_kernels.grouped_gemm[(options["programs"],)]
    return floor(lambda: run(rows, *descriptors, out, c, *tables, **constants))


def second_case(
    operator: str,
    name: str,
    model: Model,
    ids: torch.Tensor,
    parallel: str,
    schedules: list,
    device: torch.device,
) -> Case:
    """``moe_rs`` or ``moe_ar``: the second product and the sum. torch + NCCL: the order of rows is given."""
    layer = Layer(model, ids, parallel, device)
    w = layer.random_weights(layer.hidden, layer.inner, device)
    compact = random(layer.count, layer.inner, layer.rank, device)
    plan = moe_plan(ids[layer.rank], layer.weights[layer.rank], **layer.options)
    rows = torch.full((plan.max_rows, layer.inner), float("nan"), dtype=torch.bfloat16, device=device)
    rows[plan.route_row.view(-1)[layer.order].long()] = compact
    expected = layer.summed(lambda e, routes: compact[routes].float() @ w[e].float().T, device)
    is_ar = operator == "moe_ar"
    expected = expected if is_ar else layer.own(expected)
    sums = torch.empty(layer.ranks * layer.tokens, layer.hidden, dtype=torch.bfloat16, device=device)
    mine = torch.empty(layer.tokens, layer.hidden, dtype=torch.bfloat16, device=device)
    weight = layer.weight.bfloat16()[:, None]

    def nccl() -> torch.Tensor:
        y = torch._grouped_mm(compact, w.transpose(1, 2), offs=layer.ends)
        sums.zero_().index_add_(0, layer.token, y.mul_(weight))
        if is_ar:
            dist.all_reduce(sums)
            return sums
        dist.reduce_scatter_tensor(mine, sums)
        return mine

    ours = moe_ar if is_ar else moe_rs
    one_group = moe_plan(ids[layer.rank], layer.weights[layer.rank], **layer.options, stage_groups=1)
    runs: dict[str, Run] = {
        "grouped alone": product_alone(rows, w, one_group),
        "copies alone": copies_alone(mine.nbytes, device),
        "torch + NCCL": nccl,
        "ditron": lambda: ours(rows, w, plan),
    }
    for how, schedule in schedules:
        runs[f"ditron, {how}"] = lambda s=schedule: ours(rows, w, plan, **s)
    return ComparedCase(operator, name, runs, expected, 1e-2)


def layer_case(
    name: str, model: Model, ids: torch.Tensor, parallel: str, device: torch.device, fp8: bool = False
) -> Case:
    """``ep_moe``, with nothing given. torch + NCCL: for as many rows as there could be, or for those there are."""
    layer = Layer(model, ids, parallel, device)
    w13 = layer.random_weights(2 * layer.inner, layer.hidden, device)
    w2 = layer.random_weights(layer.hidden, layer.inner, device)
    rank, ranks, tokens, top_k = layer.rank, layer.ranks, layer.tokens, layer.top_k
    x = random(tokens, layer.hidden, rank, device) * layer.hidden**0.25
    my_ids, my_weights = ids[rank].contiguous(), layer.weights[rank].contiguous()
    gathered = torch.empty(ranks * tokens, layer.hidden, dtype=x.dtype, device=device)
    dist.all_gather_into_tensor(gathered, x)

    def product(first: torch.Tensor, second: torch.Tensor, routes: slice) -> torch.Tensor:
        gate, up = (gathered[layer.token[routes]].float() @ first.T).chunk(2, 1)
        return (F.silu(gate) * up) @ second.T

    of_weights = layer.summed(lambda e, routes: product(w13[e].float(), w2[e].float(), routes), device)
    expected = layer.own(of_weights)
    all_ids = torch.empty(ranks * tokens, top_k, dtype=torch.int32, device=device)
    all_weights = torch.empty(ranks * tokens, top_k, device=device)
    sums = torch.empty_like(gathered)
    mine = torch.empty_like(x)
    numbers = torch.arange(layer.experts, dtype=torch.int32, device=device)

    def nccl(count: int | None) -> torch.Tensor:
        dist.all_gather_into_tensor(gathered, x)
        dist.all_gather_into_tensor(all_ids, my_ids)
        dist.all_gather_into_tensor(all_weights, my_weights)
        local = all_ids.view(-1) - layer.first
        local = torch.where((local >= 0) & (local < layer.experts), local, layer.experts)
        by_expert, order = torch.sort(local, stable=True)
        ends = torch.searchsorted(by_expert, numbers, right=True, out_int32=True)
        order = order[:count]
        token = order // top_k
        h = torch._grouped_mm(gathered[token], w13.transpose(1, 2), offs=ends)
        h = F.silu(h[:, : layer.inner]) * h[:, layer.inner :]
        y = torch._grouped_mm(h, w2.transpose(1, 2), offs=ends) * all_weights.view(-1)[order, None].bfloat16()
        if count is None:  # what lies behind the last expert's rows is not written
            y = torch.where((by_expert < layer.experts)[:, None], y, 0.0)
        sums.zero_().index_add_(0, token, y)
        dist.reduce_scatter_tensor(mine, sums)
        return mine

    def activation_in_product() -> torch.Tensor:
        plan = moe_plan(my_ids, my_weights, **layer.options)
        return moe_rs(ag_moe(x, w13, plan, activation="swiglu"), w2, plan)

    plan = moe_plan(my_ids, my_weights, **layer.options, stage_groups=1)  # each matrix is read once
    widths = (layer.hidden, layer.inner)
    inputs = [random(plan.max_rows, width, rank, device) for width in widths]
    alone = [product_alone(rows, w, plan) for rows, w in zip(inputs, (w13, w2), strict=True)]
    runs: dict[str, Run] = {
        "grouped alone": lambda: [run() for run in alone] and None,
        "torch + NCCL": lambda: nccl(None),
        "torch + NCCL, as many rows as there are": lambda: nccl(layer.count),
        "ditron": lambda: ep_moe(x, my_ids, my_weights, w13, w2, **layer.options),
        "ditron, dispatched": lambda: ep_moe(x, my_ids, my_weights, w13, w2, **layer.options, algorithm="dispatched"),
        "ditron, activation in the product": activation_in_product,
    }
    case = ComparedCase("ep_moe", name, runs, expected, 1.5e-2)
    if fp8:
        (w13_fp8, scale_w13), (w2_fp8, scale_w2) = quantize_128x128(w13), quantize_128x128(w2)
        known = layer.options | {"scale_w13": scale_w13, "scale_w2": scale_w2}
        for algorithm in ("gathered", "dispatched"):
            options = known | {"algorithm": algorithm}
            runs[f"ditron, fp8, {algorithm}"] = partial(ep_moe, x, my_ids, my_weights, w13_fp8, w2_fp8, **options)

        def product_of_fp8(e: int, routes: slice) -> torch.Tensor:
            first, second = dequantized(w13_fp8[e], scale_w13[e], "block"), dequantized(w2_fp8[e], scale_w2[e], "block")
            return product(first, second, routes)

        case.of_fp8 = layer.own(layer.summed(product_of_fp8, device))
    return case


def second_cases(args: argparse.Namespace, operator: str, models: dict, device) -> Iterator[Case]:
    for name in args.models:
        for tokens in args.rows:
            for parallel in args.parallel:
                ids = args.route(models[name], tokens, device)
                title = args.title.format(name, tokens, parallel)
                yield second_case(operator, title, models[name], ids, parallel, args.schedules, device)


def layer_cases(args: argparse.Namespace, models: dict, device) -> Iterator[Case]:
    for name in args.models:
        for tokens in args.rows:
            for parallel in args.parallel:
                ids = args.route(models[name], tokens, device)
                yield layer_case(
                    args.title.format(name, tokens, parallel), models[name], ids, parallel, device, args.fp8
                )
