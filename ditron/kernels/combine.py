"""Tile functions that add what the experts made of each token: on this rank by routing weight, then over ranks.

A rank sends its sum of a token's rows to the token's owner as data words (words.py), straight from registers.
"""

from __future__ import annotations

import triton.language as tl

import ditron
import ditron.language as dl
from ditron.kernels.routing_kernels import has_bit
from ditron.kernels.words import (
    elements_of_word,
    places_of,
    ranks_to_poll,
    receive_data_words,
    send_data_words,
    sum_of_ranks,
    words_of,
)

__all__ = ["add_sums", "parts_of_row", "routes_of", "send_sums", "send_sums_to_all", "weighted_sums"]


@ditron.jit
def routes_of(route_row_ptr, route_weight_ptr, token, exists, TOP_K: tl.constexpr):
    """Rows (-1: none) and weights (of none 0) of the routes of each token, by its index among all ranks'."""
    rows = ()
    weights = ()
    for k in tl.static_range(TOP_K):
        row = tl.load(route_row_ptr + token * TOP_K + k, mask=exists, other=-1)
        weight = tl.load(route_weight_ptr + token * TOP_K + k, mask=exists, other=0.0)
        rows = rows + (row,)
        weights = weights + (tl.where(row >= 0, weight, 0.0),)  # who has no row may have any weight, inf or NaN too
    return rows, weights


@ditron.jit
def weighted_sums(y_ptr, rows, weights, token, exists, first_col, H, CB: tl.constexpr, TOP_K: tl.constexpr):
    """Of each token, its rows of ``y`` [rows, H] by weight, in order of its routes, rounded to their dtype; zeros where
    it has none. With offsets and mask of these elements in [tokens, H].
    """
    col = first_col + tl.arange(0, CB)
    total = tl.zeros((token.shape[0], CB), tl.float32)
    for k in tl.static_range(TOP_K):
        row_ptr = y_ptr + tl.maximum(rows[k], 0).to(tl.int64) * H
        mask = (rows[k] >= 0)[:, None] & (col < H)[None, :]
        value = tl.load(row_ptr[:, None] + col[None, :], mask=mask, other=0.0)
        total += weights[k][:, None] * value.to(tl.float32)
    at = token.to(tl.int64)[:, None] * H + col[None, :]
    return total.to(y_ptr.dtype.element_ty), at, exists[:, None] & (col < H)[None, :]


@ditron.jit
def words_of_sum(y_ptr, rows, weights, word, H, TOP_K: tl.constexpr):
    """As :func:`weighted_sums`, of one token, its data words ``word`` [w]; behind the last element are zeros."""
    DTYPE: tl.constexpr = y_ptr.dtype.element_ty
    col = places_of(word, DTYPE, 64)
    total = tl.zeros(col.shape, tl.float32)
    for k in tl.static_range(TOP_K):
        row_ptr = y_ptr + tl.maximum(rows[k], 0).to(tl.int64) * H
        value = tl.load(row_ptr + col, mask=(rows[k] >= 0) & (col < H), other=0.0)
        total += weights[k] * value.to(tl.float32)
    return words_of(total.to(DTYPE), 64)


@ditron.jit
def parts_of_row(H, DTYPE: tl.constexpr, WORDS: tl.constexpr):
    """How many times ``WORDS`` data words a row of ``H`` elements has."""
    return tl.cdiv(H, elements_of_word(DTYPE, 64) * WORDS)


