"""A grouped product of rows that lie in the order of their experts, as ep_dispatch brings them; it sends nothing."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import is_plain_call, torch_operator
from ditron.kernels.expert_activation import check_activation, swiglu_rows
from ditron.kernels.expert_schedules import programs_at_once, tiles_for
from ditron.kernels.grouped import (
    expert_tile,
    grouped_product,
    scale_of_rows,
    scale_of_weights,
    store_grouped,
    weights_descriptor,
)
from ditron.kernels.operands import aligned, grouped_operands, in_group
from ditron.kernels.repeated import repeatable, run_step, scratch
from ditron.kernels.routing import Plan, tables_on_host
from ditron.kernels.tiles import MAX_REGISTERS, shards_descriptor
from ditron_compiler.errors import DitronError

__all__ = ["grouped_mm", "grouped_mm_program", "grouped_mm_rows", "product_of_rows"]


@ditron.jit
def rows_product_kernel(
    rows_desc,
    w_desc,
    scale_rows_ptr,
    scale_w_ptr,
    out_ptr,
    out_desc,
    tiles_ptr,
    num_tiles_ptr,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    WHOLE_K: tl.constexpr,
    SWAP_AB: tl.constexpr,
    W_IS_KN: tl.constexpr,
    SCALED: tl.constexpr,
    GATED: tl.constexpr = False,
):
    """``out`` [max_rows, N] = rows [max_rows, K] times their experts' matrices of ``w`` [experts * N, K] transposed, or
    with ``W_IS_KN`` of ``w`` [experts * K, N], or with ``GATED`` SwiGLU of those of ``w`` [experts * 2 * N, K].
    """
    BN_OUT: tl.constexpr = BN // 2 if GATED else BN
    tiles_n = tl.cdiv(N, BN_OUT)
    for tile in tl.range(tl.program_id(0), tl.load(num_tiles_ptr) * tiles_n, PROGRAMS, flatten=True):
        m, n, expert, _, _ = expert_tile(tile, tiles_n, tiles_ptr, GROUP)
        col = n * BN_OUT
        if GATED:
            w_row = expert
        else:
            w_row = expert * K if W_IS_KN else expert * N + col
        scale_rows = None
        scale_w = None
        if SCALED:
            scale_rows = scale_of_rows(scale_rows_ptr, m * BM, K, BM)
            scale_w = scale_of_weights(scale_w_ptr, expert, col, N, K)
        acc = grouped_product(
            rows_desc,
            m * BM,
            None,
            w_desc,
            w_row,
            K,
            BM,
            BN,
            BK,
            False,
            WHOLE_K,
            SWAP_AB,
            W_IS_KN,
            col,
            GATED,
            scale_rows,
            scale_w,
            SCALED,
        )
        store_grouped(out_ptr, out_desc, m * BM, col, acc, N, BN_OUT // (BN // 2), SWAP_AB)


def sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: two experts, tokens with none, one or both of them."""
    tokens, experts = 20, 2
    scores = torch.rand(tokens, experts + 2, generator=generator)
    ids = scores.topk(2).indices
    plan = tables_on_host(torch.where(ids < experts, ids, -1).expand(ranks, -1, -1), 0, 0, experts, 16)
    gated = bool(torch.rand(1, generator=generator) < 0.5)
    return {
        "rows": f"bf16[{plan.max_rows}, 32]",
        "w": f"bf16[{experts * 48}, 32]",
        "out": f"bf16[{plan.max_rows}, {24 if gated else 48}]",
        "tiles": plan.tiles_by_expert,
        "num_tiles": plan.num_tiles,
        "scale_rows": None,
        "scale_w": None,
        "gated": gated,
        "block": (16, 32, 32),
        "programs": 3,
        "whole_k": True,
    }


