"""Mixture of experts: all ranks' tokens, gathered while those that have arrived are multiplied by their experts."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_gather import all_gather
from ditron.kernels.grouped import expert_tile, gathered_rows, grouped_product, store_grouped
from ditron.kernels.operands import aligned, capacity_for, in_group, reaches_by_tma, require_tensor, result
from ditron.kernels.pushes import ShardPushes
from ditron.kernels.routing import Plan, routing_tables, tables_on_host
from ditron.kernels.schedules import check_schedule
from ditron.kernels.tiles import shards_descriptor
from ditron_compiler.errors import DitronError

__all__ = ["ag_moe", "ag_moe_program", "moe_plan"]

_WEIGHTS = (torch.float32, torch.bfloat16, torch.float16)

#: Rows that an expert has, on average, in a group of stages: with fewer, reading its matrix once more costs more than
#: waiting for the tokens (docs/results/moe.md).
ROWS_OF_GROUP = 256

#: Rows in a tile up to which the weights are the left operand.
FEW_ROWS = 64


@ditron.jit(do_not_specialize=["epoch"])
def ag_moe_kernel(
    x_ptr,
    gathered_ptr,
    w_desc,
    rows_ptr,
    rows_desc,
    arrived_ptr,
    row_slot_ptr,
    tiles_ptr,
    num_tiles_ptr,
    tokens,
    N,
    K,
    epoch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    WHOLE_K: tl.constexpr,
    SWAP_AB: tl.constexpr,
):
    """Tiles of ``rows`` [max_rows, N], each after the tokens of its run's stages have arrived."""
    tiles_n = tl.cdiv(N, BN)
    column = tl.arange(0, BK)
    for tile in tl.range(tl.program_id(0), tl.load(num_tiles_ptr) * tiles_n, PROGRAMS, flatten=True):
        m, n, expert, first_stage, last_stage = expert_tile(tile, tiles_n, tiles_ptr, GROUP)
        first_stage = tl.maximum(first_stage, 1)  # stage 0 are this rank's own
        token = dl.wait(arrived_ptr + first_stage, tl.maximum(last_stage + 1 - first_stage, 0), epoch)
        slot = tl.load(row_slot_ptr + m * BM + tl.arange(0, BM))
        rows = gathered_rows(x_ptr, dl.consume_token(gathered_ptr, token), slot, dl.rank(), dl.num_ranks(), tokens, K)
        rows = rows[:, None] + column[None, :]
        exists = (slot >= 0)[:, None]
        w_row = expert * N + n * BN
        acc = grouped_product(rows, 0, exists, w_desc, w_row, K, BM, BN, BK, True, WHOLE_K, SWAP_AB)
        store_grouped(rows_ptr, rows_desc, m * BM, n * BN, acc, N, 2, SWAP_AB)


def sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: two experts, tiles that wait for several stages and for none."""
    tokens, experts = 20, 2
    scores = torch.rand(tokens, experts + 2, generator=generator)
    scores[:, experts:] = scores[:, :experts].mean(1, keepdim=True)  # so that a token has none, one or both
    ids = scores.topk(2).indices
    # Of every rank the same: so are the tables, in order of arrival.
    plan = tables_on_host(torch.where(ids < experts, ids, -1).expand(ranks, -1, -1), 0, 0, experts, 16, ranks)
    return {
        "x": f"bf16[{tokens}, 32]",
        "w": f"bf16[{experts * 48}, 32]",
        "rows": f"bf16[{plan.max_rows}, 48]",
        "row_slot": plan.row_slot,
        "tiles": plan.tiles,
        "num_tiles": plan.num_tiles,
        "capacity": 64,
        "block": (16, 32, 32),
        "programs": 3,
        "whole_k": True,
    }


@ditron.program(
    example={
        "x": "bf16[2048, 4096]",
        "w": "bf16[57344, 4096]",
        "rows": "bf16[17408, 7168]",
        "row_slot": "i32[17408]",
        "tiles": "i32[136, 6]",
        "num_tiles": "i32[1]",
        "capacity": 2048,
    },
    sample_args=sample,
    max_nodes=1,
)
def ag_moe_program(
    x,
    w,
    rows,
    row_slot,
    tiles,
    num_tiles,
    capacity,
    *,
    block=(128, 256, 64),
    programs=132,
    group_m=8,
    num_warps=8,
    stages=4,
    whole_k=False,
    swap_ab=False,
    maxnreg=None,
):
    """``rows`` [max_rows, N] = the tokens of all ranks' ``x`` [tokens, K] that ``row_slot`` says, times their experts'
    matrices of ``w`` [experts * N, K] transposed.

    ``row_slot``, ``tiles`` and ``num_tiles``: of a plan for ``block[0]`` rows in a tile. Memory is kept for up to
    ``capacity`` tokens of a rank. ``whole_k``: K is a multiple of ``block[2]``. ``swap_ab``: as
    :func:`grouped_product` says.
    """
    tokens, K = x.shape
    N = rows.shape[1]
    BM, BN, BK = block
    shards = ShardPushes(x, capacity)
    with dh.stream("copy"):
        shards.push()
    ag_moe_kernel[(programs,)](
        x,
        shards.gathered,
        TensorDescriptor.from_tensor(w, [BN, BK]),
        rows,
        shards_descriptor(rows, 1, rows.shape[0], N, (BM, BN // 2)),
        shards.arrived,
        row_slot,
        tiles,
        num_tiles,
        tokens,
        N,
        K,
        dh.epoch(),
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=group_m,
        PROGRAMS=programs,
        WHOLE_K=whole_k,
        SWAP_AB=swap_ab,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )


def moe_plan(
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None = None,
    *,
    num_experts: int,
    parallel: str = "ep",
    block_m: int | None = None,
    stage_groups: int | None = None,
    group: AnyGroup = None,
) -> Plan:
    """Which rows of which experts every rank computes, and their weights: made on the device, without waiting for it.

    Args:
        topk_ids: ``[tokens, top_k]``, integers: the experts of this rank's tokens, distinct for a token; -1, or any
            number that is no expert's, for none. The same shape on every rank, one token or more.
        topk_weights: ``[tokens, top_k]`` float32, bfloat16 or float16, what each expert's result counts for; default
            ones. Given on every rank or on none.
        num_experts: of all ranks together.
        parallel: ``"ep"``: each rank has ``num_experts / num_ranks`` experts, in rank order; ``"tp"``: a part of each.
        block_m: rows in a tile, a power of two from 16 on; default by how many rows an expert has on average.
        stage_groups: into how many groups tiles are divided by when their tokens arrive, 1 to num_ranks, of which each
            reads the experts' matrices again; default by how many rows an expert has on average.
        group: the ranks; default the current group.

    Collective over the group. Raises DitronError for tensors that do not fit.

        plan = ditron.kernels.moe_plan(topk_ids, topk_weights, num_experts=128)
    """
    with in_group(group, "moe_plan") as group:
        require_tensor("moe_plan", "topk_ids", topk_ids)
        if topk_ids.ndim != 2 or topk_ids.numel() == 0 or topk_ids.dtype not in (torch.int16, torch.int32, torch.int64):
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
        for name, tensor in (("topk_ids", topk_ids), ("topk_weights", topk_weights)):
            if tensor is not None and tensor.device != group.device:
                raise DitronError(f"moe_plan: {name} is on {tensor.device}, and this rank's device is {group.device}")
        ranks = group.num_ranks
        if parallel not in ("ep", "tp"):
            raise DitronError(f"moe_plan: unknown parallel {parallel!r}: expected 'ep' or 'tp'")
        if parallel == "ep" and num_experts % ranks:
            raise DitronError(f"moe_plan: {num_experts} experts cannot be divided among {ranks} ranks")
        tokens, top_k = topk_ids.shape
        if top_k > num_experts:
            raise DitronError(f"moe_plan: {top_k} experts for a token, and there are {num_experts}")
        experts = num_experts // ranks if parallel == "ep" else num_experts
        average = ranks * tokens * top_k // num_experts
        if block_m is None:
            block_m = 16 if group.is_sim else 32 if average <= 24 else 64 if average <= 128 else 128
        if stage_groups is None:
            stage_groups = min(ranks, max(1, average // ROWS_OF_GROUP))
        # The collective moves bits: no arithmetic is done on them.
        mine = topk_ids.to(torch.int32).view(torch.float32)[None]
        if topk_weights is not None:
            mine = torch.cat((mine, topk_weights.detach().to(torch.float32)[None]))
        everyone = all_gather(mine).view(ranks, -1, tokens, top_k)
        ids = everyone[:, 0].view(torch.int32)
        weights = None if topk_weights is None else everyone[:, 1]
        first = group.rank * experts if parallel == "ep" else 0
        return routing_tables(ids, group.rank, first, experts, block_m, stage_groups, weights)


def tiles_for(block_m: int, is_sim: bool) -> dict[str, Any]:
    """The schedule of a grouped product by the rows in a tile (docs/results/moe.md)."""
    chosen: dict[str, Any] = {"block": (block_m, 256, 64), "programs": 132}
    if block_m <= FEW_ROWS:
        chosen = {"block": (block_m, 128, 128), "num_warps": 4, "stages": 5 if block_m <= 32 else 4, "group_m": 16}
        chosen |= {"programs": 132, "swap_ab": True}
    if is_sim:
        chosen |= {"block": (block_m, 32, 32), "programs": 3, "num_warps": 4}
    return chosen


def ag_moe(
    x: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    *,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> torch.Tensor:
    """All ranks' tokens, each times the transposed matrices of those of its experts that this rank has.

    Args:
        x: ``[tokens, K]``, this rank's tokens, of the shape of every rank's.
        w: ``[experts, N, K]``, this rank's experts, or its part of every expert. Both bfloat16 or float16.
        plan: of these tokens' experts (:func:`moe_plan`).
        out: ``[plan.max_rows, N]``, written if given.
        group: the ranks; default the current group. One node.
        schedule: keyword-only arguments of :func:`ag_moe_program`, instead of those that would be chosen.

    Returns ``[plan.max_rows, N]``, rows sorted by expert: row i is of route ``plan.row_route[i]``. What lies behind the
    rows of the experts is not written. Collective over the group. Raises DitronError for tensors that do not fit.

        rows = ditron.kernels.ag_moe(x, w13, plan)
    """
    with in_group(group, "ag_moe") as group:
        for name, tensor, dims in (("x", x, 2), ("w", w, 3)):
            require_tensor("ag_moe", name, tensor)
            if tensor.ndim != dims or tensor.numel() == 0 or tensor.dtype not in (torch.bfloat16, torch.float16):
                raise DitronError(
                    f"ag_moe: {name} must have {dims} dimensions and be bfloat16 or float16, got {tuple(tensor.shape)} "
                    f"of {tensor.dtype}"
                )
            if tensor.device != group.device:
                raise DitronError(f"ag_moe: {name} is on {tensor.device}, and this rank's device is {group.device}")
        if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
            raise DitronError("ag_moe: has no gradients yet, and x or w requires one: call it under torch.no_grad()")
        (tokens, K), (experts, N, _) = x.shape, w.shape
        if w.shape[2] != K or w.dtype != x.dtype:
            raise DitronError(
                f"ag_moe: x is [{tokens}, {K}] of {x.dtype}: expected w to be [experts, N, {K}] of it too"
            )
        if experts != plan.experts or tokens * group.num_ranks != len(plan.route_row):
            raise DitronError(
                f"ag_moe: x has {tokens} tokens and w {experts} experts, and the plan is for "
                f"{len(plan.route_row) // group.num_ranks} and {plan.experts}"
            )
        check_schedule("ag_moe", schedule, ag_moe_program)
        x, w = aligned(x), aligned(w)
        out = result("ag_moe", (plan.max_rows, N), x, out, x=x, w=w)
        if not reaches_by_tma(w, out):
            raise DitronError(f"ag_moe: rows of {N} x {K} elements: expected multiples of 16 bytes")
        chosen = tiles_for(plan.block_m, group.is_sim) | schedule
        chosen["whole_k"] = K % chosen["block"][2] == 0
        flat = w.view(-1, K)
        ag_moe_program(x, flat, out, plan.row_slot, plan.tiles, plan.num_tiles, capacity_for(tokens), **chosen)
        return out
