"""Tile functions and a kernel that make routing tables (routing.py) from the routes of all ranks.

Routes are taken by segments: ``C`` places of ``TK`` for a token, a power of two of which the first ``TOP_K`` are used,
so that a token's routes lie in one segment. ``column``: of each route its expert among this rank's, or -1.
"""

from __future__ import annotations

import triton.language as tl

import ditron
import ditron.language as dl

#: Segments of a stage whose counts are added up by those who count.
OF_TOTAL = tl.constexpr(16)

__all__ = [
    "OF_TOTAL",
    "check_experts",
    "check_pairs",
    "columns_of",
    "count_routes",
    "enter_counts",
    "enter_tokens",
    "enter_weights",
    "experts_of_pairs",
    "first_rows",
    "has_bit",
    "make_tiles",
    "place_routes",
    "place_routes_kernel",
    "routes_before",
    "segment_routes",
    "segment_routes_at",
]


@ditron.jit
def segment_routes(segment, tokens, C: tl.constexpr, TK: tl.constexpr, TOP_K: tl.constexpr):
    """Of the places of a segment of a rank's routes: whether each has one, its token, and its index."""
    return segment_routes_at(segment * C + tl.arange(0, C), tokens, TK, TOP_K)


@ditron.jit
def segment_routes_at(place, tokens, TK: tl.constexpr, TOP_K: tl.constexpr):
    """:func:`segment_routes` of places of a rank's routes."""
    token = place // TK
    return (token < tokens) & (place % TK < TOP_K), token, token * TOP_K + place % TK


@ditron.jit
def experts_of(topk_ids_ptr, map_ptr, token, tokens, known, num_experts, TOP_K: tl.constexpr, HAS_MAP: tl.constexpr):
    """Of a tensor of tokens a tuple of ``TOP_K`` experts, and of each token how many are none of ``known`` or -1, and
    how many it has already: those are -1, and so are all of a token that does not exist.

    ``map``: the numbers that experts have among ``num_experts``.
    """
    wrong = tl.zeros(token.shape, tl.int32)
    repeated = tl.zeros(token.shape, tl.int32)
    experts = ()
    for k in tl.static_range(TOP_K):
        given = tl.load(topk_ids_ptr + token * TOP_K + k, mask=token < tokens, other=-1)
        is_wrong = (given < -1) | (given >= known)
        expert = tl.where(is_wrong, -1, given).to(tl.int32)
        if HAS_MAP:
            expert = tl.load(map_ptr + expert, mask=expert >= 0, other=-1).to(tl.int32)
            is_unknown = (expert < -1) | (expert >= num_experts)
            expert = tl.where(is_unknown, -1, expert)
            is_wrong |= is_unknown
        has_it = is_wrong & False
        for j in tl.static_range(k):
            has_it |= experts[j] == expert
        has_it &= expert >= 0
        wrong += is_wrong.to(tl.int32)
        repeated += has_it.to(tl.int32)
        experts = experts + (tl.where(has_it, -1, expert),)
    return experts, wrong, repeated