@ditron.jit
def send_sums(
    y_ptr,
    boxes_ptr,
    route_row_ptr,
    route_weight_ptr,
    peer,
    worker,
    workers,
    tokens,
    capacity,
    H,
    WORDS: tl.constexpr,
    TOP_K: tl.constexpr,
):
    """Send ``peer`` the sums of those of its ``tokens`` that have a row here, as far as they are this program's.

    ``boxes`` [RANKS, capacity, words of a row], whole parts of ``WORDS`` words: what each rank sends.
    """
    DTYPE: tl.constexpr = y_ptr.dtype.element_ty
    parts = parts_of_row(H, DTYPE, WORDS)
    box_ptr = dl.symm_at(boxes_ptr + dl.rank().to(tl.int64) * capacity * (parts * WORDS), peer)
    for item in range(worker, tokens * parts, workers):
        token = item // parts
        rows, weights = routes_of(route_row_ptr, route_weight_ptr, peer * tokens + token, True, TOP_K)
        last_row = rows[0]
        for k in tl.static_range(1, TOP_K):
            last_row = tl.maximum(last_row, rows[k])
        if last_row >= 0:
            word = item % parts * WORDS + tl.arange(0, WORDS)
            words = words_of_sum(y_ptr, rows, weights, word, H, TOP_K)
            send_data_words(box_ptr + token.to(tl.int64) * (parts * WORDS) + word, words)


@ditron.jit
def send_sums_to_all(
    y_ptr,
    boxes_ptr,
    route_row_ptr,
    route_weight_ptr,
    worker,
    workers,
    tokens,
    capacity,
    H,
    WORDS: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """Send every rank, this one too, the sums of all ``tokens``, as :func:`send_sums`."""
    DTYPE: tl.constexpr = y_ptr.dtype.element_ty
    own = dl.rank()
    parts = parts_of_row(H, DTYPE, WORDS)
    box_ptr = boxes_ptr + own.to(tl.int64) * capacity * (parts * WORDS)
    for item in range(worker, tokens * parts, workers):
        token = item // parts
        rows, weights = routes_of(route_row_ptr, route_weight_ptr, token, True, TOP_K)
        word = item % parts * WORDS + tl.arange(0, WORDS)
        words = words_of_sum(y_ptr, rows, weights, word, H, TOP_K)
        for step in tl.static_range(1, RANKS + 1):
            to_ptr = dl.symm_at(box_ptr, (own + step) % RANKS)
            send_data_words(to_ptr + token.to(tl.int64) * (parts * WORDS) + word, words)


@ditron.jit
def add_sums(
    y_ptr,
    out_ptr,
    boxes_ptr,
    token_ranks_ptr,
    route_row_ptr,
    route_weight_ptr,
    worker,
    workers,
    tokens,
    capacity,
    H,
    WORDS: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
    ALL: tl.constexpr,
):
    """``out`` [tokens, H] = this rank's sums plus those that the others send, in fp32 and in rank order, as far as they
    are this program's.

    Others send sums of tokens that have a row there (``token_ranks`` of a plan). With ``ALL`` every rank, this one too,
    has sent all (:func:`send_sums_to_all`).
    """
    DTYPE: tl.constexpr = y_ptr.dtype.element_ty
    own = dl.rank()
    parts = parts_of_row(H, DTYPE, WORDS)
    sender = ranks_to_poll(RANKS)
    for item in range(worker, tokens * parts, workers):
        token = item // parts
        word = item % parts * WORDS + tl.arange(0, WORDS)
        at = token.to(tl.int64) * (parts * WORDS) + word
        has_sent = sender < RANKS
        if not ALL:
            rows, weights = routes_of(route_row_ptr, route_weight_ptr, own * tokens + token, True, TOP_K)
            mine = words_of_sum(y_ptr, rows, weights, word, H, TOP_K)
            send_data_words(boxes_ptr + own.to(tl.int64) * capacity * (parts * WORDS) + at, mine)
            has_sent &= (sender == own) | has_bit(token_ranks_ptr, token, sender, has_sent)
        # A load has no mask: of who sends nothing this rank's words are loaded again.
        box = tl.where(has_sent, sender, own).to(tl.int64) * capacity * (parts * WORDS)
        received = receive_data_words(boxes_ptr + box[:, None] + at[None, :])
        total = sum_of_ranks(tl.where(has_sent[:, None], received, 0), DTYPE)
        col = places_of(word, DTYPE, 64)
        out_at = token.to(tl.int64) * H + col
        tl.store(out_ptr + out_at, total.to(out_ptr.dtype.element_ty), mask=col < H)
