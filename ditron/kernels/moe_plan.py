"""Which rows of which experts every rank computes: tables of all ranks' routes."""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton

from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.capacity import check_capacity, checked_routes, limit_routes, renormalized
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.expert_schedules import block_rows, groups_of_stages
from ditron.kernels.operands import aligned, capacity_for, in_group, require_tensor
from ditron.kernels.padding import padded
from ditron.kernels.plan_nodes import moe_plan_nodes_program
from ditron.kernels.plan_programs import moe_plan_program
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.routing import MAX_RANKS, Plan, Sizes, check_block_m, empty_plan, max_rows, tables_on_host
from ditron.kernels.schedules import check_schedule
from ditron.kernels.words import WORDS_OF_THREAD
from ditron_compiler.errors import DitronError

__all__ = ["moe_plan", "moe_plan_tables", "plan_shape"]

_IDS = (torch.int16, torch.int32, torch.int64)
_WEIGHTS = (torch.float32, torch.bfloat16, torch.float16)

#: Up to so many routes of a rank, of so many ranks, one kernel makes the plan, if its counts fit shared memory.
ROUTES_AT_ONCE, RANKS_AT_ONCE, COUNTS_AT_ONCE = 2048, 8, 1 << 14

#: Of a segment otherwise.
PLACES = 1024


