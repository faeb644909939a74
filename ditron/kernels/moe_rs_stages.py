"""Mixture of experts: the second product by stages, other ranks' tokens first, whose sums are sent meanwhile.

Rows of an expert follow each other by stage (routing.py), and tiles by groups of stages. The product takes them from
the last on, and counts them by stage; a second kernel, whose programs fit next to the product's on each SM, adds and
sends other ranks' tokens when they are counted. The own tokens' sums come behind the product, with what was sent here.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.kernels.combine import add_sums, send_sums
from ditron.kernels.grouped import expert_tile, grouped_step, products_of_step, store_grouped
from ditron.kernels.routing import TILE_FIELDS, sample_plan
from ditron.kernels.tiles import shards_descriptor
from ditron.kernels.words import word_boxes

__all__ = ["moe_rs_by_stage_program"]


_FIELDS = tl.constexpr(TILE_FIELDS)

# What the tiles of a stage add up to in a call, however many they are.
ALL_TILES = tl.constexpr(1 << 24)


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
    """Count, for each stage but 0, the tiles that it lacks to ``ALL_TILES``."""
    for stage in tl.static_range(1, RANKS):
        rows = 0
        for first in range(0, tiles_m, 128):
            row = first + tl.arange(0, 128)
            stages = tl.load(tiles_ptr + row * _FIELDS + 5, mask=row < tiles_m, other=0)
            rows += tl.sum((stages == stage).to(tl.int32), 0)
        dl.notify(counts_ptr + stage, dl.rank(), ALL_TILES - rows * tiles_n, op="add", scope="gpu")


@ditron.jit(do_not_specialize=["epoch"])
def product_by_stage_kernel(
    rows_desc,
    w_desc,
    y_desc,
    y_ptr,
    tiles_ptr,
    num_tiles_ptr,
    counts_ptr,
    started_ptr,
    done_ptr,
    H,
    K,
    epoch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    SWAP_AB: tl.constexpr,
    RANKS: tl.constexpr,
):
    """``y`` [max_rows, H] = rows times their experts' matrices, transposed.

    Tiles are computed in the reverse of the plan's order, so that other ranks' tokens come first, and counted by stage.
    """
    own, worker = dl.rank(), tl.program_id(0)
    dl.notify(started_ptr, own, 1, op="add", scope="gpu")
    tiles_m, tiles_n = tl.load(num_tiles_ptr), tl.cdiv(H, BN)
    last_tile = tiles_m * tiles_n - 1
    PRODUCTS: tl.constexpr = products_of_step(BM, False)
    k_steps = tl.cdiv(K, PRODUCTS * BK)
    publish_at = tl.minimum(4, k_steps - 1)  # by then the stores of the tile before have completed: nothing waits
    if worker == 0:  # what the call before sent to this rank has been added
        for step in range(1, RANKS):
            dl.notify(done_ptr + RANKS - 1 - step, (own + step) % RANKS, epoch)
        count_tiles_that_are_not(counts_ptr, tiles_ptr, tiles_m, tiles_n, RANKS)
    for tile in tl.range(worker, tiles_m * tiles_n, PROGRAMS, flatten=True):
        m, n, expert, _, _ = expert_tile(last_tile - tile, tiles_n, tiles_ptr, GROUP)
        w_row = expert * H + n * BN
        if SWAP_AB:
            acc = tl.zeros((BN, BM), tl.float32)
        else:
            acc = tl.zeros((BM, BN), tl.float32)
        for step in range(k_steps):
            for product in tl.static_range(PRODUCTS):
                k = (step * PRODUCTS + product) * BK
                a, w = rows_desc.load([m * BM, k]), w_desc.load([w_row, k])
                acc = grouped_step(acc, a, w, None, None, None, k, K, SWAP_AB, False)
            if (step == publish_at) & (tile >= PROGRAMS):
                count_tile_of_stage(counts_ptr, last_tile - tile + PROGRAMS, tiles_n, tiles_ptr)
        store_grouped(y_ptr, y_desc, m * BM, n * BN, acc, H, 2, SWAP_AB)
    if worker <= last_tile:
        count_tile_of_stage(counts_ptr, (last_tile - worker) % PROGRAMS, tiles_n, tiles_ptr)


@ditron.jit(do_not_specialize=["epoch"])
def send_by_stage_kernel(
    y_ptr,
    boxes_ptr,
    route_row_ptr,
    route_weight_ptr,
    counts_ptr,
    done_ptr,
    placed_ptr,
    tokens,
    capacity,
    H,
    epoch,
    WORDS: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """Send every other rank its tokens' sums, those of the last stage first, each when its rows have been counted."""
    own, pid, programs = dl.rank(), tl.program_id(0), tl.num_programs(0)
    dl.notify(placed_ptr, own, 1, op="add", scope="gpu")
    dl.wait(done_ptr, RANKS - 1, epoch)
    counted = tl.cast(epoch, tl.int64) * ALL_TILES
    of_routes = (route_row_ptr, route_weight_ptr)
    for back in tl.static_range(1, RANKS):
        stage = RANKS - back
        token = dl.wait(counts_ptr + stage, RANKS - stage, counted, scope="gpu")  # a tile has rows of several stages
        rows_ptr = dl.consume_token(y_ptr, token)
        peer = (own + stage) % RANKS
        send_sums(rows_ptr, boxes_ptr, *of_routes, peer, pid, programs, tokens, capacity, H, WORDS, TOP_K)


