"""Packets: messages whose data brings its own flag, for what is so small that a signal costs more than the data.

The pipeline ``"low-latency"`` makes them of puts with a signal; these functions are for who writes them out.
"""

from __future__ import annotations

import triton
from triton.language import core as tl

from ditron.language._core import (
    attributes,
    byte_count,
    describe,
    emit_handle,
    emit_void,
    enum,
    integer,
    pointer,
    primitive,
    signal_pointer,
    token,
    writable,
)
from ditron_compiler.analysis import packet_layout as packets

__all__ = ["ll_get", "ll_put", "packet_bytes"]

packet_bytes = triton.constexpr_function(packets.packet_bytes)


def _message(name, packets, data, nbytes, epoch, protocol, semantic):
    """What both ends check: packets, bytes, epoch and the protocol's attribute."""
    signal_pointer(name, packets, "packets")
    nbytes = byte_count(name, nbytes, [data], semantic)
    protocol = tl._unwrap_if_constexpr(protocol)
    if protocol not in ("ll", "ll128"):
        raise ValueError(f"dl.{name}: protocol must be 'll' or 'll128', got {describe(protocol)}")
    epoch = integer(name, epoch, "epoch", tl.int64, semantic, minimum=1)
    return nbytes, epoch, attributes(protocol=enum(name, protocol, "protocol"))


@primitive
def ll_put(packets, src, nbytes, rank, epoch, protocol="ll", _semantic=None):
    """Send ``nbytes`` bytes from ``src`` to packet memory of ``rank``, with ``epoch`` as the flag of each packet.

    On return ``src`` may be reused. No signal follows, and nothing else is ordered by it.

    Args:
        packets: symmetric pointer to int64, as it is on this rank, where the message's packets begin: a multiple of 128
            bytes, of memory by ``ditron.symm_packets``. A message takes ``dl.packet_bytes(nbytes)`` bytes.
        src: pointer to local memory. nbytes: bytes, not elements (int scalar); a multiple of the elements' size. A
            message of none is a flag, which is waited for as any other.
        rank: rank in the group, of this node (int scalar).
        epoch: 1 or more, and larger than that of any earlier message to the same place (int scalar, taken as int64).
        protocol: ``"ll"``, or ``"ll128"`` where the links are NVLink (elsewhere it is sent by ``"ll"``).

    Send again to the same place only when the message has been taken. With two places by the epoch's parity that is
    so when a message of the epoch between has come back from that rank.

        half = dl.packet_bytes(N * 2) // 8
        dl.ll_put(packets_ptr + (2 * rank + epoch % 2) * half, x_ptr, N * 2, peer, epoch)
    """
    pointer("ll_put", src, "src")
    nbytes, epoch, attrs = _message("ll_put", packets, src, nbytes, epoch, protocol, _semantic)
    rank = integer("ll_put", rank, "rank", tl.int32, _semantic, minimum=0)
    emit_void("ll_put", [packets, src, nbytes, epoch, rank], _semantic, attrs)


@primitive
def ll_get(dst, packets, nbytes, epoch, protocol="ll", _semantic=None):
    """Wait for a message of packets with the flag ``epoch`` and unpack it to ``dst``; returns a token as :func:`wait`.

    Args:
        dst: pointer to local memory. packets: where the packets begin, in this rank's memory.
        nbytes, epoch, protocol: as the sender gave them.

    One program takes a message.

        token = dl.ll_get(out_ptr + peer * N, packets_ptr + (2 * peer + epoch % 2) * half, N * 2, epoch)
    """
    writable("ll_get", pointer("ll_get", dst, "dst"), "dst")
    nbytes, epoch, attrs = _message("ll_get", packets, dst, nbytes, epoch, protocol, _semantic)
    i32 = _semantic.builder.get_int32_ty()
    return token(emit_handle("ll_get", [dst, packets, nbytes, epoch], i32, _semantic, attrs))
