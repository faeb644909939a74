"""As plan_programs.py, by puts that reach ranks on other nodes."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.kernels.plan_programs import EXAMPLE, TABLES, Segments, sample_of
from ditron.kernels.routing_kernels import (
    check_experts,
    columns_of,
    enter_counts,
    enter_tokens,
    enter_weights,
    segment_routes,
)

__all__ = ["moe_plan_nodes_program"]


@ditron.jit(do_not_specialize=["epoch"])
def put_routes_kernel(
    topk_ids_ptr,
    topk_weights_ptr,
    map_ptr,
    ids_ptr,
    weights_ptr,
    counts_ptr,
    totals_ptr,
    errors_ptr,
    token_ranks_ptr,
    id_outbox_ptr,
    id_inbox_ptr,
    weight_outbox_ptr,
    weight_inbox_ptr,
    ids_arrived_ptr,
    weights_arrived_ptr,
    tokens,
    segments,
    capacity,
    known,
    num_experts,
    first_expert,
    experts,
    reserved,
    epoch,
    E: tl.constexpr,
    C: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    HAS_MAP: tl.constexpr,
    IS_TP: tl.constexpr,
):
    """As :func:`exchange_routes_kernel`, by puts. Inboxes have two halves, used in turns, as exchange.py explains."""
    own = dl.rank()
    ranks = dl.num_ranks()
    segment = tl.program_id(0)
    MESSAGE: tl.constexpr = (C // TK) * TOP_K
    begin = segment * MESSAGE
    count = tl.minimum(tokens * TOP_K - begin, MESSAGE)
    all_of = tokens * TOP_K  # of one rank
    totals_ptr += (epoch % 2).to(tl.int32) * reserved * E
    box = ((epoch % 2).to(tl.int64) * capacity + segment) * ranks  # of rank 0
    exists, _, at = segment_routes(segment, tokens, C, TK, TOP_K)
    mine_ptr = ids_ptr + own * all_of
    token, experts_of_token, wrong, repeated = check_experts(
        topk_ids_ptr, mine_ptr, map_ptr, segment, tokens, known, num_experts, C, TK, TOP_K, HAS_MAP
    )
    expert = tl.load(mine_ptr + at, mask=exists, other=-1)
    tl.store(id_outbox_ptr + at, expert, mask=exists)
    for step in range(1, ranks):
        to_ptr = id_inbox_ptr + (box + own) * MESSAGE
        arrived_ptr = ids_arrived_ptr + segment * ranks + own
        dl.putmem_signal_nbi(to_ptr, id_outbox_ptr + begin, count * 2, arrived_ptr, epoch, (own + step) % ranks)
    weight = enter_weights(topk_weights_ptr, weights_ptr, own, ranks, all_of, at, exists, C, HAS_WEIGHTS)
    if HAS_WEIGHTS:
        tl.store(weight_outbox_ptr + at, weight, mask=exists)
        for step in range(1, ranks):
            to_ptr = weight_inbox_ptr + (box + own) * MESSAGE
            arrived_ptr = weights_arrived_ptr + segment * ranks + own
            dl.putmem_signal_nbi(to_ptr, weight_outbox_ptr + begin, count * 4, arrived_ptr, epoch, (own + step) % ranks)
    enter_tokens(
        errors_ptr, token_ranks_ptr, token, tokens, experts_of_token, wrong, repeated, num_experts, ranks, IS_TP
    )
    enter_counts(
        counts_ptr, totals_ptr, 0, segment, segments, columns_of(expert.to(tl.int32), first_expert, experts), E
    )
    for stage in range(1, ranks):
        sender = (own + stage) % ranks
        arrived = dl.wait(ids_arrived_ptr + segment * ranks + sender, 1, epoch)
        from_ptr = dl.consume_token(id_inbox_ptr + (box + sender) * MESSAGE, arrived)
        theirs = tl.load(from_ptr + (at - begin), mask=exists, other=-1)
        tl.store(ids_ptr + sender * all_of + at, theirs, mask=exists)
        column = columns_of(theirs.to(tl.int32), first_expert, experts)
        enter_counts(counts_ptr, totals_ptr, stage, segment, segments, column, E)
    if HAS_WEIGHTS:
        for stage in range(1, ranks):
            sender = (own + stage) % ranks
            arrived = dl.wait(weights_arrived_ptr + segment * ranks + sender, 1, epoch)
            from_ptr = dl.consume_token(weight_inbox_ptr + (box + sender) * MESSAGE, arrived)
            weight = tl.load(from_ptr + (at - begin), mask=exists, other=0.0)
            tl.store(weights_ptr + sender * all_of + at, weight, mask=exists)
    dl.quiet()  # the next call writes the outboxes anew


def nodes_sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """By segments."""
    return sample_of(ranks, generator, at_once=False)


@ditron.program(example=EXAMPLE, sample_args=nodes_sample, do_not_specialize=TABLES)
def moe_plan_nodes_program(
    topk_ids,
    topk_weights,
    expert_map,
    route_weight,
    errors,
    token_ranks,
    row_slot,
    row_route,
    route_row,
    tiles,
    expert_tiles,
    num_tiles,
    expert_rows,
    capacity,
    *,
    num_ranks=4,
    num_experts=128,
    is_tp=False,
    top_k=8,
    block_m=128,
    groups=1,
    columns=32,
    places=1024,
    experts_at_once=32,
    makers=8,
    has_weights=True,
    has_map=False,
    num_warps=8,
    place_warps=4,
):
    """As :func:`moe_plan_program`, by puts that reach ranks on other nodes."""
    sizes = Segments(topk_ids, capacity, num_ranks, num_experts, is_tp, top_k, columns, places)
    ids, counts, totals = sizes.ids(), sizes.counts(), sizes.totals()
    message = capacity * sizes.message
    put_routes_kernel[(sizes.segments,)](
        topk_ids,
        topk_weights,
        expert_map,
        ids,
        route_weight,
        counts,
        totals,
        errors,
        token_ranks,
        dh.symm_empty(message, dtype=torch.int16, name="id_outbox"),
        dh.symm_empty(2 * num_ranks * message, dtype=torch.int16, name="id_inbox"),
        dh.symm_empty(message if has_weights else 1, dtype=torch.float32, name="weight_outbox"),
        dh.symm_empty(2 * num_ranks * message if has_weights else 1, dtype=torch.float32, name="weight_inbox"),
        dh.symm_zeros(capacity * num_ranks, dtype=torch.int64, name="ids_arrived"),
        dh.symm_zeros(capacity * num_ranks, dtype=torch.int64, name="weights_arrived"),
        sizes.tokens,
        sizes.segments,
        capacity,
        expert_map.shape[0] if has_map else num_experts,
        num_experts,
        sizes.first,
        sizes.experts,
        sizes.reserved,
        dh.epoch(),
        HAS_WEIGHTS=has_weights,
        HAS_MAP=has_map,
        IS_TP=is_tp,
        num_warps=num_warps,
        **sizes.of_segment,
    )
    tables = row_slot, row_route, route_row, tiles, expert_tiles, num_tiles, expert_rows
    of_tables = sizes.of_tables(experts_at_once, makers)
    of_tiles = block_m.bit_length() - 1, groups
    sizes.place(ids, counts, totals, tables, of_tiles, place_warps, of_tables)
