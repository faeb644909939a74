"""Mixture of experts: the second product, and the sum of what the experts made of each token, over routes and ranks.

The product goes by chunks of columns, all experts' tiles of one before those of the next. A second kernel, whose
programs fit next to the product's on each SM, adds and sends a chunk when its tiles are counted; a third one, the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.expert_schedules import (
    block_of_experts,
    check_tile,
    groups_of_stages,
    programs_at_once,
    tiles_for,
    tuned_for_plan,
)
from ditron.kernels.moe_rs_kernels import moe_product_kernel, moe_sum_kernel
from ditron.kernels.moe_rs_stages import moe_rs_by_stage_program
from ditron.kernels.operands import aligned, capacity_for, grouped_operands, in_group, result
from ditron.kernels.repeated import repeatable, run_step, scratch
from ditron.kernels.routing import Plan, tables_on_host
from ditron.kernels.schedules import check_schedule
from ditron.kernels.tiles import shards_descriptor
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["moe_rs", "moe_rs_program", "moe_rs_rows", "product_and_sums", "sum_operands"]

#: Columns of w from which on it pays to add chunks next to the product: of fewer it is done too soon, and adding slows
#: it (docs/results/moe.md).
OVERLAPPED_DEPTH = 1024


def sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: two experts, tokens with none, one or both of them on every rank, one chunk of columns
    or two beside the product; of moe_ar, too.
    """
    tokens, experts = 20, 2
    scores = torch.rand(tokens, experts + 2, generator=generator)
    scores[:, experts:] = scores[:, :experts].mean(1, keepdim=True)
    ids = scores.topk(2).indices
    plan = tables_on_host(torch.where(ids < experts, ids, -1).expand(ranks, -1, -1), 0, 0, experts, 16)
    to_all = bool(torch.rand(1, generator=generator) < 0.5)
    H = 48 if torch.rand(1, generator=generator) < 0.5 else 80
    return {
        "rows": f"bf16[{plan.max_rows}, 32]",
        "w": f"bf16[{experts * H}, 32]",
        "y": f"bf16[{plan.max_rows}, {H}]",
        "out": f"bf16[{tokens * ranks if to_all else tokens}, {H}]",
        "token_ranks": plan.token_ranks,
        "route_row": plan.route_row,
        "route_weight": f"f32[{ranks * tokens}, 2]",
        "tiles": plan.tiles,
        "num_tiles": plan.num_tiles,
        "scale_rows": None,
        "scale_w": None,
        "capacity": 128,
        "num_ranks": ranks,
        "top_k": 2,
        "to_all": to_all,
        "block": (16, 32, 32),
        "programs": 3,
        "chunk_tiles": 1,
        "sums": (8, 32),
        "sum_warps": 4,
        "beside": 2,
        "adders": 3,
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
    to_all=False,
    overlap=True,
    block=(128, 256, 64),
    programs=132,
    chunk_tiles=8,
    sums=(8, 256),
    sum_warps=8,
    sum_registers=64,
    beside=132,
    adders=528,
    splits=1,
    swap_ab=False,
    group_m=8,
    num_warps=8,
    stages=4,
    maxnreg=None,
):
    """``out`` [tokens, H] = own tokens' part of the sum over ranks and routes of ``y`` by ``route_weight``, where ``y``
    [max_rows, H] = ``rows`` [max_rows, K] times their experts' matrices of ``w`` [experts * H, K] transposed.

    ``token_ranks``, ``route_row``, ``route_weight``, ``tiles`` and ``num_tiles``: of a plan for ``block[0]`` rows in a
    tile. With ``to_all`` all ranks' tokens are ``out``'s. Memory is kept for up to ``capacity`` rows of it. Columns are
    divided into chunks of ``chunk_tiles`` tiles. With ``overlap`` the product goes by chunks, and ``beside`` programs,
    which fit next to those of the product, add all but the last. ``adders`` programs add what is left when the product
    is done, ``splits`` of them the columns of a chunk. A program adds ``sums`` tokens and columns at a time.
    ``swap_ab``: as of :func:`ditron.kernels.grouped.grouped_product`. ``scale_rows`` [max_rows, K / 128] and
    ``scale_w`` [experts * H / 128, K / 128]: of quantized ``rows`` and ``w``.
    """
    (tokens, H), K = out.shape, rows.shape[1]
    BM, BN, BK = block
    columns = dh.cdiv(H, BN)
    chunks, slots = dh.cdiv(columns, chunk_tiles), max(adders, beside)
    inbox = dh.symm_empty(num_ranks * capacity, H, dtype=out.dtype, name="inbox")
    counts = dh.symm_zeros(chunks, dtype=torch.int64, name="counts")
    sent = dh.symm_zeros(chunks * slots * num_ranks, dtype=torch.int64, name="sent")
    started = dh.symm_zeros(1, dtype=torch.int64, name="started")
    done = dh.symm_zeros(num_ranks, dtype=torch.int64, name="done")
    moe_product_kernel[(programs,)](
        TensorDescriptor.from_tensor(rows, [BM, BK]),
        TensorDescriptor.from_tensor(w, [BN, BK]),
        scale_rows,
        scale_w,
        shards_descriptor(y, 1, y.shape[0], H, (BM, BN // 2)),
        y,
        tiles,
        num_tiles,
        counts,
        started,
        done,
        H,
        K,
        chunk_tiles if overlap else columns,
        dh.epoch(),
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=group_m,
        PROGRAMS=programs,
        SWAP_AB=swap_ab,
        SCALED=scale_rows is not None,
        COUNT=overlap,
        BY_STAGE=False,
        RANKS=num_ranks,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )
    of_sums = (
        y,
        out,
        inbox,
        token_ranks,
        route_row,
        route_weight,
        counts,
        sent,
        done,
        tokens,
        capacity,
        H,
        chunk_tiles,
    )
    options = {"BN": BN, "SLOTS": slots, "TB": sums[0], "CB": sums[1], "TOP_K": top_k, "RANKS": num_ranks}
    options |= {"ALL": to_all, "num_warps": sum_warps, "maxnreg": sum_registers}
    if overlap:  # when all of the product's programs have their place
        with dh.stream("sums"):
            dh.signal_wait(started[0], dh.epoch() * programs)
            moe_sum_kernel[(beside,)](*of_sums, 1, 0, chunks - 1, dh.epoch(), WAIT=True, **options)
    first = chunks - 1 if overlap else 0
    moe_sum_kernel[(adders,)](*of_sums, splits, first, chunks, dh.epoch(), WAIT=False, **options)


def _algorithm(block_m: int, K: int, scaled: bool = False) -> str:
    is_deep = K >= OVERLAPPED_DEPTH and not scaled  # the product of fp8 leaves no registers for sums
    return "beside" if block_m >= 128 and is_deep else "after"


def _hides_sums(ranks: int, block_m: int, average: int) -> bool:
    """Whether other ranks' tokens are added next to the product of the own ones, by how many rows an expert has on
    average: where a plan divides its tiles by stage (docs/results/moe.md).
    """
    return block_m >= 128 and groups_of_stages(ranks, average) > 1


def _sums(algorithm: str, block_m: int, H: int, columns: int) -> Options:
    """How sums are divided, with tiles of so many ``columns`` (docs/results/moe.md)."""
    if algorithm == "beside":
        return {"chunk_tiles": max(1, 2048 // columns), "splits": 8}
    return {"sums": (1, 2048), "splits": -(-H // 2048)} if block_m <= 32 else {"splits": 4}


def _schedule(group: Group, plan: Plan, w: torch.Tensor, algorithm: str | None, given: Options) -> Options:
    """Keyword arguments of :func:`moe_rs_program`: ``given``, and those that are chosen."""
    (_, H, K), scaled = w.shape, w.dtype == torch.float8_e4m3fn
    chosen = tiles_for(plan.block_m, group.small_shapes, scaled)
    columns = given.get("block", chosen["block"])[1]
    if group.small_shapes:
        algorithm = algorithm or "beside"
        chosen |= {"sums": (8, 32), "sum_warps": 4, "beside": 2}
    else:
        algorithm = algorithm or _algorithm(plan.block_m, K, scaled)
        chosen |= {"programs": programs_at_once(group, plan.block_m, scaled, given), "beside": group.sms}
        if plan.block_m >= 128 and not scaled:
            chosen["maxnreg"] = 192
    if algorithm == "by_stage":
        return chosen | ({"adders_of_sender": 2} if group.small_shapes else {}) | given
    if group.small_shapes:
        chosen |= {"chunk_tiles": 1, "adders": 3}
    else:
        chosen |= {"adders": 4 * group.sms, "chunk_tiles": -(-H // columns)}
        chosen |= _sums(algorithm, plan.block_m, H, columns)
    return chosen | {"overlap": algorithm == "beside"} | given


def _rule(problem: Problem) -> Rule:
    tiles = block_of_experts(problem)
    rows, columns, _ = tiles["block"]
    if problem.itemsize > 1 and _hides_sums(problem.ranks, rows, problem.rows_of_expert):
        why = f"an expert has {problem.rows_of_expert} rows on average: tiles are in groups by stage, and hide sums"
        return Rule({"algorithm": "by_stage"} | tiles, why)
    algorithm = _algorithm(rows, problem.K)
    why = (
        f"an expert has {problem.rows_of_expert} rows of {problem.K} on average; sums are added beside the product "
        f"from more than 96 rows of {OVERLAPPED_DEPTH} on"
    )
    return Rule({"algorithm": algorithm} | tiles | _sums(algorithm, rows, problem.N, columns), why)


@tunable("moe_rs", rule=_rule, node_algorithms=())
def moe_rs_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`moe_rs`: sums beside the product, by chunks of columns, or after it, and other tiles."""
    tiles = block_of_experts(problem)
    rows, columns, depth = tiles["block"]
    after = {"algorithm": "after"} | tiles | _sums("after", rows, problem.N, columns)
    beside = {"algorithm": "beside"} | tiles | _sums("beside", rows, problem.N, columns)
    yield from (after, beside)
    if problem.ranks > 1 and rows >= 128 and problem.itemsize > 1:
        by_stage = {"algorithm": "by_stage"} | tiles
        yield from (by_stage, by_stage | {"splits": 1}, by_stage | {"splits": 8})
    yield from (beside | {"chunk_tiles": wide // columns} for wide in (1024, 4096) if wide < problem.N)
    yield beside | {"splits": 4}
    yield after | {"splits": 2 * after["splits"]}
    best = beside if _algorithm(rows, problem.K) == "beside" else after
    yield from (best | {"group_m": group_m} for group_m in (4, 16) if group_m != tiles["group_m"])
    yield best | {"block": (rows, 128, 64)} | _sums(best["algorithm"], rows, problem.N, 128)


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
    if algorithm not in (None, "beside", "after", "by_stage"):
        known = "'beside', 'after' or 'by_stage'" if what == "moe_rs" else "'beside' or 'after'"
        raise DitronError(f"{what}: unknown algorithm {algorithm!r}: expected {known}")
    if algorithm == "by_stage" and (what != "moe_rs" or scales[0] is not None):
        raise DitronError(
            f"{what}: algorithm='by_stage' is of moe_rs with bfloat16 or float16 tensors: leave algorithm= out"
        )
    check_schedule(what, schedule, moe_rs_by_stage_program if algorithm == "by_stage" else moe_rs_program)
    check_tile(what, plan, schedule, scales[0] is not None)
    return len(plan.route_row) // group.num_ranks


def _check_chunks(what: str, H: int, chosen: Options) -> None:
    """Raise DitronError where a sum would reach into the next chunk, which has not been computed."""
    defaults = moe_rs_program.constants
    columns = chosen["block"][1] * chosen.get("chunk_tiles", defaults["chunk_tiles"])
    at_once = chosen.get("sums", defaults["sums"])[1]
    if columns < H and columns % at_once:
        raise DitronError(f"{what}: a chunk has {columns} columns: expected sums of a divisor of them, got {at_once}")


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
    H = w.shape[1]
    chosen = _schedule(group, plan, w, algorithm, schedule)
    y = scratch((plan.max_rows, H), out)
    tables = plan.token_ranks, plan.route_row, plan.route_weight, plan.tiles, plan.num_tiles
    tensors, capacity = (rows, w.view(-1, w.shape[2]), y, out, *tables), capacity_for(len(out))
    known = {"num_ranks": group.num_ranks, "top_k": plan.route_row.shape[1]}
    if algorithm == "by_stage":
        run_step(moe_rs_by_stage_program, *tensors, capacity, **known, **chosen)
        return out
    _check_chunks(what, H, chosen)
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
        algorithm: ``"beside"``: chunks of columns are added next to the product; ``"after"``: all when it is done;
            ``"by_stage"``: other ranks' tokens, which come first in the product, next to it, the own ones when it is
            done; instead of the one that is chosen by size.
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
            algorithm = "by_stage" if _hides_sums(group.num_ranks, plan.block_m, average) else None
        return product_and_sums("moe_rs", group, rows, w, plan, scales, out, algorithm, schedule, to_all=False)
