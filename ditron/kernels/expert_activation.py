"""What lies before and between the products of a mixture-of-experts layer: quantization, and an activation of rows."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl

import ditron
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.operands import SCALE_BLOCK, aligned, in_group, matrices
from ditron.kernels.repeated import repeatable, run_step, scratch
from ditron.kernels.routing import Plan
from ditron_compiler.errors import DitronError

__all__ = ["check_activation", "quantize_1x128", "swiglu_rows", "swiglu_rows_1x128", "swiglu_rows_backward"]

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


def sample_rows(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: rows of one tile of two, which are quantized or not."""
    is_quantized = bool(torch.rand(1, generator=generator) < 0.5)
    return {
        "x": "bf16[32, 512]",
        "out": f"{'f8E4M3FN' if is_quantized else 'bf16'}[32, 256]",
        "scale": "f32[32, 2]" if is_quantized else None,
        "num_tiles": "i32[1] = 1",
        "block_m": 16,
        "programs": 2,
        "columns": 128,
    }


@ditron.program(
    example={"x": "bf16[33792, 4096]", "out": "bf16[33792, 2048]", "scale": None, "num_tiles": "i32[1]"},
    sample_args=sample_rows,
)
def swiglu_program(x, out, scale, num_tiles, *, block_m=128, programs=1056, columns=512):
    """``out`` [max_rows, N] = SiLU of the left half of ``x`` [max_rows, 2 * N] times the right half, of the rows of
    ``num_tiles`` tiles; quantized if there is ``scale`` [max_rows, N / 128]. ``columns``: of a program at a time.
    """
    swiglu_kernel[(programs,)](x, out, scale, num_tiles, out.shape[1], block_m, ROWS=8, COLS=columns, num_warps=4)


@ditron.program(
    example={"x": "bf16[4096, 7168]", "out": "f8E4M3FN[4096, 7168]", "scale": "f32[4096, 56]"},
    sample_args=lambda ranks: {
        "x": "bf16[20, 256]",
        "out": "f8E4M3FN[20, 256]",
        "scale": "f32[20, 2]",
        "programs": 2,
        "columns": 128,
    },
)
def quantize_program(x, out, scale, *, programs=1056, columns=512):
    """``out`` [rows, N] and ``scale`` [rows, N / 128]: :func:`quantize_1x128` of ``x`` [rows, N]."""
    quantize_kernel[(programs,)](x, out, scale, *x.shape, ROWS=8, COLS=columns, num_warps=4)


def check_activation(what: str, activation: str | None, w: torch.Tensor, scaled: bool) -> None:
    """Raise DitronError for what a product of an operator with the matrices ``w`` [experts, N, K] cannot end in."""
    if activation is None:
        return
    columns = w.shape[1] if isinstance(w, torch.Tensor) and w.ndim == 3 else 0  # else the operator says what is wrong
    if activation != "swiglu" or columns % 2:
        raise DitronError(
            f"{what}: unknown activation {activation!r} of {columns} columns: expected 'swiglu' of an even number, or "
            "None"
        )
    if scaled:
        raise DitronError(f"{what}: activation= is for bfloat16 or float16: quantize what swiglu makes of the rows")


def _schedule(group: Group, columns: int = 32) -> dict[str, int]:
    """``columns``: of small shapes."""
    if group.small_shapes:
        return {"programs": 2, "columns": columns}
    return {"programs": 8 * group.sms, "columns": 512}


@torch_operator()
@repeatable
def swiglu_rows(rows: torch.Tensor, tables: list[torch.Tensor], *, group: AnyGroup = None) -> torch.Tensor:
    """``[max_rows, N]``: SiLU of the left half of ``rows`` [max_rows, 2 * N] times the right half, in fp32.

    ``tables``: of the plan of the rows. What lies behind them is neither read nor written.
    """
    plan = Plan.of(tables)
    with in_group(group, "swiglu_rows") as group:
        out = scratch((plan.max_rows, rows.shape[1] // 2), rows)
        run_step(swiglu_program, aligned(rows), out, None, plan.num_tiles, block_m=plan.block_m, **_schedule(group))
        return out


@torch_operator()
@repeatable
def swiglu_rows_1x128(
    rows: torch.Tensor, tables: list[torch.Tensor], *, group: AnyGroup = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`swiglu_rows`, quantized from fp32: as :func:`quantize_1x128` returns it, N a multiple of 128."""
    plan = Plan.of(tables)
    with in_group(group, "swiglu_rows_1x128") as group:
        out, scale = _quantized(plan.max_rows, rows.shape[1] // 2, rows)
        schedule = {"block_m": plan.block_m} | _schedule(group, columns=SCALE_BLOCK)
        run_step(swiglu_program, aligned(rows), out, scale, plan.num_tiles, **schedule)
        return out, scale


def _quantized(rows: int, N: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    of_blocks = scratch((rows, N // SCALE_BLOCK), like, torch.float32)
    return scratch((rows, N), like, torch.float8_e4m3fn), of_blocks


@torch_operator()
@repeatable
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
        matrices("quantize_1x128", group, is_local=True, x=x)
        if x.shape[1] % SCALE_BLOCK:
            raise DitronError(f"quantize_1x128: x has {x.shape[1]} columns: expected a multiple of {SCALE_BLOCK}")
        out, scale = _quantized(*x.shape, x)
        run_step(quantize_program, aligned(x), out, scale, **_schedule(group, columns=SCALE_BLOCK))
        return out, scale


@torch_operator()
def swiglu_rows_backward(
    grad: torch.Tensor, rows: torch.Tensor, tables: list[torch.Tensor], *, group: AnyGroup = None
) -> torch.Tensor:
    """The gradient of ``rows`` [max_rows, 2 * N] from that of :func:`swiglu_rows`."""
    plan = Plan.of(tables)
    with in_group(group, "swiglu_rows_backward") as group:
        out = torch.empty_like(rows, memory_format=torch.contiguous_format)
        schedule = _schedule(group)
        swiglu_backward_kernel[(schedule["programs"],)](
            aligned(grad),
            aligned(rows),
            out,
            plan.num_tiles,
            grad.shape[1],
            block_m=plan.block_m,
            ROWS=8,
            COLS=schedule["columns"],
            num_warps=4,
        )
        return out
