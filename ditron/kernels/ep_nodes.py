"""Expert parallelism over several nodes: ep_dispatch and ep_combine by puts, which a NIC takes to another node.

Tokens are divided into blocks. Of a block, the rows for one other rank lie behind each other in a send buffer and go in
one put with its signal: a row's *slot* is the number of rows before it. Who receives rows of ep_dispatch
has asked for them, and with that said that its memory is free again; where :func:`ep_combine_nodes_program` sends to,
each call says so by a signal.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.kernels.combine import routes_of, weighted_sums
from ditron.kernels.exchange import block_bytes
from ditron.kernels.routing import Plan, tables_on_host

__all__ = ["dispatch_sample", "ep_combine_nodes_program", "ep_dispatch_nodes_program"]


@ditron.jit
def block_slots(route_row_ptr, token, exists, TOP_K: tl.constexpr):
    """Of tokens by their index among all ranks', the slot of each that has a row on this rank, -1 for the others."""
    k = tl.arange(0, triton.next_power_of_2(TOP_K))
    mask = exists[:, None] & (k < TOP_K)[None, :]
    row = tl.load(route_row_ptr + token[:, None] * TOP_K + k[None, :], mask=mask, other=-1)
    has_row = (tl.max(row, 1) >= 0).to(tl.int32)
    return tl.where(has_row > 0, tl.cumsum(has_row, 0) - 1, -1)


