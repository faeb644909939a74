"""Backward of products of a mixture of experts: gradients of tokens or rows, and of the experts' matrices."""

from __future__ import annotations

from dataclasses import replace

import torch
import triton.language as tl

import ditron
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_gather import all_gather
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.grouped_mm import product_of_rows
from ditron.kernels.operands import aligned, in_group, reaches_by_tma
from ditron.kernels.reduce_scatter import reduce_scatter
from ditron.kernels.routing import Plan
from ditron_compiler.errors import DitronError

__all__ = ["ag_moe_backward", "ag_moe_rows_backward", "grouped_mm_rows_backward"]


@ditron.jit
def sum_routes_kernel(rows_ptr, out_ptr, route_row_ptr, tokens, K, TOP_K: tl.constexpr, BLOCK: tl.constexpr):
    """``out`` [tokens, K] = the sums, in fp32 and in order, of the rows of each token's routes; -1 is none."""
    token = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(TOP_K):
        row = tl.load(route_row_ptr + token * TOP_K + j).to(tl.int64)
        part = tl.load(rows_ptr + row * K + column, mask=(column < K) & (row >= 0), other=0.0)
        total += part.to(tl.float32)
    at = token.to(tl.int64) * K + column
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=column < K)


@ditron.jit
def experts_gradient_kernel(
    grad_ptr,
    x_ptr,
    out_ptr,
    row_route_ptr,
    expert_rows_ptr,
    top_k,
    N,
    K,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """``out`` [experts, N, K] = of each expert the sum over its rows of ``grad`` [max_rows, N] times their tokens of
    ``x`` [tokens of all ranks, K]; padding counts for nothing, whatever ``grad`` has there.
    """
    expert = tl.program_id(2)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    acc = tl.zeros((BN, BK), tl.float32)
    for begin in range(tl.load(expert_rows_ptr + expert), tl.load(expert_rows_ptr + expert + 1), ROWS):
        row = begin + tl.arange(0, ROWS)
        route = tl.load(row_route_ptr + row)
        exists = (route >= 0)[:, None]
        grad = tl.load(grad_ptr + row.to(tl.int64)[:, None] * N + n[None, :], mask=exists & (n < N)[None, :], other=0.0)
        token = (tl.maximum(route, 0) // top_k).to(tl.int64)
        x = tl.load(x_ptr + token[:, None] * K + k[None, :], mask=exists & (k < K)[None, :], other=0.0)
        acc = tl.dot(grad.T, x, acc)
    at = (expert.to(tl.int64) * N + n)[:, None] * K + k[None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=(n < N)[:, None] & (k < K)[None, :])


def ag_moe_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    *,
    of_x: bool = True,
    of_w: bool = True,
    group: AnyGroup = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both gradients of :func:`ag_moe`.

    Args:
        grad: ``[plan.max_rows, N]``, of the result. x: ``[tokens, K]``. w: ``[plan.experts, N, K]``. plan: as ag_moe's.
        of_x: whether that of x is wanted, the same on every rank. of_w: of w. What is not has no elements.
        group: the ranks; default the current group. One node.

    Returns the gradients of ``x``: of each token the sum over its routes, rounded once on each rank and added in fp32;
    and of ``w``. All ranks' tokens are gathered again. Collective over the group.

        grad_x, grad_w13 = ditron.kernels.ag_moe_backward(grad_rows, x, w13, plan)
    """
    return ag_moe_rows_backward(grad, x, w, plan.tables, of_x=of_x, of_w=of_w, group=group)


@torch_operator("of_x", "of_w")
def ag_moe_rows_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    of_x: bool = True,
    of_w: bool = True,
    group: AnyGroup = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`ag_moe_backward` with the tables of a plan."""
    plan = Plan.of(tables)
    with in_group(group, "ag_moe_backward") as group:
        if grad.shape != (plan.max_rows, w.shape[1]) or grad.dtype != x.dtype or w.dtype != x.dtype:
            raise DitronError(
                f"ag_moe_backward: expected grad and w of {x.dtype}, grad [{plan.max_rows}, {w.shape[1]}], got grad "
                f"{list(grad.shape)} of {grad.dtype} and w of {w.dtype}"
            )
        return (
            tokens_gradient(grad, x, w, plan, group) if of_x else x.new_empty(0),
            experts_gradient(grad, x, w, plan, group) if of_w else w.new_empty(0),
        )


def tokens_gradient(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, plan: Plan, group: Group) -> torch.Tensor:
    """Of :func:`ag_moe_backward`, the first."""
    (_, N, K), grad, w = w.shape, aligned(grad), aligned(w)
    if not reaches_by_tma(grad, w):
        raise DitronError(f"ag_moe_backward: rows of {N} x {K} elements: expected multiples of 16 bytes")
    rows = product_of_rows(grad, w, plan, group, w_is_kn=True)
    tokens, top_k = plan.route_row.shape
    sums = torch.empty(tokens, K, dtype=grad.dtype, device=grad.device)
    BLOCK = 64 if group.small_shapes else 1024
    sum_routes_kernel[(tokens, -(-K // BLOCK))](rows, sums, plan.route_row, tokens, K, TOP_K=top_k, BLOCK=BLOCK)
    return reduce_scatter(sums)[: len(x)]


def experts_gradient(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, plan: Plan, group: Group) -> torch.Tensor:
    """Of :func:`ag_moe_backward`, the second."""
    missing = len(plan.route_row) // group.num_ranks - len(x)
    everyone = all_gather(aligned(torch.nn.functional.pad(x, (0, 0, 0, missing)) if missing else x))
    return sum_products_of_experts(aligned(grad), everyone, plan, group)


def sum_products_of_experts(grad: torch.Tensor, x: torch.Tensor, plan: Plan, group: Group) -> torch.Tensor:
    """``[experts, N, K]``, of each expert the sum over its rows of ``grad`` [max_rows, N] times their tokens of ``x``
    [tokens of all ranks, K].
    """
    N, K = grad.shape[1], x.shape[1]
    BN, BK, ROWS, warps = (32, 32, 16, 4) if group.small_shapes else (128, 256, min(64, plan.block_m), 8)
    out = torch.empty(plan.experts, N, K, dtype=grad.dtype, device=grad.device)
    experts_gradient_kernel[(-(-K // BK), -(-N // BN), plan.experts)](
        grad,
        x,
        out,
        plan.row_route,
        plan.expert_rows,
        plan.route_row.shape[1],
        N,
        K,
        BN=BN,
        BK=BK,
        ROWS=ROWS,
        num_warps=warps,
        num_stages=5,  # buffers of four
    )
    return out


@torch_operator("of_rows", "of_w")
def grouped_mm_rows_backward(
    grad: torch.Tensor,
    rows: torch.Tensor,
    w: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    of_rows: bool = True,
    of_w: bool = True,
    group: AnyGroup = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both gradients of :func:`grouped_mm`; what is not wanted has no elements."""
    plan = Plan.of(tables)
    with in_group(group, "grouped_mm_backward") as group:
        index = torch.arange(plan.max_rows, dtype=torch.int32, device=rows.device)
        each = replace(
            plan, row_route=torch.where(plan.row_route >= 0, index, -1), route_row=plan.route_row.view(-1, 1)
        )
        return (
            product_of_rows(grad, w, plan, group, w_is_kn=True) if of_rows else rows.new_empty(0),
            sum_products_of_experts(aligned(grad), aligned(rows), each, group) if of_w else w.new_empty(0),
        )
