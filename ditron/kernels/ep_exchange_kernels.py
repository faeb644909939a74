"""Kernels of ep_exchange.py: a program sends a part of a token to peers as words (words.py), and takes what they send.

A plan says of each of this rank's tokens which ranks have its experts: there it is sent once, and from there a sum of
it comes. A rank may have nothing for another one in a call. Memory with two halves asks that a rank gets
something from all others in each call (exchange.py): one program sends them a signal, and waits for theirs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.kernels.combine import add_sums, parts_of_row, send_sums, send_sums_to_all
from ditron.kernels.routing_kernels import has_bit
from ditron.kernels.words import (
    elements_of,
    elements_of_word,
    load_words,
    peer_boxes,
    places_of,
    ranks_to_poll,
    receive,
    send,
    word_box,
    word_boxes,
)

__all__ = ["dispatch_kernel", "launch_combine"]


@ditron.jit
def clear_padding(rows_ptr, row_slot_ptr, num_tiles, first, programs, H: tl.constexpr, BM: tl.constexpr):
    """Zeros to the rows of tiles of ``BM`` rows, a multiple of 4, that are no token's."""
    ROWS: tl.constexpr = 4  # one after the other, each would wait for its slot to be loaded
    column = tl.arange(0, triton.next_power_of_2(H))[None, :]
    zeros = tl.zeros((ROWS, triton.next_power_of_2(H)), rows_ptr.dtype.element_ty)
    for begin in range(first * ROWS, num_tiles * BM, programs * ROWS):
        row = begin + tl.arange(0, ROWS)
        is_padding = (tl.load(row_slot_ptr + row) < 0)[:, None]
        tl.store(rows_ptr + row.to(tl.int64)[:, None] * H + column, zeros, mask=is_padding & (column < H))


@ditron.jit
def exchange_signals(begun_ptr, epoch, RANKS: tl.constexpr):
    """Tell all other ranks that this one has begun the call, and wait until all of them have.

    ``begun`` [RANKS]: signals.
    """
    own = dl.rank()
    for step in range(1, RANKS):
        dl.notify(begun_ptr + RANKS - 1 - step, (own + step) % RANKS, epoch)
    dl.wait(begun_ptr, RANKS - 1, epoch)