@ditron.program(
    example={
        "rows": "bf16[33792, 7168]",
        "w": "bf16[262144, 7168]",
        "out": "bf16[33792, 4096]",
        "tiles": "i32[264, 6]",
        "num_tiles": "i32[1]",
        "scale_rows": None,
        "scale_w": None,
        "whole_k": True,
    },
    sample_args=sample,
    do_not_specialize=("tiles",),
)
def grouped_mm_program(
    rows,
    w,
    out,
    tiles,
    num_tiles,
    scale_rows,
    scale_w,
    *,
    whole_k,
    w_is_kn=False,
    gated=False,
    block=(128, 256, 64),
    programs=132,
    swap_ab=False,
    group_m=8,
    num_warps=8,
    stages=4,
    maxnreg=None,
):
    """``out`` [max_rows, N] = ``rows`` [max_rows, K] times their experts' matrices of ``w`` [experts * N, K]
    transposed, or with ``w_is_kn`` of ``w`` [experts * K, N].

    ``tiles`` and ``num_tiles``: of a plan for ``block[0]`` rows in a tile. ``whole_k``: K is a multiple of
    ``block[2]``. ``swap_ab``: as of :func:`ditron.kernels.grouped.grouped_product`. ``scale_rows`` [max_rows, K / 128]
    and ``scale_w`` [experts * N / 128, K / 128]: of quantized ``rows`` and ``w``. ``gated``: ``out`` are SwiGLU of the
    products with ``w`` [experts * 2 * N, K], in which each expert's N gates come first.
    """
    K, N = rows.shape[1], out.shape[1]
    BM, BN, BK = block
    if maxnreg is None and gated and num_warps == 8:
        maxnreg = MAX_REGISTERS
    rows_product_kernel[(programs,)](
        TensorDescriptor.from_tensor(rows, [BM, BK]),
        TensorDescriptor.from_tensor(w, [BK, BN]) if w_is_kn else weights_descriptor(w, N, BN, BK, gated, swap_ab),
        scale_rows,
        scale_w,
        out,
        shards_descriptor(out, 1, out.shape[0], N, (BM, BN // 2)),
        tiles,
        num_tiles,
        N,
        K,
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=group_m,
        PROGRAMS=programs,
        WHOLE_K=whole_k,
        SWAP_AB=swap_ab,
        W_IS_KN=w_is_kn,
        SCALED=scale_rows is not None,
        GATED=gated,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )


def product_of_rows(
    rows: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    group: Group,
    *,
    w_is_kn: bool,
    gated: bool = False,
    scales: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """``[max_rows, N]``, ``rows`` [max_rows, K] times their experts' matrices of ``w`` [experts, N, K] transposed, or
    with ``w_is_kn`` of ``w`` [experts, K, N], or ``gated`` SwiGLU of those of ``w`` [experts, 2 * N, K]; ``scales`` of
    quantized rows and matrices.
    """
    rows, w = aligned(rows), aligned(w)
    K, N = rows.shape[1], w.shape[2 if w_is_kn else 1] // (2 if gated else 1)
    chosen = tiles_for(plan.block_m, group.small_shapes, scales is not None)
    if not group.small_shapes:
        chosen["programs"] = programs_at_once(group, plan.block_m, scales is not None, {})
    chosen |= {"w_is_kn": w_is_kn, "gated": gated, "whole_k": K % chosen["block"][2] == 0}
    out = scratch((plan.max_rows, N), rows, rows.dtype if scales is None else torch.bfloat16)
    of_rows = (None, None) if scales is None else map(aligned, scales)
    of_tiles = plan.tiles_by_expert, plan.num_tiles
    run_step(grouped_mm_program, rows, w.view(-1, w.shape[2]), out, *of_tiles, *of_rows, **chosen)
    return out


def grouped_mm(
    rows: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    *,
    scale_rows: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
    activation: str | None = None,
    group: AnyGroup = None,
) -> torch.Tensor:
    """Each row times the transposed matrix of its expert, on this rank.

    Args:
        rows: ``[plan.max_rows, K]``, sorted by expert, as :func:`ep_dispatch` returns them.
        w: ``[plan.experts, N, K]``, this rank's experts. Both bfloat16 or float16; or float8_e4m3fn with scales, as of
            :func:`ag_moe`.
        plan: of these rows (:func:`moe_plan`).
        scale_rows, scale_w: ``[plan.max_rows, K / 128]`` and ``[plan.experts, N / 128, K / 128]`` float32, the latter
            rounded up, of quantized tensors; the result is bfloat16 and has no gradients.
        activation: ``"swiglu"``: of an expert's N rows the first half are gates, and a row of the result is SiLU of its
            products with them times its products with the others, ``[N / 2]``, rounded once; twice where gradients are
            recorded. Not of quantized tensors.
        group: the ranks of the plan; default the current group.

    Returns ``[plan.max_rows, N]``, or as many columns as the activation leaves, of which a row has a multiple of 16
    bytes. What lies behind the rows of the experts is neither read nor written. Raises DitronError for tensors that do
    not fit.

        hidden = ditron.kernels.grouped_mm(ditron.kernels.ep_dispatch(x, plan), w, plan)
    """
    if not isinstance(plan, Plan):
        raise DitronError(f"grouped_mm: plan must be a Plan, got {type(plan).__name__}: make one with moe_plan")
    scales = {"scale_rows": scale_rows, "scale_w": scale_w}
    check_activation("grouped_mm", activation, w, scale_rows is not None)
    if activation is not None and not is_plain_call((rows, w, plan.tables)):
        hidden = grouped_mm_rows(rows, w, plan.tables, **scales, group=group)  # which the gradient needs
        return swiglu_rows(hidden, plan.tables, group=group)
    return grouped_mm_rows(rows, w, plan.tables, **scales, activation=activation, group=group)


@torch_operator("scale_rows", "scale_w")
@repeatable
def grouped_mm_rows(
    rows: torch.Tensor,
    w: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    scale_rows: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
    activation: str | None = None,
    group: AnyGroup = None,
) -> torch.Tensor:
    """:func:`grouped_mm` with the tables of a plan."""
    plan = Plan.of(tables)
    with in_group(group, "grouped_mm") as group:
        grouped_operands("grouped_mm", group, "rows", rows, w, scale_rows, scale_w)
        if len(rows) != plan.max_rows or len(w) != plan.experts:
            raise DitronError(
                f"grouped_mm: there are {len(rows)} rows and {len(w)} experts, and the plan is for {plan.max_rows} and "
                f"{plan.experts}"
            )
        gated, N = activation is not None, w.shape[1]
        if N * rows.element_size() % (32 if gated else 16) and scale_rows is None:
            columns = N // 2 if gated else N
            raise DitronError(f"grouped_mm: the result has {columns} columns: expected a multiple of 16 bytes")
        scales = None if scale_rows is None or scale_w is None else (scale_rows, scale_w)
        return product_of_rows(rows, w, plan, group, w_is_kn=False, gated=gated, scales=scales)
