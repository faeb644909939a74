"""Device functions for words: what is in registers, stored at a peer as 64 bits that tell when they are there.

Data does not pass through memory at either end, as that of packets does (exchange.py), and one poll waits for the words
of all ranks. A flagged word is 32 bits of any data and the call's epoch. A data word is 64 bits of floats, and anything
but 0; who has read it stores 0 there. So twice as much arrives in the same time (TensorRT-LLM's Lamport all-reduce is
of this kind, with -0.0 for what is not there). The memory that peers write to has two halves, used in turns, as
exchange.py explains: nobody writes to a half before all that was read there is 0 again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl

__all__ = [
    "BYTES_OF_WARP",
    "WORDS_OF_THREAD",
    "WordBlock",
    "elements_of",
    "elements_of_word",
    "gather_parts",
    "launch_words",
    "load_words",
    "peer_boxes",
    "places_of",
    "places_of_block",
    "ranks_to_poll",
    "receive",
    "receive_data_words",
    "receive_from_all",
    "receive_words",
    "send",
    "send_data_words",
    "send_parts",
    "send_to_all",
    "send_words",
    "store_from_all",
    "sum_from_all",
    "sum_of_own_part",
    "sum_of_ranks",
    "word_box",
    "word_boxes",
    "words_at_once",
    "words_of",
]

#: Elements of a thread from which on no layout of words has two threads with the same one: a layout gives a thread at
#: most 16 bytes that follow each other, four elements of what the words become.
WORDS_OF_THREAD = 4

#: Bytes of a message for each warp of a program: two ranks' words of them are :data:`WORDS_OF_THREAD` of each thread.
BYTES_OF_WARP = 512


def word_boxes(words: Any, name: str = "boxes", halves: int = 2) -> Any:
    """Memory of a host program for ``halves`` messages of each rank, of so many ``words`` (:func:`send_words`)."""
    return dh.symm_zeros(halves * dh.num_ranks() * words, dtype=torch.int64, name=name)


@dataclass(frozen=True)
class WordBlock:
    """What a program exchanges with each rank at once: ``elements``, in a power of two of ``words``."""

    words: int
    elements: int
    num_warps: int

    @classmethod
    def of(cls, elements: int, dtype: torch.dtype, bits: int = 32) -> WordBlock:
        """In words with ``bits`` of data: 32 if they are flagged, 64 if not."""
        nbytes = elements * dtype.itemsize
        return cls(nbytes * 8 // bits, elements, min(max(nbytes // BYTES_OF_WARP, 1), 32))

    def words_for(self, capacity: Any) -> Any:
        """Words of the blocks that hold ``capacity`` elements."""
        return -(-capacity // self.elements) * self.words


def words_at_once(words: int) -> int:
    """Words of a program that has a part of a row of so many: 256, or fewer where those would leave padding."""
    return next((few for few in (256, 128) if -words % few <= words // 32), 64)


def launch_words(
    kernel: Any, x: Any, out: Any, n: Any, capacity: Any, num_ranks: int, block: int, bits: int, **constants: Any
) -> None:
    """In a host program: ``kernel`` with a program for each block of ``n`` elements that ranks exchange, in words with
    ``bits`` of data; memory is kept for up to ``capacity`` elements of a message.
    """
    by = WordBlock.of(block, x.dtype, bits)
    kept = by.words_for(capacity)
    kernel[(dh.cdiv(n, by.elements),)](
        x,
        out,
        word_boxes(kept),
        n,
        kept,
        dh.epoch(),
        WORDS=by.words,
        BITS=bits,
        RANKS=num_ranks,
        num_warps=by.num_warps,
        **constants,
    )


@triton.constexpr_function
def elements_of_word(dtype, bits):
    """Elements that ``bits`` of a word hold: 1, 2, 4 or 8."""
    return bits // dtype.primitive_bitwidth


@ditron.jit
def _flag(epoch):
    """The flag of a call's words: what an epoch has in 32 bits, or in the call in which these are 0, as memory is at
    first, what no word of that half has had for long.
    """
    low = epoch.to(tl.int32)
    return tl.where(low == 0, 1 << 30, low)


@ditron.jit
def word_box(boxes_ptr, sender, ranks, epoch, words):
    """Where, in memory for two messages of each rank, ``words`` words of ``sender`` arrive in this call."""
    return boxes_ptr + ((epoch % 2).to(tl.int64) * ranks + sender) * words


@ditron.jit
def send_words(ptrs, value, epoch):
    """Store 32 bits to each of a tensor of pointers into a peer's box, from registers, as flagged words.

    A word is 64 bits, stored at once, so that nothing is fenced: the low half is data, the high one the epoch. A thread
    stores what it has of a tensor, and of one with fewer elements than threads many have the same: send one for each
    thread, or more.
    """
    word = (_flag(epoch).to(tl.int64) << 32) | (value.to(tl.int64) & 0xFFFFFFFF)
    dl.st(ptrs, word, scope="node")


@ditron.jit
def send_data_words(ptrs, value):
    """Store 64 bits of floats to each of a tensor of pointers into a peer's box, from registers, as data words.

    As of :func:`send_words`, send one for each thread, or more.
    They are stored inverted, so that those of 0.0 are not 0; two fp32 or four bf16 NaNs of nothing but ones become
    other NaNs.
    """
    word = ~value
    dl.st(ptrs, tl.where(word == 0, 1, word), scope="node")


@ditron.jit
def receive_words(ptrs, epoch):
    """What :func:`send_words` stores to each of a tensor of pointers into this rank's box as flagged words, when all
    are there.

    The tensor must have :data:`WORDS_OF_THREAD` elements for each thread, or more. One with fewer has threads that load
    the same element, and of those that see different words only one is asked whether its word is there.
    """
    flag = _flag(epoch)
    words = dl.ld(ptrs, scope="node")
    while tl.max(((words >> 32).to(tl.int32) != flag).to(tl.int32)) != 0:
        words = dl.ld(ptrs, scope="node")
    return words.to(tl.int32)


@ditron.jit
def receive_data_words(ptrs):
    """As :func:`receive_words`, of data words; behind them 0 is there again.

    When the loop ends all threads have what they read. A peer writes there next in the call after the next one.
    """
    words = dl.ld(ptrs, scope="node")
    while tl.max((words == 0).to(tl.int32)) != 0:
        words = dl.ld(ptrs, scope="node")
    dl.st(ptrs, tl.zeros_like(words), scope="node")
    return ~words


@triton.constexpr_function
def _integer_of(dtype):
    return tl.core.get_int_dtype(dtype.primitive_bitwidth, signed=True)


@ditron.jit
def words_of(values, BITS: tl.constexpr):
    """``values`` [..., n] as integers [...] of ``BITS``, ``n`` elements in each."""
    WIDTH: tl.constexpr = values.dtype.primitive_bitwidth
    bits = values.to(_integer_of(values.dtype), bitcast=True).to(tl.int64 if BITS == 64 else tl.int32)
    if WIDTH < BITS:
        bits &= (1 << WIDTH) - 1
    return tl.sum(bits << (tl.arange(0, BITS // WIDTH) * WIDTH).to(bits.dtype), -1)


@ditron.jit
def _element(words, index, DTYPE: tl.constexpr):
    """Element ``index`` of each of ``words``."""
    return (words >> (index * DTYPE.primitive_bitwidth)).to(_integer_of(DTYPE)).to(DTYPE, bitcast=True)


@ditron.jit
def elements_of(words, DTYPE: tl.constexpr):
    """Words [..., w] as their elements [..., w, n]."""
    # Element by element of a word: another dimension would have another layout, into which all would be moved.
    elements = ()
    for index in tl.static_range(elements_of_word(DTYPE, words.dtype.primitive_bitwidth)):
        elements = elements + (_element(words, index, DTYPE),)
    return _joined(elements)


@ditron.jit
def _joined(elements):
    """1, 2, 4 or 8 tensors [..., w] as one [..., w, n]."""
    if len(elements) == 1:
        return tl.expand_dims(elements[0], -1)
    elif len(elements) == 2:
        return tl.join(elements[0], elements[1])
    else:
        halves = tl.join(_joined(elements[0::2]), _joined(elements[1::2]))
        return tl.reshape(halves, elements[0].shape + [len(elements)])


@ditron.jit
def places_of(word, DTYPE: tl.constexpr, BITS: tl.constexpr):
    """Which elements of a tensor words ``word`` [...] of it hold, [..., n]."""
    PER: tl.constexpr = elements_of_word(DTYPE, BITS)
    return tl.expand_dims(word, -1) * PER + tl.arange(0, PER)


@ditron.jit
def load_words(ptr, word, n, BITS: tl.constexpr):
    """Words ``word`` [...] of the ``n`` elements at ``ptr``; behind the last one are zeros."""
    place = places_of(word, ptr.dtype.element_ty, BITS)
    return words_of(tl.load(ptr + place, mask=place < n, other=0), BITS)


@ditron.jit
def peer_boxes(boxes_ptr, words, epoch, RANKS: tl.constexpr):
    """Where this rank's message of this call arrives, at the ranks that follow it, in turns: at itself last."""
    own = dl.rank()
    box_ptr = word_box(boxes_ptr, own, RANKS, epoch, words)
    to = ()
    for step in tl.static_range(1, RANKS + 1):
        to = to + (dl.symm_at(box_ptr, (own + step) % RANKS),)
    return to


