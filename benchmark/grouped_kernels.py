"""Products of rows with the matrix of each row's expert: candidates for a tile function of the MoE operators.

Rows are sorted by expert, each expert's padded to a multiple of ``BM``: a tile of rows has one expert.
"""

from __future__ import annotations

import triton.language as tl

import ditron
from ditron.kernels.grouped import expert_tile

__all__ = ["grouped_gemm", "grouped_gemm_few_rows"]


@ditron.jit
def grouped_gemm(
    x_ptr,
    a_desc,
    w_desc,
    c_desc,
    row_slot_ptr,
    tiles_ptr,
    num_tiles_ptr,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    GATHER: tl.constexpr,
    PARTS: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """``c`` [rows, N] = rows times their experts' matrices of ``w`` [experts * N, K] transposed.

    The rows are those of ``a`` [rows, K], or with ``GATHER`` ``x[row_slot]``, where -1 stands for zeros.
    """
    tiles_m = tl.load(num_tiles_ptr)
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=FLATTEN):
        m, n, expert, _, _ = expert_tile(tile, tiles_n, tiles_ptr, GROUP)
        w_row = expert * N + n * BN
        if GATHER:
            slot = tl.load(row_slot_ptr + m * BM + tl.arange(0, BM))
            rows = x_ptr + slot.to(tl.int64)[:, None] * K + tl.arange(0, BK)[None, :]
            present = (slot >= 0)[:, None]
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            if GATHER:
                a = tl.load(rows + k * BK, mask=present, other=0.0)
            else:
                a = a_desc.load([m * BM, k * BK])
            acc = tl.dot(a, w_desc.load([w_row, k * BK]).T, acc)
        if PARTS == 2:
            left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
            c_desc.store([m * BM, n * BN], left.to(c_desc.dtype))
            c_desc.store([m * BM, n * BN + BN // 2], right.to(c_desc.dtype))
        else:
            c_desc.store([m * BM, n * BN], acc.to(c_desc.dtype))


@ditron.jit
def grouped_gemm_few_rows(
    x_ptr,
    a_desc,
    w_desc,
    c_ptr,
    row_slot_ptr,
    tiles_ptr,
    num_tiles_ptr,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    GATHER: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """The same with the operands exchanged: a tile of weights has the rows of the tensor cores' product, so that the
    16 or 32 rows that an expert has at decoding waste none of it.
    """
    tiles_m = tl.load(num_tiles_ptr)
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=FLATTEN):
        m, n, expert, _, _ = expert_tile(tile, tiles_n, tiles_ptr, GROUP)
        w_row = expert * N + n * BN
        if GATHER:
            slot = tl.load(row_slot_ptr + m * BM + tl.arange(0, BM))
            rows = x_ptr + slot.to(tl.int64)[:, None] * K + tl.arange(0, BK)[None, :]
            present = (slot >= 0)[:, None]
        acc = tl.zeros((BN, BM), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            if GATHER:
                a = tl.load(rows + k * BK, mask=present, other=0.0)
            else:
                a = a_desc.load([m * BM, k * BK])
            acc = tl.dot(w_desc.load([w_row, k * BK]), a.T, acc)
        at = (m * BM + tl.arange(0, BM)).to(tl.int64)[None, :] * N + n * BN + tl.arange(0, BN)[:, None]
        tl.store(c_ptr + at, acc.to(c_ptr.dtype.element_ty), mask=(n * BN + tl.arange(0, BN) < N)[:, None])
