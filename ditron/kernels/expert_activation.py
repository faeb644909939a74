"""What lies between the two products of a mixture-of-experts layer: an activation of the rows that a plan has."""

from __future__ import annotations

import torch
import triton.language as tl

import ditron
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.operands import aligned, in_group
from ditron.kernels.routing import Plan

__all__ = ["swiglu_rows", "swiglu_rows_backward"]


@ditron.jit
def swiglu_kernel(x_ptr, out_ptr, num_tiles_ptr, N, BLOCK_M: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """``out`` [max_rows, N] = silu of ``x``'s [max_rows, 2 * N] left half times its right half, of the plan's rows."""
    parts = tl.cdiv(N, COLS)
    items = tl.load(num_tiles_ptr) * (BLOCK_M // ROWS) * parts
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        row = (item // parts * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        col = (item % parts * COLS + tl.arange(0, COLS))[None, :]
        gate_ptr = x_ptr + row * (2 * N) + col
        gate = tl.load(gate_ptr, mask=col < N, other=0.0).to(tl.float32)
        up = tl.load(gate_ptr + N, mask=col < N, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * N + col, (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty), mask=col < N)


@ditron.jit
def swiglu_backward_kernel(
    grad_ptr, x_ptr, out_ptr, num_tiles_ptr, N, BLOCK_M: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """``out`` [max_rows, 2 * N] = gradient of ``x`` [max_rows, 2 * N] from ``grad`` [max_rows, N]."""
    parts = tl.cdiv(N, COLS)
    items = tl.load(num_tiles_ptr) * (BLOCK_M // ROWS) * parts
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        row = (item // parts * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        col = (item % parts * COLS + tl.arange(0, COLS))[None, :]
        at = row * (2 * N) + col
        gate = tl.load(x_ptr + at, mask=col < N, other=0.0).to(tl.float32)
        up = tl.load(x_ptr + at + N, mask=col < N, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + row * N + col, mask=col < N, other=0.0).to(tl.float32)
        sigmoid = tl.sigmoid(gate)
        of_gate = grad * up * sigmoid * (1 + gate * (1 - sigmoid))
        tl.store(out_ptr + at, of_gate.to(out_ptr.dtype.element_ty), mask=col < N)
        tl.store(out_ptr + at + N, (grad * gate * sigmoid).to(out_ptr.dtype.element_ty), mask=col < N)


def _schedule(group: Group) -> tuple[tuple[int], dict[str, int]]:
    """Grid and constants."""
    return ((2,), {"ROWS": 8, "COLS": 32}) if group.small_shapes else ((8 * group.sms,), {"ROWS": 8, "COLS": 512})


@torch_operator()
def swiglu_rows(rows: torch.Tensor, tables: list[torch.Tensor], *, group: AnyGroup = None) -> torch.Tensor:
    """``[max_rows, N]``: SiLU of the left half of ``rows`` [max_rows, 2 * N] times the right half, in fp32.

    ``tables``: of the plan of the rows. What lies behind them is neither read nor written.
    """
    plan = Plan.of(tables)
    with in_group(group, "swiglu_rows") as group:
        out = torch.empty(plan.max_rows, rows.shape[1] // 2, dtype=rows.dtype, device=rows.device)
        grid, constants = _schedule(group)
        swiglu_kernel[grid](
            aligned(rows), out, plan.num_tiles, out.shape[1], BLOCK_M=plan.block_m, num_warps=4, **constants
        )
        return out


@torch_operator()
def swiglu_rows_backward(
    grad: torch.Tensor, rows: torch.Tensor, tables: list[torch.Tensor], *, group: AnyGroup = None
) -> torch.Tensor:
    """The gradient of ``rows`` [max_rows, 2 * N] from that of :func:`swiglu_rows`."""
    plan = Plan.of(tables)
    with in_group(group, "swiglu_rows_backward") as group:
        out = torch.empty_like(rows, memory_format=torch.contiguous_format)
        grid, constants = _schedule(group)
        options = {"BLOCK_M": plan.block_m, "num_warps": 4, **constants}
        swiglu_backward_kernel[grid](aligned(grad), aligned(rows), out, plan.num_tiles, grad.shape[1], **options)
        return out