@ditron.jit(do_not_specialize=["epoch"])
def put_tokens_kernel(
    x_ptr,
    outbox_ptr,
    inbox_ptr,
    slots_ptr,
    asked_ptr,
    has_asked_ptr,
    arrived_ptr,
    route_row_ptr,
    tokens,
    capacity,
    max_blocks,
    epoch,
    H: tl.constexpr,
    TB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """Ask all other ranks for the tokens that are needed here, and put those of ``x`` [tokens, H] that they ask for.

    An item is a block of ``TB`` tokens and a peer. What a program waits for is sent by the program of the same number.
    """
    own = dl.rank()
    blocks = tl.cdiv(tokens, TB)
    items = blocks * (RANKS - 1)
    within = tl.arange(0, TB)
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        block = item // (RANKS - 1)
        peer = (own + 1 + item % (RANKS - 1)) % RANKS
        token = block * TB + within
        slot = block_slots(route_row_ptr, peer * tokens + token, token < tokens, TOP_K)
        needed_ptr = slots_ptr + peer * capacity + block * TB
        tl.store(needed_ptr + within, slot)
        to_ptr = asked_ptr + own * capacity + block * TB
        dl.putmem_signal(to_ptr, needed_ptr, 4 * TB, has_asked_ptr + own * max_blocks + block, epoch, peer)
    column = tl.arange(0, triton.next_power_of_2(H))
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        block = item // (RANKS - 1)
        peer = (own + RANKS - 1 - item % (RANKS - 1)) % RANKS
        asked = dl.wait(has_asked_ptr + peer * max_blocks + block, 1, epoch)
        slot_ptr = dl.consume_token(asked_ptr + peer * capacity + block * TB, asked)
        rows_ptr = outbox_ptr + (peer.to(tl.int64) * capacity + block * TB) * H
        for i in range(TB):
            slot = tl.load(slot_ptr + i)
            if slot >= 0:
                row = tl.load(x_ptr + (block * TB + i).to(tl.int64) * H + column, mask=column < H)
                tl.store(rows_ptr + slot * H + column, row, mask=column < H)
        count = tl.sum((tl.load(slot_ptr + within) >= 0).to(tl.int32), 0)
        has_arrived_ptr = arrived_ptr + own * max_blocks + block
        if count > 0:
            to_ptr = inbox_ptr + (own.to(tl.int64) * capacity + block * TB) * H
            nbytes = count * block_bytes(H, x_ptr.dtype.element_ty)
            dl.putmem_signal(to_ptr, rows_ptr, nbytes, has_arrived_ptr, epoch, peer)
        else:
            dl.notify(has_arrived_ptr, peer, epoch)


@ditron.jit(do_not_specialize=["epoch"])
def take_put_rows_kernel(
    x_ptr,
    rows_ptr,
    inbox_ptr,
    slots_ptr,
    arrived_ptr,
    row_slot_ptr,
    num_tiles_ptr,
    tokens,
    capacity,
    max_blocks,
    block_m,
    epoch,
    H: tl.constexpr,
    TB: tl.constexpr,
    RANKS: tl.constexpr,
):
    """``rows`` [max_rows, H] in the order of the experts, zeros for padding, when all other ranks' have arrived."""
    own = dl.rank()
    for step in range(1, RANKS):
        source = (own + step) % RANKS
        arrived = dl.wait(arrived_ptr + source * max_blocks, tl.cdiv(tokens, TB), epoch)
        inbox_ptr = dl.consume_token(inbox_ptr, arrived)
    column = tl.arange(0, triton.next_power_of_2(H))
    for row in range(tl.program_id(0), tl.load(num_tiles_ptr) * block_m, tl.num_programs(0)):
        place = tl.load(row_slot_ptr + row)
        stage = place // tokens
        token = place - stage * tokens
        at = (own + stage) % RANKS * capacity + token
        slot = tl.load(slots_ptr + at, mask=(place >= 0) & (stage > 0), other=0)
        theirs_ptr = inbox_ptr + (at - token % TB + slot).to(tl.int64) * H
        mine_ptr = x_ptr + token.to(tl.int64) * H
        from_ptr = tl.where(stage == 0, mine_ptr, theirs_ptr)
        value = tl.load(from_ptr + column, mask=(column < H) & (place >= 0), other=0.0)
        tl.store(rows_ptr + row.to(tl.int64) * H + column, value, mask=column < H)


def nodes_sample_plan(ranks: int, generator: torch.Generator) -> Plan:
    """Two experts on every rank, 20 tokens with none, one or both of them."""
    tokens, experts = 20, 2
    ids = torch.rand(tokens, experts + 2, generator=generator).topk(2).indices
    ids = torch.where(ids < experts, ids, -1)
    if torch.rand(1, generator=generator) < 0.5:
        ids[16:] = -1  # a block of which nobody needs tokens
    return tables_on_host(ids.expand(ranks, -1, -1), 0, 0, experts, 16)


def dispatch_sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker."""
    return dispatch_arguments(nodes_sample_plan(ranks, generator), ranks)


def dispatch_arguments(plan: Plan, ranks: int) -> dict[str, Any]:
    """Of :func:`ep_dispatch_nodes_program` with such a plan."""
    return {
        "x": f"bf16[{len(plan.errors)}, 16]",
        "rows": f"bf16[{plan.max_rows}, 16]",
        "route_row": plan.route_row,
        "row_slot": plan.row_slot,
        "num_tiles": plan.num_tiles,
        "capacity": 64,
        "width": 16,
        "num_ranks": ranks,
        "top_k": 2,
        "block_m": 16,
        "block": 16,
        "senders": 2,
        "programs": 2,
    }


@ditron.program(
    example={
        "x": "bf16[4096, 7168]",
        "rows": "bf16[33792, 7168]",
        "route_row": "i32[65536, 8]",
        "row_slot": "i32[33792]",
        "num_tiles": "i32[1]",
        "capacity": 4096,
        "width": 7168,
        "num_ranks": 16,
        "top_k": 8,
    },
    sample_args=dispatch_sample,
    do_not_specialize=("route_row", "row_slot"),
)
def ep_dispatch_nodes_program(
    x,
    rows,
    route_row,
    row_slot,
    num_tiles,
    capacity,
    *,
    width,
    num_ranks,
    top_k,
    block_m=128,
    block=16,
    senders=264,
    programs=528,
    num_warps=8,
):
    """As ``ep_dispatch_program``, by puts of up to ``block`` rows, a power of two that divides ``capacity``."""
    tokens, epoch, max_blocks = x.shape[0], dh.epoch(), capacity // block
    slots = dh.symm_empty(num_ranks * capacity, dtype=torch.int32, name="slots")
    inbox = dh.symm_empty(num_ranks * capacity, width, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(num_ranks * max_blocks, dtype=torch.int64, name="arrived")
    put_tokens_kernel[(senders,)](
        x,
        dh.symm_empty(num_ranks * capacity, width, dtype=x.dtype, name="outbox"),
        inbox,
        slots,
        dh.symm_empty(num_ranks * capacity, dtype=torch.int32, name="asked"),
        dh.symm_zeros(num_ranks * max_blocks, dtype=torch.int64, name="has_asked"),
        arrived,
        route_row,
        tokens,
        capacity,
        max_blocks,
        epoch,
        H=width,
        TB=block,
        TOP_K=top_k,
        RANKS=num_ranks,
        num_warps=num_warps,
    )
    take_put_rows_kernel[(programs,)](
        x,
        rows,
        inbox,
        slots,
        arrived,
        row_slot,
        num_tiles,
        tokens,
        capacity,
        max_blocks,
        block_m,
        epoch,
        H=width,
        TB=block,
        RANKS=num_ranks,
        num_warps=num_warps,
    )


@ditron.jit(do_not_specialize=["epoch"])
def put_sums_kernel(
    y_ptr,
    outbox_ptr,
    inbox_ptr,
    slots_ptr,
    told_ptr,
    has_told_ptr,
    arrived_ptr,
    is_free_ptr,
    route_row_ptr,
    route_weight_ptr,
    tokens,
    capacity,
    max_blocks,
    H,
    epoch,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """Put the sums of ``y`` [max_rows, H] of other ranks' tokens to these ranks, of those tokens that have rows here.

    Which they are is told by a put of their slots. An item is a block of ``TB`` tokens and a peer.
    """
    own = dl.rank()
    if tl.program_id(0) == 0:  # the call before has ended on this rank
        for step in range(1, RANKS):
            dl.notify(is_free_ptr + own, (own + step) % RANKS, epoch)
    within = tl.arange(0, TB)
    for item in range(tl.program_id(0), tl.cdiv(tokens, TB) * (RANKS - 1), tl.num_programs(0)):
        block = item // (RANKS - 1)
        peer = (own + 1 + item % (RANKS - 1)) % RANKS
        token = block * TB + within
        among_all = peer * tokens + token
        slot = block_slots(route_row_ptr, among_all, token < tokens, TOP_K)
        sent_ptr = slots_ptr + peer * capacity + block * TB
        tl.store(sent_ptr + within, slot)
        sums_ptr = outbox_ptr + (peer.to(tl.int64) * capacity + block * TB) * H
        rows, weights = routes_of(route_row_ptr, route_weight_ptr, among_all, token < tokens, TOP_K)
        for col in range(0, H, CB):
            sums, at, mask = weighted_sums(y_ptr, rows, weights, slot, slot >= 0, col, H, CB, TOP_K)
            tl.store(sums_ptr + at, sums, mask=mask)
        dl.wait(is_free_ptr + peer, 1, epoch)
        to_ptr = told_ptr + own * capacity + block * TB
        dl.putmem_signal_nbi(to_ptr, sent_ptr, 4 * TB, has_told_ptr + own * max_blocks + block, epoch, peer)
        has_arrived_ptr = arrived_ptr + own * max_blocks + block
        count = tl.sum((slot >= 0).to(tl.int32), 0)
        if count > 0:
            theirs_ptr = inbox_ptr + (own.to(tl.int64) * capacity + block * TB) * H
            nbytes = tl.cast(count, tl.int64) * H * block_bytes(1, y_ptr.dtype.element_ty)
            dl.putmem_signal_nbi(theirs_ptr, sums_ptr, nbytes, has_arrived_ptr, epoch, peer)
        else:
            dl.notify(has_arrived_ptr, peer, epoch)
        dl.quiet()  # the send buffers are written anew


@ditron.jit(do_not_specialize=["epoch"])
def add_put_sums_kernel(
    y_ptr,
    out_ptr,
    inbox_ptr,
    told_ptr,
    has_told_ptr,
    arrived_ptr,
    route_row_ptr,
    route_weight_ptr,
    tokens,
    capacity,
    max_blocks,
    H,
    splits,
    epoch,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """``out`` [tokens, H] = the ranks' sums of own tokens, added in fp32 in rank order; ``splits`` share a block."""
    own = dl.rank()
    part = tl.cdiv(tl.cdiv(H, CB), splits) * CB
    for item in range(tl.program_id(0), tl.cdiv(tokens, TB) * splits, tl.num_programs(0)):
        block = item // splits
        token = block * TB + tl.arange(0, TB)
        for step in range(1, RANKS):
            source = (own + step) % RANKS
            told = dl.wait(has_told_ptr + source * max_blocks + block, 1, epoch)
            arrived = dl.wait(arrived_ptr + source * max_blocks + block, 1, epoch)
            told_ptr = dl.consume_token(told_ptr, told)
            inbox_ptr = dl.consume_token(inbox_ptr, arrived)
        rows, weights = routes_of(route_row_ptr, route_weight_ptr, own * tokens + token, token < tokens, TOP_K)
        first = item % splits * part
        for first_col in range(first, tl.minimum(first + part, H), CB):
            col = first_col + tl.arange(0, CB)
            mine, at, mask = weighted_sums(y_ptr, rows, weights, token, token < tokens, first_col, H, CB, TOP_K)
            total = tl.zeros((TB, CB), tl.float32)
            for source in range(RANKS):
                is_other = source != own
                slot = tl.load(told_ptr + source * capacity + token, mask=is_other & (token < tokens), other=-1)
                row = (source * tl.cast(capacity, tl.int64) + block * TB + slot) * H
                theirs_mask = (slot >= 0)[:, None] & (col < H)[None, :]
                theirs = tl.load(inbox_ptr + row[:, None] + col[None, :], mask=theirs_mask, other=0.0)
                total += tl.where(is_other, theirs, mine).to(tl.float32)
            tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=mask)


