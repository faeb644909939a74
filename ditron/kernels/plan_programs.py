"""The program that makes routing tables (routing.py) of all ranks' routes, which they tell each other by packets, or of
few routes by words from registers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.kernels.exchange import packet_boxes, receive_packets, send_packets_to_all
from ditron.kernels.plan_at_once import plan_at_once_kernel
from ditron.kernels.routing import TILE_FIELDS
from ditron.kernels.routing_kernels import (
    OF_TOTAL,
    check_experts,
    columns_of,
    enter_counts,
    enter_tokens,
    enter_weights,
    place_routes_kernel,
    segment_routes,
)
from ditron.kernels.words import word_boxes

__all__ = ["EXAMPLE", "TABLES", "Segments", "moe_plan_program", "sample_of"]

#: Tables of a plan by their parameters: kernels do not ask for their extents, which follow from the number of tokens.
TABLES = ("route_weight", "errors", "token_ranks", "row_slot", "row_route", "route_row", "tiles", "expert_tiles")

#: Programs that send, for all of which those that take wait: they have to fit the GPU at one time.
MOST_SENDERS = 64


@ditron.jit(do_not_specialize=["epoch"])
def exchange_routes_kernel(
    topk_ids_ptr,
    topk_weights_ptr,
    map_ptr,
    ids_ptr,
    weights_ptr,
    counts_ptr,
    totals_ptr,
    errors_ptr,
    token_ranks_ptr,
    id_boxes_ptr,
    weight_boxes_ptr,
    tokens,
    segments,
    boxes,
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
    PROTOCOL: tl.constexpr,
):
    """``ids`` and ``weights`` [ranks, tokens, TOP_K] of all ranks' routes, and how many go to each expert.

    A program sends a segment of this rank's as packets to all, takes the same one of every other, and counts them.
    """
    own = dl.rank()
    ranks = dl.num_ranks()
    segment = tl.program_id(0)
    MESSAGE: tl.constexpr = (C // TK) * TOP_K
    begin = segment * MESSAGE
    count = tl.minimum(tokens * TOP_K - begin, MESSAGE)
    all_of = tokens * TOP_K  # of one rank
    totals_ptr += (epoch % 2).to(tl.int32) * reserved * E
    exists, _, at = segment_routes(segment, tokens, C, TK, TOP_K)
    mine_ptr = ids_ptr + own * all_of
    token, experts_of_token, wrong, repeated = check_experts(
        topk_ids_ptr, mine_ptr, map_ptr, segment, tokens, known, num_experts, C, TK, TOP_K, HAS_MAP
    )
    send_packets_to_all(mine_ptr + begin, 0, count, id_boxes_ptr, segment, boxes, epoch, MESSAGE, PROTOCOL)
    enter_weights(topk_weights_ptr, weights_ptr, own, ranks, all_of, at, exists, C, HAS_WEIGHTS)
    if HAS_WEIGHTS:
        weight_ptr = weights_ptr + own * all_of + begin
        send_packets_to_all(weight_ptr, 0, count, weight_boxes_ptr, segment, boxes, epoch, MESSAGE, PROTOCOL)
    enter_tokens(
        errors_ptr, token_ranks_ptr, token, tokens, experts_of_token, wrong, repeated, num_experts, ranks, IS_TP
    )
    expert = tl.load(mine_ptr + at, mask=exists, other=-1).to(tl.int32)
    enter_counts(counts_ptr, totals_ptr, 0, segment, segments, columns_of(expert, first_expert, experts), E)
    for stage in range(1, ranks):
        sender = (own + stage) % ranks
        theirs_ptr = ids_ptr + sender * all_of + begin
        theirs_ptr = receive_packets(theirs_ptr, count, id_boxes_ptr, segment, boxes, sender, epoch, MESSAGE, PROTOCOL)
        theirs = tl.load(theirs_ptr + (at - begin), mask=exists, other=-1).to(tl.int32)
        column = columns_of(theirs, first_expert, experts)
        enter_counts(counts_ptr, totals_ptr, stage, segment, segments, column, E)
    if HAS_WEIGHTS:
        for stage in range(1, ranks):
            sender = (own + stage) % ranks
            weight_ptr = weights_ptr + sender * all_of + begin
            receive_packets(weight_ptr, count, weight_boxes_ptr, segment, boxes, sender, epoch, MESSAGE, PROTOCOL)


def sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: at once or by segments."""
    at_once = bool(torch.rand(1, generator=generator) < 0.5)
    return sample_of(ranks, generator, at_once) | {"at_once": at_once, "slice_tokens": 4}


