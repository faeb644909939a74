"""A grouped product of rows that lie in the order of their experts, as ep_dispatch brings them; it sends nothing."""

from __future__ import annotations

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.expert_schedules import programs_at_once, tiles_for
from ditron.kernels.grouped import expert_tile, grouped_product, scale_of_rows, scale_of_weights, store_grouped
from ditron.kernels.operands import aligned, grouped_operands, in_group
from ditron.kernels.routing import Plan
from ditron_compiler.errors import DitronError

__all__ = ["grouped_mm", "grouped_mm_rows", "product_of_rows"]


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
):
    """``out`` [max_rows, N] = rows [max_rows, K] times their experts' matrices of ``w`` [experts * N, K] transposed, or
    with ``W_IS_KN`` of ``w`` [experts * K, N].
    """
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.load(num_tiles_ptr) * tiles_n, PROGRAMS, flatten=True):
        m, n, expert, _, _ = expert_tile(tile, tiles_n, tiles_ptr, GROUP)
        w_row = expert * K if W_IS_KN else expert * N + n * BN
        scale_rows = None
        scale_w = None
        if SCALED:
            scale_rows = scale_of_rows(scale_rows_ptr, m * BM, K, BM)
            scale_w = scale_of_weights(scale_w_ptr, expert, n * BN, N, K)
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
            n * BN,
            False,
            scale_rows,
            scale_w,
            SCALED,
        )
        store_grouped(out_ptr, out_desc, m * BM, n * BN, acc, N, 2, SWAP_AB)


def product_of_rows(
    rows: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    group: Group,
    *,
    w_is_kn: bool,
    scales: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """``[max_rows, N]``, ``rows`` [max_rows, K] times their experts' matrices of ``w`` [experts, N, K] transposed, or
    with ``w_is_kn`` of ``w`` [experts, K, N]; ``scales`` of quantized rows and matrices.
    """
    rows, w = aligned(rows), aligned(w)
    K, N = rows.shape[1], w.shape[2 if w_is_kn else 1]
    tiles = tiles_for(plan.block_m, group.small_shapes, scales is not None)
    BM, BN, BK = tiles["block"]
    dtype = rows.dtype if scales is None else torch.bfloat16
    out = torch.empty(plan.max_rows, N, dtype=dtype, device=rows.device)
    programs = tiles["programs"]
    if not group.small_shapes:
        programs = programs_at_once(group, plan.block_m, scales is not None, {})
    rows_product_kernel[(programs,)](
        TensorDescriptor.from_tensor(rows, [BM, BK]),
        TensorDescriptor.from_tensor(w.view(-1, w.shape[2]), [BK, BN] if w_is_kn else [BN, BK]),
        *((None, None) if scales is None else map(aligned, scales)),
        out,
        TensorDescriptor.from_tensor(out[None], [1, BM, BN // 2]),
        plan.tiles,
        plan.num_tiles,
        N,
        K,
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=tiles.get("group_m", 8),
        PROGRAMS=programs,
        WHOLE_K=K % BK == 0,
        SWAP_AB=tiles["swap_ab"],
        W_IS_KN=w_is_kn,
        SCALED=scales is not None,
        num_warps=tiles.get("num_warps", 8),
        num_stages=tiles.get("stages", 4),
        maxnreg=tiles.get("maxnreg"),
    )
    return out


def grouped_mm(
    rows: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    *,
    scale_rows: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
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
        group: the ranks of the plan; default the current group.

    Returns ``[plan.max_rows, N]``. What lies behind the rows of the experts is neither read nor written. Raises
    DitronError for tensors that do not fit.

        hidden = ditron.kernels.grouped_mm(ditron.kernels.ep_dispatch(x, plan), w, plan)
    """
    if not isinstance(plan, Plan):
        raise DitronError(f"grouped_mm: plan must be a Plan, got {type(plan).__name__}: make one with moe_plan")
    return grouped_mm_rows(rows, w, plan.tables, scale_rows=scale_rows, scale_w=scale_w, group=group)


@torch_operator("scale_rows", "scale_w")
def grouped_mm_rows(
    rows: torch.Tensor,
    w: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    scale_rows: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
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
        scales = None if scale_rows is None or scale_w is None else (scale_rows, scale_w)
        return product_of_rows(rows, w, plan, group, w_is_kn=False, scales=scales)
