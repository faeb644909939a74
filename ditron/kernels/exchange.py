"""Device functions that the collectives share: to a peer, a block of elements, with a signal behind it or as packets.

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
    "packet_boxes",
    "receive_block",
    "receive_packets",
    "send_block",
    "send_packets",
    "send_packets_to_all",
    "sum_of_packets",
]


def packet_boxes(blocks: Any, block: int, dtype: torch.dtype, name: str = "boxes", halves: int = 2) -> Any:
    """Memory of a host program for ``halves`` times ``blocks`` messages of each rank, of ``block`` elements."""
    words = packet_layout.packet_bytes(block * dtype.itemsize) // 8
    return dh.symm_zeros(halves * blocks * dh.num_ranks() * words, dtype=torch.int64, name=name)


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
