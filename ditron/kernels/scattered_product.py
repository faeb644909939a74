"""The product of GEMM + ReduceScatter: a persistent kernel publishes other ranks' tiles, and adds theirs to its own.

The last round is of own tiles, narrower ones where they do not fill it (tiles.py).
"""

from __future__ import annotations

import triton.language as tl

import ditron
import ditron.language as dl
from ditron.kernels.tiles import (
    accumulator,
    columns_of,
    last_round,
    load_rows,
    narrow_stages,
    piece_of,
    product_step,
    promoted,
    scale_tile,
    store_columns,
    store_tile,
    tile_position,
)

__all__ = ["gemm_rs_kernel"]


@ditron.jit
def publish_tile(
    counts_ptr, arrived_ptr, tile, tiles_m, tiles_n, PIECES: tl.constexpr, PIECE: tl.constexpr, STORES: tl.constexpr
):
    """Count a stored tile, at its owner or for the copy stream: those of a piece add up to ``PIECE``.

    ``tile`` is twice the number of its piece among those of all shards, and 1 for the piece's first tile.
    """
    own = dl.rank()
    piece = tile // 2 % PIECES
    rows_of_tiles = tiles_m * (piece + 1) // PIECES - tiles_m * piece // PIECES
    share = tl.where(tile % 2 == 1, PIECE - rows_of_tiles * tiles_n + 1, 1)
    if STORES:
        dl.notify(arrived_ptr + own * PIECES + piece, tile // 2 // PIECES, share, op="add")
    else:
        dl.notify(counts_ptr + tile // 2, own, share, op="add", scope="gpu")


@ditron.jit
def scaled_columns(
    result,
    part: tl.constexpr,
    scale_a_ptr,
    scale_b_ptr,
    shard,
    row,
    col,
    rows,
    N,
    BM: tl.constexpr,
    BN: tl.constexpr,
    PARTS: tl.constexpr,
    SCALE_A: tl.constexpr,
    SCALE_B: tl.constexpr,
):
    """One of ``PARTS`` ranges of a tile's columns, times the scales of its rows in ``shard`` and of the columns."""
    columns = result if PARTS == 1 else columns_of(result, part, PARTS)
    if SCALE_A != "none":
        scale_a_ptr += shard * rows if SCALE_A == "row" else 0
        columns = scale_tile(columns, scale_a_ptr, scale_b_ptr, row, col, rows, N, BM, BN // PARTS, SCALE_A, SCALE_B)
    return columns


@ditron.jit
def plus_others(
    total,
    inbox_ptr,
    arrived_ptr,
    piece,
    row,
    col,
    rows,
    N,
    capacity,
    epoch,
    BM: tl.constexpr,
    WIDTH: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    RANKS: tl.constexpr,
    STORES: tl.constexpr,
):
    """``WIDTH`` columns of an own tile at (row, col), plus those of other ranks, when their ``piece`` has arrived."""
    own = dl.rank()
    box_ptr = inbox_ptr
    for other in tl.static_range(1, RANKS):  # all waits, then all loads: none is behind another
        sender = (own + other) % RANKS
        token = dl.wait(arrived_ptr + sender * PIECES + piece, 1, epoch * PIECE if STORES else epoch)
        box_ptr = dl.consume_token(box_ptr, token)
    if STORES:
        box_ptr += (epoch % 2).to(tl.int64) * RANKS * capacity * N
    for other in tl.static_range(1, RANKS):
        sender = (own + other) % RANKS
        theirs_ptr = box_ptr + sender.to(tl.int64) * rows * N
        total += load_rows(theirs_ptr, row, col, rows, N, BM, WIDTH).to(tl.float32)
    return total


@ditron.jit
def narrow_own_tile(
    tile,
    part,
    a_desc,
    b_desc,
    scale_a_ptr,
    scale_b_ptr,
    out_desc,
    inbox_ptr,
    arrived_ptr,
    rows,
    N,
    K,
    capacity,
    epoch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    STAGES: tl.constexpr,
    PARTS: tl.constexpr,
    B_IS_KN: tl.constexpr,
    RANKS: tl.constexpr,
    SCALE_A: tl.constexpr,
    SCALE_B: tl.constexpr,
    PROMOTE: tl.constexpr,
    STORES: tl.constexpr,
):
    """One of ``PARTS`` ranges of an own tile's columns; the descriptors of B and of the result are of so many."""
    WIDTH: tl.constexpr = BN // PARTS
    NARROW_STAGES: tl.constexpr = narrow_stages(STAGES, BM, BN, WIDTH)
    own = dl.rank()
    tiles_m = tl.cdiv(rows, BM)
    _, m, n = tile_position(tile, tiles_m, tl.cdiv(N, BN), (own + 1) % RANKS, RANKS, GROUP)
    col = n * BN + part * WIDTH
    acc = accumulator(a_desc, BM, WIDTH, SCALE_A)
    if PROMOTE:
        sums = tl.zeros((BM, WIDTH), tl.float32)
    for k in tl.range(tl.cdiv(K, BK), num_stages=NARROW_STAGES):
        acc = product_step(
            a_desc,
            b_desc,
            scale_a_ptr + own * rows if SCALE_A == "block" else None,
            scale_b_ptr,
            RANKS * rows,
            own,
            m * BM,
            col,
            k * BK,
            acc,
            rows,
            K,
            BM,
            WIDTH,
            BK,
            B_IS_KN,
            SCALE_A,
        )
        if PROMOTE:
            sums, acc = promoted(sums, acc, k, tl.cdiv(K, BK), PROMOTE)
    result = sums if PROMOTE else acc
    total = scaled_columns(
        result, 0, scale_a_ptr, scale_b_ptr, own, m * BM, col, rows, N, BM, WIDTH, 1, SCALE_A, SCALE_B
    )
    piece, _, _ = piece_of(m, tiles_m, PIECES)
    total = plus_others(
        total,
        inbox_ptr,
        arrived_ptr,
        piece,
        m * BM,
        col,
        rows,
        N,
        capacity,
        epoch,
        BM,
        WIDTH,
        PIECES,
        PIECE,
        RANKS,
        STORES,
    )
    store_columns(out_desc, 0, m * BM, col, total)


@ditron.jit(do_not_specialize=["epoch"])
def gemm_rs_kernel(
    a_desc,
    b_desc,
    b_half_desc,
    scale_a_ptr,
    scale_b_ptr,
    out_desc,
    out_half_desc,
    outbox_desc,
    inbox_ptr,
    counts_ptr,
    arrived_ptr,
    rows,
    N,
    K,
    capacity,
    epoch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PIECES: tl.constexpr,
    PROGRAMS: tl.constexpr,
    PIECE: tl.constexpr,
    STAGES: tl.constexpr,
    NARROW: tl.constexpr,
    B_IS_KN: tl.constexpr,
    RANKS: tl.constexpr,
    PARTS: tl.constexpr,
    SCALE_A: tl.constexpr,
    SCALE_B: tl.constexpr,
    PROMOTE: tl.constexpr,
    STORES: tl.constexpr,
    PUBLISH_AT: tl.constexpr,
):
    """Other ranks' tiles to the outbox ``[ranks, rows, N]``, the own ones plus the inbox's to ``out`` [rows, N].

    With ``STORES`` there is no outbox: a tile is stored in its owner's inbox ``[2, ranks, rows, N]``, whose halves are
    used in turns as exchange.py explains, and counted there. With ``NARROW`` of 2, own tiles that leave
    programs without one in the last round are computed as halves of their columns where those fit in it: quarters need
    more registers than there are.
    """
    own = dl.rank()
    half = (epoch % 2).to(tl.int32)
    tiles_m = tl.cdiv(rows, BM)
    tiles_n = tl.cdiv(N, BN)
    k_steps = tl.maximum(tl.cdiv(K, BK), 2)  # beyond K are zeros
    # A tile is published in the loop over K of the next one: by then its stores have completed, and nothing waits. Not
    # in the last step, which Triton puts behind the epilogue, where own tiles wait for what other ranks publish.
    publish_at = tl.minimum(PUBLISH_AT, k_steps - 2)
    if STORES:
        place = half.to(tl.int64) * RANKS * capacity + own.to(tl.int64) * rows
        boxes = ()
        for other in tl.static_range(1, RANKS):
            owners_ptr = dl.symm_at(inbox_ptr + place * N, (own + other) % RANKS)
            boxes = boxes + (tl.make_tensor_descriptor(owners_ptr, [rows, N], [N, 1], [BM, BN // PARTS]),)
    # A round of whole own tiles hides the last piece of others', for which narrow ones would wait.
    whole, narrow = last_round(RANKS * tiles_m * tiles_n, tiles_m * tiles_n - PROGRAMS, PROGRAMS, NARROW)
    stored = -1  # the tile before, which is not published yet (publish_tile)
    if PROMOTE:
        acc = tl.zeros((BM, BN), tl.float32)
    for tile in tl.range(tl.program_id(0), whole, PROGRAMS, flatten=True):
        shard, m, n = tile_position(tile, tiles_m, tiles_n, (own + 1) % RANKS, RANKS, GROUP)
        piece, first, _ = piece_of(m, tiles_m, PIECES)
        before = stored
        stored = tl.where(shard == own, -1, (shard * PIECES + piece) * 2 + ((m == first) & (n == 0)).to(tl.int32))
        if PROMOTE:
            sums = tl.zeros((BM, BN), tl.float32)
        else:
            acc = accumulator(a_desc, BM, BN, SCALE_A)
        for k in range(k_steps):
            acc = product_step(
                a_desc,
                b_desc,
                scale_a_ptr + shard * rows if SCALE_A == "block" else None,
                scale_b_ptr,
                RANKS * rows,
                shard,
                m * BM,
                n * BN,
                k * BK,
                acc,
                rows,
                K,
                BM,
                BN,
                BK,
                B_IS_KN,
                SCALE_A,
            )
            if PROMOTE:
                sums, acc = promoted(sums, acc, k, k_steps, PROMOTE)
            if (k == publish_at) & (before >= 0):
                publish_tile(counts_ptr, arrived_ptr, before, tiles_m, tiles_n, PIECES, PIECE, STORES)
        result = sums if PROMOTE else acc
        if shard == own:  # each branch scales: Triton 3.6 cannot fuse the loops with more than the branches behind
            for part in tl.static_range(PARTS):
                col = n * BN + part * (BN // PARTS)
                total = scaled_columns(
                    result, part, scale_a_ptr, scale_b_ptr, shard, m * BM, col, rows, N, BM, BN, PARTS, SCALE_A, SCALE_B
                )
                total = plus_others(
                    total,
                    inbox_ptr,
                    arrived_ptr,
                    piece,
                    m * BM,
                    col,
                    rows,
                    N,
                    capacity,
                    epoch,
                    BM,
                    BN // PARTS,
                    PIECES,
                    PIECE,
                    RANKS,
                    STORES,
                )
                store_columns(out_desc, 0, m * BM, col, total)
        elif SCALE_A == "none" and not STORES:
            store_tile(outbox_desc, shard, m * BM, n * BN, result, PARTS)
        else:
            if STORES:
                box = boxes[0]
                for other in tl.static_range(2, RANKS):
                    if shard == (own + other) % RANKS:
                        box = boxes[other - 1]
            for part in tl.static_range(PARTS):
                col = n * BN + part * (BN // PARTS)
                columns = scaled_columns(
                    result, part, scale_a_ptr, scale_b_ptr, shard, m * BM, col, rows, N, BM, BN, PARTS, SCALE_A, SCALE_B
                )
                if STORES:
                    box.store([m * BM, col], columns.to(box.dtype))
                else:
                    store_columns(outbox_desc, shard, m * BM, col, columns)
    if stored >= 0:
        publish_tile(counts_ptr, arrived_ptr, stored, tiles_m, tiles_n, PIECES, PIECE, STORES)
    if NARROW == 2:
        items = tl.where(narrow == 2, (RANKS * tiles_m * tiles_n - whole) * 2, 0)
        for item in tl.range(tl.program_id(0), items, PROGRAMS):  # one at most; of a branch, ptxas serializes products
            narrow_own_tile(
                whole + item // 2,
                item % 2,
                a_desc,
                b_half_desc,
                scale_a_ptr,
                scale_b_ptr,
                out_half_desc,
                inbox_ptr,
                arrived_ptr,
                rows,
                N,
                K,
                capacity,
                epoch,
                BM,
                BN,
                BK,
                GROUP,
                PIECES,
                PIECE,
                STAGES,
                NARROW,
                B_IS_KN,
                RANKS,
                SCALE_A,
                SCALE_B,
                PROMOTE,
                STORES,
            )
