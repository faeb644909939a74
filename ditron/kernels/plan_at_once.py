"""The kernel that makes routing tables (routing.py) of few routes: it exchanges them by words from registers."""

from __future__ import annotations

import triton
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.kernels.routing_kernels import (
    check_pairs,
    columns_of,
    count_routes,
    enter_tokens,
    enter_weights,
    experts_of_pairs,
    first_rows,
    make_tiles,
    place_routes,
    routes_before,
    segment_routes,
    segment_routes_at,
)
from ditron.kernels.words import receive_words, send_words, word_box

__all__ = ["plan_at_once_kernel"]


@ditron.jit
def exchange_pairs(
    topk_ids_ptr,
    map_ptr,
    errors_ptr,
    token_ranks_ptr,
    boxes_ptr,
    slice,
    tokens,
    known,
    num_experts,
    epoch,
    BOX: tl.constexpr,
    SLICE: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
    HAS_MAP: tl.constexpr,
    IS_TP: tl.constexpr,
):
    """:func:`check_pairs` of all ranks' tokens, in the order of stages, ``BOX`` numbers each; behind those of a rank's
    tokens, and of all ranks, come any others.

    A slice of this rank's is checked and sent here, to every rank, this one too: its other programs take it.
    """
    PAIRS: tl.constexpr = (TK + 1) // 2
    own = dl.rank()
    first = slice * SLICE
    if first < tokens:
        at = first * PAIRS + tl.arange(0, SLICE * PAIRS)
        to = ()  # where the peers' memory is, is loaded while the experts are
        for step in tl.static_range(1, RANKS + 1):
            to = to + (dl.symm_at(word_box(boxes_ptr, own, RANKS, epoch, BOX), (own + step) % RANKS),)
        pairs, token, experts, wrong, repeated = check_pairs(
            topk_ids_ptr, map_ptr, first, tokens, known, num_experts, SLICE, TK, TOP_K, HAS_MAP
        )
        for step in tl.static_range(RANKS):
            send_words(to[step] + at, pairs, epoch)
        enter_tokens(errors_ptr, token_ranks_ptr, token, tokens, experts, wrong, repeated, num_experts, RANKS, IS_TP)
    place = tl.arange(0, triton.next_power_of_2(RANKS) * BOX)
    sender = (own + tl.minimum(place // BOX, RANKS - 1)) % RANKS
    at = tl.minimum(place % BOX, tokens * PAIRS - 1)  # there is no mask: others are polled twice
    return receive_words(word_box(boxes_ptr, 0, RANKS, epoch, BOX) + (sender * BOX + at), epoch)


@ditron.jit
def exchange_weights(
    topk_weights_ptr,
    weights_ptr,
    boxes_ptr,
    tokens,
    epoch,
    C: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
):
    """``weights`` [ranks, tokens, TOP_K] of all ranks' routes."""
    own = dl.rank()
    count = tokens * TOP_K
    exists, _, at = segment_routes(0, tokens, C, TK, TOP_K)
    weight = enter_weights(topk_weights_ptr, weights_ptr, own, RANKS, count, at, exists, C, HAS_WEIGHTS)
    if HAS_WEIGHTS:
        place = tl.arange(0, C)
        for step in range(1, RANKS):
            box_ptr = dl.symm_at(word_box(boxes_ptr, own, RANKS, epoch, C), (own + step) % RANKS)
            send_words(box_ptr + place, weight.to(tl.int32, bitcast=True), epoch)
        for step in range(1, RANKS):
            sender = (own + step) % RANKS
            theirs = receive_words(word_box(boxes_ptr, sender, RANKS, epoch, C) + place, epoch)
            tl.store(weights_ptr + sender * count + at, theirs.to(tl.float32, bitcast=True), mask=exists)


@ditron.jit
def columns_at(
    pairs,
    stage,
    place,
    tokens,
    first_expert,
    experts,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """Of the routes in ``pairs`` (:func:`check_pairs`), at places of stages, their columns."""
    exists, _, _ = segment_routes_at(place, tokens, TK, TOP_K)
    expert = tl.where(exists & (stage < RANKS), experts_of_pairs(pairs, TK), -1)
    return columns_of(expert, first_expert, experts)


@ditron.jit(do_not_specialize=["tile_bits", "groups", "epoch"])
def plan_at_once_kernel(
    topk_ids_ptr,
    topk_weights_ptr,
    map_ptr,
    weights_ptr,
    errors_ptr,
    token_ranks_ptr,
    pair_boxes_ptr,
    weight_boxes_ptr,
    row_slot_ptr,
    row_route_ptr,
    route_row_ptr,
    tiles_ptr,
    expert_tiles_ptr,
    num_tiles_ptr,
    expert_rows_ptr,
    tokens,
    known,
    num_experts,
    first_expert,
    experts,
    most,
    tile_bits,
    groups,
    epoch,
    E: tl.constexpr,
    C: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    SLICE: tl.constexpr,
    RANKS: tl.constexpr,
    FIELDS: tl.constexpr,
    PLACED: tl.constexpr,
    MAKERS: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    HAS_MAP: tl.constexpr,
    IS_TP: tl.constexpr,
):
    """All of a plan, of ranks that have one segment each, where it takes less time to count routes than to wait for
    others that do.

    A program sends the routes of ``SLICE`` tokens to all ranks, if there are any left for it, and takes those of all
    ranks: ``MAKERS`` of them make tiles, the others find the rows of ``PLACED`` routes of a rank each. The last sends
    and takes weights. A rank that is alone sends nothing: each program takes all routes.
    """
    own = dl.rank()
    pid = tl.program_id(0)
    PAIRS: tl.constexpr = (TK + 1) // 2
    STAGES: tl.constexpr = triton.next_power_of_2(RANKS)
    if pid == MAKERS + RANKS * (C // PLACED):
        exchange_weights(
            topk_weights_ptr, weights_ptr, weight_boxes_ptr, tokens, epoch, C, TK, TOP_K, RANKS, HAS_WEIGHTS
        )
    else:
        if RANKS == 1:
            pairs, token, of_tokens, wrong, repeated = check_pairs(
                topk_ids_ptr, map_ptr, 0, tokens, known, num_experts, C // TK, TK, TOP_K, HAS_MAP
            )
            if pid == 0:
                enter_tokens(
                    errors_ptr, token_ranks_ptr, token, tokens, of_tokens, wrong, repeated, num_experts, RANKS, IS_TP
                )
        else:
            pairs = exchange_pairs(
                topk_ids_ptr,
                map_ptr,
                errors_ptr,
                token_ranks_ptr,
                pair_boxes_ptr,
                pid,
                tokens,
                known,
                num_experts,
                epoch,
                C // TK * PAIRS,
                SLICE,
                TK,
                TOP_K,
                RANKS,
                HAS_MAP,
                IS_TP,
            )
        at = tl.arange(0, STAGES * C)
        column = columns_at(pairs, at // C, at % C, tokens, first_expert, experts, TK, TOP_K, RANKS)
        if pid < MAKERS:
            arrived = (tl.zeros((E,), tl.int32),)
            if RANKS == 1:
                arrived = arrived + (count_routes(column, E),)
            else:
                of_stages = count_routes(tl.where(column >= 0, at // C * E + column, -1), STAGES * E)
                of_stages = tl.reshape(of_stages, (STAGES, E))
                for stages in tl.static_range(1, RANKS + 1):
                    is_before = tl.arange(0, STAGES)[:, None] < stages
                    arrived = arrived + (tl.sum(tl.where(is_before, of_stages, 0), 0),)
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
                4,
                E,
                RANKS,
                FIELDS,
            )
        else:
            begin = (pid - MAKERS) * PLACED
            counts = count_routes(tl.where(column >= 0, (at < begin).to(tl.int32) * E + column, -1), 2 * E)
            counts = tl.reshape(counts, (2, E))
            before = tl.sum(tl.where(tl.arange(0, 2)[:, None] == 1, counts, 0), 0)
            first = first_rows(tl.sum(counts, 0), tile_bits) + before
            stage, place = begin // C, begin % C + tl.arange(0, PLACED)
            mine = tl.gather(pairs, begin // TK * PAIRS + tl.arange(0, PLACED // TK * PAIRS), 0)
            own_column = columns_at(mine, stage, place, tokens, first_expert, experts, TK, TOP_K, RANKS)
            row = tl.gather(first, tl.maximum(own_column, 0), 0) + routes_before(own_column)
            row = tl.where(own_column >= 0, row, -1)
            source = (own + stage) % RANKS
            exists, of_token, index = segment_routes_at(place, tokens, TK, TOP_K)
            place_routes(
                row_slot_ptr, row_route_ptr, route_row_ptr, row, exists, stage, source, tokens, of_token, index, TOP_K
            )