@ditron.jit
def send(ptrs, value, epoch, BITS: tl.constexpr):
    """:func:`send_data_words`, or of 32 bits :func:`send_words`."""
    if BITS == 64:
        send_data_words(ptrs, value)
    else:
        send_words(ptrs, value, epoch)


@ditron.jit
def receive(ptrs, epoch, BITS: tl.constexpr):
    """:func:`receive_data_words`, or of 32 bits :func:`receive_words`."""
    if BITS == 64:
        return receive_data_words(ptrs)
    else:
        return receive_words(ptrs, epoch)


@ditron.jit
def send_to_all(value, word, boxes_ptr, words, epoch, BITS: tl.constexpr, RANKS: tl.constexpr):
    """``value`` as words ``word`` of this rank's message to every rank."""
    to = peer_boxes(boxes_ptr, words, epoch, RANKS)
    for step in tl.static_range(RANKS):
        send(to[step] + word, value, epoch, BITS)


@ditron.jit
def send_parts(x_ptr, word, n, boxes_ptr, words, epoch, BITS: tl.constexpr, RANKS: tl.constexpr):
    """Words ``word`` [w] of each rank's part, ``n`` elements of ``x`` [ranks, n], to that rank."""
    to = peer_boxes(boxes_ptr, words, epoch, RANKS)
    parts = ()
    for step in tl.static_range(1, RANKS + 1):
        peer = (dl.rank() + step) % RANKS
        parts = parts + (load_words(x_ptr + peer.to(tl.int64) * n, word, n, BITS),)
    for step in tl.static_range(RANKS):
        send(to[step] + word, parts[step], epoch, BITS)