@ditron.jit
def add_kernel(
    y_ptr,
    out_ptr,
    boxes_ptr,
    token_ranks_ptr,
    route_row_ptr,
    route_weight_ptr,
    tokens,
    capacity,
    H,
    WORDS: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """``out`` [tokens, H] = own sums plus those that others send."""
    pid, programs = tl.program_id(0), tl.num_programs(0)
    of_routes = (token_ranks_ptr, route_row_ptr, route_weight_ptr)
    add_sums(y_ptr, out_ptr, boxes_ptr, *of_routes, pid, programs, tokens, capacity, H, WORDS, TOP_K, RANKS, False)


def sample(ranks: int, generator: torch.Generator, rank: int) -> dict[str, Any]:
    """Arguments for the checker: a plan of as many groups of stages as ranks, or of one."""
    divided, grouped = (torch.rand(2, generator=generator) < 0.5).tolist()
    plan = sample_plan(ranks, generator, rank, divided=divided, groups=ranks if grouped else 1)
    return {
        "rows": f"bf16[{plan.max_rows}, 32]",
        "w": "bf16[32, 32]",
        "y": f"bf16[{plan.max_rows}, 16]",
        "out": "bf16[4, 16]",
        "token_ranks": plan.token_ranks,
        "route_row": plan.route_row,
        "route_weight": f"f32[{4 * ranks}, 2]",
        "tiles": plan.tiles,
        "num_tiles": plan.num_tiles,
        "capacity": 8,
        "num_ranks": ranks,
        "top_k": 2,
        "block": (16, 32, 32),
        "programs": 3,
        "words": 4,
        "beside": 2,
    }


@ditron.program(
    example={
        "rows": "bf16[33792, 768]",
        "w": "bf16[65536, 768]",
        "y": "bf16[33792, 2048]",
        "out": "bf16[4096, 2048]",
        "token_ranks": "i32[4096, 2]",
        "route_row": "i32[16384, 8]",
        "route_weight": "f32[16384, 8]",
        "tiles": "i32[264, 6]",
        "num_tiles": "i32[1]",
        "capacity": 4096,
        "num_ranks": 4,
        "top_k": 8,
    },
    sample_args=sample,
    max_nodes=1,
    do_not_specialize=("token_ranks", "route_row", "route_weight", "tiles"),
)
def moe_rs_by_stage_program(
    rows,
    w,
    y,
    out,
    token_ranks,
    route_row,
    route_weight,
    tiles,
    num_tiles,
    capacity,
    *,
    num_ranks,
    top_k,
    block=(128, 256, 64),
    programs=132,
    words=256,
    sum_registers=64,
    beside=264,
    swap_ab=False,
    group_m=8,
    num_warps=8,
    stages=4,
    maxnreg=None,
):
    """As :func:`~ditron.kernels.moe_rs.moe_rs_program`, of ``rows`` that are not quantized.

    ``beside`` programs, which fit next to those of the product, send other ranks' tokens, ``words`` of a token's sum at
    a time; others add the own ones when the product is done.
    A plan whose tiles are divided into groups by stage (``stage_groups=``) leaves the product something to hide.
    """
    (tokens, H), K = out.shape, rows.shape[1]
    BM, BN, BK = block
    parts = dh.cdiv(H, words * (8 // out.dtype.itemsize))
    boxes = word_boxes(capacity * parts * words, halves=1)
    counts = dh.symm_zeros(num_ranks, dtype=torch.int64, name="counts")
    started = dh.symm_zeros(1, dtype=torch.int64, name="started")
    done = dh.symm_zeros(num_ranks, dtype=torch.int64, name="done")
    placed = dh.symm_zeros(1, dtype=torch.int64, name="placed")
    product_by_stage_kernel[(programs,)](
        TensorDescriptor.from_tensor(rows, [BM, BK]),
        TensorDescriptor.from_tensor(w, [BN, BK]),
        shards_descriptor(y, 1, y.shape[0], H, (BM, BN // 2)),
        y,
        tiles,
        num_tiles,
        counts,
        started,
        done,
        H,
        K,
        dh.epoch(),
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=group_m,
        PROGRAMS=programs,
        SWAP_AB=swap_ab,
        RANKS=num_ranks,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )
    of_routes, of_sums = (route_row, route_weight), (tokens, capacity, H)
    options = {"WORDS": words, "TOP_K": top_k, "RANKS": num_ranks, "num_warps": max(words // 64, 1)}
    with dh.stream("sums"):  # when all of the product's programs have their place
        dh.signal_wait(started[0], dh.epoch() * programs)
        send_by_stage_kernel[(beside,)](
            y, boxes, *of_routes, counts, done, placed, *of_sums, dh.epoch(), maxnreg=sum_registers, **options
        )
    dh.signal_wait(placed[0], dh.epoch() * beside)  # else programs that wait for other ranks' could take their place
    add_kernel[(tokens * parts,)](y, out, boxes, token_ranks, *of_routes, *of_sums, **options)
