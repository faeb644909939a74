"""Tile functions of grouped products: each row times the matrix of its expert. Tables: routing.py."""

from __future__ import annotations

import triton.language as tl

import ditron
from ditron.kernels.routing import TILE_FIELDS

__all__ = ["expert_tile", "gathered_rows"]

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
