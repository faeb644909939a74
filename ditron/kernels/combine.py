"""Tile functions that add what the experts made of each token: on this rank by routing weight, then over ranks.

Columns are divided into chunks of ``width`` tiles, the same on every rank. The tiles of a chunk are counted; each of
the programs that wait for them adds some blocks of tokens, sends them to the tokens' owners, and adds what the same
program of the other ranks has sent here.
"""

from __future__ import annotations

import triton.language as tl

import ditron
import ditron.language as dl
from ditron.kernels.grouped import expert_tile
from ditron.kernels.routing import TILE_FIELDS
from ditron.kernels.routing_kernels import has_bit

__all__ = [
    "CHUNK",
    "add_sums",
    "chunk_tile",
    "count_tile",
    "count_tile_of_stage",
    "count_tiles_that_are_left",
    "count_tiles_that_are_not",
    "send_sums",
    "sum_chunk",
]

_FIELDS = tl.constexpr(TILE_FIELDS)

# What the tiles of a chunk add up to in a call, however many they are.
CHUNK = tl.constexpr(1 << 24)


@ditron.jit
def chunk_tile(tile, tiles_m, tiles_n, width, tiles_ptr, GROUP: tl.constexpr):
    """Row and column of tiles, and expert, of a linearized tile index: chunks of columns follow each other."""
    chunk = tile // (tiles_m * width)
    columns = tl.minimum(tiles_n - chunk * width, width)
    m, n, expert, _, _ = expert_tile(tile - chunk * (tiles_m * width), columns, tiles_ptr, GROUP)
    return m, chunk * width + n, expert


@ditron.jit
def count_tile(counts_ptr, tile, tiles_m, tiles_n, width):
    """Count a tile whose stores have been made; the first one of a chunk counts for all that there could be."""
    tiles = tiles_m * width
    chunk = tile // tiles
    columns = tl.minimum(tiles_n - chunk * width, width)
    share = tl.where(tile == chunk * tiles, CHUNK + 1 - tiles_m * columns, 1)
    dl.notify(counts_ptr + chunk, dl.rank(), share, op="add", scope="gpu")