@ditron.jit
def ranks_to_poll(RANKS: tl.constexpr):
    """Numbers of ranks, and of none up to a power of two, [ranks]: two or more, as :func:`receive_words` asks."""
    return tl.arange(0, max(triton.next_power_of_2(RANKS), 2))


@ditron.jit
def receive_from_all(word, boxes_ptr, words, epoch, BITS: tl.constexpr, RANKS: tl.constexpr):
    """Words ``word`` [1 or ranks, ...] of every rank's message, [ranks, ...], as :func:`ranks_to_poll`; of none 0."""
    sender = ranks_to_poll(RANKS)
    for _ in tl.static_range(len(word.shape) - 1):
        sender = tl.expand_dims(sender, -1)
    ptrs = word_box(boxes_ptr, tl.minimum(sender, RANKS - 1), RANKS, epoch, words) + word
    return tl.where(sender < RANKS, receive(ptrs, epoch, BITS), 0)


@ditron.jit
def sum_of_ranks(received, DTYPE: tl.constexpr):
    """The sum over ranks, in fp32, of the elements in words [ranks, ...], [..., n]."""
    sums = ()
    for index in tl.static_range(elements_of_word(DTYPE, received.dtype.primitive_bitwidth)):
        sums = sums + (tl.sum(_element(received, index, DTYPE).to(tl.float32), 0),)
    return _joined(sums)


