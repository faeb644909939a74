"""Mixture of experts: all ranks' tokens, gathered while those that have arrived are multiplied by their experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import is_plain_call, torch_operator
from ditron.kernels.expert_activation import check_activation, swiglu_rows
from ditron.kernels.expert_schedules import (
    block_of_experts,
    check_tile,
    other_blocks,
    programs_at_once,
    tiles_for,
    tuned_for_plan,
)
from ditron.kernels.grouped import (
    expert_tile,
    gathered_rows,
    grouped_product,
    products_of_step,
    scale_of_weights,
    store_grouped,
    weights_descriptor,
)
from ditron.kernels.operands import (
    SCALE_BLOCK,
    aligned,
    capacity_for,
    grouped_operands,
    in_group,
    reaches_by_tma,
    result,
)
from ditron.kernels.padding import padded
from ditron.kernels.pushes import ShardPushes
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.routing import Plan, tables_on_host
from ditron.kernels.schedules import check_schedule
from ditron.kernels.tiles import MAX_REGISTERS, shards_descriptor
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["ag_moe", "ag_moe_program", "ag_moe_rows", "ag_moe_stored_program"]

#: Bytes of a rank's tokens up to which a kernel stores them at the other ranks, and copy engines do not.
STORED_BYTES = 4 << 20


@ditron.jit
def push_rows(x_ptr, gathered_ptr, n, BLOCK: tl.constexpr):
    """Store ``x`` [n] in ``gathered`` [ranks, n] of the other ranks."""
    own, ranks = dl.rank(), dl.num_ranks()
    for begin in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = begin + tl.arange(0, BLOCK)
        part = tl.load(x_ptr + at, mask=at < n)
        for step in range(1, ranks):
            theirs_ptr = dl.symm_at(gathered_ptr + own * tl.cast(n, tl.int64), (own + ranks - step) % ranks)
            tl.store(theirs_ptr + at, part, mask=at < n)


@ditron.jit
def notify_pushed(arrived_ptr):
    """Count, at the other ranks, the programs that have stored there."""
    own, ranks = dl.rank(), dl.num_ranks()
    for step in range(1, ranks):
        dl.notify(arrived_ptr + step, (own + ranks - step) % ranks, 1, op="add")


@ditron.jit(do_not_specialize=["epoch"])
def ag_moe_kernel(
    x_ptr,
    gathered_ptr,
    w_desc,
    scale_x_ptr,
    gathered_scale_ptr,
    scale_w_ptr,
    rows_ptr,
    rows_desc,
    arrived_ptr,
    row_slot_ptr,
    tiles_ptr,
    num_tiles_ptr,
    tokens,
    N,
    K,
    capacity,
    epoch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    WHOLE_K: tl.constexpr,
    SWAP_AB: tl.constexpr,
    GATED: tl.constexpr,
    SCALED: tl.constexpr,
    PUSH: tl.constexpr,
):
    """Tiles of ``rows`` [max_rows, N], each after the tokens of its run's stages have arrived.

    If ``PUSH`` is not 0, this kernel stores its rank's at the others, that many elements at a time. ``gathered`` then
    has two halves, used in turns, as exchange.py explains.
    """
    if PUSH:
        half = (epoch % 2).to(tl.int64) * dl.num_ranks()
        gathered_ptr += half * capacity
        if SCALED:
            gathered_scale_ptr += half * (capacity // 128)
            push_rows(scale_x_ptr, gathered_scale_ptr, tokens * (K // 128), PUSH // 4)
        push_rows(x_ptr, gathered_ptr, tokens * K, PUSH)
        notify_pushed(arrived_ptr)
        epoch = epoch * PROGRAMS
    BN_OUT: tl.constexpr = BN // 2 if GATED else BN
    tiles_n = tl.cdiv(N, BN_OUT)
    column = tl.arange(0, BK)
    for tile in tl.range(tl.program_id(0), tl.load(num_tiles_ptr) * tiles_n, PROGRAMS, flatten=True):
        m, n, expert, first_stage, last_stage = expert_tile(tile, tiles_n, tiles_ptr, GROUP)
        first_stage = tl.maximum(first_stage, 1)  # stage 0 are this rank's own
        token = dl.wait(arrived_ptr + first_stage, tl.maximum(last_stage + 1 - first_stage, 0), epoch)
        slot = tl.load(row_slot_ptr + m * BM + tl.arange(0, BM))
        own, ranks = dl.rank(), dl.num_ranks()
        rows = gathered_rows(x_ptr, dl.consume_token(gathered_ptr, token), slot, own, ranks, tokens, K)
        rows = rows[:, None] + column[None, :]
        exists = (slot >= 0)[:, None]
        col = n * BN_OUT
        w_row = expert if GATED else expert * N + col
        scale_rows = None
        scale_w = None
        if SCALED:
            others_ptr = dl.consume_token(gathered_scale_ptr, token)
            scale_rows = gathered_rows(scale_x_ptr, others_ptr, slot, own, ranks, tokens, K // 128)
            scale_w = scale_of_weights(scale_w_ptr, expert, col, N, K)
        acc = grouped_product(
            rows,
            0,
            exists,
            w_desc,
            w_row,
            K,
            BM,
            BN,
            BK,
            True,
            WHOLE_K,
            SWAP_AB,
            False,
            col,
            GATED,
            scale_rows,
            scale_w,
            SCALED,
        )
        store_grouped(rows_ptr, rows_desc, m * BM, col, acc, N, BN_OUT // (BN // 2), SWAP_AB)
    if PUSH:  # the next call's half may be written when this rank has heard from every other
        if tl.program_id(0) == 0:
            dl.wait(arrived_ptr + 1, dl.num_ranks() - 1, epoch)


def sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: two experts, tiles that wait for several stages and for none."""
    tokens, experts = 20, 2
    scores = torch.rand(tokens, experts + 2, generator=generator)
    scores[:, experts:] = scores[:, :experts].mean(1, keepdim=True)  # so that a token has none, one or both
    ids = scores.topk(2).indices
    # Of every rank the same: so are the tables, in order of arrival.
    stages = torch.where(ids < experts, ids, -1).repeat(ranks, 1, 1)
    if ranks > 1 and torch.rand(1, generator=generator) < 0.5:
        stages[-1] = -1  # this rank needs no tokens of that one, and must not be ahead of it all the same
    plan = tables_on_host(stages, 0, 0, experts, 16, ranks)
    return {
        "x": f"bf16[{tokens}, 32]",
        "w": f"bf16[{experts * 48}, 32]",
        "rows": f"bf16[{plan.max_rows}, 48]",
        "row_slot": plan.row_slot,
        "tiles": plan.tiles,
        "num_tiles": plan.num_tiles,
        "scale_x": None,
        "scale_w": None,
        "capacity": 64,
        "block": (16, 32, 32),
        "programs": 3,
        "whole_k": True,
    }


