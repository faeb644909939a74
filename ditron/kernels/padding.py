"""Rows behind those of a tensor, as steps of operators whose ranks may have fewer tokens than are planned for."""

from __future__ import annotations

import torch
import triton.language as tl

import ditron
import ditron.host as dh
from ditron.kernels.operands import aligned
from ditron.kernels.repeated import run_step, scratch

__all__ = ["pad_program", "padded"]


@ditron.jit(do_not_specialize=["given", "rows", "N"])
def pad_kernel(x_ptr, out_ptr, given, rows, N, FILL: tl.constexpr, BLOCK: tl.constexpr):
    """``out`` [rows, N] = ``x`` [given, N], and ``FILL`` behind it."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < given.to(tl.int64) * N, other=FILL)
    tl.store(out_ptr + at, x, mask=at < rows.to(tl.int64) * N)


@ditron.program(
    example={"x": "bf16[100, 7168]", "out": "bf16[128, 7168]"},
    sample_args=lambda ranks: {"x": "bf16[3, 20]", "out": "bf16[5, 20]", "block": 32},
    do_not_specialize=("x", "out"),
)
def pad_program(x, out, *, fill=0, block=4096):
    """``out`` [rows, N] = ``x`` [fewer rows, N], and rows of ``fill`` behind it."""
    given, (rows, N) = x.shape[0], out.shape
    pad_kernel[(dh.cdiv(rows * N, block),)](x, out, given, rows, N, FILL=fill, BLOCK=block)


def padded(matrix: torch.Tensor, rows: int, fill: int = 0) -> torch.Tensor:
    """A matrix of any dtype with ``rows`` rows, of ``fill`` behind its own; a tensor of this call alone."""
    out = scratch((rows, matrix.shape[1]), matrix)
    of_bytes = matrix.itemsize == 1  # one kernel moves bytes of any meaning
    operands = [each.view(torch.int8) if of_bytes else each for each in (aligned(matrix), out)]
    run_step(pad_program, *operands, fill=fill)
    return out
