"""Expert parallelism without its products: tokens to the ranks of their experts, and what these made of them back.

Memory that peers write to has two halves, used in turns, as exchange.py explains: in each call every rank gets a signal
from all others.
"""

from __future__ import annotations

from typing import Any

import torch

import ditron
import ditron.host as dh
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.ep_exchange_kernels import dispatch_kernel, launch_combine
from ditron.kernels.ep_nodes import ep_combine_nodes_program, ep_dispatch_nodes_program
from ditron.kernels.operands import DTYPES, QUANTIZED, aligned, capacity_for, in_group, require_tensor, result
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.routing import Plan, sample_plan
from ditron.kernels.schedules import check_schedule
from ditron.kernels.words import word_boxes, words_at_once
from ditron_compiler.errors import DitronError

__all__ = [
    "ep_combine",
    "ep_combine_program",
    "ep_combine_rows",
    "ep_dispatch",
    "ep_dispatch_program",
    "ep_dispatch_rows",
    "ep_dispatch_rows_1x128",
]


def dispatch_sample(ranks: int, generator: torch.Generator, rank: int) -> dict[str, Any]:
    """Arguments for the checker: tokens with and without scales, words of 64 bits and of 32."""
    plan = sample_plan(ranks, generator, rank)
    scaled, floats = (torch.rand(2, generator=generator) < 0.5).tolist()
    return {
        "x": "bf16[4, 12]",
        "rows": f"bf16[{plan.max_rows}, 12]",
        "token_ranks": plan.token_ranks,
        "route_row": plan.route_row,
        "row_slot": plan.row_slot,
        "num_tiles": plan.num_tiles,
        "scale_x": "f32[4, 2]" if scaled else None,
        "scale_rows": f"f32[{plan.max_rows}, 2]" if scaled else None,
        "capacity": 8,
        "width": 12,
        "num_ranks": ranks,
        "top_k": 2,
        "scales": 2 if scaled else 0,
        "floats": floats,
        "block_m": 16,
        "words": 4,
        "padding_programs": 1,
    }