def stored_sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker."""
    return sample(ranks, generator) | {"capacity": 64 * 32, "push": 128, "swap_ab": True}


_EXAMPLE = {
    "x": "bf16[2048, 4096]",
    "w": "bf16[57344, 4096]",
    "rows": "bf16[17408, 7168]",
    "row_slot": "i32[17408]",
    "tiles": "i32[136, 6]",
    "num_tiles": "i32[1]",
    "scale_x": None,
    "scale_w": None,
    "capacity": 2048,
}
_TABLES = ("row_slot", "tiles")


@ditron.program(example=_EXAMPLE, sample_args=sample, max_nodes=1, do_not_specialize=_TABLES)
def ag_moe_program(
    x,
    w,
    rows,
    row_slot,
    tiles,
    num_tiles,
    scale_x,
    scale_w,
    capacity,
    *,
    block=(128, 256, 64),
    programs=132,
    group_m=8,
    num_warps=8,
    stages=4,
    whole_k=False,
    gated=False,
    swap_ab=False,
    maxnreg=None,
):
    """``rows`` [max_rows, N] = the tokens of all ranks' ``x`` [tokens, K] that ``row_slot`` says, times their experts'
    matrices of ``w`` [experts * N, K] transposed.

    ``row_slot``, ``tiles`` and ``num_tiles``: of a plan for ``block[0]`` rows in a tile. Memory is kept for up to
    ``capacity`` tokens of a rank. ``whole_k``: as of :func:`grouped_product`. ``swap_ab``: as
    :func:`grouped_product` says. ``gated``: ``rows`` are SwiGLU of the products with ``w`` [experts * 2 * N, K], in
    which each expert's N gates come first. ``scale_x`` [tokens, K / 128] and ``scale_w`` [experts, N / 128, K / 128]:
    of quantized ``x`` and ``w``.
    """
    shards = ShardPushes(x, capacity, scale_x)
    scales = scale_x, None if scale_x is None else shards.gathered_beside, scale_w
    with dh.stream("copy"):
        shards.push()
    tables = row_slot, tiles, num_tiles
    sizes = {"block": block, "programs": programs, "group_m": group_m}
    options = {"num_warps": num_warps, "stages": stages, "maxnreg": maxnreg}
    buffers = shards.gathered, shards.arrived
    _launch(x, w, rows, *buffers, scales, tables, 0, 0, whole_k, swap_ab, gated, **sizes, **options)


@ditron.program(
    example=_EXAMPLE | {"capacity": 2048 * 4096}, sample_args=stored_sample, max_nodes=1, do_not_specialize=_TABLES
)
def ag_moe_stored_program(
    x,
    w,
    rows,
    row_slot,
    tiles,
    num_tiles,
    scale_x,
    scale_w,
    capacity,
    *,
    block=(64, 128, 128),
    programs=132,
    group_m=16,
    num_warps=4,
    stages=4,
    whole_k=False,
    gated=False,
    swap_ab=True,
    maxnreg=None,
    push=2048,
):
    """As :func:`ag_moe_program`, and the same kernel stores tokens at the other ranks, ``push`` elements at a time.

    Its ``programs`` run at one time. Memory is kept for up to ``capacity`` elements of a rank.
    """
    gathered = dh.symm_empty(2, dh.num_ranks() * capacity, dtype=x.dtype, name="gathered")
    gathered_scale = None
    if scale_x is not None:
        size = dh.num_ranks() * (capacity // SCALE_BLOCK)
        gathered_scale = dh.symm_empty(2, size, dtype=scale_x.dtype, name="gathered_scale")
    scales = scale_x, gathered_scale, scale_w
    arrived = dh.symm_zeros(dh.num_ranks(), dtype=torch.int64, name="arrived")
    tables = row_slot, tiles, num_tiles
    sizes = {"block": block, "programs": programs, "group_m": group_m}
    options = {"num_warps": num_warps, "stages": stages, "maxnreg": maxnreg}
    _launch(x, w, rows, gathered, arrived, scales, tables, capacity, push, whole_k, swap_ab, gated, **sizes, **options)


def _launch(
    x: Any,
    w: Any,
    rows: Any,
    gathered: Any,
    arrived: Any,
    scales: tuple[Any, Any, Any],
    tables: tuple[Any, ...],
    capacity: Any,
    push: int,
    whole_k: bool,
    swap_ab: bool,
    gated: bool,
    *,
    block: tuple[int, int, int],
    programs: int,
    group_m: int,
    num_warps: int,
    stages: int,
    maxnreg: int | None,
) -> None:
    """The kernel, in a host program."""
    if maxnreg is None and gated and num_warps == 8:
        maxnreg = MAX_REGISTERS
    (tokens, K), N = x.shape, rows.shape[1]
    BM, BN, BK = block
    ag_moe_kernel[(programs,)](
        x,
        gathered,
        weights_descriptor(w, N, BN, BK, gated, swap_ab),
        *scales,
        rows,
        shards_descriptor(rows, 1, rows.shape[0], N, (BM, BN // 2)),
        arrived,
        *tables,
        tokens,
        N,
        K,
        capacity,
        dh.epoch(),
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=group_m,
        PROGRAMS=programs,
        WHOLE_K=whole_k,
        SWAP_AB=swap_ab,
        GATED=gated,
        SCALED=scales[0] is not None,
        PUSH=push,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )


def _algorithm(nbytes: int) -> str:
    """How so many bytes of a rank's tokens reach the others."""
    return "stored" if nbytes <= STORED_BYTES else "copied"


