"""Products of rows with the matrix of each row's expert, by the operators' tile functions and nothing else.

Rows are sorted by expert, each expert's padded to a multiple of ``BM``: a tile of rows has one expert.
"""

from __future__ import annotations

import triton
import triton.language as tl

import ditron
from ditron.kernels.grouped import expert_tile, grouped_product, scale_of_rows, scale_of_weights, store_grouped

__all__ = ["grouped_gemm", "read_elements"]


@ditron.jit
def grouped_gemm(
    x_ptr,
    a_desc,
    w_desc,
    c_ptr,
    c_desc,
    row_slot_ptr,
    tiles_ptr,
    num_tiles_ptr,
    scale_a_ptr,
    scale_w_ptr,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    GATHER: tl.constexpr,
    SWAP_AB: tl.constexpr,
    PARTS: tl.constexpr,
    FLATTEN: tl.constexpr,
    SCALED: tl.constexpr = False,
):
    """``c`` [rows, N] = rows times their experts' matrices of ``w`` [experts * N, K] transposed.

    The rows are those of ``a`` [rows, K], or with ``GATHER`` ``x[row_slot]``, where -1 stands for zeros. ``SCALED``: of
    fp8, with ``scale_a`` [rows of a or x, K / 128] and ``scale_w`` [experts, N / 128, K / 128].
    """
    tiles_m = tl.load(num_tiles_ptr)
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=FLATTEN):
        m, n, expert, _, _ = expert_tile(tile, tiles_n, tiles_ptr, GROUP)
        w_row = expert * N + n * BN
        scale_rows = None
        scale_w = None
        if SCALED:
            scale_w = scale_of_weights(scale_w_ptr, expert, n * BN, N, K)
        if GATHER:
            slot = tl.load(row_slot_ptr + m * BM + tl.arange(0, BM))
            rows = x_ptr + slot.to(tl.int64)[:, None] * K + tl.arange(0, BK)[None, :]
            exists = (slot >= 0)[:, None]
            if SCALED:
                scale_rows = scale_a_ptr + slot.to(tl.int64) * (K // 128)
            acc = grouped_product(
                rows,
                0,
                exists,
                w_desc,
                w_row,
                K,
                BM,
                BN,
                BK,
                True,
                True,
                SWAP_AB,
                False,
                0,
                False,
                scale_rows,
                scale_w,
                SCALED,
            )
        else:
            if SCALED:
                scale_rows = scale_of_rows(scale_a_ptr, m * BM, K, BM)
            acc = grouped_product(
                a_desc,
                m * BM,
                None,
                w_desc,
                w_row,
                K,
                BM,
                BN,
                BK,
                False,
                True,
                SWAP_AB,
                False,
                0,
                False,
                scale_rows,
                scale_w,
                SCALED,
            )
        store_grouped(c_ptr, c_desc, m * BM, n * BN, acc, N, PARTS, SWAP_AB)


@triton.jit
def read_elements(x_ptr, sums_ptr, n, BLOCK: tl.constexpr):
    """``sums`` [programs] of ``BLOCK`` of ``n`` elements each: what reading costs."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(x.to(tl.float32), 0))