def combine_sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: as of ep_dispatch_nodes_program."""
    plan = dispatch_sample(ranks, generator)
    return {
        "y": plan["rows"],
        "out": "bf16[20, 16]",
        "route_row": plan["route_row"],
        "route_weight": f"f32[{20 * ranks}, 2]",
        "capacity": 64,
        "num_ranks": ranks,
        "top_k": 2,
        "sums": (16, 16),
        "programs": 2,
        "adders": 2,
    }


@ditron.program(
    example={
        "y": "bf16[33792, 7168]",
        "out": "bf16[4096, 7168]",
        "route_row": "i32[65536, 8]",
        "route_weight": "f32[65536, 8]",
        "capacity": 4096,
        "num_ranks": 16,
        "top_k": 8,
    },
    sample_args=combine_sample,
    do_not_specialize=("route_row", "route_weight"),
)
def ep_combine_nodes_program(
    y,
    out,
    route_row,
    route_weight,
    capacity,
    *,
    num_ranks,
    top_k,
    programs=264,
    adders=528,
    sums=(16, 256),
    splits=1,
    num_warps=8,
):
    """As ``ep_combine_program``, by puts of up to ``sums[0]`` rows, a power of two that divides ``capacity``.

    ``programs`` add and put, ``adders`` add what has come back, ``splits`` of them the columns of a block.
    """
    (tokens, H), epoch, max_blocks = out.shape, dh.epoch(), capacity // sums[0]
    inbox = dh.symm_empty(num_ranks * capacity, H, dtype=out.dtype, name="inbox")
    told = dh.symm_empty(num_ranks * capacity, dtype=torch.int32, name="told")
    has_told = dh.symm_zeros(num_ranks * max_blocks, dtype=torch.int64, name="has_told")
    arrived = dh.symm_zeros(num_ranks * max_blocks, dtype=torch.int64, name="arrived")
    sizes = {"TB": sums[0], "CB": sums[1], "TOP_K": top_k, "RANKS": num_ranks, "num_warps": num_warps}
    put_sums_kernel[(programs,)](
        y,
        dh.symm_empty(num_ranks * capacity, H, dtype=out.dtype, name="outbox"),
        inbox,
        dh.symm_empty(num_ranks * capacity, dtype=torch.int32, name="slots"),
        told,
        has_told,
        arrived,
        dh.symm_zeros(num_ranks, dtype=torch.int64, name="is_free"),
        route_row,
        route_weight,
        tokens,
        capacity,
        max_blocks,
        H,
        epoch,
        **sizes,
    )
    add_put_sums_kernel[(adders,)](
        y,
        out,
        inbox,
        told,
        has_told,
        arrived,
        route_row,
        route_weight,
        tokens,
        capacity,
        max_blocks,
        H,
        splits,
        epoch,
        **sizes,
    )