@ditron.jit(do_not_specialize=["padding_programs", "epoch"])
def dispatch_kernel(
    x_ptr,
    scale_ptr,
    rows_ptr,
    scale_rows_ptr,
    boxes_ptr,
    begun_ptr,
    token_ranks_ptr,
    route_row_ptr,
    row_slot_ptr,
    num_tiles_ptr,
    tokens,
    kept,
    padding_programs,
    epoch,
    H: tl.constexpr,
    S: tl.constexpr,
    BM: tl.constexpr,
    WORDS: tl.constexpr,
    BITS: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """A program sends a part of a token to the ranks that need it, and puts what others send of the tokens with that
    number in its rows of ``rows`` [max_rows, H] and ``scale_rows`` [max_rows, S].

    A message has words of the token, then of its scales, if any; memory is kept for ``kept`` words of each rank.
    ``padding_programs`` other programs put zeros in rows of padding.
    """
    own = dl.rank()
    pid = tl.program_id(0)
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    TOKEN_WORDS: tl.constexpr = words_of_row(H, DTYPE, BITS)
    SCALE_WORDS: tl.constexpr = words_of_row(S, scale_rows_ptr.dtype.element_ty, BITS) if S > 0 else 0
    PARTS: tl.constexpr = (TOKEN_WORDS + SCALE_WORDS + WORDS - 1) // WORDS
    if pid == 0:
        exchange_signals(begun_ptr, epoch, RANKS)
    elif pid <= padding_programs:
        num_tiles = tl.load(num_tiles_ptr)
        clear_padding(rows_ptr, row_slot_ptr, num_tiles, pid - 1, padding_programs, H, BM)
        if S > 0:
            clear_padding(scale_rows_ptr, row_slot_ptr, num_tiles, pid - 1, padding_programs, S, BM)
    else:
        item = pid - 1 - padding_programs
        token = item // PARTS
        word = item % PARTS * WORDS + tl.arange(0, WORDS)
        at = token.to(tl.int64) * (PARTS * WORDS) + word
        words = load_words(x_ptr + token.to(tl.int64) * H, word, H, BITS)
        if (BITS == 64) & (DTYPE.primitive_bitwidth == 8):  # of float8: NaNs of nothing but ones are sent as others
            words = tl.where(words == -1, 0x7F7F7F7F7F7F7F7F, words)
        if S > 0:
            scale_word = tl.where(word < TOKEN_WORDS, S, word - TOKEN_WORDS)
            words |= load_words(scale_ptr + token.to(tl.int64) * S, scale_word, S, BITS)
        sender = ranks_to_poll(RANKS)
        places = ()
        last = tl.full(sender.shape, -1, tl.int32)
        for k in tl.static_range(TOP_K):
            route = (sender * tokens + token) * TOP_K + k
            place = tl.load(route_row_ptr + route, mask=sender < RANKS, other=-1)
            places = places + (place,)
            last = tl.maximum(last, place)
        to = peer_boxes(boxes_ptr, kept, epoch, RANKS)
        for step in tl.static_range(1, RANKS):
            if has_bit(token_ranks_ptr, token, (own + step) % RANKS, True):
                send(to[step - 1] + at, words, epoch, BITS)
        send(to[RANKS - 1] + at, words, epoch, BITS)
        # A load has no mask: of who sends nothing this rank's words are loaded again.
        box_ptr = word_box(boxes_ptr, tl.where(last >= 0, sender, own), RANKS, epoch, kept)
        received = receive(box_ptr[:, None] + at[None, :], epoch, BITS)
        for k in tl.static_range(TOP_K):
            store_words(rows_ptr, places[k], received, word, H)
            if S > 0:
                store_words(scale_rows_ptr, places[k], received, word - TOKEN_WORDS, S)


@triton.constexpr_function
def words_of_row(elements, dtype, bits):
    """Words of so many elements."""
    return -(-elements // elements_of_word(dtype, bits))


@ditron.jit
def store_words(rows_ptr, row, words, word, H):
    """To rows ``row`` [ranks] of ``rows`` [max_rows, H], none where negative, each rank's ``words`` [ranks, w], of
    which those from 0 to the last of a row are numbers ``word`` [w] of them.
    """
    DTYPE: tl.constexpr = rows_ptr.dtype.element_ty
    row = row.to(tl.int64)[:, None, None]
    col = places_of(word, DTYPE, words.dtype.primitive_bitwidth)[None, :, :]
    tl.store(rows_ptr + row * H + col, elements_of(words, DTYPE), mask=(row >= 0) & (col >= 0) & (col < H))


@ditron.jit(do_not_specialize=["epoch"])
def combine_kernel(
    y_ptr,
    out_ptr,
    boxes_ptr,
    begun_ptr,
    token_ranks_ptr,
    route_row_ptr,
    route_weight_ptr,
    tokens,
    capacity,
    H,
    epoch,
    WORDS: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
    ALL: tl.constexpr,
):
    """``out`` [tokens, H] = the sums over routes and ranks of ``y`` [max_rows, H], of this rank's tokens, or of ``ALL``
    ranks'.

    A program sends its part of a token's sum to the owners of the tokens with that number, and adds what they send.
    """
    own = dl.rank()
    worker, workers = tl.program_id(0) - 1, tl.num_programs(0) - 1
    if worker < 0:
        exchange_signals(begun_ptr, epoch, RANKS)
    else:
        parts = parts_of_row(H, y_ptr.dtype.element_ty, WORDS)
        boxes_ptr += (epoch % 2).to(tl.int64) * RANKS * capacity * (parts * WORDS)
        of_routes = (route_row_ptr, route_weight_ptr)
        of_program = (worker, workers, tokens, capacity, H)
        if ALL:
            send_sums_to_all(y_ptr, boxes_ptr, *of_routes, *of_program, WORDS, TOP_K, RANKS)
        else:
            for step in range(1, RANKS):
                send_sums(y_ptr, boxes_ptr, *of_routes, (own + step) % RANKS, *of_program, WORDS, TOP_K)
        add_sums(y_ptr, out_ptr, boxes_ptr, token_ranks_ptr, *of_routes, *of_program, WORDS, TOP_K, RANKS, ALL)


def launch_combine(
    y: Any,
    out: Any,
    token_ranks: Any,
    of_routes: tuple[Any, Any],
    capacity: Any,
    num_ranks: int,
    top_k: int,
    words: int,
    to_all: bool = False,
) -> None:
    """In a host program: :func:`combine_kernel`, ``words`` of a token's sum a program; memory is kept for up to
    ``capacity`` tokens.
    """
    tokens, H = out.shape
    parts = dh.cdiv(H, words * (8 // out.dtype.itemsize))
    combine_kernel[(1 + tokens * parts,)](
        y,
        out,
        word_boxes(capacity * parts * words),
        dh.symm_zeros(num_ranks, dtype=torch.int64, name="begun"),
        token_ranks,
        *of_routes,
        tokens,
        capacity,
        H,
        dh.epoch(),
        WORDS=words,
        TOP_K=top_k,
        RANKS=num_ranks,
        ALL=to_all,
        num_warps=max(words // 64, 1),
    )
