"""Kernels that make routing tables (routing.py) from the routes of all ranks.

A block of a stage's routes is counted and placed by one program: ``B`` places of ``TK`` for a token, a power of two of
which the first ``TOP_K`` are used, so that a token's routes lie in one block. Rows of counts are blocks, in the order
of stages.
"""

from __future__ import annotations

import triton.language as tl

import ditron

__all__ = ["add_counts_kernel", "block_routes", "count_routes_kernel", "place_routes_kernel", "store_counts"]


@ditron.jit
def block_routes(block, tokens, B: tl.constexpr, TK: tl.constexpr, TOP_K: tl.constexpr):
    """Of a block of a rank's routes: whether each of the ``B`` places has one, its token, and its index."""
    place = tl.arange(0, B)
    token = block * (B // TK) + place // TK
    return (token < tokens) & (place % TK < TOP_K), token, token * TOP_K + place % TK


@ditron.jit
def _is_to(expert, first_expert, experts, E: tl.constexpr):
    """[B, E] whether each goes to one of ``experts`` from ``first_expert`` on."""
    own = expert - first_expert
    own = tl.where(own < experts, own, -1)
    return (own[:, None] == tl.arange(0, E)[None, :]).to(tl.int32)


@ditron.jit
def store_counts(counts_ptr, row, expert, first_expert, experts, E: tl.constexpr):
    """Row ``row`` of ``counts`` [rows, E] = how many of a block's routes go to each expert."""
    counts = tl.sum(_is_to(expert, first_expert, experts, E), 0)
    tl.store(counts_ptr + row * E + tl.arange(0, E), counts.to(counts_ptr.dtype.element_ty))


@ditron.jit
def count_routes_kernel(
    ids_ptr,
    counts_ptr,
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
):
    """``counts`` [ranks * blocks, E] of ``ids`` [ranks, tokens, TOP_K]."""
    row = tl.program_id(0)
    exists, _, at = block_routes(row % blocks, tokens, B, TK, TOP_K)
    at += (first_rank + row // blocks) % ranks * tokens * TOP_K
    expert = tl.load(ids_ptr + at, mask=exists, other=-1).to(tl.int32)
    store_counts(counts_ptr, row, expert, first_expert, experts, E)


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
        sums += tl.sum(tl.load(counts_ptr + row * E + column, mask=row < first, other=0).to(tl.int32), 0)
    within = tl.arange(0, 128)
    row = (first + within)[:, None]
    counts = tl.load(counts_ptr + row * E + column, mask=row < rows, other=0)
    earlier = (within[None, :] < within[:, None]).to(tl.float16)
    before = sums[None, :] + tl.dot(earlier, counts.to(tl.float16)).to(tl.int32)
    tl.store(before_ptr + row * E + column, before, mask=row < rows)
    behind = before + counts
    tl.store(before_ptr + (row + 1) * E + column, behind, mask=row == rows - 1)


@ditron.jit
def _pick(sums, before_ptr, i, row, E: tl.constexpr, ADDED: tl.constexpr):
    """The counts before ``row``: row ``i`` of ``sums`` in registers, or if they are ``ADDED`` of ``before``."""
    if ADDED:
        return tl.load(before_ptr + row * E + tl.arange(0, E))
    else:
        rows = tl.arange(0, sums.shape[0])[:, None]
        return tl.sum(tl.where(rows == i, sums, 0), 0)


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
    """Rows of routes, padding and tiles, a program for each block.

    ``most``: experts of the rank that has most. If counts are not ``ADDED`` (:func:`add_counts_kernel`), every program
    adds up those of all ``PROGRAMS``, a power of two.
    """
    pid = tl.program_id(0)
    stage = pid // blocks
    column = tl.arange(0, E)
    exists, token, at = block_routes(pid % blocks, tokens, B, TK, TOP_K)
    at += (first_rank + stage) % ranks * tokens * TOP_K
    chosen = _is_to(tl.load(ids_ptr + at, mask=exists, other=-1).to(tl.int32), first_expert, experts, E)
    if ADDED:
        sums = 0
    else:
        program = tl.arange(0, PROGRAMS)
        counts = tl.load(
            counts_ptr + program[:, None] * E + column[None, :], mask=(program < ranks * blocks)[:, None], other=0
        )
        which = tl.arange(0, 16)[:, None]
        before = program[None, :] < tl.where(which == 0, pid, which * blocks)
        sums = tl.dot(before.to(tl.float16), counts.to(tl.float16)).to(tl.int32)
    totals = _pick(sums, before_ptr, RANKS, RANKS * blocks, E, ADDED)
    tiles_of = tl.cdiv(totals, BLOCK_M)
    last_tile = tl.cumsum(tiles_of, 0)  # and one more
    first_tile = last_tile - tiles_of
    if pid == 0:
        tl.store(num_tiles_ptr, tl.sum(tiles_of, 0))
        tl.store(expert_rows_ptr + column, first_tile * BLOCK_M, mask=column < most)
        tl.store(expert_rows_ptr + most, tl.sum(tiles_of, 0) * BLOCK_M)

    place = tl.arange(0, B)
    earlier_in_block = (place[None, :] < place[:, None]).to(tl.float16)
    earlier = tl.dot(earlier_in_block, chosen.to(tl.float16)).to(tl.int32)
    next_row = first_tile * BLOCK_M + _pick(sums, before_ptr, 0, pid, E, ADDED)
    row = tl.sum(chosen * (next_row[None, :] + earlier), 1)
    own = tl.sum(chosen, 1) > 0
    tl.store(row_slot_ptr + row, stage * tokens + token, mask=own)
    tl.store(row_route_ptr + row, at, mask=own)
    tl.store(route_row_ptr + at, tl.where(own, row, -1), mask=exists)

    within = tl.arange(0, BLOCK_M)
    for one in range(pid, experts, tl.num_programs(0)):  # padding
        end = tl.sum(tl.where(column == one, first_tile * BLOCK_M + totals, 0), 0)
        padded = tl.sum(tl.where(column == one, last_tile * BLOCK_M, 0), 0)
        tl.store(row_slot_ptr + end + within, -1, mask=end + within < padded)
        tl.store(row_route_ptr + end + within, -1, mask=end + within < padded)

    begin = 0  # of a group's rows of tiles, in the order of computation
    tiles_before = tl.zeros((E,), tl.int32)
    for group in tl.static_range(GROUPS):  # a row of tiles belongs to the group of its last row
        stages = (group + 1) * RANKS // GROUPS
        arrived = _pick(sums, before_ptr, stages, stages * blocks, E, ADDED)
        tiles_so_far = tl.where(arrived == totals, tiles_of, arrived // BLOCK_M)
        run = tiles_so_far - tiles_before
        run_end = begin + tl.cumsum(run, 0)
        end = begin + tl.sum(run, 0)
        for block in range(begin + pid * 16, end, tl.num_programs(0) * 16):
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
                rows = tl.sum(is_own * _pick(sums, before_ptr, ended, ended * blocks, E, ADDED)[None, :], 1)
                first_stage += (rows <= first_row).to(tl.int32)
                last_stage += (rows <= last_row).to(tl.int32)
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
