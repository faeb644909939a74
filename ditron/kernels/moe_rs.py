"""Mixture of experts: the second product, and the sum of what the experts made of each token, over routes and ranks.

The sums come behind the product (``"after"``), or, where they can be hidden, next to it (moe_rs_stages.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.ep_exchange_kernels import launch_combine
from ditron.kernels.expert_schedules import (
    block_of_experts,
    check_tile,
    other_blocks,
    programs_at_once,
    tiles_for,
    tuned_for_plan,
)
from ditron.kernels.grouped_mm import rows_product_kernel
from ditron.kernels.moe_rs_stages import moe_rs_by_stage_program
from ditron.kernels.operands import aligned, capacity_for, grouped_operands, in_group, result
from ditron.kernels.repeated import repeatable, run_step, scratch
from ditron.kernels.routing import Plan, sample_plan
from ditron.kernels.schedules import check_schedule
from ditron.kernels.tiles import shards_descriptor
from ditron.kernels.words import words_at_once
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["moe_rs", "moe_rs_program", "moe_rs_rows", "product_and_sums", "sum_operands"]

#: Ranks, rows that an expert has on average, and columns of w, from which on sums are sent beside the product: with
#: fewer most come when it is done, or it is done too soon (docs/results/moe-experiments.md).
LEAST_RANKS, LEAST_ROWS, LEAST_DEPTH = 4, 2048, 512


def sample(ranks: int, generator: torch.Generator, rank: int) -> dict[str, Any]:
    """Arguments for the checker, of moe_ar too."""
    to_all, divided = (torch.rand(2, generator=generator) < 0.5).tolist()
    plan = sample_plan(ranks, generator, rank, tokens=2, divided=divided)
    return {
        "rows": f"bf16[{plan.max_rows}, 32]",
        "w": "bf16[32, 32]",
        "y": f"bf16[{plan.max_rows}, 16]",
        "out": f"bf16[{2 * ranks if to_all else 2}, 16]",
        "token_ranks": plan.token_ranks,
        "route_row": plan.route_row,
        "route_weight": f"f32[{2 * ranks}, 2]",
        "tiles": plan.tiles,
        "num_tiles": plan.num_tiles,
        "scale_rows": None,
        "scale_w": None,
        "capacity": 16,
        "num_ranks": ranks,
        "top_k": 2,
        "to_all": to_all,
        "whole_k": True,
        "block": (16, 32, 32),
        "programs": 3,
        "words": 4,
    }


@ditron.program(
    example={
        "rows": "bf16[33792, 2048]",
        "w": "bf16[229376, 2048]",
        "y": "bf16[33792, 7168]",
        "out": "bf16[4096, 7168]",
        "token_ranks": "i32[4096, 2]",
        "route_row": "i32[16384, 8]",
        "route_weight": "f32[16384, 8]",
        "tiles": "i32[264, 6]",
        "num_tiles": "i32[1]",
        "scale_rows": None,
        "scale_w": None,
        "capacity": 4096,
        "num_ranks": 4,
        "top_k": 8,
        "whole_k": True,
    },
    sample_args=sample,
    max_nodes=1,
    do_not_specialize=("token_ranks", "route_row", "route_weight", "tiles"),
)
def moe_rs_program(
    rows,
    w,
    y,
    out,
    token_ranks,
    route_row,
    route_weight,
    tiles,
    num_tiles,
    scale_rows,
    scale_w,
    capacity,
    *,
    num_ranks,
    top_k,
    whole_k,
    to_all=False,
    block=(128, 256, 64),
    programs=132,
    words=256,
    swap_ab=False,
    group_m=8,
    num_warps=8,
    stages=4,
    maxnreg=None,
):
    """``out`` [tokens, H] = own tokens' part of the sum over ranks and routes of ``y`` by ``route_weight``, where ``y``
    [max_rows, H] = ``rows`` [max_rows, K] times their experts' matrices of ``w`` [experts * H, K] transposed.

    ``token_ranks``, ``route_row``, ``route_weight``, ``tiles`` and ``num_tiles``: of a plan for ``block[0]`` rows in a
    tile. With ``to_all`` all ranks' tokens are ``out``'s. Memory is kept for up to ``capacity`` rows of it. A program
    adds ``words`` of a token's sum. ``swap_ab``: as of :func:`ditron.kernels.grouped.grouped_product`. ``scale_rows``
    [max_rows, K / 128] and ``scale_w`` [experts * H / 128, K / 128]: of quantized ``rows`` and ``w``.
    """
    H, K = out.shape[1], rows.shape[1]
    BM, BN, BK = block
    rows_product_kernel[(programs,)](
        TensorDescriptor.from_tensor(rows, [BM, BK]),
        TensorDescriptor.from_tensor(w, [BN, BK]),
        scale_rows,
        scale_w,
        y,
        shards_descriptor(y, 1, y.shape[0], H, (BM, BN // 2)),
        tiles,
        num_tiles,
        H,
        K,
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=group_m,
        PROGRAMS=programs,
        WHOLE_K=whole_k,
        SWAP_AB=swap_ab,
        W_IS_KN=False,
        SCALED=scale_rows is not None,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )
    launch_combine(y, out, token_ranks, (route_row, route_weight), capacity, num_ranks, top_k, words, to_all)


def _hides_sums(ranks: int, block_m: int, average: int, K: int) -> bool:
    """Whether other ranks' tokens are added next to the product of the own ones, by how many rows an expert has on
    average: where most tokens are done early.
    """
    return block_m >= 128 and K >= LEAST_DEPTH and ranks >= LEAST_RANKS and average >= LEAST_ROWS


def _schedule(group: Group, plan: Plan, w: torch.Tensor, algorithm: str | None, given: Options) -> Options:
    """Keyword arguments of the program of an algorithm: ``given``, and those that are chosen."""
    (_, H, K), scaled = w.shape, w.dtype == torch.float8_e4m3fn
    chosen = tiles_for(plan.block_m, group.small_shapes, scaled)
    beside = {"beside": 2, "words": 8}
    if group.small_shapes:
        chosen["words"] = 8
    else:
        chosen |= {"programs": programs_at_once(group, plan.block_m, scaled, given), "words": words_at_once(-(-H // 4))}
        if plan.block_m >= 128 and not scaled:
            chosen["maxnreg"] = 192
        # Of programs with fewer warps only half find a place beside the product (docs/results/moe-experiments.md).
        beside = {"beside": 2 * group.sms, "words": 256}
    if algorithm == "by_stage":
        return chosen | beside | given
    return chosen | {"whole_k": K % given.get("block", chosen["block"])[2] == 0} | given


def _rule(problem: Problem) -> Rule:
    tiles = block_of_experts(problem)
    rows = tiles["block"][0]
    if problem.itemsize > 1 and _hides_sums(problem.ranks, rows, problem.rows_of_expert, problem.K):
        why = f"an expert has {problem.rows_of_expert} rows on average: tiles are in groups by stage, and hide sums"
        return Rule({"algorithm": "by_stage"} | tiles, why)
    why = (
        f"an expert has {problem.rows_of_expert} rows of {problem.K} on average, and there are {problem.ranks} ranks: "
        "sums beside the product would take longer"
    )
    return Rule({"algorithm": "after"} | tiles, why)


@tunable("moe_rs", rule=_rule, node_algorithms=())
def moe_rs_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`moe_rs`: sums after the product or by stage, and other tiles."""
    tiles = block_of_experts(problem)
    rows = tiles["block"][0]
    after = {"algorithm": "after"} | tiles
    yield after
    if problem.ranks > 1 and rows >= 128 and problem.itemsize > 1:
        yield {"algorithm": "by_stage"} | tiles
    yield from (after | {"group_m": group_m} for group_m in (4, 8, 16) if group_m != tiles["group_m"])
    yield from (after | {"block": block} for block in other_blocks(tiles))


