"""Backward of the second product of a mixture of experts, and of the layer: gradients of rows, matrices and weights."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.ag_moe import ag_moe, tiles_for
from ditron.kernels.all_gather import all_gather
from ditron.kernels.expert_activation import swiglu_rows
from ditron.kernels.grouped import expert_tile, grouped_product, store_grouped
from ditron.kernels.moe_gradients import ag_moe_backward, experts_gradient_kernel
from ditron.kernels.moe_plan import moe_plan
from ditron.kernels.moe_rs import moe_rs
from ditron.kernels.operands import aligned, in_group
from ditron.kernels.reduce_scatter import reduce_scatter
from ditron.kernels.routing import Plan
from ditron_compiler.errors import DitronError

__all__ = ["LayerFunction", "moe_rs_backward"]


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
    GATED: tl.constexpr,
):
    """From ``product`` [max_rows, N], the gradient of what a row's weight is multiplied by: that of ``rows``, that of
    the weight, and ``weighted`` [max_rows, N], the rows times their weights.

    ``rows`` [max_rows, N] are the second product's; with ``GATED`` they are SwiGLU of ``rows`` [max_rows, 2 * N].
    """
    for block in range(tl.program_id(0), tl.load(num_tiles_ptr) * (BLOCK_M // ROWS), tl.num_programs(0)):
        row = block * ROWS + tl.arange(0, ROWS)
        route = tl.load(row_route_ptr + row)
        weight = tl.load(route_weight_ptr + tl.maximum(route, 0), mask=route >= 0, other=0.0)[:, None]
        row = row.to(tl.int64)[:, None]
        grad_weight = tl.zeros((ROWS,), tl.float32)
        for begin in range(0, N, COLS):
            col = begin + tl.arange(0, COLS)[None, :]
            mask = (route >= 0)[:, None] & (col < N)
            at = row * N + col
            product = tl.load(product_ptr + at, mask=mask, other=0.0).to(tl.float32)
            if GATED:
                at_gate = row * (2 * N) + col
                gate = tl.load(rows_ptr + at_gate, mask=mask, other=0.0).to(tl.float32)
                up = tl.load(rows_ptr + at_gate + N, mask=mask, other=0.0).to(tl.float32)
                sigmoid = tl.sigmoid(gate)
                hidden = gate * sigmoid * up
                grad = product * weight
                grad_gate = grad * up * sigmoid * (1 + gate * (1 - sigmoid))
                grad_up = grad * gate * sigmoid
                tl.store(grad_rows_ptr + at_gate, grad_gate.to(grad_rows_ptr.dtype.element_ty), mask=col < N)
                tl.store(grad_rows_ptr + at_gate + N, grad_up.to(grad_rows_ptr.dtype.element_ty), mask=col < N)
            else:
                hidden = tl.load(rows_ptr + at, mask=mask, other=0.0).to(tl.float32)
                tl.store(grad_rows_ptr + at, (product * weight).to(grad_rows_ptr.dtype.element_ty), mask=col < N)
            grad_weight += tl.sum(product * hidden, 1)
            tl.store(weighted_ptr + at, (hidden * weight).to(weighted_ptr.dtype.element_ty), mask=col < N)
        tl.store(grad_weight_ptr + route, grad_weight, mask=route >= 0)


def _backward(
    grad: torch.Tensor, rows: torch.Tensor, w: torch.Tensor, plan: Plan, group: Group, gated: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of ``rows``, of ``w`` and of this rank's tokens' weights; ``gated`` as of :func:`rows_kernel`."""
    tokens, top_k = plan.route_row.shape
    planned, (experts, K, N) = tokens // group.num_ranks, w.shape
    everyone = all_gather(torch.nn.functional.pad(aligned(grad), (0, 0, 0, planned - len(grad))))
    tiles = tiles_for(plan.block_m, group.is_sim)
    BM, BN, BK = tiles["block"]
    product, weighted = (torch.empty(plan.max_rows, N, dtype=rows.dtype, device=rows.device) for _ in range(2))
    tokens_product_kernel[(tiles["programs"],)](
        everyone,
        TensorDescriptor.from_tensor(aligned(w).view(-1, N), [BK, BN]),
        product,
        TensorDescriptor.from_tensor(product[None], [1, BM, BN // 2]),
        plan.row_route,
        plan.tiles,
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
    programs, columns = (2, 32) if group.is_sim else (8 * group.sms, 512)
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
        GATED=gated,
        num_warps=4,
    )
    # Its rows are [experts, N, K]: the transposed gradient.
    BN, BK, ROWS, warps = (32, 32, 16, 4) if group.is_sim else (128, 256, min(64, plan.block_m), 8)
    grad_w = torch.empty(experts, N, K, dtype=w.dtype, device=w.device)
    experts_gradient_kernel[(-(-K // BK), -(-N // BN), experts)](
        weighted,
        everyone,
        grad_w,
        plan.row_route,
        plan.expert_rows,
        top_k,
        N,
        K,
        BN=BN,
        BK=BK,
        ROWS=ROWS,
        num_warps=warps,
        num_stages=5,
    )
    return grad_rows, grad_w.transpose(1, 2).contiguous(), reduce_scatter(grad_weights)[: len(grad)]


def moe_rs_backward(
    grad: torch.Tensor, rows: torch.Tensor, w: torch.Tensor, plan: Plan, *, group: AnyGroup = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All gradients of :func:`moe_rs`.

    Args:
        grad: ``[tokens, H]``, of the result. rows: ``[plan.max_rows, K]``. w: ``[plan.experts, H, K]``. plan: as of
            moe_rs.
        group: the ranks; default the current group. One node.

    Returns the gradients of ``rows``, zero where padding is, of ``w``, and of the weights of this rank's tokens, fp32
    ``[tokens, top_k]``. Collective over the group. Raises DitronError for tensors that do not fit.

        grad_hidden, grad_w2, grad_weights = ditron.kernels.moe_rs_backward(grad, hidden, w2, plan)
    """
    with in_group(group, "moe_rs_backward") as group:
        planned = len(plan.route_row) // group.num_ranks
        if grad.shape[1:] != w.shape[1:2] or len(grad) > planned or not grad.dtype == rows.dtype == w.dtype:
            raise DitronError(
                f"moe_rs_backward: expected grad, rows and w of one dtype, grad of at most [{planned}, {w.shape[1]}], "
                f"got grad {list(grad.shape)} of {grad.dtype}, rows of {rows.dtype} and w of {w.dtype}"
            )
        if rows.shape != (plan.max_rows, w.shape[2]):
            raise DitronError(f"moe_rs_backward: expected rows [{plan.max_rows}, {w.shape[2]}], got {list(rows.shape)}")
        return _backward(grad, rows, w, plan, group, gated=False)


class LayerFunction(torch.autograd.Function):
    """``ep_moe`` with gradients: the rows of the first product are kept, and what SwiGLU makes of them is not."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        topk_ids: torch.Tensor,
        topk_weights: torch.Tensor | None,
        w13: torch.Tensor,
        w2: torch.Tensor,
        options: dict[str, Any],
        group: Group,
    ) -> torch.Tensor:
        plan = moe_plan(topk_ids, topk_weights, **options)
        rows = ag_moe(x, w13, plan)
        y = moe_rs(swiglu_rows(rows, plan, group), w2, plan)[: len(x)]
        ctx.save_for_backward(x, rows, w13, w2)
        ctx.plan, ctx.group = plan, group
        ctx.weights_dtype = None if topk_weights is None else topk_weights.dtype
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, rows, w13, w2 = ctx.saved_tensors
        with in_group(ctx.group, "ep_moe"):
            grad_rows, grad_w2, grad_weights = _backward(grad, rows, w2, ctx.plan, ctx.group, gated=True)
            grad_x, grad_w13 = ag_moe_backward(grad_rows, x, w13, ctx.plan)
        weights = None if ctx.weights_dtype is None else grad_weights.to(ctx.weights_dtype)
        return grad_x, None, weights, grad_w13, grad_w2, None, None
