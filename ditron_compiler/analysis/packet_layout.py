"""How much memory packets take (``ditron.ll_put``): what kernels, the pass ll-protocol and the host must agree on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["LINE", "MARK", "PacketArgument", "packet_bytes", "place_bytes"]

LINE = 128  # bytes; packet memory begins at, and is counted in, whole lines

# Attribute of a kernel whose signals are packets; what it says of each is written and read by PacketArgument.
MARK = "ditron.packets"
_ARGUMENT = re.compile(
    r'\{(?:by_rank = array<i64: ([\d, ]+)>, )?index = (\d+) : i64, name = "([^"]*)", '
    r'nbytes = (\d+) : i64, put = "([^"]*)"\}'
)


def packet_bytes(nbytes: int) -> int:
    """Bytes that a message of ``nbytes`` bytes takes as packets: twice as many, in whole lines, for every protocol.

    >>> [packet_bytes(n) for n in (0, 1, 64, 65, 4096)]
    [128, 128, 128, 256, 8192]
    """
    half = LINE // 2
    return max((nbytes + half - 1) // half, 1) * LINE


def place_bytes(nbytes: int) -> int:
    """Bytes of a signal's place for messages of up to ``nbytes`` bytes: one of an even epoch, and one of an odd."""
    return 2 * packet_bytes(nbytes)


@dataclass(frozen=True)
class PacketArgument:
    """An argument of a kernel that said signals and, since the pass ll-protocol, is memory for packets.

    Attributes:
        index: among the parameters of the ``tt.func``. name: in Python. nbytes: what no message exceeds.
        put: ``file:line`` of a put that sends the packets.
        by_rank: axes of the grid along which there must not be more programs than ranks: they take a message each.
    """

    index: int
    name: str
    nbytes: int
    put: str
    by_rank: tuple[int, ...] = ()

    def __str__(self) -> str:
        """As an MLIR attribute."""
        name, put = (text.replace("\\", "\\\\").replace('"', "'") for text in (self.name, self.put))
        by_rank = f"by_rank = array<i64: {', '.join(map(str, self.by_rank))}>, " if self.by_rank else ""
        return f'{{{by_rank}index = {self.index} : i64, name = "{name}", nbytes = {self.nbytes} : i64, put = "{put}"}}'

    @staticmethod
    def all_in(text: str) -> tuple[PacketArgument, ...]:
        """Those of the kernel in an MLIR ``text``."""
        found = tuple(
            PacketArgument(int(index), name, int(nbytes), put, tuple(map(int, re.findall(r"\d+", axes))))
            for axes, index, name, nbytes, put in _ARGUMENT.findall(text)
        )
        if f"{MARK} = " in text and not found:
            raise RuntimeError(f"a kernel has the attribute {MARK} in a form that is not known")
        return found

    @staticmethod
    def of(attributes: Mapping[str, object]) -> tuple[PacketArgument, ...]:
        """Those of the ``tt.func`` that has these ``attributes``."""
        return PacketArgument.all_in(f"{MARK} = {attributes[MARK]}") if MARK in attributes else ()