def sum_operands(
    what: str,
    group: Group,
    rows: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    scales: tuple[torch.Tensor | None, torch.Tensor | None],
    algorithm: str | None,
    schedule: Options,
) -> int:
    """Raise DitronError for what does not fit; how many tokens this rank has."""
    grouped_operands(what, group, "rows", rows, w, *scales)
    max_rows, experts = len(rows), len(w)
    if experts != plan.experts or max_rows != plan.max_rows:
        raise DitronError(
            f"{what}: there are {max_rows} rows and {experts} experts, and the plan is for {plan.max_rows} and "
            f"{plan.experts}"
        )
    if algorithm not in (None, "after", "by_stage"):
        known = "'after' or 'by_stage'" if what == "moe_rs" else "'after'"
        raise DitronError(f"{what}: unknown algorithm {algorithm!r}: expected {known}")
    if algorithm == "by_stage" and (what != "moe_rs" or scales[0] is not None):
        raise DitronError(
            f"{what}: algorithm='by_stage' is of moe_rs with bfloat16 or float16 tensors: leave algorithm= out"
        )
    check_schedule(what, schedule, moe_rs_by_stage_program if algorithm == "by_stage" else moe_rs_program)
    check_tile(what, plan, schedule, scales[0] is not None)
    return len(plan.route_row) // group.num_ranks


