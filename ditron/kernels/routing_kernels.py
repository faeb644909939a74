"""Kernels that make routing tables (routing.py) from the routes of all ranks.

A block of a stage's routes is counted and placed by one program: ``B`` places of ``TK`` for a token, a power of two of
which the first ``TOP_K`` are used, so that a token's routes lie in one block. Rows of counts are blocks, in the order
of stages.
"""

from __future__ import annotations

import triton
import triton.language as tl

import ditron

__all__ = ["add_counts_kernel", "block_routes", "place_routes_kernel", "store_counts"]


@ditron.jit
def block_routes(block, place, tokens, B: tl.constexpr, TK: tl.constexpr, TOP_K: tl.constexpr):
    """Of the places ``place`` of a block of a rank's routes: whether each has one, its token, and its index."""
    token = block * (B // TK) + place // TK
    return (token < tokens) & (place % TK < TOP_K), token, token * TOP_K + place % TK


@ditron.jit
def store_counts(counts_ptr, row, expert, first_expert, experts, E: tl.constexpr):
    """Row ``row`` of ``counts`` [rows, E] = how many of a block's routes go to each expert."""
    own = expert - first_expert
    own = tl.where(own < experts, own, -1)
    COLUMNS: tl.constexpr = E if E < 32 else 32  # of which few registers are needed
    for first in tl.static_range(0, E, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        counts = tl.sum((own[:, None] == column[None, :]).to(tl.int32), 0)
        tl.store(counts_ptr + row * E + column, counts)


@ditron.jit
def add_counts_kernel(counts_ptr, before_ptr, rows, E: tl.constexpr, COLUMNS: tl.constexpr):
    """``before`` [rows + 1, E] = the sums of all rows of ``counts`` before each; of all of them behind the last.

    A program makes 128 rows of ``COLUMNS`` columns. Scans of so many numbers are slow; products with ones are exact, as
    integers up to 2048 are in fp16.
    """
    first = tl.program_id(0) * 128
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    sums = tl.zeros((COLUMNS,), tl.int32)
    for offset in range(0, first, 256):
        row = offset + tl.arange(0, 256)[:, None]
        sums += tl.sum(tl.load(counts_ptr + row * E + column, mask=row < first, other=0), 0)
    within = tl.arange(0, 128)
    row = (first + within)[:, None]
    counts = tl.load(counts_ptr + row * E + column, mask=row < rows, other=0)
    earlier = (within[None, :] < within[:, None]).to(tl.float16)
    before = sums[None, :] + tl.dot(earlier, counts.to(tl.float16)).to(tl.int32)
    tl.store(before_ptr + row * E + column, before, mask=row < rows)
    tl.store(before_ptr + (row + 1) * E + column, before + counts, mask=row == rows - 1)


@ditron.jit
def _sums(counts_ptr, pid, blocks, rows, E: tl.constexpr, PROGRAMS: tl.constexpr, RANKS: tl.constexpr):
    """[ROWS, E]: the sum of the rows of counts before ``pid`` in row 0, and of the first ``i`` stages in row ``i``."""
    ROWS: tl.constexpr = 16 if RANKS < 16 else triton.next_power_of_2(RANKS + 1)
    program = tl.arange(0, PROGRAMS)[:, None]
    counts = tl.load(counts_ptr + program * E + tl.arange(0, E)[None, :], mask=program < rows, other=0)
    which = tl.arange(0, ROWS)[:, None]
    before = tl.arange(0, PROGRAMS)[None, :] < tl.where(which == 0, pid, which * blocks)
    return tl.dot(before.to(tl.float16), counts.to(tl.float16)).to(tl.int32)


@ditron.jit
def _pick(sums, before_ptr, i, row, E: tl.constexpr, ADDED: tl.constexpr):
    """The counts before ``row``: row ``i`` of ``sums`` in registers, or if they are ``ADDED`` of ``before``."""
    if ADDED:
        return tl.load(before_ptr + row * E + tl.arange(0, E))
    else:
        rows = tl.arange(0, sums.shape[0])[:, None]
        return tl.sum(tl.where(rows == i, sums, 0), 0)


@ditron.jit
def _place_block(
    ids_ptr,
    counts_ptr,
    before_ptr,
    row_slot_ptr,
    row_route_ptr,
    route_row_ptr,
    pid,
    first_rank,
    ranks,
    tokens,
    blocks,
    first_expert,
    experts,
    E: tl.constexpr,
    B: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    RANKS: tl.constexpr,
    ADDED: tl.constexpr,
):
    """Rows of a block's routes."""
    stage, block = pid // blocks, pid % blocks
    rows = ranks * blocks
    ids_ptr += (first_rank + stage) % ranks * tokens * TOP_K
    place = tl.arange(0, B)
    exists, token, at = block_routes(block, place, tokens, B, TK, TOP_K)
    expert = tl.load(ids_ptr + at, mask=exists, other=-1).to(tl.int32) - first_expert
    own = (expert >= 0) & (expert < experts)
    sums = 0 if ADDED else _sums(counts_ptr, pid, blocks, rows, E, PROGRAMS, RANKS)
    tiles_of = tl.cdiv(_pick(sums, before_ptr, RANKS, rows, E, ADDED), BLOCK_M)
    next_row = (tl.cumsum(tiles_of, 0) - tiles_of) * BLOCK_M + _pick(sums, before_ptr, 0, pid, E, ADDED)
    row = tl.sum(tl.where(expert[:, None] == tl.arange(0, E)[None, :], next_row[None, :], 0), 1)
    for chunk in tl.static_range(B // 32):  # and the block's earlier ones to the same expert
        other = chunk * 32 + tl.arange(0, 32)
        is_other, _, of_other = block_routes(block, other, tokens, B, TK, TOP_K)
        theirs = tl.load(ids_ptr + of_other, mask=is_other, other=-1).to(tl.int32) - first_expert
        is_earlier = (theirs[None, :] == expert[:, None]) & (other[None, :] < place[:, None])
        row += tl.sum(is_earlier.to(tl.int32), 1)
    at += (first_rank + stage) % ranks * tokens * TOP_K
    tl.store(row_slot_ptr + row, stage * tokens + token, mask=own)
    tl.store(row_route_ptr + row, at, mask=own)
    tl.store(route_row_ptr + at, tl.where(own, row, -1), mask=exists)


@ditron.jit
def _make_tiles(
    counts_ptr,
    before_ptr,
    row_slot_ptr,
    row_route_ptr,
    tiles_ptr,
    num_tiles_ptr,
    expert_rows_ptr,
    pid,
    programs,
    ranks,
    blocks,
    experts,
    most,
    E: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    RANKS: tl.constexpr,
    GROUPS: tl.constexpr,
    FIELDS: tl.constexpr,
    ADDED: tl.constexpr,
):
    """Padding and tiles; ``pid`` of ``programs`` takes 16 experts and 16 tiles at a time."""
    column = tl.arange(0, E)
    rows = ranks * blocks
    sums = 0 if ADDED else _sums(counts_ptr, 0, blocks, rows, E, PROGRAMS, RANKS)
    totals = _pick(sums, before_ptr, RANKS, rows, E, ADDED)
    tiles_of = tl.cdiv(totals, BLOCK_M)
    last_tile = tl.cumsum(tiles_of, 0)  # and one more
    first_tile = last_tile - tiles_of
    if pid == 0:
        tl.store(num_tiles_ptr, tl.sum(tiles_of, 0))
        tl.store(expert_rows_ptr + column, first_tile * BLOCK_M, mask=column < most)
        tl.store(expert_rows_ptr + most, tl.sum(tiles_of, 0) * BLOCK_M)

    within = tl.arange(0, BLOCK_M)
    for first in range(pid * 16, experts, programs * 16):  # padding
        is_own = first + tl.arange(0, 16)[:, None] == column[None, :]
        end = tl.sum(tl.where(is_own, first_tile * BLOCK_M + totals, 0), 1)
        padded = tl.sum(tl.where(is_own, last_tile * BLOCK_M, 0), 1)
        at = end[:, None] + within[None, :]
        none = tl.full((16, BLOCK_M), -1, tl.int32)
        tl.store(row_slot_ptr + at, none, mask=at < padded[:, None])
        tl.store(row_route_ptr + at, none, mask=at < padded[:, None])

    begin = 0  # of a group's rows of tiles, in the order of computation
    tiles_before = tl.zeros((E,), tl.int32)
    for group in tl.static_range(GROUPS):  # a row of tiles belongs to the group of its last row
        stages = (group + 1) * RANKS // GROUPS
        arrived = _pick(sums, before_ptr, stages, stages * blocks, E, ADDED)
        tiles_so_far = tl.where(arrived == totals, tiles_of, arrived // BLOCK_M)
        run = tiles_so_far - tiles_before
        run_end = begin + tl.cumsum(run, 0)
        end = begin + tl.sum(run, 0)
        for block in range(begin + pid * 16, end, programs * 16):
            position = block + tl.arange(0, 16)
            expert = tl.sum((run_end[None, :] <= position[:, None]).to(tl.int32), 1)
            is_own = (expert[:, None] == column[None, :]).to(tl.int32)
            run_of = tl.sum(is_own * run[None, :], 1)
            skipped = tl.sum(is_own * tiles_before[None, :], 1)
            first_row = skipped * BLOCK_M
            last_row = tl.minimum(first_row + run_of * BLOCK_M, tl.sum(is_own * totals[None, :], 1)) - 1
            first_stage = tl.zeros((16,), tl.int32)
            last_stage = tl.zeros((16,), tl.int32)
            for ended in tl.static_range(1, RANKS):
                of_stages = tl.sum(is_own * _pick(sums, before_ptr, ended, ended * blocks, E, ADDED)[None, :], 1)
                first_stage += (of_stages <= first_row).to(tl.int32)
                last_stage += (of_stages <= last_row).to(tl.int32)
            to = tiles_ptr + position * FIELDS
            is_tile = position < end
            tl.store(to, expert, mask=is_tile)
            tl.store(to + 1, tl.sum(is_own * (run_end - run)[None, :], 1), mask=is_tile)
            tl.store(to + 2, tl.sum(is_own * first_tile[None, :], 1) + skipped, mask=is_tile)
            tl.store(to + 3, run_of, mask=is_tile)
            tl.store(to + 4, first_stage, mask=is_tile)
            tl.store(to + 5, last_stage, mask=is_tile)
        begin = end
        tiles_before = tiles_so_far


@ditron.jit
def place_routes_kernel(
    ids_ptr,
    counts_ptr,
    before_ptr,
    row_slot_ptr,
    row_route_ptr,
    route_row_ptr,
    tiles_ptr,
    num_tiles_ptr,
    expert_rows_ptr,
    first_rank,
    ranks,
    tokens,
    blocks,
    first_expert,
    experts,
    most,
    E: tl.constexpr,
    B: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    RANKS: tl.constexpr,
    GROUPS: tl.constexpr,
    FIELDS: tl.constexpr,
    ADDED: tl.constexpr,
):
    """Rows of routes, a program for each block; other programs make padding and tiles.

    ``most``: experts of the rank that has most. If counts are not ``ADDED`` (:func:`add_counts_kernel`), every program
    adds up those of all ``PROGRAMS``, a power of two.
    """
    makers = tl.num_programs(0) - ranks * blocks  # first, for they take longer
    pid = tl.program_id(0) - makers
    if pid >= 0:
        _place_block(
            ids_ptr,
            counts_ptr,
            before_ptr,
            row_slot_ptr,
            row_route_ptr,
            route_row_ptr,
            pid,
            first_rank,
            ranks,
            tokens,
            blocks,
            first_expert,
            experts,
            E,
            B,
            TK,
            TOP_K,
            PROGRAMS,
            BLOCK_M,
            RANKS,
            ADDED,
        )
    else:
        _make_tiles(
            counts_ptr,
            before_ptr,
            row_slot_ptr,
            row_route_ptr,
            tiles_ptr,
            num_tiles_ptr,
            expert_rows_ptr,
            pid + makers,
            makers,
            ranks,
            blocks,
            experts,
            most,
            E,
            PROGRAMS,
            BLOCK_M,
            RANKS,
            GROUPS,
            FIELDS,
            ADDED,
        )
