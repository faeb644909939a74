"""Device functions for words: 32 bits of a tensor in registers beside a flag, stored at a peer at once.

Data does not pass through memory at either end, as that of packets does (exchange.py), and one poll waits for the words
of all ranks. A word is half flag, so that many bytes go faster by packets of 120 bytes and a flag. The memory that
peers write to has two halves, used in turns, as exchange.py explains.
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
    "LEAST_WORDS",
    "WORDS_OF_THREAD",
    "WordBlock",
    "elements_of",
    "elements_of_word",
    "launch_words",
    "load_words",
    "peer_boxes",
    "places_of",
    "receive_from_all",
    "receive_words",
    "send_parts",
    "send_words",
    "store_from_all",
    "sum_from_all",
    "word_box",
    "word_boxes",
    "words_of",
]

#: Elements of a thread from which on no layout of words has two threads with the same one: a layout gives a thread at
#: most 16 bytes that follow each other, four elements of what the words become.
WORDS_OF_THREAD = 4

#: Of a program on GPUs, which has a warp.
LEAST_WORDS = 32 * WORDS_OF_THREAD


def word_boxes(words: Any, name: str = "boxes") -> Any:
    """Memory of a host program for two messages of each rank, of so many ``words`` (:func:`send_words`)."""
    return dh.symm_zeros(2 * dh.num_ranks() * words, dtype=torch.int64, name=name)


@dataclass(frozen=True)
class WordBlock:
    """What a program exchanges with each rank at once: ``elements``, in a power of two of ``words``."""

    words: int
    elements: int

    @classmethod
    def of(cls, elements: int, dtype: torch.dtype) -> WordBlock:
        return cls(elements * dtype.itemsize // 4, elements)

    @property
    def num_warps(self) -> int:
        """So many that each thread has :data:`WORDS_OF_THREAD`, if there are :data:`LEAST_WORDS`."""
        return min(max(self.words // LEAST_WORDS, 1), 32)

    def words_for(self, capacity: Any) -> Any:
        """Words of the blocks that hold ``capacity`` elements."""
        return -(-capacity // self.elements) * self.words


def launch_words(
    kernel: Any, x: Any, out: Any, n: Any, capacity: Any, num_ranks: int, block: int, **constants: Any
) -> None:
    """In a host program: ``kernel`` with a program for each block of ``n`` elements that ranks exchange; memory is kept
    for up to ``capacity`` elements of a message.
    """
    by = WordBlock.of(block, x.dtype)
    kept = by.words_for(capacity)
    kernel[(dh.cdiv(n, by.elements),)](
        x,
        out,
        word_boxes(kept),
        n,
        kept,
        dh.epoch(),
        WORDS=by.words,
        RANKS=num_ranks,
        num_warps=by.num_warps,
        **constants,
    )


@triton.constexpr_function
def elements_of_word(dtype):
    """Elements that a word holds: 1, 2 or 4."""
    return 32 // dtype.primitive_bitwidth


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
    """Store 32 bits to each of a tensor of pointers into a peer's box, from registers.

    A word is 64 bits, stored at once: the low half is data, the high one the epoch, by which its reader knows it, so
    that nothing is fenced. A thread stores what it has of a tensor, and of one with fewer elements than threads many
    have the same: send one for each thread, or more.
    """
    word = (_flag(epoch).to(tl.int64) << 32) | (value.to(tl.int64) & 0xFFFFFFFF)
    dl.st(ptrs, word, scope="node")


@ditron.jit
def receive_words(ptrs, epoch):
    """What :func:`send_words` stores to each of a tensor of pointers into this rank's box, when all are there.

    The tensor must have :data:`WORDS_OF_THREAD` elements for each thread, or more. One with fewer has threads that load
    the same element, and of those that see different words only one is asked whether its word is there.
    """
    flag = _flag(epoch)
    words = dl.ld(ptrs, scope="node")
    while tl.max(((words >> 32).to(tl.int32) != flag).to(tl.int32)) != 0:
        words = dl.ld(ptrs, scope="node")
    return words.to(tl.int32)


@triton.constexpr_function
def _integer_of(dtype):
    return tl.core.get_int_dtype(dtype.primitive_bitwidth, signed=True)


@ditron.jit
def words_of(values):
    """``values`` [..., n] as words [...], ``n`` elements in each."""
    dtype: tl.constexpr = values.dtype
    BITS: tl.constexpr = dtype.primitive_bitwidth
    bits = values.to(_integer_of(dtype), bitcast=True).to(tl.int32)
    if BITS < 32:
        bits &= (1 << BITS) - 1
    return tl.sum(bits << tl.arange(0, 32 // BITS) * BITS, -1)


@ditron.jit
def elements_of(words, DTYPE: tl.constexpr):
    """Words [..., w] as their elements [..., w, n]."""
    BITS: tl.constexpr = DTYPE.primitive_bitwidth
    bits = tl.expand_dims(words, -1) >> tl.arange(0, 32 // BITS) * BITS
    return bits.to(_integer_of(DTYPE)).to(DTYPE, bitcast=True)


@ditron.jit
def places_of(word, DTYPE: tl.constexpr):
    """Which elements of a tensor words ``word`` [w] of it hold, [w, n]."""
    PER: tl.constexpr = elements_of_word(DTYPE)
    return word[:, None] * PER + tl.arange(0, PER)[None, :]


@ditron.jit
def load_words(ptr, word, n):
    """Words ``word`` [w] of the ``n`` elements at ``ptr``; behind the last one are zeros."""
    place = places_of(word, ptr.dtype.element_ty)
    return words_of(tl.load(ptr + place, mask=place < n, other=0))


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
def send_parts(x_ptr, word, n, boxes_ptr, words, epoch, RANKS: tl.constexpr):
    """Words ``word`` [w] of each rank's part, ``n`` elements of ``x`` [ranks, n], to that rank."""
    to = peer_boxes(boxes_ptr, words, epoch, RANKS)
    parts = ()
    for step in tl.static_range(1, RANKS + 1):
        peer = (dl.rank() + step) % RANKS
        parts = parts + (load_words(x_ptr + peer.to(tl.int64) * n, word, n),)
    for step in tl.static_range(RANKS):
        send_words(to[step] + word, parts[step], epoch)