def product_and_sums(
    what: str,
    group: Group,
    rows: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    scales: tuple[torch.Tensor | None, torch.Tensor | None],
    out: torch.Tensor,
    algorithm: str | None,
    schedule: Options,
    to_all: bool,
) -> torch.Tensor:
    """``out``: this rank's tokens' sums, or with ``to_all`` those of all, of operands that have been checked."""
    rows, w = aligned(rows), aligned(w)
    chosen = _schedule(group, plan, w, algorithm, schedule)
    y = scratch((plan.max_rows, w.shape[1]), out)
    tiles = plan.tiles if algorithm == "by_stage" else plan.tiles_by_expert
    tables = plan.token_ranks, plan.route_row, plan.route_weight, tiles, plan.num_tiles
    tensors, capacity = (rows, w.view(-1, w.shape[2]), y, out, *tables), capacity_for(len(out))
    known = {"num_ranks": group.num_ranks, "top_k": plan.route_row.shape[1]}
    if algorithm == "by_stage":
        run_step(moe_rs_by_stage_program, *tensors, capacity, **known, **chosen)
        return out
    scales = tuple(None if scale is None else aligned(scale) for scale in scales)
    run_step(moe_rs_program, *tensors, *scales, capacity, to_all=to_all, **known, **chosen)
    return out


def moe_rs(
    rows: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    *,
    scale_rows: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """This rank's tokens, each the sum over its experts, on all ranks, of their row times their transposed matrix.

    Args:
        rows: ``[plan.max_rows, K]``, sorted by expert, as :func:`ag_moe` returns them. What lies between and behind
            the experts' rows counts for nothing.
        w: ``[experts, H, K]``, this rank's experts, or its part of every expert. Both bfloat16 or float16; or
            float8_e4m3fn with scales, as of :func:`ag_moe`.
        plan: of these rows (:func:`moe_plan`), with the weight of each route.
        scale_rows, scale_w: ``[plan.max_rows, K / 128]`` and ``[experts, H / 128, K / 128]`` float32, the latter
            rounded up, of quantized tensors; the result is bfloat16 and has no gradients.
        out: ``[tokens, H]``, written if given.
        group: the ranks; default the current group. One node.
        algorithm: ``"after"``: sums are made and sent when the product is done; ``"by_stage"``: other ranks' tokens,
            which come first in the product, next to it, the own ones when it is done; instead of the one that is
            chosen by size.
        schedule: keyword-only arguments of :func:`moe_rs_program`, instead of those that would be chosen; of
            :func:`moe_rs_by_stage_program` for ``"by_stage"``.

    Returns ``[tokens, H]``, as many as the plan is for. A rank adds a token's rows by weight in fp32, in order of its
    routes, and rounds once; the ranks' sums are added in fp32, in their order. Collective over the group. Raises
    DitronError for tensors that do not fit.

        y = ditron.kernels.moe_rs(hidden, w2, plan)
    """
    if not isinstance(plan, Plan):
        raise DitronError(f"moe_rs: plan must be a Plan, got {type(plan).__name__}: make one with moe_plan")
    options = {"scale_rows": scale_rows, "scale_w": scale_w, "num_experts": plan.num_experts, **schedule}
    options["algorithm"] = algorithm
    return moe_rs_rows(rows, w, plan.tables, out=out, group=group, **options)


@torch_operator("num_experts", "scale_rows", "scale_w")
@repeatable
def moe_rs_rows(
    rows: torch.Tensor,
    w: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    num_experts: int = 0,
    scale_rows: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """:func:`moe_rs` with the tables of a plan for ``num_experts`` of all ranks."""
    plan = Plan.of(tables)
    scales = scale_rows, scale_w
    with in_group(group, "moe_rs") as group:
        tokens = sum_operands("moe_rs", group, rows, w, plan, scales, algorithm, schedule)
        dtype = rows.dtype if scale_rows is None else torch.bfloat16
        out = result("moe_rs", (tokens, w.shape[1]), rows, out, dtype, rows=rows, w=w)
        algorithm, schedule = tuned_for_plan("moe_rs", group, plan, num_experts, algorithm, schedule, w)
        if algorithm is None and not schedule and num_experts and scale_rows is None and not group.small_shapes:
            average = plan.route_row.numel() // num_experts
            hides = len(plan.expert_tiles) and _hides_sums(group.num_ranks, plan.block_m, average, w.shape[2])
            algorithm = "by_stage" if hides else None
        return product_and_sums("moe_rs", group, rows, w, plan, scales, out, algorithm, schedule, to_all=False)
