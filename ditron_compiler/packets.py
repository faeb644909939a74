"""How much memory packets take (``ditron.ll_put``): what kernels, the pass ll-protocol and the host must agree on."""
from __future__ import annotations

__all__ = ["LINE", "packet_bytes"]

LINE = 128  # bytes; packet memory begins at, and is counted in, whole lines


def packet_bytes(nbytes: int) -> int:
    """Bytes that a message of ``nbytes`` bytes takes as packets: twice as many, in whole lines, for every protocol.

    >>> [packet_bytes(n) for n in (0, 1, 64, 65, 4096)]
    [128, 128, 128, 256, 8192]
    """
    half = LINE // 2
    return max((nbytes + half - 1) // half, 1) * LINE