@ditron.jit
def receive_from_all(word, boxes_ptr, words, epoch, RANKS: tl.constexpr):
    """Words ``word`` [...] of every rank's message, [ranks, ...], with ranks of 0 up to a power of two."""
    sender = tl.arange(0, triton.next_power_of_2(RANKS))
    for _ in tl.static_range(len(word.shape)):
        sender = tl.expand_dims(sender, -1)
    box_ptr = word_box(boxes_ptr, tl.minimum(sender, RANKS - 1), RANKS, epoch, words)
    return tl.where(sender < RANKS, receive_words(box_ptr + tl.expand_dims(word, 0), epoch), 0)


@ditron.jit
def _sum_of_elements(words, index, DTYPE: tl.constexpr):
    """The sum over ranks of element ``index`` of words [ranks, ...], in fp32."""
    bits = (words >> (index * DTYPE.primitive_bitwidth)).to(_integer_of(DTYPE))
    return tl.sum(bits.to(DTYPE, bitcast=True).to(tl.float32), 0)


@ditron.jit
def sum_from_all(word, boxes_ptr, words, epoch, DTYPE: tl.constexpr, RANKS: tl.constexpr):
    """The sum over ranks, in fp32, of the elements in words ``word`` [...] of their messages, [..., n]."""
    received = receive_from_all(word, boxes_ptr, words, epoch, RANKS)
    # Element by element of a word: another dimension would have another layout, into which all would be moved.
    if elements_of_word(DTYPE) == 1:
        return tl.expand_dims(_sum_of_elements(received, 0, DTYPE), -1)
    else:
        return tl.join(_sum_of_elements(received, 0, DTYPE), _sum_of_elements(received, 1, DTYPE))


@ditron.jit
def store_from_all(out_ptr, word, n, boxes_ptr, words, epoch, RANKS: tl.constexpr):
    """To ``out`` [ranks, n] the elements in words ``word`` [w] of every rank's message."""
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    elements = elements_of(receive_from_all(word, boxes_ptr, words, epoch, RANKS), dtype)
    sender = tl.arange(0, elements.shape[0])[:, None, None]
    place = places_of(word, dtype)[None, :, :]
    tl.store(out_ptr + sender.to(tl.int64) * n + place, elements, mask=(sender < RANKS) & (place < n))