def moe_plan(
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None = None,
    *,
    num_experts: int,
    parallel: str = "ep",
    max_tokens: int | None = None,
    expert_map: torch.Tensor | None = None,
    block_m: int | None = None,
    stage_groups: int | None = None,
    capacity: int | None = None,
    rank_capacity: int | None = None,
    on_overflow: str = "error",
    renormalize: bool = False,
    dropped: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> Plan:
    """Which rows of which experts every rank computes, and their weights: made on the device, without waiting for it.

    Args:
        topk_ids: ``[tokens, top_k]``, integers: the experts of this rank's tokens, distinct for a token; -1 for none.
            The same shape on every rank, one token or more; without ``max_tokens``.
        topk_weights: ``[tokens, top_k]`` float32, bfloat16 or float16, what each expert's result counts for; default
            ones. Given on every rank or on none.
        num_experts: of all ranks together.
        parallel: ``"ep"``: rank r of n has the experts from ``r * num_experts // n`` up to those of the next, so that
            some may have one more; ``"tp"``: each rank has a part of each.
        max_tokens: of a rank, the same on every one: the plan is for so many, and what a rank has less goes nowhere.
        expert_map: ``[...]`` int32, the number among ``num_experts`` of each expert that ``topk_ids`` says, or -1.
        block_m: rows in a tile, a power of two from 16 on; default by how many rows an expert has on average.
        stage_groups: into how many groups tiles are divided by when their tokens arrive, at most one for each rank. A
            product that begins before all are there reads the experts' matrices again for each; default by how many
            rows an expert has on average.
        capacity: how many routes of all ranks' tokens an expert takes, the first in the order of ranks and tokens;
            default all there can be. rank_capacity: how many a rank takes of these. Memory of rows is for no more.
        on_overflow: what becomes of others. ``"error"``: DitronError, raised on the simulator at once, elsewhere by the
            first call of moe_plan after their number has come to the host, with the line of the call that they are of.
            ``"drop"``: they go nowhere, and ``plan.dropped`` counts them.
        renormalize: multiply the weights of a token's other routes so that they add up to what all did.
        dropped: ``[1]`` int64; the number of this rank's dropped routes is added to it, in CUDA graphs too.
        group: the ranks; default the current group. On several nodes they exchange routes by puts.
        schedule: of :func:`moe_plan_program`: ``at_once``, ``places``, ``experts_at_once``, ``makers``,
            ``placed_routes``, ``slice_tokens``, ``num_warps``, ``place_warps`` and ``protocol``, instead of those that
            would be chosen.

    Routes to experts that do not exist, and a token's second to one expert, go nowhere, and are counted:
    :meth:`Plan.check` raises DitronError for them, on the simulator at once. Collective over the group. Raises
    DitronError for tensors that do not fit.

        plan = ditron.kernels.moe_plan(topk_ids, topk_weights, num_experts=128)
    """
    check_capacity(capacity, rank_capacity, on_overflow)
    if dropped is not None:
        require_tensor("moe_plan", "dropped", dropped)
        if dropped.shape != (1,) or dropped.dtype != torch.int64 or dropped.device != topk_ids.device:
            raise DitronError(
                f"moe_plan: dropped must be [1] of int64 on {topk_ids.device}, got {list(dropped.shape)} of "
                f"{dropped.dtype} on {dropped.device}"
            )
    limits = {"capacity": capacity, "rank_capacity": rank_capacity}
    shape = {"num_experts": num_experts, "parallel": parallel, "max_tokens": max_tokens}
    of_tokens = None
    if capacity is not None or rank_capacity is not None:
        if not torch.compiler.is_compiling():
            with in_group(group, "moe_plan") as found:
                _check(found, topk_ids, topk_weights, expert_map)
                plan_shape(found, topk_ids, **shape, block_m=block_m)
        kept, of_tokens = limit_routes(
            topk_ids, expert_map, **shape, **limits, raises=on_overflow == "error", group=group
        )
        if renormalize:
            weights = torch.ones(topk_ids.shape, device=topk_ids.device) if topk_weights is None else topk_weights
            topk_weights = renormalized(weights, topk_ids, kept)
        topk_ids = kept
        if dropped is not None:
            dropped += of_tokens.sum()
    options = {"block_m": block_m, "stage_groups": stage_groups, "group": group}
    tables = moe_plan_tables(topk_ids, topk_weights, expert_map, **shape, **limits, **options, **schedule)
    return Plan.of(tables, of_tokens, num_experts)


@torch_operator("num_experts", "parallel", "max_tokens", "block_m", "stage_groups", "capacity", "rank_capacity")
@repeatable
def moe_plan_tables(
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None = None,
    expert_map: torch.Tensor | None = None,
    *,
    num_experts: int,
    parallel: str = "ep",
    max_tokens: int | None = None,
    block_m: int | None = None,
    stage_groups: int | None = None,
    capacity: int | None = None,
    rank_capacity: int | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> list[torch.Tensor]:
    """The tables of :func:`moe_plan`'s plan; of experts and ranks that are given no more routes than they take."""
    with in_group(group, "moe_plan") as group:
        _check(group, topk_ids, topk_weights, expert_map)
        limits = {"capacity": capacity, "rank_capacity": rank_capacity}
        shape = {"num_experts": num_experts, "parallel": parallel, "max_tokens": max_tokens}
        of_ids = {"the shape of topk_ids": list(topk_ids.shape) if max_tokens is None else None}
        of_tiles = {"block_m": block_m, "stage_groups": stage_groups}
        group.require_same("moe_plan", of_ids | shape | limits | of_tiles)
        tokens, experts, block_m, groups = plan_shape(
            group, topk_ids, num_experts, parallel, max_tokens=max_tokens, **of_tiles
        )
        (given, top_k), ranks, is_tp = topk_ids.shape, group.num_ranks, parallel == "tp"
        check_block_m("moe_plan", block_m)
        if given < tokens:
            topk_ids = padded(topk_ids, tokens, fill=-1)
            topk_weights = None if topk_weights is None else padded(topk_weights.detach(), tokens)
        program = moe_plan_program if len(group.nodes) == 1 else moe_plan_nodes_program
        check_schedule("moe_plan", schedule, program)
        sizes = _sizes(group, tokens, top_k, experts, schedule)
        weights = torch.empty(ranks * tokens, top_k, dtype=torch.float32, device=topk_ids.device)
        rows = max_rows(ranks * tokens, top_k, experts, block_m, capacity, rank_capacity)
        plan = empty_plan(weights, tokens, experts, block_m, groups, rows)
        ids = aligned(topk_ids)
        if group.is_sim and not group.small_shapes:
            _fill_on_host(plan, group, ids, expert_map, num_experts, is_tp, groups)
            plan.check()
            return plan.tables
        if len(group.nodes) == 1:
            schedule = {"at_once": sizes.at_once} | schedule
        run_step(
            program,
            ids,
            ids if topk_weights is None else aligned(topk_weights.detach()),
            ids if expert_map is None else aligned(expert_map),
            plan.route_weight,
            plan.errors,
            plan.token_ranks,
            plan.row_slot,
            plan.row_route,
            plan.route_row,
            plan.tiles,
            plan.expert_tiles,
            plan.num_tiles,
            plan.expert_rows,
            capacity_for(sizes.segments),
            num_ranks=ranks,
            num_experts=num_experts,
            is_tp=is_tp,
            top_k=top_k,
            block_m=block_m,
            groups=groups,
            columns=sizes.E,
            has_weights=topk_weights is not None,
            has_map=expert_map is not None,
            **{"experts_at_once": sizes.experts_at_once, "makers": sizes.makers} | schedule | {"places": sizes.C},
        )
        if group.is_sim:
            plan.check()
        return plan.tables


def _sizes(group: Group, tokens: int, top_k: int, experts: int, schedule: dict[str, Any]) -> Sizes:
    """As ``schedule`` says, or as was measured (docs/results/moe-experiments.md)."""
    at_once, TK = schedule.get("at_once"), triton.next_power_of_2(top_k)
    if at_once is None:
        at_once = len(group.nodes) == 1 and group.num_ranks <= RANKS_AT_ONCE
        at_once &= triton.next_power_of_2(tokens) * TK <= (64 if group.small_shapes else ROUTES_AT_ONCE)
        at_once &= triton.next_power_of_2(group.num_ranks) * triton.next_power_of_2(experts) <= COUNTS_AT_ONCE
    for name in ("placed_routes", "slice_tokens"):
        if (value := schedule.get(name, 1)) & (value - 1):
            raise DitronError(f"moe_plan: {name} must be a power of two, got {value}")
    if at_once:
        warps = schedule.get("num_warps", moe_plan_program.constants["num_warps"])
        threads = warps * (64 if torch.version.hip else 32)
        places = 32 if group.is_sim else max(32, triton.next_power_of_2(threads * WORDS_OF_THREAD))
        return Sizes.of(group.num_ranks, tokens, top_k, experts, True, places)
    places = schedule.get("places", 32 if group.small_shapes else min(PLACES, 128 * TK))
    if places > 128 * TK:
        raise DitronError(f"moe_plan: a segment has at most 128 tokens, got places={places} for top_k {top_k}")
    return Sizes.of(group.num_ranks, tokens, top_k, experts, at_once, places)


def _fill_on_host(
    plan: Plan,
    group: Group,
    ids: torch.Tensor,
    expert_map: torch.Tensor | None,
    num_experts: int,
    is_tp: bool,
    stage_groups: int,
) -> None:
    """Make the tables where kernels compute no floating-point data, by which counts are added: in no time."""
    ids, wrong, repeated = checked_routes(ids.long(), expert_map, num_experts)
    ids.sum().item()  # an error if they follow from data that was not computed, which numpy() does not notice
    routes = tuple(group.all_gather_object(ids.long().contiguous().numpy().tobytes()))
    first = 0 if is_tp else group.rank * num_experts // group.num_ranks
    behind = num_experts if is_tp else (group.rank + 1) * num_experts // group.num_ranks
    found = _tables_of(
        routes,
        ids.shape[1],
        group.rank,
        first,
        behind - first,
        plan.block_m,
        stage_groups,
        None if is_tp else num_experts,
    )
    plan.expert_rows.fill_(int(found.expert_rows[-1]))
    for table, made in zip(plan.tables, found.tables, strict=True):
        table[: len(made)] = made
    plan.errors.copy_(torch.stack([wrong.sum(1), repeated.sum(1)], 1))


@functools.lru_cache(maxsize=64)  # an operator's schedules are predicted with the same routes, on each rank
def _tables_of(
    routes: tuple[bytes, ...],
    top_k: int,
    rank: int,
    first: int,
    experts: int,
    block_m: int,
    groups: int,
    num_experts: int | None,
) -> Plan:
    ids = torch.stack([torch.frombuffer(bytearray(of_rank), dtype=torch.int64) for of_rank in routes])
    return tables_on_host(ids.view(len(routes), -1, top_k), rank, first, experts, block_m, groups, None, num_experts)


def plan_shape(
    group: Group,
    topk_ids: torch.Tensor,
    num_experts: int,
    parallel: str,
    *,
    max_tokens: int | None,
    block_m: int | None,
    stage_groups: int | None = None,
) -> tuple[int, int, int, int]:
    """Tokens of a rank, experts of the rank that has most, rows in a tile, groups of stages. Raises DitronError if they
    do not fit each other.
    """
    ranks, (given, top_k) = group.num_ranks, topk_ids.shape
    if parallel not in ("ep", "tp"):
        raise DitronError(f"moe_plan: unknown parallel {parallel!r}: expected 'ep' or 'tp'")
    if not isinstance(num_experts, int):
        raise DitronError(f"moe_plan: num_experts must be an integer, got {num_experts!r}")
    if ranks > MAX_RANKS:
        raise DitronError(f"moe_plan: {ranks} ranks, and at most {MAX_RANKS} are supported")
    if num_experts >= 1 << 15 or (parallel == "ep" and num_experts < ranks):
        raise DitronError(f"moe_plan: {num_experts} experts cannot be divided among {ranks} ranks")
    tokens = given if max_tokens is None else max_tokens
    if given > tokens:
        raise DitronError(f"moe_plan: topk_ids has {given} tokens, and max_tokens is {max_tokens}")
    if top_k > num_experts:
        raise DitronError(f"moe_plan: {top_k} experts for a token, and there are {num_experts}")
    if stage_groups is not None and (not isinstance(stage_groups, int) or stage_groups < 1):
        raise DitronError(f"moe_plan: stage_groups must be a number from 1 on, got {stage_groups!r}")
    average = ranks * tokens * top_k // num_experts
    if block_m is None:
        block_m = 16 if group.small_shapes else block_rows(average)
    groups = groups_of_stages(ranks, average, parallel) if stage_groups is None else min(stage_groups, ranks)
    return tokens, num_experts if parallel == "tp" else -(-num_experts // ranks), block_m, groups


def _check(
    group: Group, topk_ids: torch.Tensor, topk_weights: torch.Tensor | None, expert_map: torch.Tensor | None
) -> None:
    """Raise DitronError for tensors that a plan is not made of."""
    require_tensor("moe_plan", "topk_ids", topk_ids)
    if topk_ids.ndim != 2 or topk_ids.numel() == 0 or topk_ids.dtype not in _IDS:
        raise DitronError(
            "moe_plan: topk_ids must be [tokens, top_k] with elements, of int16, int32 or int64, got "
            f"{tuple(topk_ids.shape)} of {topk_ids.dtype}"
        )
    if topk_weights is not None:
        require_tensor("moe_plan", "topk_weights", topk_weights)
        if topk_weights.shape != topk_ids.shape or topk_weights.dtype not in _WEIGHTS:
            raise DitronError(
                f"moe_plan: topk_weights must be {list(topk_ids.shape)}, as topk_ids, of float32, bfloat16 or "
                f"float16, got {tuple(topk_weights.shape)} of {topk_weights.dtype}"
            )
    if expert_map is not None:
        require_tensor("moe_plan", "expert_map", expert_map)
        if expert_map.ndim != 1 or expert_map.numel() == 0 or expert_map.dtype != torch.int32:
            raise DitronError(
                "moe_plan: expert_map must be a vector with elements, of int32, got "
                f"{tuple(expert_map.shape)} of {expert_map.dtype}"
            )
    for name, tensor in (("topk_ids", topk_ids), ("topk_weights", topk_weights), ("expert_map", expert_map)):
        if tensor is not None and tensor.device != group.device:
            raise DitronError(f"moe_plan: {name} is on {tensor.device}, and this rank's device is {group.device}")
