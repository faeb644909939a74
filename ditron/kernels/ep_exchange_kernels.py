"""Kernels of ep_exchange.py: some programs send to peers, others take what arrives while the rest is on the way.

A plan says of each of this rank's tokens which ranks have its experts: there a row of it is stored once, and from there
a sum of it comes. Tokens to dispatch are divided into blocks; a signal for each block says that its rows are there.
Memory that peers write to has two halves, used in turns, as exchange.py explains: in each call every rank gets a signal
from all others.
"""

from __future__ import annotations

import triton
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.kernels.combine import add_sums, send_sums
from ditron.kernels.routing_kernels import has_bit

__all__ = ["combine_kernel", "dispatch_kernel"]


@ditron.jit
def push_tokens(
    x_ptr,
    scale_ptr,
    inbox_ptr,
    scale_inbox_ptr,
    arrived_ptr,
    token_ranks_ptr,
    tokens,
    capacity,
    first,
    programs,
    epoch,
    H: tl.constexpr,
    S: tl.constexpr,
    TB: tl.constexpr,
    RANKS: tl.constexpr,
):
    """Each token of ``x`` [tokens, H] to ``inbox`` [ranks, capacity, H] of the ranks that need it, and, of each block
    of ``TB`` tokens, a signal to all of them. So too its ``S`` scales, if any.

    Of ``programs`` that share blocks and ranks this is number ``first``. A signal waits for all stores before it, of
    other signals too, so that what a program does at a time is for one rank.
    """
    OTHERS: tl.constexpr = RANKS - 1 if RANKS > 1 else 1
    own = dl.rank()
    blocks = tl.cdiv(capacity, TB)
    column = tl.arange(0, triton.next_power_of_2(H))
    scale_column = tl.arange(0, triton.next_power_of_2(max(S, 1)))
    box = own.to(tl.int64) * capacity
    for item in range(first, tl.cdiv(tokens, TB) * (RANKS - 1), programs):
        block = item // OTHERS
        peer = (own + 1 + item % OTHERS) % RANKS
        to_ptr = dl.symm_at(inbox_ptr + box * H, peer)
        for i in range(tl.minimum(tokens - block * TB, TB)):
            token = block * TB + i
            at = token.to(tl.int64) * H + column
            is_needed = has_bit(token_ranks_ptr, token, peer, True)
            row = tl.load(x_ptr + at, mask=column < H)
            tl.store(to_ptr + at, row, mask=is_needed & (column < H))
            if S > 0:
                scale_at = token.to(tl.int64) * S + scale_column
                scales = tl.load(scale_ptr + scale_at, mask=scale_column < S)
                scales_to_ptr = dl.symm_at(scale_inbox_ptr + box * S, peer)
                tl.store(scales_to_ptr + scale_at, scales, mask=is_needed & (scale_column < S))
        dl.notify(arrived_ptr + own * blocks + block, peer, epoch)


@ditron.jit
def place_tokens(
    x_ptr,
    scale_ptr,
    rows_ptr,
    scale_rows_ptr,
    route_row_ptr,
    first,
    count,
    H: tl.constexpr,
    S: tl.constexpr,
    TOP_K: tl.constexpr,
):
    """Tokens of ``x`` [.., H], ``count`` from ``first`` on, to those of ``rows`` that ``route_row`` [count, TOP_K]
    says, none where negative. So too their ``S`` scales, if any.
    """
    column = tl.arange(0, triton.next_power_of_2(H))
    scale_column = tl.arange(0, triton.next_power_of_2(max(S, 1)))
    for i in range(count):
        places = ()
        last = -1
        for k in tl.static_range(TOP_K):
            place = tl.load(route_row_ptr + i * TOP_K + k)
            places = places + (place,)
            last = tl.maximum(last, place)
        if last >= 0:
            value = tl.load(x_ptr + (first + i) * H + column, mask=column < H)
            if S > 0:
                scales = tl.load(scale_ptr + (first + i) * S + scale_column, mask=scale_column < S)
            for k in tl.static_range(TOP_K):
                if places[k] >= 0:
                    row = places[k].to(tl.int64)
                    tl.store(rows_ptr + row * H + column, value, mask=column < H)
                    if S > 0:
                        tl.store(scale_rows_ptr + row * S + scale_column, scales, mask=scale_column < S)


@ditron.jit
def clear_padding(rows_ptr, row_slot_ptr, num_tiles, first, programs, H: tl.constexpr, BM: tl.constexpr):
    """Zeros to the rows of tiles of ``BM`` rows that are no token's."""
    column = tl.arange(0, triton.next_power_of_2(H))
    within = tl.arange(0, triton.next_power_of_2(BM))
    zeros = tl.zeros((triton.next_power_of_2(H),), rows_ptr.dtype.element_ty)
    for tile in range(first, num_tiles, programs):
        slot = tl.load(row_slot_ptr + tile * BM + within, mask=within < BM, other=0)
        if tl.min(slot, 0) < 0:
            for row in range(tile * BM, (tile + 1) * BM):
                if tl.load(row_slot_ptr + row) < 0:
                    tl.store(rows_ptr + row.to(tl.int64) * H + column, zeros, mask=column < H)


