"""Tile functions of grouped products: each row times the matrix of its expert. Tables: routing.py."""

from __future__ import annotations

import triton.language as tl

import ditron
from ditron.kernels.routing import TILE_FIELDS
from ditron.kernels.tiles import store_tile

__all__ = ["expert_tile", "gathered_rows", "grouped_product", "store_grouped"]

_FIELDS = tl.constexpr(TILE_FIELDS)


@ditron.jit
def expert_tile(tile, tiles_n, tiles_ptr, GROUP: tl.constexpr):
    """Row and column of tiles, expert, and first and last stage of a linearized tile index.

    Of a run, tiles of one column of the expert's matrix follow each other, ``GROUP`` rows at most: the programs that
    run at one time read few columns. Everything is loaded anew: a value that one tile leaves to the next makes Triton
    give up the pipeline across tiles.
    """
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
):
    """``BM`` rows times the transpose of ``BN`` rows of ``w_desc`` from ``w_row`` on, in fp32: [BM, BN].

    The rows are those of a descriptor ``a`` from ``a_row`` on, or with ``GATHER`` where the pointers ``a`` [BM, BK] to
    their first elements are, zero where not ``exists`` [BM, 1]. ``WHOLE_K``: K is a multiple of ``BK``.
    ``W_IS_KN``: times ``K`` rows of ``w_desc`` from ``w_row`` on, ``BN`` columns from ``w_column`` on.
    ``SWAP_AB``: the result is [BN, BM]. The weights are the left operand, whose 64 rows tensor cores need, so that an
    expert's 16 or 32 rows at decoding waste none of it.
    """
    column = tl.arange(0, BK)
    if SWAP_AB:
        acc = tl.zeros((BN, BM), tl.float32)
    else:
        acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        if GATHER:
            mask = exists if WHOLE_K else exists & (k * BK + column < K)[None, :]
            rows = tl.load(a + k * BK, mask=mask, other=0.0)
        else:
            rows = a.load([a_row, k * BK])
        if W_IS_KN:
            w = w_desc.load([w_row + k * BK, w_column])
            if not WHOLE_K:  # behind an expert's rows are the next one's
                w = tl.where((k * BK + column < K)[:, None], w, 0.0)
            w = w.T
        else:
            w = w_desc.load([w_row, k * BK])
        if SWAP_AB:
            acc = tl.dot(w, rows.T, acc)
        else:
            acc = tl.dot(rows, w.T, acc)
    return acc


@ditron.jit
def store_grouped(out_ptr, out_desc, row, col, acc, N, PARTS: tl.constexpr, SWAP_AB: tl.constexpr):
    """What :func:`grouped_product` has returned, to ``out`` [rows, N]; ``out_desc`` is of [1, rows, N]."""
    if SWAP_AB:
        rows = row + tl.arange(0, acc.shape[1])
        cols = col + tl.arange(0, acc.shape[0])
        at = rows.to(tl.int64)[None, :] * N + cols[:, None]
        tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=(cols < N)[:, None])
    else:
        store_tile(out_desc, 0, row, col, acc, PARTS)