@ditron.jit
def count_tiles_that_are_left(counts_ptr, worker, workers, tiles_m, tiles_n, width):
    """Count the last tile of a program that has counted those before; or, where nobody has one, all chunks."""
    tiles = tiles_m * tiles_n
    if worker < tiles:
        count_tile(counts_ptr, worker + (tiles - 1 - worker) // workers * workers, tiles_m, tiles_n, width)
    elif (tiles == 0) & (worker == 0):
        for chunk in range(tl.cdiv(tiles_n, width)):
            dl.notify(counts_ptr + chunk, dl.rank(), CHUNK, op="add", scope="gpu")


@ditron.jit
def last_stage(tiles_ptr, row):
    """Of the rows of the run of a row of tiles: their last stage, by which they are counted."""
    return tl.load(tiles_ptr + row * _FIELDS + 5)


@ditron.jit
def count_tile_of_stage(counts_ptr, tile, tiles_n, tiles_ptr):
    """Count a tile whose stores have been made, by the last stage of its run; not of stage 0, the own tokens'."""
    stage = last_stage(tiles_ptr, tile // tiles_n)
    if stage > 0:
        dl.notify(counts_ptr + stage, dl.rank(), 1, op="add", scope="gpu")


@ditron.jit
def count_tiles_that_are_not(counts_ptr, tiles_ptr, tiles_m, tiles_n, RANKS: tl.constexpr):
    """Count, for each stage but 0, the tiles that it lacks to ``CHUNK``."""
    for stage in tl.static_range(1, RANKS):
        rows = 0
        for first in range(0, tiles_m, 128):
            row = first + tl.arange(0, 128)
            stages = tl.load(tiles_ptr + row * _FIELDS + 5, mask=row < tiles_m, other=0)
            rows += tl.sum((stages == stage).to(tl.int32), 0)
        dl.notify(counts_ptr + stage, dl.rank(), CHUNK - rows * tiles_n, op="add", scope="gpu")


@ditron.jit
def routes_of(route_row_ptr, route_weight_ptr, token, exists, TOP_K: tl.constexpr):
    """Rows (-1: none) and weights of the routes of each token, by its index among all ranks'."""
    rows = ()
    weights = ()
    for k in tl.static_range(TOP_K):
        rows = rows + (tl.load(route_row_ptr + token * TOP_K + k, mask=exists, other=-1),)
        weights = weights + (tl.load(route_weight_ptr + token * TOP_K + k, mask=exists, other=0.0),)
    return rows, weights


@ditron.jit
def weighted_sums(y_ptr, rows, weights, token, exists, first_col, H, CB: tl.constexpr, TOP_K: tl.constexpr):
    """Of each token, its rows of ``y`` [rows, H] by weight, in order of its routes, rounded to their dtype; zeros where
    it has none. With offsets and mask of these elements in [tokens, H].
    """
    col = first_col + tl.arange(0, CB)
    total = tl.zeros((token.shape[0], CB), tl.float32)
    for k in tl.static_range(TOP_K):
        row_ptr = y_ptr + tl.maximum(rows[k], 0).to(tl.int64) * H
        mask = (rows[k] >= 0)[:, None] & (col < H)[None, :]
        value = tl.load(row_ptr[:, None] + col[None, :], mask=mask, other=0.0)
        total += weights[k][:, None] * value.to(tl.float32)
    at = token.to(tl.int64)[:, None] * H + col[None, :]
    return total.to(y_ptr.dtype.element_ty), at, exists[:, None] & (col < H)[None, :]


@ditron.jit
def sum_item(item, splits, tokens, begin, end, TB: tl.constexpr, CB: tl.constexpr):
    """Tokens of an item, which of them exist, and its columns: an item is a block of tokens and a part of a chunk."""
    token = item // splits * TB + tl.arange(0, TB)
    part = tl.cdiv(tl.cdiv(end - begin, CB), splits) * CB
    first = begin + item % splits * part
    return token, token < tokens, first, tl.minimum(first + part, end)


@ditron.jit
def store_sums(
    y_ptr,
    inbox_ptr,
    route_row_ptr,
    route_weight_ptr,
    peer,
    worker,
    workers,
    tokens,
    capacity,
    begin,
    end,
    splits,
    H,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
):
    """Store at ``peer`` the sums of those of its ``tokens`` that have a row here, as far as they are this program's;
    columns ``begin`` to ``end``.
    """
    own = dl.rank()
    for item in range(worker, tl.cdiv(tokens, TB) * splits, workers):
        token, exists, first, last = sum_item(item, splits, tokens, begin, end, TB, CB)
        rows, weights = routes_of(route_row_ptr, route_weight_ptr, peer * tokens + token, exists, TOP_K)
        last_row = rows[0]
        for k in tl.static_range(1, TOP_K):
            last_row = tl.maximum(last_row, rows[k])
        exists = last_row >= 0
        for col in range(first, last, CB):
            sums, at, mask = weighted_sums(y_ptr, rows, weights, token, exists, col, H, CB, TOP_K)
            tl.store(dl.symm_at(inbox_ptr + own.to(tl.int64) * capacity * H, peer) + at, sums, mask=mask)


@ditron.jit
def send_sums(
    y_ptr,
    inbox_ptr,
    route_row_ptr,
    route_weight_ptr,
    sent_ptr,
    step,
    worker,
    workers,
    tokens,
    capacity,
    splits,
    H,
    epoch,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """:func:`store_sums` of all columns at the rank ``step`` after this one, and a signal.

    ``sent`` [RANKS - 1] is this program's.
    """
    peer = (dl.rank() + step) % RANKS
    store_sums(
        y_ptr,
        inbox_ptr,
        route_row_ptr,
        route_weight_ptr,
        peer,
        worker,
        workers,
        tokens,
        capacity,
        0,
        H,
        splits,
        H,
        TB,
        CB,
        TOP_K,
    )
    if worker < tl.cdiv(tokens, TB) * splits:
        dl.notify(sent_ptr + RANKS - 1 - step, peer, epoch)


@ditron.jit
def add_sums(
    y_ptr,
    out_ptr,
    inbox_ptr,
    route_row_ptr,
    route_weight_ptr,
    sent_ptr,
    worker,
    workers,
    tokens,
    capacity,
    begin,
    end,
    splits,
    H,
    epoch,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
    ALL: tl.constexpr,
    token_ranks_ptr,
):
    """``out`` [tokens, H] = this rank's sums plus those that the others have sent, in fp32 and in rank order, as far as
    they are this program's; ``sent`` [RANKS - 1]: who has sent them, of tokens that have a row there (``token_ranks``
    of a plan), or with ``ALL`` of all.
    """
    own = dl.rank()
    items = tl.cdiv(tokens, TB) * splits
    for item in range(worker, items, workers):
        token, exists, first, last = sum_item(item, splits, tokens, begin, end, TB, CB)
        among_all = token if ALL else own * tokens + token
        rows, weights = routes_of(route_row_ptr, route_weight_ptr, among_all, exists, TOP_K)
        sent = ()
        for source in tl.static_range(RANKS):
            has = exists & (source != own)
            if not ALL:
                has &= has_bit(token_ranks_ptr, token, source, exists)
            sent = sent + (has[:, None],)
        for col in range(first, last, CB):
            mine, at, mask = weighted_sums(y_ptr, rows, weights, token, exists, col, H, CB, TOP_K)
            token_of_others = dl.wait(sent_ptr, RANKS - 1, epoch)
            theirs_ptr = dl.consume_token(inbox_ptr, token_of_others)
            total = tl.zeros((TB, CB), tl.float32)
            for source in tl.static_range(RANKS):
                box_ptr = theirs_ptr + tl.cast(source, tl.int64) * capacity * H
                theirs = tl.load(box_ptr + at, mask=mask & sent[source], other=0.0)
                total += tl.where(source == own, mine, theirs).to(tl.float32)
            tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=mask)


@ditron.jit
def sum_chunk(
    y_ptr,
    out_ptr,
    inbox_ptr,
    route_row_ptr,
    route_weight_ptr,
    sent_ptr,
    worker,
    workers,
    tokens,
    capacity,
    begin,
    end,
    splits,
    H,
    epoch,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
    ALL: tl.constexpr,
    token_ranks_ptr,
):
    """Columns ``begin`` to ``end`` of ``out`` [tokens, H], as far as they are this program's of ``workers``.

    Each rank is sent the sums of its ``tokens`` that have a row here, or with ``ALL`` those of all tokens, and a
    signal; ``out`` is this rank's sums plus those that the others have sent, in fp32 and in rank order.
    """
    own = dl.rank()
    items = tl.cdiv(tokens, TB) * splits
    if ALL:
        own_box_ptr = inbox_ptr + own.to(tl.int64) * capacity * H
        for item in range(worker, items, workers):
            token, exists, first, last = sum_item(item, splits, tokens, begin, end, TB, CB)
            rows, weights = routes_of(route_row_ptr, route_weight_ptr, token, exists, TOP_K)
            for col in range(first, last, CB):
                sums, at, mask = weighted_sums(y_ptr, rows, weights, token, exists, col, H, CB, TOP_K)
                for step in tl.static_range(1, RANKS):
                    tl.store(dl.symm_at(own_box_ptr, (own + step) % RANKS) + at, sums, mask=mask)
    else:
        for step in range(1, RANKS):
            store_sums(
                y_ptr,
                inbox_ptr,
                route_row_ptr,
                route_weight_ptr,
                (own + step) % RANKS,
                worker,
                workers,
                tokens,
                capacity,
                begin,
                end,
                splits,
                H,
                TB,
                CB,
                TOP_K,
            )
    if worker < items:  # behind all stores: the first signal waits until they have arrived
        for step in range(1, RANKS):
            dl.notify(sent_ptr + RANKS - 1 - step, (own + step) % RANKS, epoch)
    add_sums(
        y_ptr,
        out_ptr,
        inbox_ptr,
        route_row_ptr,
        route_weight_ptr,
        sent_ptr,
        worker,
        workers,
        tokens,
        capacity,
        begin,
        end,
        splits,
        H,
        epoch,
        TB,
        CB,
        TOP_K,
        RANKS,
        ALL,
        token_ranks_ptr,
    )