@ditron.jit
def sum_from_all(word, boxes_ptr, words, epoch, DTYPE: tl.constexpr, BITS: tl.constexpr, RANKS: tl.constexpr):
    """The sum over ranks, in fp32, of the elements in words ``word`` [...] of their messages, [..., n]."""
    return sum_of_ranks(receive_from_all(tl.expand_dims(word, 0), boxes_ptr, words, epoch, BITS, RANKS), DTYPE)


@ditron.jit
def store_from_all(out_ptr, word, n, boxes_ptr, words, epoch, BITS: tl.constexpr, RANKS: tl.constexpr):
    """To ``out`` [ranks, n] the elements in words ``word`` [w] of every rank's message."""
    DTYPE: tl.constexpr = out_ptr.dtype.element_ty
    received = receive_from_all(word[None, :], boxes_ptr, words, epoch, BITS, RANKS)
    sender = ranks_to_poll(RANKS)[:, None, None]
    place = places_of(word[None, :], DTYPE, BITS)
    mask = (sender < RANKS) & (place < n)
    tl.store(out_ptr + sender.to(tl.int64) * n + place, elements_of(received, DTYPE), mask=mask)


@ditron.jit
def places_of_block(block, n, DTYPE: tl.constexpr, WORDS: tl.constexpr, RANKS: tl.constexpr):
    """Of a block of a tensor of ``n`` elements, which has ``WORDS`` data words of each rank, rank by rank: where they
    are, [ranks, WORDS, per word]; what is no rank's, up to a power of two, is behind the last one.
    """
    rank = ranks_to_poll(RANKS)[:, None]
    place = places_of((block * RANKS + rank) * WORDS + tl.arange(0, WORDS)[None, :], DTYPE, 64)
    return tl.where(tl.expand_dims(rank, -1) < RANKS, place, n)


@ditron.jit
def sum_of_own_part(x_ptr, block, n, boxes_ptr, words, epoch, WORDS: tl.constexpr, RANKS: tl.constexpr):
    """The sum over ranks, in fp32, of this rank's part [WORDS, per word] of a block (:func:`places_of_block`) of ``x``,
    which has ``n`` elements.
    """
    at = tl.arange(0, WORDS)
    to = peer_boxes(boxes_ptr, words, epoch, RANKS)
    parts = ()
    for step in tl.static_range(1, RANKS + 1):
        peer = (dl.rank() + step) % RANKS
        parts = parts + (load_words(x_ptr, (block * RANKS + peer) * WORDS + at, n, 64),)
    for step in tl.static_range(RANKS):
        send_data_words(to[step] + block * WORDS + at, parts[step])
    return sum_from_all(block * WORDS + at, boxes_ptr, words, epoch, x_ptr.dtype.element_ty, 64, RANKS)


@ditron.jit
def gather_parts(part, block, boxes_ptr, words, epoch, RANKS: tl.constexpr):
    """The elements of a block (:func:`places_of_block`), of which this rank has ``part`` [WORDS, per word]."""
    word = block * part.shape[0] + tl.arange(0, part.shape[0])
    send_to_all(words_of(part, 64), word, boxes_ptr, words, epoch, 64, RANKS)
    received = receive_from_all(word[None, :], boxes_ptr, words, epoch, 64, RANKS)
    return elements_of(received, part.dtype)