@ditron.jit(do_not_specialize=["senders", "epoch"])
def dispatch_kernel(
    x_ptr,
    scale_ptr,
    rows_ptr,
    scale_rows_ptr,
    inbox_ptr,
    scale_inbox_ptr,
    arrived_ptr,
    token_ranks_ptr,
    route_row_ptr,
    row_slot_ptr,
    num_tiles_ptr,
    tokens,
    capacity,
    senders,
    epoch,
    H: tl.constexpr,
    S: tl.constexpr,
    TB: tl.constexpr,
    BM: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """The first ``senders`` programs push tokens to the ranks that need them; the others put tokens in their rows of
    ``rows`` [max_rows, H]: this rank's, and a block of another rank's when it has arrived.
    """
    OTHERS: tl.constexpr = RANKS - 1 if RANKS > 1 else 1
    own = dl.rank()
    pid = tl.program_id(0)
    half = (epoch % 2).to(tl.int64) * RANKS * capacity
    inbox_ptr += half * H
    if S > 0:
        scale_inbox_ptr += half * S
    if pid < senders:
        push_tokens(
            x_ptr,
            scale_ptr,
            inbox_ptr,
            scale_inbox_ptr,
            arrived_ptr,
            token_ranks_ptr,
            tokens,
            capacity,
            pid,
            senders,
            epoch,
            H,
            S,
            TB,
            RANKS,
        )
    else:
        taker = pid - senders
        takers = tl.num_programs(0) - senders
        blocks = tl.cdiv(tokens, TB)
        for block in range(taker, blocks, takers):
            first = block.to(tl.int64) * TB
            count = tl.minimum(tokens - block * TB, TB)
            routes_ptr = route_row_ptr + (own * tokens + first) * TOP_K
            place_tokens(x_ptr, scale_ptr, rows_ptr, scale_rows_ptr, routes_ptr, first, count, H, S, TOP_K)
        num_tiles = tl.load(num_tiles_ptr)
        clear_padding(rows_ptr, row_slot_ptr, num_tiles, taker, takers, H, BM)
        if S > 0:
            clear_padding(scale_rows_ptr, row_slot_ptr, num_tiles, taker, takers, S, BM)
        # Blocks of all senders with the same number arrive at about the same time.
        for item in range(taker, blocks * (RANKS - 1), takers):
            block = item // OTHERS
            source = (own + 1 + item % OTHERS) % RANKS
            first = block.to(tl.int64) * TB
            count = tl.minimum(tokens - block * TB, TB)
            token = dl.wait(arrived_ptr + source * tl.cdiv(capacity, TB) + block, 1, epoch)
            box_ptr = dl.consume_token(inbox_ptr + source.to(tl.int64) * capacity * H, token)
            scale_box_ptr = None
            if S > 0:
                scale_box_ptr = dl.consume_token(scale_inbox_ptr + source.to(tl.int64) * capacity * S, token)
            routes_ptr = route_row_ptr + (source * tokens + first) * TOP_K
            place_tokens(box_ptr, scale_box_ptr, rows_ptr, scale_rows_ptr, routes_ptr, first, count, H, S, TOP_K)


@ditron.jit(do_not_specialize=["senders", "signals", "epoch"])
def combine_kernel(
    y_ptr,
    out_ptr,
    inbox_ptr,
    token_ranks_ptr,
    route_row_ptr,
    route_weight_ptr,
    sent_ptr,
    tokens,
    capacity,
    H,
    splits,
    senders,
    signals,
    epoch,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """``out`` [tokens, H] = the sums over routes and ranks of ``y`` [max_rows, H].

    The first ``senders`` programs store sums at the tokens' owners, who get a signal for each of ``signals`` parts of
    them; the others add this rank's own sums and those that have arrived.
    """
    OTHERS: tl.constexpr = RANKS - 1 if RANKS > 1 else 1
    pid = tl.program_id(0)
    inbox_ptr += (epoch % 2).to(tl.int64) * RANKS * capacity * H
    items = tl.cdiv(tokens, TB) * splits
    parts = tl.minimum(signals, items)
    if pid < senders:
        for item in range(pid, parts * (RANKS - 1), senders):
            part = item // OTHERS
            send_sums(
                y_ptr,
                inbox_ptr,
                route_row_ptr,
                route_weight_ptr,
                sent_ptr + part * (RANKS - 1),
                1 + item % OTHERS,
                part,
                parts,
                tokens,
                capacity,
                splits,
                H,
                epoch,
                TB,
                CB,
                TOP_K,
                RANKS,
            )
    else:
        for part in range(pid - senders, parts, tl.num_programs(0) - senders):
            add_sums(
                y_ptr,
                out_ptr,
                inbox_ptr,
                route_row_ptr,
                route_weight_ptr,
                sent_ptr + part * (RANKS - 1),
                part,
                parts,
                tokens,
                capacity,
                0,
                H,
                splits,
                H,
                epoch,
                TB,
                CB,
                TOP_K,
                RANKS,
                False,
                token_ranks_ptr,
            )