@ditron.program(
    example={
        "x": "bf16[4096, 7168]",
        "rows": "bf16[33792, 7168]",
        "token_ranks": "i32[4096, 2]",
        "route_row": "i32[16384, 8]",
        "row_slot": "i32[33792]",
        "num_tiles": "i32[1]",
        "scale_x": None,
        "scale_rows": None,
        "capacity": 4096,
        "width": 7168,
        "num_ranks": 4,
        "top_k": 8,
    },
    sample_args=dispatch_sample,
    max_nodes=1,
    do_not_specialize=("token_ranks", "route_row", "row_slot"),
)
def ep_dispatch_program(
    x,
    rows,
    token_ranks,
    route_row,
    row_slot,
    num_tiles,
    scale_x,
    scale_rows,
    capacity,
    *,
    width,
    num_ranks,
    top_k,
    scales=0,
    floats=True,
    block_m=128,
    words=256,
    padding_programs=132,
):
    """``rows`` [max_rows, width] = the tokens of all ranks' ``x`` [tokens, width] that ``route_row`` says; so too
    ``scale_rows`` of ``scale_x`` [tokens, scales], unless None.

    ``token_ranks``, ``route_row``, ``row_slot`` and ``num_tiles``: of a plan for ``block_m`` rows in a tile. Memory is
    kept for up to ``capacity`` tokens of a rank. A program has ``words`` of a token; ``padding_programs`` others put
    zeros in padding. A word has 64 bits of ``floats``, of which int8 are those of float8, and 32 of what may be
    anything.
    """
    bits, tokens = 64 if floats else 32, x.shape[0]
    of_token = -(-width * x.dtype.itemsize * 8 // bits)
    if scale_x is not None:
        of_token += -(-scales * scale_x.dtype.itemsize * 8 // bits)
    parts = -(-of_token // words)
    kept = capacity * (parts * words)
    dispatch_kernel[(1 + padding_programs + tokens * parts,)](
        x,
        scale_x,
        rows,
        scale_rows,
        word_boxes(kept),
        dh.symm_zeros(num_ranks, dtype=torch.int64, name="begun"),
        token_ranks,
        route_row,
        row_slot,
        num_tiles,
        tokens,
        kept,
        padding_programs,
        dh.epoch(),
        H=width,
        S=scales,
        BM=block_m,
        WORDS=words,
        BITS=bits,
        TOP_K=top_k,
        RANKS=num_ranks,
        num_warps=max(words // 64, 1),
    )


def combine_sample(ranks: int, generator: torch.Generator, rank: int) -> dict[str, Any]:
    """Arguments for the checker: as of ep_dispatch."""
    plan = sample_plan(ranks, generator, rank)
    return {
        "y": f"bf16[{plan.max_rows}, 20]",
        "out": "bf16[4, 20]",
        "token_ranks": plan.token_ranks,
        "route_row": plan.route_row,
        "route_weight": f"f32[{4 * ranks}, 2]",
        "capacity": 8,
        "num_ranks": ranks,
        "top_k": 2,
        "words": 4,
    }


@ditron.program(
    example={
        "y": "bf16[33792, 7168]",
        "out": "bf16[4096, 7168]",
        "token_ranks": "i32[4096, 2]",
        "route_row": "i32[16384, 8]",
        "route_weight": "f32[16384, 8]",
        "capacity": 4096,
        "num_ranks": 4,
        "top_k": 8,
    },
    sample_args=combine_sample,
    max_nodes=1,
    do_not_specialize=("token_ranks", "route_row", "route_weight"),
)
def ep_combine_program(
    y,
    out,
    token_ranks,
    route_row,
    route_weight,
    capacity,
    *,
    num_ranks,
    top_k,
    words=256,
):
    """``out`` [tokens, H] = own tokens' part of the sum over ranks and routes of ``y`` [max_rows, H] by
    ``route_weight``.

    ``token_ranks``, ``route_row`` and ``route_weight``: of a plan. Memory is kept for up to ``capacity`` tokens of a
    rank. A program has ``words`` of a token's sum.
    """
    launch_combine(y, out, token_ranks, (route_row, route_weight), capacity, num_ranks, top_k, words)


def _operand(
    what: str, group: Group, name: str, tensor: torch.Tensor, rows: int, of: str, *, quantized: bool = False
) -> None:
    """Raise DitronError for what is no matrix of ``rows`` rows."""
    require_tensor(what, name, tensor)
    if tensor.ndim != 2 or tensor.numel() == 0 or tensor.dtype not in (DTYPES + QUANTIZED if quantized else DTYPES):
        with_quantized = ", float8_e4m3fn, float8_e5m2 or int8" if quantized else ""
        raise DitronError(
            f"{what}: {name} must be a matrix with elements, of bfloat16, float16 or float32{with_quantized}, got "
            f"{tuple(tensor.shape)} of {tensor.dtype}"
        )
    if tensor.device != group.device:
        raise DitronError(f"{what}: {name} is on {tensor.device}, and this rank's device is {group.device}")
    if tensor.shape[0] != rows:
        raise DitronError(f"{what}: {name} has {tensor.shape[0]} rows, and the plan is for {rows} {of}")


def _tables(what: str, plan: Plan) -> list[torch.Tensor]:
    if not isinstance(plan, Plan):
        raise DitronError(f"{what}: plan must be a Plan, got {type(plan).__name__}: make one with moe_plan")
    return plan.tables


def ep_dispatch(
    x: torch.Tensor,
    plan: Plan,
    *,
    scale_x: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    scale_out: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The tokens of all ranks that this rank's experts compute, a row for each route, sorted by expert.

    Args:
        x: ``[tokens, H]``, this rank's tokens, as many as the plan is for. bfloat16, float16 or float32; or of a
            quantized dtype.
        plan: of these tokens' experts (:func:`moe_plan`).
        scale_x: ``[tokens, S]``, scales of the tokens (:func:`quantize_1x128`), which go with them. bfloat16, float16
            or float32. There are no gradients then.
        out, scale_out: ``[plan.max_rows, H]`` and ``[plan.max_rows, S]``, written if given.
        group: the ranks; default the current group. To other nodes rows go by puts.
        schedule: keyword-only arguments of :func:`ep_dispatch_program`, instead of those that would be chosen.

    Returns ``[plan.max_rows, H]``: row i is of route ``plan.row_route[i]``, zeros are padding. Floats keep their bits,
    but NaNs of nothing but ones may become others; with ``scale_x`` also
    the rows' scales, ``[plan.max_rows, S]``. What lies behind the last tile is not written, and of the result's
    gradient not read. A token travels once to each rank that has one of its experts. Collective over the group. Raises
    DitronError for tensors that do not fit.

        rows = ditron.kernels.ep_dispatch(x, plan)
    """
    tables = _tables("ep_dispatch", plan)
    if scale_x is not None:
        require_tensor("ep_dispatch", "x", x)
        require_tensor("ep_dispatch", "scale_x", scale_x)
        if torch.is_grad_enabled() and (x.requires_grad or scale_x.requires_grad):
            raise DitronError(
                "ep_dispatch: with scale_x= there are no gradients, and x or scale_x requires one: call it under "
                "torch.no_grad()"
            )
        tables = [table.detach() for table in tables]  # a plan's weights are not dispatched
        return ep_dispatch_rows_1x128(x, scale_x, tables, out=out, scale_out=scale_out, group=group, **schedule)
    if scale_out is not None:
        raise DitronError("ep_dispatch: scale_out= is given, and no scale_x=")
    return ep_dispatch_rows(x, tables, out=out, group=group, **schedule)


@torch_operator()
@repeatable
def ep_dispatch_rows(
    x: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> torch.Tensor:
    """:func:`ep_dispatch` with the tables of a plan."""
    with in_group(group, "ep_dispatch") as group:
        return _dispatched(x, None, Plan.of(tables), out, None, group, schedule)[0]


@torch_operator()
@repeatable
def ep_dispatch_rows_1x128(
    x: torch.Tensor,
    scale_x: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    out: torch.Tensor | None = None,
    scale_out: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`ep_dispatch` of tokens with scales, with the tables of a plan."""
    with in_group(group, "ep_dispatch") as group:
        return _dispatched(x, scale_x, Plan.of(tables), out, scale_out, group, schedule)


def _dispatched(
    x: torch.Tensor,
    scale_x: torch.Tensor | None,
    plan: Plan,
    out: torch.Tensor | None,
    scale_out: torch.Tensor | None,
    group: Group,
    schedule: dict[str, Any],
) -> Any:
    """Rows and, with ``scale_x``, their scales."""
    what, tokens = "ep_dispatch", len(plan.route_row) // group.num_ranks
    _operand(what, group, "x", x, tokens, "tokens", quantized=True)
    program = ep_dispatch_program if len(group.nodes) == 1 else ep_dispatch_nodes_program
    check_schedule(what, schedule, program)
    inputs = {"x": x}
    if scale_x is not None:
        _operand(what, group, "scale_x", scale_x, tokens, "tokens")
        inputs["scale_x"] = scale_x
        shape = (plan.max_rows, scale_x.shape[1])
        scale_out = result(what, shape, scale_x, scale_out, called="scale_out", out=out, **inputs)
    out = result(what, (plan.max_rows, x.shape[1]), x, out, **inputs)
    if program is ep_dispatch_nodes_program and scale_x is not None:
        _dispatched(scale_x, None, plan, scale_out, None, group, schedule)
        scale_x = None
    moved, rows = aligned(x), out
    if x.itemsize == 1:  # one program moves bytes of any meaning
        moved, rows = moved.view(torch.int8), rows.view(torch.int8)
    chosen: dict[str, Any]
    of_tokens: tuple[Any, ...] = ()
    scaled: tuple[Any, ...] = ()
    capacity = capacity_for(tokens)
    if program is ep_dispatch_program:
        of_tokens = (plan.token_ranks,)
        scaled = (None, None) if scale_x is None else (aligned(scale_x), scale_out)
        word = 8 if x.is_floating_point() else 4  # bytes of data in it
        of_token = -(-x[0].nbytes // word) + (0 if scale_x is None else -(-scale_x[0].nbytes // word))
        chosen = {"words": words_at_once(of_token), "padding_programs": 2 * group.sms}
        chosen |= {"floats": x.is_floating_point(), "scales": 0 if scale_x is None else scale_x.shape[1]}
        if group.small_shapes:
            chosen |= {"words": 64, "padding_programs": 3}
    else:
        chosen = {"senders": 2 * group.sms, "programs": 4 * group.sms, "block": 16}
        if group.small_shapes:
            chosen |= {"senders": 3, "programs": 3, "num_warps": 4}
        chosen |= schedule
        if chosen["block"] & (chosen["block"] - 1):
            raise DitronError(f"{what}: block must be a power of two, got {chosen['block']}")
        capacity = max(capacity, chosen["block"])
    chosen |= schedule
    run_step(
        program,
        moved,
        rows,
        *of_tokens,
        plan.route_row,
        plan.row_slot,
        plan.num_tiles,
        *scaled,
        capacity,
        width=x.shape[1],
        num_ranks=group.num_ranks,
        top_k=plan.route_row.shape[1],
        block_m=plan.block_m,
        **chosen,
    )
    return out, scale_out


def ep_combine(
    y: torch.Tensor,
    plan: Plan,
    *,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> torch.Tensor:
    """This rank's tokens, each the weighted sum of its rows on all ranks.

    Args:
        y: ``[plan.max_rows, H]``, what the experts have made of the rows of :func:`ep_dispatch`. What lies between and
            behind the experts' rows counts for nothing. bfloat16, float16 or float32.
        plan: of these rows, with the weight of each route.
        out: ``[tokens, H]``, written if given.
        group: the ranks; default the current group. To other nodes rows go by puts.
        schedule: keyword-only arguments of :func:`ep_combine_program`, instead of those that would be chosen.

    Returns ``[tokens, H]``, as many as the plan is for. A rank adds a token's rows by weight in fp32, in order of its
    routes, and rounds once; the ranks' sums are added in fp32, in their order. The weights of :func:`moe_plan` have
    gradients too. Collective over the group. Raises DitronError for tensors that do not fit.

        y = ditron.kernels.ep_combine(experts(rows), plan)
    """
    return ep_combine_rows(y, _tables("ep_combine", plan), out=out, group=group, **schedule)


@torch_operator()
@repeatable
def ep_combine_rows(
    y: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> torch.Tensor:
    """:func:`ep_combine` with the tables of a plan."""
    plan = Plan.of(tables)
    with in_group(group, "ep_combine") as group:
        _operand("ep_combine", group, "y", y, plan.max_rows, "rows")
        program = ep_combine_program if len(group.nodes) == 1 else ep_combine_nodes_program
        check_schedule("ep_combine", schedule, program)
        tokens, H = len(plan.route_row) // group.num_ranks, y.shape[1]
        out = result("ep_combine", (tokens, H), y, out, y=y)
        chosen: dict[str, Any] = {"words": words_at_once(-(-H * y.itemsize // 8))}
        if program is ep_combine_nodes_program:
            chosen = {"programs": 2 * group.sms, "splits": -(-H // 2048), "adders": 4 * group.sms}
            if group.small_shapes:
                chosen = {"programs": 3, "sums": (8, 32), "num_warps": 4, "adders": 3}
        run_step(
            program,
            aligned(y),
            out,
            *([plan.token_ranks] if program is ep_combine_program else []),
            plan.route_row,
            plan.route_weight,
            capacity_for(tokens),
            num_ranks=group.num_ranks,
            top_k=plan.route_row.shape[1],
            **chosen | schedule,
        )
        return out
