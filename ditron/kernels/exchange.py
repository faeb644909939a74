"""Device functions that the collectives share: to a peer, a block of elements, with a signal behind it or as packets,
or a tensor in registers, as words.

The memory that peers write to has two halves, used in turns by the epoch's parity, so that nobody asks before it
writes, and no acknowledgement is sent: a rank that writes in call e + 2 has ended its call e + 1, in which it took
something from every rank. Each rank sent that after its own call e had ended, so nobody still reads the half of e.

Where every message is answered by one of the same call, as a part of a sum by the sum, one half is enough: ``blocks``
is 0 for the functions below, and ``halves`` 1 for :func:`packet_boxes`. A rank sends the next message after a call in
which it took the answer, which was sent when the message had been read. The next answer follows the next message, which
its rank sent after a call in which it had read the answer before.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron_compiler.analysis import packet_layout

__all__ = [
    "WORDS_OF_THREAD",
    "packet_boxes",
    "receive_block",
    "receive_packets",
    "receive_words",
    "send_block",
    "send_packets_to_all",
    "send_words",
    "sum_of_packets",
    "word_boxes",
]


#: Elements of a thread from which on no layout of words has two threads with the same one: a layout gives a thread at
#: most 16 bytes that follow each other, four elements of what the words become.
WORDS_OF_THREAD = 4


def packet_boxes(blocks: Any, block: int, dtype: torch.dtype, name: str = "boxes", halves: int = 2) -> Any:
    """Memory of a host program for ``halves`` times ``blocks`` messages of each rank, of ``block`` elements."""
    words = packet_layout.packet_bytes(block * dtype.itemsize) // 8
    return dh.symm_zeros(halves * blocks * dh.num_ranks() * words, dtype=torch.int64, name=name)


def word_boxes(words: int, name: str) -> Any:
    """Memory of a host program for two messages of each rank, of so many ``words`` (:func:`send_words`)."""
    return dh.symm_zeros(2 * dh.num_ranks() * words, dtype=torch.int64, name=name)


@triton.constexpr_function
def block_bytes(block, dtype):
    """Bytes of ``block`` elements."""
    return block * (dtype.primitive_bitwidth // 8)


@ditron.jit
def send_block(value, inbox_ptr, arrived_ptr, block, at, mask, peer, capacity, epoch):
    """Store elements ``at`` in this rank's box of ``capacity`` elements at ``peer``, and signal that block."""
    own = dl.rank()
    tl.store(dl.symm_at(inbox_ptr + own.to(tl.int64) * capacity, peer) + at, value, mask=mask)
    dl.notify(arrived_ptr + block * dl.num_ranks() + own, peer, epoch)


@ditron.jit
def receive_block(inbox_ptr, arrived_ptr, block, at, mask, sender, capacity, epoch):
    """What ``sender`` has sent by :func:`send_block`; 0 where masked."""
    token = dl.wait(arrived_ptr + block * dl.num_ranks() + sender, 1, epoch)
    box_ptr = dl.consume_token(inbox_ptr + sender * tl.cast(capacity, tl.int64), token)
    return tl.load(box_ptr + at, mask=mask, other=0.0)


@ditron.jit
def _box(boxes_ptr, block, blocks, sender, epoch, BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    """Where, in memory for two times ``blocks`` messages of each rank, a block of ``sender`` arrives in this call.

    In memory of one half, ``blocks`` is 0.
    """
    place = (epoch % 2).to(tl.int64) * blocks + block
    return boxes_ptr + (place * dl.num_ranks() + sender) * (dl.packet_bytes(block_bytes(BLOCK, DTYPE)) // 8)


@ditron.jit
def send_packets(src_ptr, count, boxes_ptr, block, blocks, peer, epoch, BLOCK: tl.constexpr, PROTOCOL: tl.constexpr):
    """Send ``count`` elements, at most ``BLOCK``, to ``peer`` as packets."""
    dtype: tl.constexpr = src_ptr.dtype.element_ty
    box_ptr = _box(boxes_ptr, block, blocks, dl.rank(), epoch, BLOCK, dtype)
    dl.ll_put(box_ptr, src_ptr, block_bytes(1, dtype) * count, peer, epoch, protocol=PROTOCOL)


@ditron.jit
def receive_packets(
    dst_ptr, count, boxes_ptr, block, blocks, sender, epoch, BLOCK: tl.constexpr, PROTOCOL: tl.constexpr
):
    """Unpack what ``sender`` has sent by :func:`send_packets` to ``dst_ptr``; the pointer, to read it by."""
    dtype: tl.constexpr = dst_ptr.dtype.element_ty
    box_ptr = _box(boxes_ptr, block, blocks, sender, epoch, BLOCK, dtype)
    token = dl.ll_get(dst_ptr, box_ptr, block_bytes(1, dtype) * count, epoch, protocol=PROTOCOL)
    return dl.consume_token(dst_ptr, token)


@ditron.jit
def send_packets_to_all(
    x_ptr, part, count, boxes_ptr, block, blocks, epoch, BLOCK: tl.constexpr, PROTOCOL: tl.constexpr
):
    """:func:`send_packets` to every other rank; rank r gets ``x_ptr + r * part``."""
    ranks = dl.num_ranks()
    for step in range(1, ranks):
        peer = (dl.rank() + step) % ranks
        theirs_ptr = x_ptr + peer * tl.cast(part, tl.int64)
        send_packets(theirs_ptr, count, boxes_ptr, block, blocks, peer, epoch, BLOCK, PROTOCOL)


@ditron.jit
def _flag(epoch):
    """The flag of a call's words: what an epoch has in 32 bits, or in the call in which these are 0, as memory is at
    first, what no word of that half has had for long.
    """
    low = epoch.to(tl.int32)
    return tl.where(low == 0, 1 << 30, low)


@ditron.jit
def word_box(boxes_ptr, sender, ranks, epoch, WORDS: tl.constexpr):
    """Where, in memory for two messages of each rank, ``WORDS`` words of ``sender`` arrive in this call."""
    return boxes_ptr + ((epoch % 2).to(tl.int64) * ranks + sender) * WORDS


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
    while tl.max(((words >> 32).to(tl.int32) != flag).to(tl.int32), 0) != 0:
        words = dl.ld(ptrs, scope="node")
    return words.to(tl.int32)


@ditron.jit
def sum_of_packets(
    mine_ptr, out_ptr, count, boxes_ptr, block, blocks, epoch, BLOCK: tl.constexpr, PROTOCOL: tl.constexpr
):
    """The sum, in fp32 and in rank order, of ``mine_ptr`` and of what every other rank has sent to this one.

    Messages are unpacked to ``out_ptr`` one after the other, for the caller to overwrite. Returns ``BLOCK`` elements,
    rounded up to a power of two.
    """
    own = dl.rank()
    PADDED: tl.constexpr = triton.next_power_of_2(BLOCK)
    within = tl.arange(0, PADDED)
    mask = within < count
    mine = tl.load(mine_ptr + within, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros((PADDED,), tl.float32)
    for sender in range(dl.num_ranks()):
        if sender == own:
            total += mine
        else:
            part_ptr = receive_packets(out_ptr, count, boxes_ptr, block, blocks, sender, epoch, BLOCK, PROTOCOL)
            total += tl.load(part_ptr + within, mask=mask, other=0.0).to(tl.float32)
    return total