def sample_of(ranks: int, generator: torch.Generator, at_once: bool) -> dict[str, Any]:
    """To one expert of each rank, by two segments, of which one is not whole, or at once by two such slices: of fewer
    tokens, for each word that is polled is a cell to the checker.
    """
    tokens, top_k = 6 if at_once else 24, 2
    ids = torch.rand(tokens, ranks + 1, generator=generator).topk(top_k).indices.int()
    rows = -(-ranks * tokens // 16) * 16
    return {
        "topk_ids": torch.where(ids < ranks, ids, -1),
        "topk_weights": f"f32[{tokens}, {top_k}]",
        "expert_map": "i32[1]",
        "route_weight": f"f32[{ranks * tokens}, {top_k}]",
        "errors": f"i32[{tokens}, 2]",
        "token_ranks": f"i32[{tokens}, 2]",
        "row_slot": f"i32[{rows}]",
        "row_route": f"i32[{rows}]",
        "route_row": f"i32[{ranks * tokens}, {top_k}]",
        "tiles": f"i32[{rows // 16}, 6]",
        "expert_tiles": f"i32[{rows // 16}, 6]",
        "num_tiles": "i32[1]",
        "expert_rows": "i32[2]",
        "capacity": 2,
        "num_ranks": ranks,
        "num_experts": ranks,
        "top_k": top_k,
        "block_m": 16,
        "columns": 16,
        "places": 16 if at_once else 32,
        "experts_at_once": 16,
        "makers": 1,
        "groups": int(torch.randint(1, 3, (), generator=generator)),
    }


EXAMPLE = {
    "topk_ids": "i32[2048, 8]",
    "topk_weights": "f32[2048, 8]",
    "expert_map": "i32[1]",
    "route_weight": "f32[8192, 8]",
    "errors": "i32[2048, 2]",
    "token_ranks": "i32[2048, 2]",
    "row_slot": "i32[69632]",
    "row_route": "i32[69632]",
    "route_row": "i32[8192, 8]",
    "tiles": "i32[544, 6]",
    "expert_tiles": "i32[544, 6]",
    "num_tiles": "i32[1]",
    "expert_rows": "i32[33]",
    "capacity": 64,
}


@ditron.program(example=EXAMPLE, sample_args=sample, max_nodes=1, do_not_specialize=TABLES)
def moe_plan_program(
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
    at_once=False,
    experts_at_once=32,
    makers=8,
    placed_routes=64,
    slice_tokens=0,
    has_weights=True,
    has_map=False,
    num_warps=8,
    place_warps=4,
    protocol="ll",
):
    """Tables of a plan (routing.py) of all ranks' ``topk_ids`` and ``topk_weights`` [tokens, top_k].

    Memory is kept for up to ``capacity`` segments of a rank, of ``places`` routes of at most 128 tokens
    (routing_kernels.py); ``at_once``, by one kernel, each rank has one of any size. ``columns``: a power of two,
    experts of a rank or more. ``makers`` programs make tiles, each of the others finds the rows of ``experts_at_once``
    in a segment, or, ``at_once``, of ``placed_routes``, a power of two, whatever their experts. ``slice_tokens``: a
    power of two, of which a program sends the experts, if ``at_once``; 0: as many as it has threads for. ``protocol``:
    of packets, if not ``at_once``. ``has_weights``, ``has_map``: ``topk_weights``, ``expert_map`` count.
    """
    sizes = Segments(topk_ids, capacity, num_ranks, num_experts, is_tp, top_k, columns, places)
    tables = row_slot, row_route, route_row, tiles, expert_tiles, num_tiles, expert_rows
    known = expert_map.shape[0] if has_map else num_experts
    of_tables = sizes.of_tables(experts_at_once, makers)
    of_tiles = block_m.bit_length() - 1, groups
    given = {"HAS_WEIGHTS": has_weights, "HAS_MAP": has_map, "IS_TP": is_tp}
    if at_once:
        placed = min(max(placed_routes, triton.next_power_of_2(top_k)), places)
        senders = makers + num_ranks * (places // placed)
        del of_tables["EXPERTS"]
        plan_at_once_kernel[(senders + 1,)](
            topk_ids,
            topk_weights,
            expert_map,
            route_weight,
            errors,
            token_ranks,
            word_boxes(sizes.pairs, "pair_boxes"),
            word_boxes(places if has_weights else 1, "weight_boxes"),
            *tables,
            sizes.tokens,
            known,
            num_experts,
            sizes.first,
            sizes.experts,
            expert_rows.shape[0] - 1,
            *of_tiles,
            dh.epoch(),
            PLACED=placed,
            SLICE=sizes.slice_tokens(slice_tokens, senders, 32 * num_warps),
            num_warps=num_warps,
            **given,
            **of_tables,
        )
        return
    ids, counts, totals = sizes.ids(), sizes.counts(), sizes.totals()
    exchange_routes_kernel[(sizes.segments,)](
        topk_ids,
        topk_weights,
        expert_map,
        ids,
        route_weight,
        counts,
        totals,
        errors,
        token_ranks,
        packet_boxes(capacity, sizes.message, torch.int16, "id_boxes"),
        packet_boxes(capacity, sizes.message if has_weights else 1, torch.float32, "weight_boxes"),
        sizes.tokens,
        sizes.segments,
        capacity,
        known,
        num_experts,
        sizes.first,
        sizes.experts,
        sizes.reserved,
        dh.epoch(),
        PROTOCOL=protocol,
        num_warps=num_warps,
        **given,
        **sizes.of_segment,
    )
    sizes.place(ids, counts, totals, tables, of_tiles, place_warps, of_tables)


class Segments:
    """How the routes of a host program are divided, and what follows their exchange."""

    def __init__(
        self,
        topk_ids: Any,
        capacity: Any,
        num_ranks: int,
        num_experts: int,
        is_tp: bool,
        top_k: int,
        columns: int,
        places: int,
    ):
        self.tokens, self.rank = topk_ids.shape[0], dh.rank()
        self.first, self.experts = 0, num_experts
        if not is_tp:
            self.first = self.rank * num_experts // num_ranks
            self.experts = (self.rank + 1) * num_experts // num_ranks - self.first
        TK = triton.next_power_of_2(top_k)
        self.segments = dh.cdiv(self.tokens, places // TK)
        self.of_segment = {"E": columns, "C": places, "TK": TK, "TOP_K": top_k}
        self.message = places // TK * top_k  # routes of a segment
        self.tokens_of_segment, self.pairs_of_token = places // TK, (TK + 1) // 2
        self.num_ranks, self.capacity, self.columns, self.places = num_ranks, capacity, columns, places
        self.reserved = num_ranks * dh.cdiv(capacity, OF_TOTAL.value)  # rows of totals

    @property
    def pairs(self) -> int:
        """Of a segment (:func:`check_pairs`)."""
        return self.tokens_of_segment * self.pairs_of_token

    def slice_tokens(self, wanted: int, senders: int, threads: int) -> int:
        """Of a rank's one segment, those whose experts each of ``senders`` sends until none are left. If no number is
        ``wanted``: with fewer words than ``threads`` some would be stored by several (:func:`send_words`).
        """
        wanted = wanted or max(1, threads // self.pairs_of_token)
        enough = max(-(-self.tokens_of_segment // min(senders, MOST_SENDERS)), wanted)
        return min(triton.next_power_of_2(enough), self.tokens_of_segment)

    def ids(self) -> Any:
        return dh.empty(self.num_ranks * self.capacity * self.places, dtype=torch.int16, name="ids")

    def counts(self) -> Any:
        return dh.empty(self.num_ranks * self.capacity * self.columns, dtype=torch.int32, name="counts")

    def totals(self) -> Any:
        return dh.zeros(2 * self.reserved * self.columns, dtype=torch.int32, name="totals")

    def of_tables(self, experts_at_once: int, makers: int) -> dict[str, Any]:
        """Constants of the kernel that makes tables."""
        constants = {"RANKS": self.num_ranks, "FIELDS": TILE_FIELDS}
        return constants | {"EXPERTS": experts_at_once, "MAKERS": makers} | self.of_segment

    def place(
        self,
        ids: Any,
        counts: Any,
        totals: Any,
        tables: tuple[Any, ...],
        of_tiles: tuple[int, int],
        num_warps: int,
        of_tables: dict[str, Any],
    ) -> None:
        """Make ``tables`` of what has been exchanged; ``of_tiles``: the logarithm of their rows, groups of stages."""
        programs = of_tables["MAKERS"] + self.num_ranks * self.segments * (self.columns // of_tables["EXPERTS"])
        place_routes_kernel[(programs,)](
            ids,
            counts,
            totals,
            *tables,
            self.rank,
            self.tokens,
            self.segments,
            self.first,
            self.experts,
            tables[-1].shape[0] - 1,
            *of_tiles,
            self.reserved,
            dh.epoch(),
            num_warps=num_warps,
            **of_tables,
        )
