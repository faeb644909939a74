"""Which rows of which experts every rank computes: the exchange of all ranks' routes, and tables of them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.exchange import packet_boxes, receive_packets, send_packets_to_all
from ditron.kernels.operands import aligned, capacity_for, in_group, require_tensor
from ditron.kernels.routing import MAX_RANKS, TILE_FIELDS, Plan, Sizes, check_block_m, empty_plan
from ditron.kernels.routing_kernels import add_counts_kernel, block_routes, place_routes_kernel, store_counts
from ditron.kernels.schedules import check_schedule
from ditron_compiler.errors import DitronError

__all__ = ["moe_plan", "moe_plan_program", "moe_plan_tables", "plan_shape"]

_IDS = (torch.int16, torch.int32, torch.int64)
_WEIGHTS = (torch.float32, torch.bfloat16, torch.float16)

#: Rows that an expert has, on average, in a group of stages: with fewer, reading its matrix once more costs more than
#: waiting for the tokens (docs/results/moe.md).
ROWS_OF_GROUP = 256


@ditron.jit
def checked_experts(given, map_ptr, known, num_experts, B: tl.constexpr, TK: tl.constexpr, HAS_MAP: tl.constexpr):
    """Experts of a block's routes; of each token how many are none of ``known`` or -1, and how many it has already.

    Those go to no expert. ``map``: the numbers that experts have among ``num_experts``.
    """
    is_wrong = (given < -1) | (given >= known)
    expert = tl.where(is_wrong, -1, given).to(tl.int32)
    if HAS_MAP:
        expert = tl.load(map_ptr + expert, mask=expert >= 0, other=-1).to(tl.int32)
        is_unknown = (expert < -1) | (expert >= num_experts)
        expert = tl.where(is_unknown, -1, expert)
        is_wrong |= is_unknown
    of_token = tl.reshape(expert, (B // TK, TK))
    j = tl.arange(0, TK)
    is_same = (of_token[:, :, None] == of_token[:, None, :]) & (j[None, :, None] > j[None, None, :])
    repeated = tl.reshape(tl.sum(is_same.to(tl.int32), 2), (B,)) > 0
    repeated &= expert >= 0
    wrong_of_token = tl.sum(tl.reshape(is_wrong.to(tl.int32), (B // TK, TK)), 1)
    return tl.where(repeated, -1, expert), wrong_of_token, tl.sum(tl.reshape(repeated.to(tl.int32), (B // TK, TK)), 1)


@ditron.jit(do_not_specialize=["epoch"])
def exchange_routes_kernel(
    topk_ids_ptr,
    topk_weights_ptr,
    map_ptr,
    ids_ptr,
    weights_ptr,
    counts_ptr,
    errors_ptr,
    id_boxes_ptr,
    weight_boxes_ptr,
    tokens,
    blocks,
    boxes,
    known,
    num_experts,
    first_expert,
    experts,
    epoch,
    E: tl.constexpr,
    B: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    HAS_MAP: tl.constexpr,
    PROTOCOL: tl.constexpr,
):
    """``ids`` and ``weights`` [ranks, tokens, TOP_K] of all ranks' routes, and how many go to each expert.

    A program sends a block of this rank's as packets to all, takes the same block of every other, and counts them.
    """
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    begin = block * (B // TK) * TOP_K
    count = tl.minimum(tokens * TOP_K - begin, (B // TK) * TOP_K)
    all_of = tokens * TOP_K  # of one rank
    exists, _, at = block_routes(block, tl.arange(0, B), tokens, B, TK, TOP_K)
    given = tl.load(topk_ids_ptr + at, mask=exists, other=-1)
    expert, wrong, repeated = checked_experts(given, map_ptr, known, num_experts, B, TK, HAS_MAP)
    mine_ptr = ids_ptr + own * all_of
    tl.store(mine_ptr + at, expert.to(ids_ptr.dtype.element_ty), mask=exists)
    send_packets_to_all(mine_ptr + begin, 0, count, id_boxes_ptr, block, boxes, epoch, (B // TK) * TOP_K, PROTOCOL)
    if HAS_WEIGHTS:
        weight = tl.load(topk_weights_ptr + at, mask=exists, other=0.0).to(tl.float32)
        tl.store(weights_ptr + own * all_of + at, weight, mask=exists)
        weight_ptr = weights_ptr + own * all_of + begin
        send_packets_to_all(weight_ptr, 0, count, weight_boxes_ptr, block, boxes, epoch, (B // TK) * TOP_K, PROTOCOL)
    else:
        for rank in range(ranks):
            tl.store(weights_ptr + rank * all_of + at, tl.full((B,), 1.0, tl.float32), mask=exists)
    token = block * (B // TK) + tl.arange(0, B // TK)
    tl.store(errors_ptr + 2 * token, wrong, mask=token < tokens)
    tl.store(errors_ptr + 2 * token + 1, repeated, mask=token < tokens)
    store_counts(counts_ptr, block, expert, first_expert, experts, E)
    for stage in range(1, ranks):
        sender = (own + stage) % ranks
        theirs_ptr = ids_ptr + sender * all_of + begin
        theirs_ptr = receive_packets(
            theirs_ptr, count, id_boxes_ptr, block, boxes, sender, epoch, (B // TK) * TOP_K, PROTOCOL
        )
        theirs = tl.load(theirs_ptr + (at - begin), mask=exists, other=-1).to(tl.int32)
        store_counts(counts_ptr, stage * blocks + block, theirs, first_expert, experts, E)
    if HAS_WEIGHTS:
        for stage in range(1, ranks):
            sender = (own + stage) % ranks
            weight_ptr = weights_ptr + sender * all_of + begin
            receive_packets(
                weight_ptr, count, weight_boxes_ptr, block, boxes, sender, epoch, (B // TK) * TOP_K, PROTOCOL
            )


def sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: two blocks of routes, the second of them not whole, to one expert of each rank."""
    tokens, top_k = 24, 2
    ids = torch.rand(tokens, ranks + 1, generator=generator).topk(top_k).indices.int()
    rows = -(-ranks * tokens // 16) * 16
    return {
        "topk_ids": torch.where(ids < ranks, ids, -1),
        "topk_weights": f"f32[{tokens}, {top_k}]",
        "expert_map": "i32[1]",
        "route_weight": f"f32[{ranks * tokens}, {top_k}]",
        "errors": f"i32[{tokens}, 2]",
        "row_slot": f"i32[{rows}]",
        "row_route": f"i32[{rows}]",
        "route_row": f"i32[{ranks * tokens}, {top_k}]",
        "tiles": f"i32[{rows // 16}, 6]",
        "num_tiles": "i32[1]",
        "expert_rows": "i32[2]",
        "capacity": 2,
        "num_ranks": ranks,
        "num_experts": ranks,
        "top_k": top_k,
        "block_m": 16,
        "columns": 16,
        "places": 32,
        "direct": 16,
        "tile_programs": 1,
    }


@ditron.program(
    example={
        "topk_ids": "i32[2048, 8]",
        "topk_weights": "f32[2048, 8]",
        "expert_map": "i32[1]",
        "route_weight": "f32[8192, 8]",
        "errors": "i32[2048, 2]",
        "row_slot": "i32[69632]",
        "row_route": "i32[69632]",
        "route_row": "i32[8192, 8]",
        "tiles": "i32[544, 6]",
        "num_tiles": "i32[1]",
        "expert_rows": "i32[33]",
        "capacity": 128,
    },
    sample_args=sample,
    max_nodes=1,
)
def moe_plan_program(
    topk_ids,
    topk_weights,
    expert_map,
    route_weight,
    errors,
    row_slot,
    row_route,
    route_row,
    tiles,
    num_tiles,
    expert_rows,
    capacity,
    *,
    num_ranks=4,
    num_experts=128,
    is_tp=False,
    top_k=8,
    block_m=128,
    groups=1,
    columns=32,
    places=128,
    direct=0,
    tile_programs=32,
    has_weights=True,
    has_map=False,
    num_warps=4,
    maxnreg=None,
    protocol="ll",
):
    """Tables of a plan (routing.py) of all ranks' ``topk_ids`` and ``topk_weights`` [tokens, top_k].

    Memory is kept for up to ``capacity`` blocks of a rank, of ``places`` routes (routing_kernels.py). ``columns``: a
    power of two, experts of a rank or more. ``direct``: a power of two, blocks of all ranks or more; or 0, for many
    blocks. ``tile_programs`` make tiles. ``has_weights``, ``has_map``: ``topk_weights``, ``expert_map`` count.
    """
    tokens, rank = topk_ids.shape[0], dh.rank()
    first, experts = 0, num_experts
    if not is_tp:
        first = rank * num_experts // num_ranks
        experts = (rank + 1) * num_experts // num_ranks - first
    TK = triton.next_power_of_2(top_k)
    blocks = dh.cdiv(tokens, places // TK)
    of_block = {"E": columns, "B": places, "TK": TK, "TOP_K": top_k}
    ids = dh.empty(num_ranks * capacity * places, dtype=torch.int16, name="ids")
    counts = dh.empty(num_ranks * capacity * columns, dtype=torch.int32, name="counts")
    before = dh.empty(1 if direct else (num_ranks * capacity + 1) * columns, dtype=torch.int32, name="before")
    message = places // TK * top_k
    exchange_routes_kernel[(blocks,)](
        topk_ids,
        topk_weights,
        expert_map,
        ids,
        route_weight,
        counts,
        errors,
        packet_boxes(capacity, message, torch.int16, "id_boxes"),
        packet_boxes(capacity, message if has_weights else 1, torch.float32, "weight_boxes"),
        tokens,
        blocks,
        capacity,
        expert_map.shape[0] if has_map else num_experts,
        num_experts,
        first,
        experts,
        dh.epoch(),
        HAS_WEIGHTS=has_weights,
        HAS_MAP=has_map,
        PROTOCOL=protocol,
        num_warps=num_warps,
        **of_block,
    )
    rows = num_ranks * blocks
    most = expert_rows.shape[0] - 1
    if not direct:
        COLUMNS = min(columns, 32)
        add_counts_kernel[(dh.cdiv(rows, 128), columns // COLUMNS)](counts, before, rows, E=columns, COLUMNS=COLUMNS)
    place_routes_kernel[(rows + tile_programs,)](
        ids,
        counts,
        before,
        row_slot,
        row_route,
        route_row,
        tiles,
        num_tiles,
        expert_rows,
        rank,
        num_ranks,
        tokens,
        blocks,
        first,
        experts,
        most,
        PROGRAMS=direct or 16,
        BLOCK_M=block_m,
        RANKS=num_ranks,
        GROUPS=groups,
        FIELDS=TILE_FIELDS,
        ADDED=not direct,
        num_warps=num_warps,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
        **of_block,
    )


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
        stage_groups: into how many groups tiles are divided by when their tokens arrive, 1 to num_ranks, of which each
            reads the experts' matrices again; default by how many rows an expert has on average.
        group: the ranks; default the current group. One node.
        schedule: of :func:`moe_plan_program`: ``places``, up to how many blocks are added ``direct``,
            ``num_warps``, ``maxnreg`` and ``protocol``, instead of those that would be chosen.

    Routes to experts that do not exist, and a token's second to one expert, go nowhere, and are counted:
    :meth:`Plan.check` raises DitronError for them, on the simulator at once. Collective over the group. Raises
    DitronError for tensors that do not fit.

        plan = ditron.kernels.moe_plan(topk_ids, topk_weights, num_experts=128)
    """
    options = {"max_tokens": max_tokens, "block_m": block_m, "stage_groups": stage_groups, "group": group}
    tables = moe_plan_tables(
        topk_ids, topk_weights, expert_map, num_experts=num_experts, parallel=parallel, **options, **schedule
    )
    return Plan.of(tables)


@torch_operator("num_experts", "parallel", "max_tokens", "block_m", "stage_groups")
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
    group: AnyGroup = None,
    **schedule: Any,
) -> list[torch.Tensor]:
    """The tables of :func:`moe_plan`'s plan."""
    with in_group(group, "moe_plan") as group:
        _check(group, topk_ids, topk_weights, expert_map)
        tokens, block_m, experts = plan_shape(
            group, topk_ids, num_experts, parallel, max_tokens=max_tokens, block_m=block_m
        )
        (given, top_k), ranks, is_tp = topk_ids.shape, group.num_ranks, parallel == "tp"
        check_block_m("moe_plan", block_m)
        if stage_groups is None:
            stage_groups = min(ranks, max(1, ranks * tokens * top_k // num_experts // ROWS_OF_GROUP))
        if given < tokens:
            padding = (0, 0, 0, tokens - given)
            topk_ids = torch.nn.functional.pad(topk_ids, padding, value=-1)
            topk_weights = None if topk_weights is None else torch.nn.functional.pad(topk_weights.detach(), padding)
        check_schedule("moe_plan", schedule, moe_plan_program)
        direct = schedule.pop("direct", 8 if group.is_sim else 0)
        sizes = Sizes.of(ranks, tokens, top_k, experts, direct, schedule.pop("places", 0))
        weights = torch.empty(ranks * tokens, top_k, dtype=torch.float32, device=topk_ids.device)
        plan = empty_plan(sizes, block_m, weights)
        ids = aligned(topk_ids)
        moe_plan_program(
            ids,
            ids if topk_weights is None else aligned(topk_weights.detach()),
            ids if expert_map is None else aligned(expert_map),
            plan.route_weight,
            plan.errors,
            plan.row_slot,
            plan.row_route,
            plan.route_row,
            plan.tiles,
            plan.num_tiles,
            plan.expert_rows,
            capacity_for(sizes.blocks),
            num_ranks=ranks,
            num_experts=num_experts,
            is_tp=is_tp,
            top_k=top_k,
            block_m=block_m,
            groups=min(stage_groups, ranks),
            columns=sizes.E,
            places=sizes.B,
            direct=sizes.direct,
            tile_programs=sizes.tile_programs,
            has_weights=topk_weights is not None,
            has_map=expert_map is not None,
            **schedule,
        )
        if group.is_sim:
            plan.check()
        return plan.tables


def plan_shape(
    group: Group,
    topk_ids: torch.Tensor,
    num_experts: int,
    parallel: str,
    *,
    max_tokens: int | None,
    block_m: int | None,
) -> tuple[int, int, int]:
    """Tokens of a rank, rows in a tile, experts of the rank that has most. Raises DitronError for what cannot be."""
    ranks, (given, top_k) = group.num_ranks, topk_ids.shape
    if parallel not in ("ep", "tp"):
        raise DitronError(f"moe_plan: unknown parallel {parallel!r}: expected 'ep' or 'tp'")
    if ranks > MAX_RANKS:
        raise DitronError(f"moe_plan: {ranks} ranks, and at most {MAX_RANKS} are supported")
    if num_experts >= 1 << 15 or (parallel == "ep" and num_experts < ranks):
        raise DitronError(f"moe_plan: {num_experts} experts cannot be divided among {ranks} ranks")
    tokens = given if max_tokens is None else max_tokens
    if given > tokens:
        raise DitronError(f"moe_plan: topk_ids has {given} tokens, and max_tokens is {max_tokens}")
    if top_k > num_experts:
        raise DitronError(f"moe_plan: {top_k} experts for a token, and there are {num_experts}")
    if block_m is None:
        block_m = 16 if group.is_sim else block_rows(ranks * tokens * top_k // num_experts)
    return tokens, block_m, num_experts if parallel == "tp" else -(-num_experts // ranks)


def block_rows(average: int) -> int:
    """Rows in a tile, by how many an expert has on average (docs/results/moe.md)."""
    return 16 if average <= 8 else 32 if average <= 24 else 64 if average <= 96 else 128


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
