"""What lies before and between the products of a mixture-of-experts layer: quantization, and an activation of rows."""

from __future__ import annotations

import torch
import triton.language as tl

import ditron
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.operands import SCALE_BLOCK, aligned, in_group, matrices
from ditron.kernels.routing import Plan
from ditron_compiler.errors import DitronError

__all__ = ["quantize_1x128", "swiglu_rows", "swiglu_rows_1x128", "swiglu_rows_backward"]

_LARGEST = tl.constexpr(torch.finfo(torch.float8_e4m3fn).max)


@ditron.jit
def store_quantized(values, out_ptr, scale_ptr, row, col, N):
    """``values`` [rows, columns] in fp32 to ``out`` [..., N] of fp8 and ``scale`` [..., N / 128], from the rows
    ``row`` [rows, 1] and the part of columns ``col`` on. A block of zeros, or of less than a scale can be, has scale 1.
    """
    ROWS: tl.constexpr = values.shape[0]
    BLOCKS: tl.constexpr = values.shape[1] // 128
    blocks = tl.reshape(values, (ROWS, BLOCKS, 128))
    largest = tl.max(tl.abs(blocks), 2)
    scale = largest / _LARGEST
    scale = tl.where(scale == 0, 1.0, scale)
    quantized = tl.reshape(blocks / scale[:, :, None], (ROWS, BLOCKS * 128))
    columns = (col * BLOCKS * 128 + tl.arange(0, BLOCKS * 128))[None, :]
    tl.store(out_ptr + row * N + columns, quantized.to(out_ptr.dtype.element_ty), mask=columns < N)
    block = (col * BLOCKS + tl.arange(0, BLOCKS))[None, :]
    tl.store(scale_ptr + row * (N // 128) + block, scale, mask=block < N // 128)


@ditron.jit(do_not_specialize=["tokens"])
def quantize_kernel(x_ptr, out_ptr, scale_ptr, tokens, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    """``out`` [tokens, N] and ``scale`` [tokens, N / 128] of ``x`` [tokens, N]."""
    parts = tl.cdiv(N, COLS)
    for item in range(tl.program_id(0), tl.cdiv(tokens, ROWS) * parts, tl.num_programs(0)):
        rows = item // parts * ROWS + tl.arange(0, ROWS)
        row = tl.minimum(rows, tokens - 1).to(tl.int64)[:, None]  # the last one again, with the same values
        col = (item % parts * COLS + tl.arange(0, COLS))[None, :]
        values = tl.load(x_ptr + row * N + col, mask=col < N, other=0.0).to(tl.float32)
        store_quantized(values, out_ptr, scale_ptr, row, item % parts, N)


@ditron.jit
def swiglu_kernel(x_ptr, out_ptr, scale_ptr, num_tiles_ptr, N, block_m, ROWS: tl.constexpr, COLS: tl.constexpr):
    """``out`` [max_rows, N] = silu of ``x``'s [max_rows, 2 * N] left half times its right half, of the plan's rows.

    Quantized, with ``scale`` [max_rows, N / 128], if that is given.
    """
    parts = tl.cdiv(N, COLS)
    items = tl.load(num_tiles_ptr) * (block_m // ROWS) * parts
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        row = (item // parts * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        col = (item % parts * COLS + tl.arange(0, COLS))[None, :]
        gate_ptr = x_ptr + row * (2 * N) + col
        gate = tl.load(gate_ptr, mask=col < N, other=0.0).to(tl.float32)
        up = tl.load(gate_ptr + N, mask=col < N, other=0.0).to(tl.float32)
        hidden = gate * tl.sigmoid(gate) * up
        if scale_ptr is None:
            tl.store(out_ptr + row * N + col, hidden.to(out_ptr.dtype.element_ty), mask=col < N)
        else:
            store_quantized(hidden, out_ptr, scale_ptr, row, item % parts, N)


@ditron.jit
def swiglu_backward_kernel(grad_ptr, x_ptr, out_ptr, num_tiles_ptr, N, block_m, ROWS: tl.constexpr, COLS: tl.constexpr):
    """``out`` [max_rows, 2 * N] = gradient of ``x`` [max_rows, 2 * N] from ``grad`` [max_rows, N]."""
    parts = tl.cdiv(N, COLS)
    items = tl.load(num_tiles_ptr) * (block_m // ROWS) * parts
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


def _schedule(group: Group, columns: int = 32) -> tuple[tuple[int], dict[str, int]]:
    """Grid and constants; ``columns``: of small shapes."""
    if group.small_shapes:
        return (2,), {"ROWS": 8, "COLS": columns}
    return (8 * group.sms,), {"ROWS": 8, "COLS": 512}


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
            aligned(rows), out, None, plan.num_tiles, out.shape[1], block_m=plan.block_m, num_warps=4, **constants
        )
        return out


@torch_operator()
def swiglu_rows_1x128(
    rows: torch.Tensor, tables: list[torch.Tensor], *, group: AnyGroup = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`swiglu_rows`, quantized from fp32: as :func:`quantize_1x128` returns it, N a multiple of 128."""
    plan = Plan.of(tables)
    with in_group(group, "swiglu_rows_1x128") as group:
        N = rows.shape[1] // 2
        out, scale = _quantized(plan.max_rows, N, rows.device)
        grid, constants = _schedule(group, columns=SCALE_BLOCK)
        options = {"block_m": plan.block_m, "num_warps": 4, **constants}
        swiglu_kernel[grid](aligned(rows), out, scale, plan.num_tiles, N, **options)
        return out, scale


def _quantized(rows: int, N: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    scale = torch.empty(rows, N // SCALE_BLOCK, dtype=torch.float32, device=device)
    return torch.empty(rows, N, dtype=torch.float8_e4m3fn, device=device), scale


@torch_operator()
def quantize_1x128(x: torch.Tensor, *, group: AnyGroup = None) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix in fp8, and the scale of each 1 x 128 of its elements, as DeepSeek-V3 quantizes activations.

    Args:
        x: ``[rows, K]`` bfloat16, float16 or float32, K a multiple of 128.
        group: whose device it is on; default the current group. It sends nothing.

    Returns float8_e4m3fn ``[rows, K]`` and float32 ``[rows, K / 128]``: the largest of a block becomes 448, and of
    zeros the scale is 1. Raises DitronError for what is no such matrix.

        x8, scale_x = ditron.kernels.quantize_1x128(x)
    """
    with in_group(group, "quantize_1x128") as group:
        matrices("quantize_1x128", group, x=x)
        if x.shape[1] % SCALE_BLOCK:
            raise DitronError(f"quantize_1x128: x has {x.shape[1]} columns: expected a multiple of {SCALE_BLOCK}")
        out, scale = _quantized(*x.shape, x.device)
        grid, constants = _schedule(group, columns=SCALE_BLOCK)
        quantize_kernel[grid](aligned(x), out, scale, *x.shape, num_warps=4, **constants)
        return out, scale


@torch_operator()
def swiglu_rows_backward(
    grad: torch.Tensor, rows: torch.Tensor, tables: list[torch.Tensor], *, group: AnyGroup = None
) -> torch.Tensor:
    """The gradient of ``rows`` [max_rows, 2 * N] from that of :func:`swiglu_rows`."""
    plan = Plan.of(tables)
    with in_group(group, "swiglu_rows_backward") as group:
        out = torch.empty_like(rows, memory_format=torch.contiguous_format)
        grid, constants = _schedule(group)
        options = {"block_m": plan.block_m, "num_warps": 4, **constants}
        swiglu_backward_kernel[grid](aligned(grad), aligned(rows), out, plan.num_tiles, grad.shape[1], **options)
        return out
