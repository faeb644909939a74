"""The exchange of all ranks' routes, and the programs that make tables of them (routing.py)."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.kernels.exchange import packet_boxes, receive_packets, send_packets_to_all
from ditron.kernels.routing import TILE_FIELDS
from ditron.kernels.routing_kernels import add_counts_kernel, block_routes, place_routes_kernel, store_counts

__all__ = ["moe_plan_nodes_program", "moe_plan_program"]


@ditron.jit
def checked_experts(given, map_ptr, known, num_experts, B: tl.constexpr, TK: tl.constexpr, HAS_MAP: tl.constexpr):
    """Experts of a block's routes; of each token how many are none of ``known`` or -1, and how many it has already.

    Those go to no expert. ``map``: the numbers that experts have among ``num_experts``.
    """
    is_wrong = (given < -1) | (given >= known)
    expert = tl.where(is_wrong, -1, given).to(tl.int32)
    if HAS_MAP:
        expert = tl.load(map_ptr + expert, mask=expert >= 0, other=-1).to(tl.int32)
        is_unknown = (expert < -1) | (expert >= num_experts)
        expert = tl.where(is_unknown, -1, expert)
        is_wrong |= is_unknown
    of_token = tl.reshape(expert, (B // TK, TK))
    j = tl.arange(0, TK)
    is_same = (of_token[:, :, None] == of_token[:, None, :]) & (j[None, :, None] > j[None, None, :])
    repeated = tl.reshape(tl.sum(is_same.to(tl.int32), 2), (B,)) > 0
    repeated &= expert >= 0
    wrong_of_token = tl.sum(tl.reshape(is_wrong.to(tl.int32), (B // TK, TK)), 1)
    return tl.where(repeated, -1, expert), wrong_of_token, tl.sum(tl.reshape(repeated.to(tl.int32), (B // TK, TK)), 1)


@ditron.jit(do_not_specialize=["epoch"])
def exchange_routes_kernel(
    topk_ids_ptr,
    topk_weights_ptr,
    map_ptr,
    ids_ptr,
    weights_ptr,
    counts_ptr,
    errors_ptr,
    id_boxes_ptr,
    weight_boxes_ptr,
    tokens,
    blocks,
    boxes,
    known,
    num_experts,
    first_expert,
    experts,
    epoch,
    E: tl.constexpr,
    B: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    HAS_MAP: tl.constexpr,
    PROTOCOL: tl.constexpr,
):
    """``ids`` and ``weights`` [ranks, tokens, TOP_K] of all ranks' routes, and how many go to each expert.

    A program sends a block of this rank's as packets to all, takes the same block of every other, and counts them.
    """
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    begin = block * (B // TK) * TOP_K
    count = tl.minimum(tokens * TOP_K - begin, (B // TK) * TOP_K)
    all_of = tokens * TOP_K  # of one rank
    exists, _, at = block_routes(block, tl.arange(0, B), tokens, B, TK, TOP_K)
    given = tl.load(topk_ids_ptr + at, mask=exists, other=-1)
    expert, wrong, repeated = checked_experts(given, map_ptr, known, num_experts, B, TK, HAS_MAP)
    mine_ptr = ids_ptr + own * all_of
    tl.store(mine_ptr + at, expert.to(ids_ptr.dtype.element_ty), mask=exists)
    send_packets_to_all(mine_ptr + begin, 0, count, id_boxes_ptr, block, boxes, epoch, (B // TK) * TOP_K, PROTOCOL)
    if HAS_WEIGHTS:
        weight = tl.load(topk_weights_ptr + at, mask=exists, other=0.0).to(tl.float32)
        tl.store(weights_ptr + own * all_of + at, weight, mask=exists)
        weight_ptr = weights_ptr + own * all_of + begin
        send_packets_to_all(weight_ptr, 0, count, weight_boxes_ptr, block, boxes, epoch, (B // TK) * TOP_K, PROTOCOL)
    else:
        for rank in range(ranks):
            tl.store(weights_ptr + rank * all_of + at, tl.full((B,), 1.0, tl.float32), mask=exists)
    token = block * (B // TK) + tl.arange(0, B // TK)
    tl.store(errors_ptr + 2 * token, wrong, mask=token < tokens)
    tl.store(errors_ptr + 2 * token + 1, repeated, mask=token < tokens)
    store_counts(counts_ptr, block, expert, first_expert, experts, E)
    for stage in range(1, ranks):
        sender = (own + stage) % ranks
        theirs_ptr = ids_ptr + sender * all_of + begin
        theirs_ptr = receive_packets(
            theirs_ptr, count, id_boxes_ptr, block, boxes, sender, epoch, (B // TK) * TOP_K, PROTOCOL
        )
        theirs = tl.load(theirs_ptr + (at - begin), mask=exists, other=-1).to(tl.int32)
        store_counts(counts_ptr, stage * blocks + block, theirs, first_expert, experts, E)
    if HAS_WEIGHTS:
        for stage in range(1, ranks):
            sender = (own + stage) % ranks
            weight_ptr = weights_ptr + sender * all_of + begin
            receive_packets(
                weight_ptr, count, weight_boxes_ptr, block, boxes, sender, epoch, (B // TK) * TOP_K, PROTOCOL
            )


@ditron.jit(do_not_specialize=["epoch"])
def put_routes_kernel(
    topk_ids_ptr,
    topk_weights_ptr,
    map_ptr,
    ids_ptr,
    weights_ptr,
    counts_ptr,
    errors_ptr,
    id_outbox_ptr,
    id_inbox_ptr,
    weight_outbox_ptr,
    weight_inbox_ptr,
    ids_arrived_ptr,
    weights_arrived_ptr,
    tokens,
    blocks,
    capacity,
    known,
    num_experts,
    first_expert,
    experts,
    epoch,
    E: tl.constexpr,
    B: tl.constexpr,
    TK: tl.constexpr,
    TOP_K: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    HAS_MAP: tl.constexpr,
):
    """As :func:`exchange_routes_kernel`, by puts. Inboxes have two halves, used in turns, as exchange.py explains."""
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    MESSAGE: tl.constexpr = (B // TK) * TOP_K
    begin = block * MESSAGE
    count = tl.minimum(tokens * TOP_K - begin, MESSAGE)
    all_of = tokens * TOP_K  # of one rank
    box = ((epoch % 2).to(tl.int64) * capacity + block) * ranks  # of rank 0
    exists, _, at = block_routes(block, tl.arange(0, B), tokens, B, TK, TOP_K)
    given = tl.load(topk_ids_ptr + at, mask=exists, other=-1)
    expert, wrong, repeated = checked_experts(given, map_ptr, known, num_experts, B, TK, HAS_MAP)
    tl.store(ids_ptr + own * all_of + at, expert.to(ids_ptr.dtype.element_ty), mask=exists)
    tl.store(id_outbox_ptr + at, expert.to(ids_ptr.dtype.element_ty), mask=exists)
    for step in range(1, ranks):
        to_ptr = id_inbox_ptr + (box + own) * MESSAGE
        arrived_ptr = ids_arrived_ptr + block * ranks + own
        dl.putmem_signal_nbi(to_ptr, id_outbox_ptr + begin, count * 2, arrived_ptr, epoch, (own + step) % ranks)
    if HAS_WEIGHTS:
        weight = tl.load(topk_weights_ptr + at, mask=exists, other=0.0).to(tl.float32)
        tl.store(weights_ptr + own * all_of + at, weight, mask=exists)
        tl.store(weight_outbox_ptr + at, weight, mask=exists)
        for step in range(1, ranks):
            to_ptr = weight_inbox_ptr + (box + own) * MESSAGE
            arrived_ptr = weights_arrived_ptr + block * ranks + own
            dl.putmem_signal_nbi(to_ptr, weight_outbox_ptr + begin, count * 4, arrived_ptr, epoch, (own + step) % ranks)
    else:
        for rank in range(ranks):
            tl.store(weights_ptr + rank * all_of + at, tl.full((B,), 1.0, tl.float32), mask=exists)
    token = block * (B // TK) + tl.arange(0, B // TK)
    tl.store(errors_ptr + 2 * token, wrong, mask=token < tokens)
    tl.store(errors_ptr + 2 * token + 1, repeated, mask=token < tokens)
    store_counts(counts_ptr, block, expert, first_expert, experts, E)
    for stage in range(1, ranks):
        sender = (own + stage) % ranks
        arrived = dl.wait(ids_arrived_ptr + block * ranks + sender, 1, epoch)
        from_ptr = dl.consume_token(id_inbox_ptr + (box + sender) * MESSAGE, arrived)
        theirs = tl.load(from_ptr + (at - begin), mask=exists, other=-1)
        tl.store(ids_ptr + sender * all_of + at, theirs, mask=exists)
        store_counts(counts_ptr, stage * blocks + block, theirs.to(tl.int32), first_expert, experts, E)
    if HAS_WEIGHTS:
        for stage in range(1, ranks):
            sender = (own + stage) % ranks
            arrived = dl.wait(weights_arrived_ptr + block * ranks + sender, 1, epoch)
            from_ptr = dl.consume_token(weight_inbox_ptr + (box + sender) * MESSAGE, arrived)
            weight = tl.load(from_ptr + (at - begin), mask=exists, other=0.0)
            tl.store(weights_ptr + sender * all_of + at, weight, mask=exists)
    dl.quiet()  # the next call writes the outboxes anew


def sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: two blocks of routes, the second of them not whole, to one expert of each rank."""
    tokens, top_k = 24, 2
    ids = torch.rand(tokens, ranks + 1, generator=generator).topk(top_k).indices.int()
    rows = -(-ranks * tokens // 16) * 16
    return {
        "topk_ids": torch.where(ids < ranks, ids, -1),
        "topk_weights": f"f32[{tokens}, {top_k}]",
        "expert_map": "i32[1]",
        "route_weight": f"f32[{ranks * tokens}, {top_k}]",
        "errors": f"i32[{tokens}, 2]",
        "row_slot": f"i32[{rows}]",
        "row_route": f"i32[{rows}]",
        "route_row": f"i32[{ranks * tokens}, {top_k}]",
        "tiles": f"i32[{rows // 16}, 6]",
        "num_tiles": "i32[1]",
        "expert_rows": "i32[2]",
        "capacity": 2,
        "num_ranks": ranks,
        "num_experts": ranks,
        "top_k": top_k,
        "block_m": 16,
        "columns": 16,
        "places": 32,
        "direct": 16,
        "tile_programs": 1,
    }


_EXAMPLE = {
    "topk_ids": "i32[2048, 8]",
    "topk_weights": "f32[2048, 8]",
    "expert_map": "i32[1]",
    "route_weight": "f32[8192, 8]",
    "errors": "i32[2048, 2]",
    "row_slot": "i32[69632]",
    "row_route": "i32[69632]",
    "route_row": "i32[8192, 8]",
    "tiles": "i32[544, 6]",
    "num_tiles": "i32[1]",
    "expert_rows": "i32[33]",
    "capacity": 128,
}


@ditron.program(example=_EXAMPLE, sample_args=sample, max_nodes=1)
def moe_plan_program(
    topk_ids,
    topk_weights,
    expert_map,
    route_weight,
    errors,
    row_slot,
    row_route,
    route_row,
    tiles,
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
    places=128,
    direct=0,
    tile_programs=32,
    has_weights=True,
    has_map=False,
    num_warps=4,
    maxnreg=None,
    protocol="ll",
):
    """Tables of a plan (routing.py) of all ranks' ``topk_ids`` and ``topk_weights`` [tokens, top_k].

    Memory is kept for up to ``capacity`` blocks of a rank, of ``places`` routes (routing_kernels.py). ``columns``: a
    power of two, experts of a rank or more. ``direct``: a power of two, blocks of all ranks or more; or 0, for many
    blocks. ``tile_programs`` make tiles. ``has_weights``, ``has_map``: ``topk_weights``, ``expert_map`` count.
    """
    sizes = _Sizes(topk_ids, capacity, num_ranks, num_experts, is_tp, top_k, columns, places)
    ids, counts = sizes.ids(), sizes.counts()
    exchange_routes_kernel[(sizes.blocks,)](
        topk_ids,
        topk_weights,
        expert_map,
        ids,
        route_weight,
        counts,
        errors,
        packet_boxes(capacity, sizes.message, torch.int16, "id_boxes"),
        packet_boxes(capacity, sizes.message if has_weights else 1, torch.float32, "weight_boxes"),
        sizes.tokens,
        sizes.blocks,
        capacity,
        expert_map.shape[0] if has_map else num_experts,
        num_experts,
        sizes.first,
        sizes.experts,
        dh.epoch(),
        HAS_WEIGHTS=has_weights,
        HAS_MAP=has_map,
        PROTOCOL=protocol,
        num_warps=num_warps,
        **sizes.of_block,
    )
    tables = row_slot, row_route, route_row, tiles, num_tiles, expert_rows
    sizes.place(ids, counts, tables, block_m, groups, direct, tile_programs, num_warps, maxnreg)


@ditron.program(example=_EXAMPLE, sample_args=sample)
def moe_plan_nodes_program(
    topk_ids,
    topk_weights,
    expert_map,
    route_weight,
    errors,
    row_slot,
    row_route,
    route_row,
    tiles,
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
    places=128,
    direct=0,
    tile_programs=32,
    has_weights=True,
    has_map=False,
    num_warps=4,
    maxnreg=None,
):
    """As :func:`moe_plan_program`, by puts that reach ranks on other nodes."""
    sizes = _Sizes(topk_ids, capacity, num_ranks, num_experts, is_tp, top_k, columns, places)
    ids, counts = sizes.ids(), sizes.counts()
    message = capacity * sizes.message
    put_routes_kernel[(sizes.blocks,)](
        topk_ids,
        topk_weights,
        expert_map,
        ids,
        route_weight,
        counts,
        errors,
        dh.symm_empty(message, dtype=torch.int16, name="id_outbox"),
        dh.symm_empty(2 * num_ranks * message, dtype=torch.int16, name="id_inbox"),
        dh.symm_empty(message if has_weights else 1, dtype=torch.float32, name="weight_outbox"),
        dh.symm_empty(2 * num_ranks * message if has_weights else 1, dtype=torch.float32, name="weight_inbox"),
        dh.symm_zeros(capacity * num_ranks, dtype=torch.int64, name="ids_arrived"),
        dh.symm_zeros(capacity * num_ranks, dtype=torch.int64, name="weights_arrived"),
        sizes.tokens,
        sizes.blocks,
        capacity,
        expert_map.shape[0] if has_map else num_experts,
        num_experts,
        sizes.first,
        sizes.experts,
        dh.epoch(),
        HAS_WEIGHTS=has_weights,
        HAS_MAP=has_map,
        num_warps=num_warps,
        **sizes.of_block,
    )
    tables = row_slot, row_route, route_row, tiles, num_tiles, expert_rows
    sizes.place(ids, counts, tables, block_m, groups, direct, tile_programs, num_warps, maxnreg)


class _Sizes:
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
        self.blocks = dh.cdiv(self.tokens, places // TK)
        self.of_block = {"E": columns, "B": places, "TK": TK, "TOP_K": top_k}
        self.message = places // TK * top_k  # routes of a block
        self.num_ranks, self.capacity, self.columns, self.places = num_ranks, capacity, columns, places

    def ids(self) -> Any:
        return dh.empty(self.num_ranks * self.capacity * self.places, dtype=torch.int16, name="ids")

    def counts(self) -> Any:
        return dh.empty(self.num_ranks * self.capacity * self.columns, dtype=torch.int32, name="counts")

    def place(
        self,
        ids: Any,
        counts: Any,
        tables: tuple[Any, ...],
        block_m: int,
        groups: int,
        direct: int,
        tile_programs: int,
        num_warps: int,
        maxnreg: int | None,
    ) -> None:
        """Make ``tables`` of what has been exchanged."""
        columns, rows = self.columns, self.num_ranks * self.blocks
        most = tables[-1].shape[0] - 1
        size = 1 if direct else (self.num_ranks * self.capacity + 1) * columns
        before = dh.empty(size, dtype=torch.int32, name="before")
        if not direct:
            COLUMNS = min(columns, 32)
            grid = dh.cdiv(rows, 128), columns // COLUMNS
            add_counts_kernel[grid](counts, before, rows, E=columns, COLUMNS=COLUMNS)
        place_routes_kernel[(rows + tile_programs,)](
            ids,
            counts,
            before,
            *tables,
            self.rank,
            self.num_ranks,
            self.tokens,
            self.blocks,
            self.first,
            self.experts,
            most,
            PROGRAMS=direct or 16,
            BLOCK_M=block_m,
            RANKS=self.num_ranks,
            GROUPS=groups,
            FIELDS=TILE_FIELDS,
            ADDED=not direct,
            num_warps=num_warps,
            **({} if maxnreg is None else {"maxnreg": maxnreg}),
            **self.of_block,
        )
