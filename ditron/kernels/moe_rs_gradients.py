"""Backward of the second product of a mixture of experts: gradients of rows, of the experts' matrices, of weights."""

from __future__ import annotations

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_gather import all_gather
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.expert_schedules import tiles_for
from ditron.kernels.grouped import expert_tile, grouped_product, store_grouped
from ditron.kernels.moe_gradients import sum_products_of_experts
from ditron.kernels.operands import aligned, in_group
from ditron.kernels.routing import Plan
from ditron_compiler.errors import DitronError

__all__ = ["moe_rs_backward", "moe_rs_rows_backward"]


@ditron.jit
def tokens_product_kernel(
    grad_ptr,
    w_desc,
    out_ptr,
    out_desc,
    row_route_ptr,
    tiles_ptr,
    num_tiles_ptr,
    top_k,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    WHOLE_K: tl.constexpr,
    SWAP_AB: tl.constexpr,
):
    """``out`` [max_rows, N] = each row's token of ``grad`` [tokens of all ranks, K] times its expert's matrix of ``w``
    [experts * K, N]; zeros for padding.
    """
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.load(num_tiles_ptr) * tiles_n, PROGRAMS, flatten=True):
        m, n, expert, _, _ = expert_tile(tile, tiles_n, tiles_ptr, GROUP)
        route = tl.load(row_route_ptr + m * BM + tl.arange(0, BM))
        token_ptr = grad_ptr + (tl.maximum(route, 0) // top_k).to(tl.int64) * K
        rows = token_ptr[:, None] + tl.arange(0, BK)[None, :]
        acc = grouped_product(
            rows, 0, (route >= 0)[:, None], w_desc, expert * K, K, BM, BN, BK, True, WHOLE_K, SWAP_AB, True, n * BN
        )
        store_grouped(out_ptr, out_desc, m * BM, n * BN, acc, N, 2, SWAP_AB)


@ditron.jit
def rows_kernel(
    product_ptr,
    rows_ptr,
    grad_rows_ptr,
    weighted_ptr,
    grad_weight_ptr,
    row_route_ptr,
    route_weight_ptr,
    num_tiles_ptr,
    N,
    BLOCK_M: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """From ``product`` [max_rows, N], the gradient of what a row's weight is multiplied by: that of ``rows``
    [max_rows, N], that of the weight, and ``weighted`` [max_rows, N], the rows times their weights.
    """
    for block in range(tl.program_id(0), tl.load(num_tiles_ptr) * (BLOCK_M // ROWS), tl.num_programs(0)):
        row = block * ROWS + tl.arange(0, ROWS)
        route = tl.load(row_route_ptr + row)
        weight = tl.load(route_weight_ptr + tl.maximum(route, 0), mask=route >= 0, other=0.0)[:, None]
        grad_weight = tl.zeros((ROWS,), tl.float32)
        for begin in range(0, N, COLS):
            col = begin + tl.arange(0, COLS)[None, :]
            at = row.to(tl.int64)[:, None] * N + col
            mask = (route >= 0)[:, None] & (col < N)
            product = tl.load(product_ptr + at, mask=mask, other=0.0).to(tl.float32)
            value = tl.load(rows_ptr + at, mask=mask, other=0.0).to(tl.float32)
            grad_weight += tl.sum(product * value, 1)
            tl.store(grad_rows_ptr + at, (product * weight).to(grad_rows_ptr.dtype.element_ty), mask=col < N)
            tl.store(weighted_ptr + at, (value * weight).to(weighted_ptr.dtype.element_ty), mask=col < N)
        tl.store(grad_weight_ptr + route, grad_weight, mask=route >= 0)


def moe_rs_backward(
    grad: torch.Tensor, rows: torch.Tensor, w: torch.Tensor, plan: Plan, *, group: AnyGroup = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All gradients of :func:`moe_rs`.

    Args:
        grad: ``[tokens, H]``, of the result. rows: ``[plan.max_rows, K]``. w: ``[plan.experts, H, K]``. plan: as of
            moe_rs.
        group: the ranks; default the current group. One node.

    Returns the gradients of ``rows``, zero where padding is; of ``w``; and of the weights of all ranks' tokens, fp32
    ``[tokens of all ranks, top_k]``, of the routes to this rank's experts. Collective over the group. Raises
    DitronError for tensors that do not fit.

        grad_hidden, grad_w2, grad_weights = ditron.kernels.moe_rs_backward(grad, hidden, w2, plan)
    """
    return moe_rs_rows_backward(grad, rows, w, plan.tables, group=group)


@torch_operator("of_all")
def moe_rs_rows_backward(
    grad: torch.Tensor,
    rows: torch.Tensor,
    w: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    of_all: bool = False,
    group: AnyGroup = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """:func:`moe_rs_backward` with the tables of a plan; ``of_all``: ``grad`` is of all ranks' tokens."""
    plan = Plan.of(tables)
    with in_group(group, "moe_rs_backward") as group:
        planned = len(plan.route_row) // (1 if of_all else group.num_ranks)
        if grad.shape[1:] != w.shape[1:2] or len(grad) > planned or not grad.dtype == rows.dtype == w.dtype:
            raise DitronError(
                f"moe_rs_backward: expected grad, rows and w of one dtype, grad of at most [{planned}, {w.shape[1]}], "
                f"got grad {list(grad.shape)} of {grad.dtype}, rows of {rows.dtype} and w of {w.dtype}"
            )
        if rows.shape != (plan.max_rows, w.shape[2]):
            raise DitronError(f"moe_rs_backward: expected rows [{plan.max_rows}, {w.shape[2]}], got {list(rows.shape)}")
        (tokens, top_k), (_, K, N) = plan.route_row.shape, w.shape
        everyone = torch.nn.functional.pad(aligned(grad), (0, 0, 0, planned - len(grad)))
        if not of_all:
            everyone = all_gather(everyone)
        # Wide tiles of 64 rows, whatever the average is: the product gathers rows, and has run on GPUs with no others.
        tiles = tiles_for(plan.block_m, group.small_shapes, gathered=plan.block_m)
        BM, BN, BK = tiles["block"]
        product, weighted = (torch.empty(plan.max_rows, N, dtype=rows.dtype, device=rows.device) for _ in range(2))
        tokens_product_kernel[(tiles["programs"],)](
            everyone,
            TensorDescriptor.from_tensor(aligned(w).view(-1, N), [BK, BN]),
            product,
            TensorDescriptor.from_tensor(product[None], [1, BM, BN // 2]),
            plan.row_route,
            plan.tiles_by_expert,
            plan.num_tiles,
            top_k,
            N,
            K,
            BM=BM,
            BN=BN,
            BK=BK,
            GROUP=tiles.get("group_m", 8),
            PROGRAMS=tiles["programs"],
            WHOLE_K=K % BK == 0,
            SWAP_AB=tiles["swap_ab"],
            num_warps=tiles.get("num_warps", 8),
            num_stages=tiles.get("stages", 4),
        )
        grad_rows = torch.empty_like(rows)
        grad_weights = torch.zeros(tokens, top_k, dtype=torch.float32, device=rows.device)
        programs, columns = (2, 32) if group.small_shapes else (8 * group.sms, 512)
        rows_kernel[(programs,)](
            product,
            aligned(rows),
            grad_rows,
            weighted,
            grad_weights,
            plan.row_route,
            plan.route_weight,
            plan.num_tiles,
            N,
            BLOCK_M=plan.block_m,
            ROWS=4,
            COLS=columns,
            num_warps=4,
        )
        grad_w = sum_products_of_experts(weighted, everyone, plan, group)  # [experts, N, K]: transposed
        return grad_rows, grad_w.transpose(1, 2).contiguous(), grad_weights
