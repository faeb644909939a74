"""What lies between the two products of a mixture-of-experts layer: an activation of the rows that a plan has."""

from __future__ import annotations

import torch
import triton.language as tl

import ditron
from ditron.distributed.group import Group
from ditron.kernels.routing import Plan

__all__ = ["swiglu_rows"]


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


def swiglu_rows(rows: torch.Tensor, plan: Plan, group: Group) -> torch.Tensor:
    """``[max_rows, N]``: SiLU of the left half of ``rows`` [max_rows, 2 * N] times the right half, in fp32.

    What lies behind the plan's rows is neither read nor written.
    """
    out = torch.empty(plan.max_rows, rows.shape[1] // 2, dtype=rows.dtype, device=rows.device)
    programs, columns = (2, 32) if group.is_sim else (8 * group.sms, 512)
    swiglu_kernel[(programs,)](
        rows, out, plan.num_tiles, out.shape[1], BLOCK_M=plan.block_m, ROWS=8, COLS=columns, num_warps=4
    )
    return out