def _rule(problem: Problem) -> Rule:
    nbytes = problem.rows * problem.K * problem.itemsize
    why = f"a rank has {nbytes / 2**20:.3g} MB of tokens; the kernel stores them up to {STORED_BYTES >> 20} MB"
    return Rule({"algorithm": _algorithm(nbytes)} | block_of_experts(problem), why)


@tunable("ag_moe", rule=_rule, node_algorithms=())
def ag_moe_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`ag_moe`: tokens by stores or by copies, tiles that share more or fewer rows."""
    tiles, nbytes = block_of_experts(problem), problem.rows * problem.K * problem.itemsize
    if nbytes <= 8 * STORED_BYTES:
        yield {"algorithm": "stored"} | tiles
        yield from ({"algorithm": "stored"} | tiles | {"push": push} for push in (1024, 4096))
    if nbytes >= STORED_BYTES // 8:
        yield {"algorithm": "copied"} | tiles
    best = {"algorithm": _algorithm(nbytes)} | tiles
    yield from (best | {"group_m": group_m} for group_m in (4, 8, 16) if group_m != tiles["group_m"])
    yield from (best | {"block": block} for block in other_blocks(tiles))


def ag_moe(
    x: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    *,
    scale_x: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
    activation: str | None = None,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """All ranks' tokens, each times the transposed matrices of those of its experts that this rank has.

    Args:
        x: ``[tokens, K]``, this rank's tokens; copied if they are fewer than the plan is for.
        w: ``[plan.experts, N, K]``, this rank's experts, or its part of every expert. If another rank has one more, the
            last is not read. Both bfloat16 or float16; or float8_e4m3fn with scales, K a multiple of 128, whose
            products are added in fp32 by 128, rounded to bfloat16, and have no gradients.
        scale_x, scale_w: ``[tokens, K / 128]`` and ``[plan.experts, N / 128, K / 128]`` float32, the latter rounded up:
            what 1 x 128 elements of ``x`` (:func:`quantize_1x128`) and 128 x 128 of ``w`` are to be multiplied by.
        plan: of these tokens' experts (:func:`moe_plan`).
        activation: ``"swiglu"``: of an expert's N rows the first half are gates, and a row of the result is SiLU of its
            products with them times its products with the others, ``[N / 2]``, rounded once; twice where gradients are
            recorded. Not of quantized tensors.
        out: ``[plan.max_rows, N]``, or as many columns as the activation leaves, written if given.
        group: the ranks; default the current group. One node.
        algorithm: how tokens reach the other ranks, ``"copied"`` by copy engines or ``"stored"`` by the kernel, instead
            of the one that is chosen by size.
        schedule: keyword-only arguments of its program, instead of those that would be chosen.

    Returns ``[plan.max_rows, N]``, rows sorted by expert: row i is of route ``plan.row_route[i]``. What lies behind the
    rows of the experts is not written, and of the result's gradient not read. Collective over the group. Raises
    DitronError for tensors that do not fit.

        rows = ditron.kernels.ag_moe(x, w13, plan)
    """
    if not isinstance(plan, Plan):
        raise DitronError(f"ag_moe: plan must be a Plan, got {type(plan).__name__}: make one with moe_plan")
    options = {"scale_x": scale_x, "scale_w": scale_w, "out": out, "num_experts": plan.num_experts, **schedule}
    options |= {"group": group, "algorithm": algorithm}
    check_activation("ag_moe", activation, w, scale_x is not None)
    if activation is not None and not is_plain_call((x, w, plan.tables)):
        rows = ag_moe_rows(x, w, plan.tables, **options)  # which the gradient needs; torch's operator has no activation
        return swiglu_rows(rows, plan.tables, group=group)
    return ag_moe_rows(x, w, plan.tables, activation=activation, **options)


@torch_operator("num_experts", "scale_x", "scale_w")
@repeatable
def ag_moe_rows(
    x: torch.Tensor,
    w: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    num_experts: int = 0,
    scale_x: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
    activation: str | None = None,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """:func:`ag_moe` with the tables of a plan for ``num_experts`` of all ranks."""
    plan = Plan.of(tables)
    with in_group(group, "ag_moe") as group:
        grouped_operands("ag_moe", group, "x", x, w, scale_x, scale_w)
        scaled = scale_x is not None
        (tokens, K), (experts, N, _) = x.shape, w.shape
        planned = len(plan.route_row) // group.num_ranks
        if experts != plan.experts or tokens > planned:
            raise DitronError(
                f"ag_moe: x has {tokens} tokens and w {experts} experts, and the plan is for {planned} and "
                f"{plan.experts}"
            )
        if tokens < planned:  # places are by how many each rank may have
            x, tokens = padded(x, planned), planned
            scale_x = None if scale_x is None else padded(scale_x, planned)
        algorithm, schedule = tuned_for_plan("ag_moe", group, plan, num_experts, algorithm, schedule, w)
        algorithm = algorithm or _algorithm(x.nbytes)
        if algorithm not in ("copied", "stored"):
            raise DitronError(f"ag_moe: unknown algorithm {algorithm!r}: expected 'copied' or 'stored'")
        program = ag_moe_stored_program if algorithm == "stored" else ag_moe_program
        check_schedule("ag_moe", schedule, program)
        check_tile("ag_moe", plan, schedule, scaled)
        x, w = aligned(x), aligned(w)
        gated = activation is not None
        dtype = torch.bfloat16 if scaled else x.dtype
        out = result("ag_moe", (plan.max_rows, N // 2 if gated else N), x, out, dtype, x=x, w=w)
        if not reaches_by_tma(out):
            raise DitronError(f"ag_moe: the result has {out.shape[1]} columns: expected a multiple of 16 bytes")
        average = plan.route_row.numel() // num_experts if num_experts else 0
        chosen = tiles_for(plan.block_m, group.small_shapes, scaled, gathered=average)
        at_once = programs_at_once(group, plan.block_m, scaled, schedule)
        if not group.small_shapes:
            chosen["programs"] = at_once
        chosen |= schedule
        if algorithm == "stored" and chosen["programs"] > at_once:  # they wait for each other
            raise DitronError(
                f"ag_moe: {chosen['programs']} programs do not run at one time on {group.sms} multiprocessors: give "
                "fewer programs=, or algorithm='copied'"
            )
        rows, _, depth = chosen["block"]
        chosen["whole_k"] = K % (depth * products_of_step(rows, scaled)) == 0
        scales = (aligned(scale_x), aligned(scale_w)) if scaled else (None, None)
        capacity = capacity_for(tokens if algorithm == "copied" else x.numel())
        tables_of_rows = plan.row_slot, plan.tiles, plan.num_tiles
        run_step(program, x, w.view(-1, K), out, *tables_of_rows, *scales, capacity, gated=gated, **chosen)
        return out
