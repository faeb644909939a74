"""Tile functions of grouped products: each row times the matrix of its expert. Tables: routing.py."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
from ditron.kernels.routing import TILE_FIELDS
from ditron.kernels.tiles import halves_of, store_columns, store_tile

__all__ = [
    "expert_tile",
    "gathered_rows",
    "grouped_product",
    "grouped_step",
    "products_of_step",
    "scale_of_rows",
    "scale_of_weights",
    "store_grouped",
    "weights_descriptor",
]

_FIELDS = tl.constexpr(TILE_FIELDS)


def weights_descriptor(w: Any, N: Any, BN: int, BK: int, gated: bool, swap_ab: bool) -> TensorDescriptor:
    """Tiles of the experts' matrices, for a product with ``N`` columns: ``w`` is [experts * N, K] in a host program.

    ``gated``: or [experts * 2 * N, K], of each N rows of gates and then N of what they multiply. A tile has both; of
    left operands, whose rows of more than 128 bytes Triton does not keep together in shared memory, there are two.
    """
    if not gated:
        return TensorDescriptor.from_tensor(w, [BN, BK])
    rows, K = w.shape
    return TensorDescriptor(
        w, [rows // (2 * N), 2, N, K], [2 * N * K, N * K, K, 1], [1, 1 if swap_ab else 2, BN // 2, BK]
    )


@ditron.jit
def expert_tile(tile, tiles_n, tiles_ptr, GROUP: tl.constexpr):
    """Row and column of tiles, expert, and first and last stage, of the ``tile``-th tile of a grouped product.

    Args:
        tile: 0 to ``num_tiles * tiles_n`` of a plan (int32 scalar), in order of execution.
        tiles_n: tiles of a row of tiles. tiles_ptr: a plan's ``tiles``.
        GROUP: how many rows of tiles of an expert share a column of its matrix before the next column.

    A tile can be computed when the rows of its last stage have arrived: stage ``s`` is the rank ``s`` behind this one.

        m, n, expert, first_stage, last_stage = expert_tile(tile, tl.cdiv(N, BN), tiles_ptr, 8)
    """
    # All is loaded anew: a value that one tile leaves to the next makes Triton give up the pipeline across tiles.
    run = tiles_ptr + tile // tiles_n * _FIELDS
    within = tile - tl.load(run + 1) * tiles_n
    group = within // (GROUP * tiles_n) * GROUP
    size = tl.minimum(tl.load(run + 3) - group, GROUP)
    within = within % (GROUP * tiles_n)
    m = tl.load(run + 2) + group + within % size
    return m, within // size, tl.load(run), tl.load(run + 4), tl.load(run + 5)


@ditron.jit
def gathered_rows(own_ptr, others_ptr, slot, own_rank, ranks, tokens, K):
    """Where the tokens ``slot`` of a plan (-1: none) are: this rank's in ``own`` [tokens, K], the others' in ``others``
    [ranks * tokens, K].
    """
    slot = tl.maximum(slot, 0)
    index = slot + own_rank * tokens
    index = tl.where(index < ranks * tokens, index, index - ranks * tokens)
    return tl.where(slot < tokens, own_ptr + slot.to(tl.int64) * K, others_ptr + index.to(tl.int64) * K)


@ditron.jit
def swiglu(gate, up):
    """SiLU of the one times the other."""
    return gate * tl.sigmoid(gate) * up


@ditron.jit
def scale_of_rows(scale_ptr, row, K, BM: tl.constexpr):
    """Where the scales of the first 128 elements of ``BM`` rows from ``row`` on are: of ``scale`` [rows, K / 128]."""
    return scale_ptr + (row + tl.arange(0, BM)).to(tl.int64) * tl.cdiv(K, 128)


@ditron.jit
def scale_of_weights(scale_ptr, expert, col, N, K):
    """Where the scale of an expert's first 128 x 128 elements is, of the rows that ``col`` lies in: of ``scale``
    [experts, N / 128, K / 128].
    """
    return scale_ptr + (expert * tl.cdiv(N, 128) + col // 128).to(tl.int64) * tl.cdiv(K, 128)


@triton.constexpr_function
def products_of_step(BM, SCALED):
    """How many parts of K an iteration multiplies: of many quantized rows two, one of which is scaled while tensor
    cores compute the other (the pass overlap-promotion). With fewer rows several programs share an SM for that.
    """
    return 2 if SCALED and BM >= 128 else 1


@ditron.jit
def grouped_step(acc, rows, w, scale_rows, scale_w, exists, k, K, SWAP_AB: tl.constexpr, SCALED: tl.constexpr):
    """``acc`` plus ``rows`` [BM, BK] times ``w`` [BN, BK] transposed, or if ``SWAP_AB`` the transpose of that.

    ``SCALED``: they are quantized and from ``k`` on along K. The sum of these products leaves the tensor cores, which
    add with 14 bits, and is scaled and added in fp32. Of rows that do not exist [BM], if that is no None, nothing is
    loaded. Behind ``K`` both are zero, and have the last scales.
    """
    if SCALED:
        block = tl.minimum(k, K - 1) // 128
        if exists is None:
            scale = tl.load(scale_rows + block)
        else:
            scale = tl.load(scale_rows + block, mask=exists, other=0.0)
        scale *= tl.load(scale_w + block)
        if SWAP_AB:
            acc += tl.dot(w, rows.T) * scale[None, :]
        else:
            acc += tl.dot(rows, w.T) * scale[:, None]
    elif SWAP_AB:
        acc = tl.dot(w, rows.T, acc)
    else:
        acc = tl.dot(rows, w.T, acc)
    return acc


@ditron.jit
def grouped_product(
    a,
    a_row,
    exists,
    w_desc,
    w_row,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GATHER: tl.constexpr,
    WHOLE_K: tl.constexpr,
    SWAP_AB: tl.constexpr,
    W_IS_KN: tl.constexpr = False,
    w_column=0,
    GATED: tl.constexpr = False,
    scale_rows=None,
    scale_w=None,
    SCALED: tl.constexpr = False,
):
    """``BM`` rows times the transpose of ``BN`` rows of ``w_desc`` from ``w_row`` on, in fp32: [BM, BN].

    The rows are those of a descriptor ``a`` from ``a_row`` on, or with ``GATHER`` where the pointers ``a`` [BM, BK] to
    their first elements are, zero where not ``exists`` [BM, 1]. ``WHOLE_K``: K is a multiple of ``BK``, of twice that
    where an iteration has two products.
    ``W_IS_KN``: times ``K`` rows of ``w_desc`` from ``w_row`` on, ``BN`` columns from ``w_column`` on.
    ``GATED``: SwiGLU of the products with ``BN / 2`` gates of the expert ``w_row`` from ``w_column`` on, and with as
    many rows of what they multiply: [BM, BN / 2].
    ``SCALED``: of quantized rows, the first of whose scales are at ``scale_rows`` [BM] and ``scale_w``; not ``GATED``.
    ``SWAP_AB``: the result is transposed. The weights are the left operand, whose 64 rows tensor cores need, so that an
    expert's 16 or 32 rows at decoding waste none of it.
    """
    column = tl.arange(0, BK)
    row_exists = None
    if SCALED and GATHER:
        row_exists = exists.reshape(BM)
    SPLIT: tl.constexpr = GATED and SWAP_AB
    if SPLIT:
        acc = tl.zeros((BN // 2, BM), tl.float32)
        up = tl.zeros((BN // 2, BM), tl.float32)
    elif SWAP_AB:
        acc = tl.zeros((BN, BM), tl.float32)
    else:
        acc = tl.zeros((BM, BN), tl.float32)
    PRODUCTS: tl.constexpr = products_of_step(BM, SCALED)
    for step in range(tl.cdiv(K, PRODUCTS * BK)):
        for product in tl.static_range(PRODUCTS):
            k = (step * PRODUCTS + product) * BK
            if GATHER:
                mask = exists if WHOLE_K else exists & (k + column < K)[None, :]
                rows = tl.load(a + k, mask=mask, other=0.0)
            else:
                rows = a.load([a_row, k])
            if W_IS_KN:
                w = w_desc.load([w_row + k, w_column])
                if not WHOLE_K:  # behind an expert's rows are the next one's
                    w = tl.where((k + column < K)[:, None], w, 0.0)
                w = w.T
            elif SPLIT:
                w = w_desc.load([w_row, 0, w_column, k]).reshape(BN // 2, BK)
                up = tl.dot(w_desc.load([w_row, 1, w_column, k]).reshape(BN // 2, BK), rows.T, up)
            elif GATED:
                w = w_desc.load([w_row, 0, w_column, k]).reshape(BN, BK)
            else:
                w = w_desc.load([w_row, k])
            acc = grouped_step(acc, rows, w, scale_rows, scale_w, row_exists, k, K, SWAP_AB, SCALED)
    if SPLIT:
        acc = swiglu(acc, up)
    elif GATED:
        gate, up = halves_of(acc)
        acc = swiglu(gate, up)
    return acc


@ditron.jit
def store_grouped(out_ptr, out_desc, row, col, acc, N, PARTS: tl.constexpr, SWAP_AB: tl.constexpr):
    """A tile as :func:`grouped_product` returns it, to ``out`` [rows, N]; ``out_desc`` is of [1, rows, N]."""
    if SWAP_AB:
        rows = row + tl.arange(0, acc.shape[1])
        cols = col + tl.arange(0, acc.shape[0])
        at = rows.to(tl.int64)[None, :] * N + cols[:, None]
        tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=(cols < N)[:, None])
    elif PARTS == 1:
        store_columns(out_desc, 0, row, col, acc)
    else:
        store_tile(out_desc, 0, row, col, acc, PARTS)