@ditron.jit
def check_experts(
    topk_ids_ptr,
    ids_ptr,
    map_ptr,
    segment,
    tokens,
    known,
    num_experts,
    C: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    HAS_MAP: tl.constexpr,
):
    """Enter a segment's experts into ``ids`` [tokens, TOP_K], for all threads to read.

    Its tokens, their experts, and of each token how many are wrong and repeated (:func:`experts_of`): those go to no
    expert.
    """
    token = segment * (C // TK) + tl.arange(0, C // TK)
    experts, wrong, repeated = experts_of(topk_ids_ptr, map_ptr, token, tokens, known, num_experts, TOP_K, HAS_MAP)
    for k in tl.static_range(TOP_K):
        tl.store(ids_ptr + token * TOP_K + k, experts[k].to(ids_ptr.dtype.element_ty), mask=token < tokens)
    dl.sync_threads()
    return token, experts, wrong, repeated


@ditron.jit
def check_pairs(
    topk_ids_ptr,
    map_ptr,
    first,
    tokens,
    known,
    num_experts,
    TOKENS: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    HAS_MAP: tl.constexpr,
):
    """Of ``TOKENS`` tokens from ``first`` on, two experts a number, 16 bits each (one, if ``TK`` is 1), in registers.

    Numbers of a token follow each other: each computes all of its token's experts, and takes two, so that nothing
    moves between threads. Their tokens, of each its experts, and what :func:`experts_of` counts, for the first number
    of a token.
    """
    PAIRS: tl.constexpr = (TK + 1) // 2
    token = first + tl.arange(0, TOKENS * PAIRS) // PAIRS
    pair = tl.arange(0, TOKENS * PAIRS) % PAIRS
    experts, wrong, repeated = experts_of(topk_ids_ptr, map_ptr, token, tokens, known, num_experts, TOP_K, HAS_MAP)
    low = tl.full(token.shape, -1, tl.int32)
    high = tl.full(token.shape, -1, tl.int32)
    for k in tl.static_range(TOP_K):
        if k % 2 == 0:
            low = tl.where(pair == k // 2, experts[k], low)
        else:
            high = tl.where(pair == k // 2, experts[k], high)
    return (low & 0xFFFF) | (high << 16), tl.where(pair == 0, token, tokens), experts, wrong, repeated


@ditron.jit
def experts_of_pairs(pairs, TK: tl.constexpr):
    """The experts of numbers of :func:`check_pairs`, ``TK`` a token."""
    low = (pairs << 16) >> 16
    return low if TK == 1 else tl.interleave(low, pairs >> 16)


@ditron.jit
def enter_tokens(
    errors_ptr, token_ranks_ptr, token, tokens, experts, wrong, repeated, num_experts, ranks, IS_TP: tl.constexpr
):
    """Rows of ``errors`` and ``token_ranks`` [tokens, 2] of a plan.

    Rank r has the experts from ``r * num_experts // ranks`` up to those of the next; with ``IS_TP``, a part of each.
    """
    tl.store(errors_ptr + 2 * token, wrong, mask=token < tokens)
    tl.store(errors_ptr + 2 * token + 1, repeated, mask=token < tokens)
    low = tl.zeros(token.shape, tl.int32)
    high = tl.zeros(token.shape, tl.int32)
    for k in tl.static_range(len(experts)):
        if IS_TP:
            low |= tl.where(experts[k] >= 0, first_bits(ranks), 0)
            high |= tl.where(experts[k] >= 0, first_bits(ranks - 32), 0)
        else:
            owner = ((experts[k] + 1) * ranks - 1) // num_experts
            bit = tl.where(experts[k] >= 0, 1 << (owner & 31), 0)
            low |= tl.where(owner < 32, bit, 0)
            high |= tl.where(owner < 32, 0, bit)
    tl.store(token_ranks_ptr + 2 * token, low, mask=token < tokens)
    tl.store(token_ranks_ptr + 2 * token + 1, high, mask=token < tokens)


@ditron.jit
def first_bits(count):
    """A number whose first ``count`` bits are set: none if negative, and at most 32."""
    return tl.where(count >= 32, -1, (1 << tl.minimum(tl.maximum(count, 0), 31)) - 1)


@ditron.jit
def has_bit(token_ranks_ptr, token, rank, exists):
    """Whether each token has an expert on ``rank`` (``token_ranks`` of a plan)."""
    word = tl.load(token_ranks_ptr + 2 * token + rank // 32, mask=exists, other=0)
    return (word >> (rank % 32)) & 1 != 0


@ditron.jit
def enter_weights(
    topk_weights_ptr, weights_ptr, own, ranks, all_of, at, exists, C: tl.constexpr, HAS_WEIGHTS: tl.constexpr
):
    """This rank's weights among those of all ranks, ``all_of`` of each; with no weights, all ranks', which are 1."""
    if HAS_WEIGHTS:
        weight = tl.load(topk_weights_ptr + at, mask=exists, other=0.0).to(tl.float32)
        tl.store(weights_ptr + own * all_of + at, weight, mask=exists)
    else:
        weight = tl.full((C,), 1.0, tl.float32)
        for rank in range(ranks):
            tl.store(weights_ptr + rank * all_of + at, weight, mask=exists)
    return weight


@ditron.jit
def columns_of(expert, first_expert, experts):
    """Columns of experts, of which this rank has ``experts`` from ``first_expert`` on."""
    column = expert - first_expert
    return tl.where((column >= 0) & (column < experts), column, -1)


@ditron.jit
def count_routes(column, E: tl.constexpr):
    """[E]: how many routes go to each expert."""
    return tl.histogram(tl.maximum(column, 0), E, mask=column >= 0)


@ditron.jit
def enter_counts(counts_ptr, totals_ptr, stage, segment, segments, column, E: tl.constexpr):
    """A row of ``counts`` = how many of a segment's routes go to each expert, also added to its row of ``totals``."""
    counts = count_routes(column, E)
    at = tl.arange(0, E)
    tl.store(counts_ptr + (stage * segments + segment) * E + at, counts)
    row = stage * tl.cdiv(segments, OF_TOTAL) + segment // OF_TOTAL
    tl.atomic_add(totals_ptr + row * E + at, counts, mask=counts > 0, sem="relaxed")


@ditron.jit
def routes_before(column):
    """Of each of a few routes, how many before it go to the same expert: all pairs are compared, without a scan."""
    at = tl.arange(0, column.shape[0])
    is_before = (column[None, :] == column[:, None]) & (at[None, :] < at[:, None])
    return tl.sum(is_before.to(tl.int32), 1)


@ditron.jit
def counted_in_segment(
    ids_ptr,
    column,
    segment,
    tokens,
    first,
    experts,
    C: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    EXPERTS: tl.constexpr,
):
    """Of routes to one of ``EXPERTS`` experts from ``first`` on, how many there are to the same one up to their token.

    Bytes of a number count four experts: a token has one route to an expert, and a segment at most 128 tokens.
    """
    TOKENS: tl.constexpr = C // TK
    WORDS: tl.constexpr = EXPERTS // 4
    token = segment * TOKENS + tl.arange(0, TOKENS)
    counts = tl.zeros((WORDS, TOKENS), tl.int32)
    for k in tl.static_range(TOP_K):
        expert = tl.load(ids_ptr + token * TOP_K + k, mask=token < tokens, other=-1).to(tl.int32)
        of_k = columns_of(expert, first, experts)
        one = tl.where(of_k >= 0, 1 << (of_k % 4 * 8), 0)
        counts += tl.where((of_k // 4)[None, :] == tl.arange(0, WORDS)[:, None], one[None, :], 0)
    counts = tl.reshape(tl.cumsum(counts, 1), (WORDS * TOKENS,))
    column = tl.maximum(column, 0)
    word = tl.gather(counts, column // 4 * TOKENS + tl.arange(0, C) // TK, 0)
    return (word >> (column % 4 * 8)) & 0xFF


@ditron.jit
def tiles_of_rows(totals, tile_bits):
    """How many tiles of ``1 << tile_bits`` rows so many take."""
    return (totals + (1 << tile_bits) - 1) >> tile_bits


@ditron.jit
def first_rows(totals, tile_bits):
    """[E]: the first row of each expert."""
    tiles_of = tiles_of_rows(totals, tile_bits)
    return (tl.cumsum(tiles_of, 0) - tiles_of) << tile_bits


@ditron.jit
def place_routes(row_slot_ptr, row_route_ptr, route_row_ptr, row, exists, stage, source, tokens, token, at, TOP_K):
    """Enter the rows of routes of rank ``source``; -1 for those to other ranks' experts, -2 for what others enter."""
    row = row.to(tl.int64)  # where scans have another layout than stores, Triton moves one conversion before this
    route = source * tokens * TOP_K + tl.minimum(at, tokens * TOP_K - 1)
    tl.store(row_slot_ptr + row, stage * tokens + token, mask=row >= 0)
    tl.store(row_route_ptr + row, route, mask=row >= 0)
    tl.store(route_row_ptr + route, row.to(tl.int32), mask=exists & (row >= -1))


@ditron.jit
def tiles_until(arrived, totals, tiles_of, stages, tile_bits, RANKS: tl.constexpr):
    """[E]: rows of tiles of each expert whose last row is of the first ``stages`` stages."""
    rows = totals
    for ended in tl.static_range(RANKS):
        rows = tl.where(stages == ended, arrived[ended], rows)
    return tl.where(rows == totals, tiles_of, rows >> tile_bits)


@ditron.jit
def make_tiles(
    arrived,
    row_slot_ptr,
    row_route_ptr,
    tiles_ptr,
    expert_tiles_ptr,
    num_tiles_ptr,
    expert_rows_ptr,
    maker,
    most,
    tile_bits,
    groups,
    MAKERS: tl.constexpr,
    TILES: tl.constexpr,
    E: tl.constexpr,
    RANKS: tl.constexpr,
    FIELDS: tl.constexpr,
):
    """Padding and tiles; ``maker`` of ``MAKERS`` takes ``TILES`` of each expert's at a time.

    ``arrived[i]`` [E]: rows that experts have of the first ``i`` stages. ``most``: experts of the rank that has most.
    A tile has ``1 << tile_bits`` rows: as it and ``groups`` depend on how many tokens there are, they are no constants.
    ``expert_tiles`` is written if there is more than one group.
    """
    expert = tl.arange(0, E)
    within = tl.arange(0, TILES)[None, :]
    totals = arrived[RANKS]
    tiles_of = tiles_of_rows(totals, tile_bits)
    last_tile = tl.cumsum(tiles_of, 0)  # and one more
    first_tile = last_tile - tiles_of
    if maker == 0:
        tiles = tl.sum(tiles_of, 0)
        tl.store(num_tiles_ptr, tiles)
        tl.store(expert_rows_ptr + expert, first_tile << tile_bits, mask=expert < most)
        tl.store(expert_rows_ptr + most, tiles << tile_bits)

    end = (first_tile << tile_bits) + totals
    none = tl.full((E, TILES), -1, tl.int32)
    for first in range(maker * TILES, 1 << tile_bits, MAKERS * TILES):  # padding
        at = end[:, None] + first + within
        tl.store(row_slot_ptr + at, none, mask=at < (last_tile << tile_bits)[:, None])
        tl.store(row_route_ptr + at, none, mask=at < (last_tile << tile_bits)[:, None])

    # Behind several groups comes one of all stages, expert_tiles. Each has its own makers, if there are so many, and
    # the last one, which has most tiles, those that are left.
    all_groups = tl.where(groups > 1, groups + 1, 1)
    of_group = tl.maximum(MAKERS // all_groups, 1)
    first_group = tl.minimum(maker // of_group, all_groups - 1)
    place = maker - first_group * of_group
    for group in range(first_group, all_groups, MAKERS // of_group):
        makers = tl.where(group == all_groups - 1, tl.maximum(MAKERS - group * of_group, 1), of_group)
        is_whole = group == groups
        stages = tl.where(is_whole, 0, group * RANKS // groups)
        skipped = tiles_until(arrived, totals, tiles_of, stages, tile_bits, RANKS)
        stages = tl.where(is_whole, RANKS, (group + 1) * RANKS // groups)
        run = tiles_until(arrived, totals, tiles_of, stages, tile_bits, RANKS) - skipped
        position = tl.sum(skipped, 0) + tl.cumsum(run, 0) - run
        first_row = skipped << tile_bits
        last_row = tl.minimum(first_row + (run << tile_bits), totals) - 1
        first_stage = tl.zeros((E,), tl.int32)
        last_stage = tl.zeros((E,), tl.int32)
        for ended in tl.static_range(1, RANKS):
            first_stage += (arrived[ended] <= first_row).to(tl.int32)
            last_stage += (arrived[ended] <= last_row).to(tl.int32)
        for first in range(place * TILES, tl.max(run, 0), makers * TILES):
            tile = first + within
            to = tl.where(is_whole, expert_tiles_ptr, tiles_ptr) + (position[:, None] + tile) * FIELDS
            is_tile = tile < run[:, None]
            tl.store(to, expert[:, None], mask=is_tile)
            tl.store(to + 1, position[:, None], mask=is_tile)
            tl.store(to + 2, (first_tile + skipped)[:, None], mask=is_tile)
            tl.store(to + 3, run[:, None], mask=is_tile)
            tl.store(to + 4, first_stage[:, None], mask=is_tile)
            tl.store(to + 5, last_stage[:, None], mask=is_tile)


@ditron.jit(do_not_specialize=["tile_bits", "groups", "epoch"])
def place_routes_kernel(
    ids_ptr,
    counts_ptr,
    totals_ptr,
    row_slot_ptr,
    row_route_ptr,
    route_row_ptr,
    tiles_ptr,
    expert_tiles_ptr,
    num_tiles_ptr,
    expert_rows_ptr,
    first_rank,
    tokens,
    segments,
    first_expert,
    experts,
    most,
    tile_bits,
    groups,
    reserved,
    epoch,
    E: tl.constexpr,
    C: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
    FIELDS: tl.constexpr,
    EXPERTS: tl.constexpr,
    MAKERS: tl.constexpr,
):
    """Rows of the routes of a segment to ``EXPERTS`` experts, a program for each; other programs make tiles.

    ``counts`` [RANKS * segments, E]: of segments, in the order of stages. ``totals`` [2, reserved, E]: of ``OF_TOTAL``
    segments of a stage each, in the half of this call; the other is made zero for the next one.
    """
    pid = tl.program_id(0)
    column = tl.arange(0, E)
    rows = tl.arange(0, 16)[:, None]
    of_stage = tl.cdiv(segments, OF_TOTAL)
    half = (epoch % 2).to(tl.int32) * reserved
    if pid < MAKERS:  # first, for they take longer
        arrived = (tl.zeros((E,), tl.int32),)
        for i in tl.static_range(RANKS):
            of_i = tl.zeros((E,), tl.int32)
            for begin in range(0, of_stage, 16):
                row = half + i * of_stage + begin + rows
                of_i += tl.sum(
                    tl.load(totals_ptr + row * E + column[None, :], mask=begin + rows < of_stage, other=0), 0
                )
            arrived = arrived + (arrived[i] + of_i,)
        for free in range(reserved - half + pid, 2 * reserved - half, MAKERS):
            tl.store(totals_ptr + free * E + column, tl.zeros((E,), tl.int32))
        make_tiles(
            arrived,
            row_slot_ptr,
            row_route_ptr,
            tiles_ptr,
            expert_tiles_ptr,
            num_tiles_ptr,
            expert_rows_ptr,
            pid,
            most,
            tile_bits,
            groups,
            MAKERS,
            16 if E <= 256 else 4,
            E,
            RANKS,
            FIELDS,
        )
    else:
        place = (pid - MAKERS) // (E // EXPERTS)
        first = (pid - MAKERS) % (E // EXPERTS) * EXPERTS
        stage, segment = place // segments, place % segments
        source = (first_rank + stage) % RANKS
        ids_ptr += source * tokens * TOP_K
        exists, token, at = segment_routes(segment, tokens, C, TK, TOP_K)
        at = tl.minimum(at, tokens * TOP_K - 1)  # not known to be contiguous, loads have the layout of the stores
        expert = tl.load(ids_ptr + at, mask=exists, other=-1).to(tl.int32)
        own = columns_of(expert, first_expert, experts)
        of_group = columns_of(own, first, EXPERTS)
        counted = counted_in_segment(
            ids_ptr,
            of_group,
            segment,
            tokens,
            first_expert + first,
            tl.minimum(experts - first, EXPERTS),
            C,
            TK,
            TOP_K,
            EXPERTS,
        )
        totals = tl.zeros((E,), tl.int32)
        before = tl.zeros((E,), tl.int32)
        this = stage * of_stage + segment // OF_TOTAL
        for begin in range(0, RANKS * of_stage, 16):
            row = begin + rows
            of_rows = tl.load(totals_ptr + (half + row) * E + column[None, :], mask=row < RANKS * of_stage, other=0)
            totals += tl.sum(of_rows, 0)
            before += tl.sum(tl.where(row < this, of_rows, 0), 0)
        row = stage * segments + segment // OF_TOTAL * OF_TOTAL + rows
        before += tl.sum(tl.load(counts_ptr + row * E + column[None, :], mask=row < place, other=0), 0)
        row = tl.gather(first_rows(totals, tile_bits) + before, tl.maximum(own, 0), 0) + counted - 1
        row = tl.where(of_group >= 0, row, tl.where((own < 0) & (first == 0), -1, -2))
        place_routes(row_slot_ptr, row_route_ptr, route_row_ptr, row, exists, stage, source, tokens, token, at, TOP_K)
