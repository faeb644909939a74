"""Kernels of moe_rs.py: the grouped product, which counts its tiles, and the sums of chunks of columns."""

from __future__ import annotations

import triton.language as tl

import ditron
import ditron.language as dl
from ditron.kernels.combine import (
    CHUNK,
    chunk_tile,
    count_tile,
    count_tile_of_stage,
    count_tiles_that_are_left,
    count_tiles_that_are_not,
    sum_chunk,
)
from ditron.kernels.grouped import (
    expert_tile,
    grouped_step,
    products_of_step,
    scale_of_rows,
    scale_of_weights,
    store_grouped,
)

__all__ = ["moe_product_kernel", "moe_sum_kernel"]


@ditron.jit(do_not_specialize=["epoch", "width"])
def moe_product_kernel(
    rows_desc,
    w_desc,
    scale_rows_ptr,
    scale_w_ptr,
    y_desc,
    y_ptr,
    tiles_ptr,
    num_tiles_ptr,
    counts_ptr,
    started_ptr,
    done_ptr,
    H,
    K,
    width,
    epoch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    SWAP_AB: tl.constexpr,
    SCALED: tl.constexpr,
    COUNT: tl.constexpr,
    BY_STAGE: tl.constexpr,
    RANKS: tl.constexpr,
):
    """``y`` [max_rows, H] = rows times their experts' matrices, transposed; tiles by chunks of columns, counted with
    ``COUNT``. ``BY_STAGE``: or in the reverse of the plan's order, so that other ranks' tokens come first, and counted
    by stage.
    """
    own, worker = dl.rank(), tl.program_id(0)
    if COUNT:
        dl.notify(started_ptr, own, 1, op="add", scope="gpu")
    tiles_m, tiles_n = tl.load(num_tiles_ptr), tl.cdiv(H, BN)
    last_tile = tiles_m * tiles_n - 1
    PRODUCTS: tl.constexpr = products_of_step(BM, SCALED)
    k_steps = tl.cdiv(K, PRODUCTS * BK)
    publish_at = tl.minimum(4, k_steps - 1)  # by then the stores of the tile before have completed: nothing waits
    if worker == 0:  # what the call before sent to this rank has been added
        for step in range(1, RANKS):
            dl.notify(done_ptr + RANKS - 1 - step, (own + step) % RANKS, epoch)
        if BY_STAGE:
            count_tiles_that_are_not(counts_ptr, tiles_ptr, tiles_m, tiles_n, RANKS)
    for tile in tl.range(worker, tiles_m * tiles_n, PROGRAMS, flatten=True):
        if BY_STAGE:
            m, n, expert, _, _ = expert_tile(last_tile - tile, tiles_n, tiles_ptr, GROUP)
        else:
            m, n, expert = chunk_tile(tile, tiles_m, tiles_n, width, tiles_ptr, GROUP)
        w_row = expert * H + n * BN
        scale_rows = None
        scale_w = None
        if SCALED:
            scale_rows = scale_of_rows(scale_rows_ptr, m * BM, K, BM)
            scale_w = scale_of_weights(scale_w_ptr, expert, n * BN, H, K)
        if SWAP_AB:
            acc = tl.zeros((BN, BM), tl.float32)
        else:
            acc = tl.zeros((BM, BN), tl.float32)
        for step in range(k_steps):
            for product in tl.static_range(PRODUCTS):
                k = (step * PRODUCTS + product) * BK
                a, w = rows_desc.load([m * BM, k]), w_desc.load([w_row, k])
                acc = grouped_step(acc, a, w, scale_rows, scale_w, None, k, K, SWAP_AB, SCALED)
            if COUNT:
                if (step == publish_at) & (tile >= PROGRAMS):
                    if BY_STAGE:
                        count_tile_of_stage(counts_ptr, last_tile - tile + PROGRAMS, tiles_n, tiles_ptr)
                    else:
                        count_tile(counts_ptr, tile - PROGRAMS, tiles_m, tiles_n, width)
        store_grouped(y_ptr, y_desc, m * BM, n * BN, acc, H, 2, SWAP_AB)
    if COUNT:
        if BY_STAGE:
            if worker <= last_tile:
                count_tile_of_stage(counts_ptr, (last_tile - worker) % PROGRAMS, tiles_n, tiles_ptr)
        else:
            count_tiles_that_are_left(counts_ptr, worker, PROGRAMS, tiles_m, tiles_n, width)


@ditron.jit(do_not_specialize=["epoch", "width", "splits", "first_chunk", "last_chunk"])
def moe_sum_kernel(
    y_ptr,
    out_ptr,
    inbox_ptr,
    token_ranks_ptr,
    route_row_ptr,
    route_weight_ptr,
    counts_ptr,
    sent_ptr,
    done_ptr,
    tokens,
    capacity,
    H,
    width,
    splits,
    first_chunk,
    last_chunk,
    epoch,
    BN: tl.constexpr,
    SLOTS: tl.constexpr,
    WAIT: tl.constexpr,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
    ALL: tl.constexpr,
):
    """Some chunks of ``out`` [tokens, H], of ``width`` tiles of columns; with ``WAIT`` when they have been counted."""
    pid, workers = tl.program_id(0), tl.num_programs(0)
    dl.wait(done_ptr, RANKS - 1, epoch)
    for chunk in range(first_chunk, last_chunk):
        counted_ptr = y_ptr
        if WAIT:
            token = dl.wait(counts_ptr + chunk, 1, tl.cast(epoch, tl.int64) * CHUNK, scope="gpu")
            counted_ptr = dl.consume_token(y_ptr, token)
        begin = chunk * (width * BN)
        sum_chunk(
            counted_ptr,
            out_ptr,
            inbox_ptr,
            route_row_ptr,
            route_weight_ptr,
            sent_ptr + (chunk * SLOTS + pid) * (RANKS - 1),
            pid,
            workers,
            tokens,
            capacity,
            begin,
            tl.minimum(begin + width * BN, H),
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
