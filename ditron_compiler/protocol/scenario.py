"""The checker's input: ranks, their buffers, and what the host code of each does, with concrete numbers.

A scenario is recorded from a script, or from calls of a host program, by :mod:`ditron.protocol.capture`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ditron_compiler.protocol.memory import HeapBuffer, Span
from ditron_compiler.protocol.translate import Kernel

__all__ = [
    "HostAwait",
    "HostFree",
    "HostOp",
    "HostLaunch",
    "HostBarrier",
    "HostAccess",
    "HostRecord",
    "Scenario",
    "HostSignalWait",
    "HostSignalWrite",
    "UntrackedLaunch",
]


@dataclass(frozen=True)
class HostOp:
    """An operation on a stream (``""``: the main one), of call number ``call``, enqueued at a Python line."""

    stream: str
    loc: str
    call: int


@dataclass(frozen=True)
class HostLaunch(HostOp):
    """A kernel. ``args``: integers, pointers (:mod:`.memory`), UNKNOWN for floats; one per argument of the function.

    ``ranks``: in the world, of the group that it is launched in; all, if empty.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    args: tuple[Any, ...]
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class HostAccess(HostOp):
    """Reads and writes by the host, a copy engine, or, with ``needs_sm``, a kernel that is not followed.

    ``in_order``: what it copies goes, in the order of addresses, to what it writes; not transposed.
    ``opaque``: nothing is known of the values that it writes. ``contents``: the bytes of each run that it writes, where
    they are known. ``keeps``: it leaves integers as they are.
    """

    name: str
    reads: Span | None
    writes: Span | None
    needs_sm: bool = False
    in_order: bool = True
    opaque: bool = False
    contents: Sequence[Any] | None = field(default=None, compare=False)
    keeps: bool = False


@dataclass(frozen=True)
class HostSignalWrite(HostOp):
    """A stream writes signals, ordered after what it did before. ``cells``: pointers, which contain the rank."""

    cells: tuple[int, ...]
    op: str
    value: int


@dataclass(frozen=True)
class HostSignalWait(HostOp):
    """A stream waits for signals. ``captured_kernel``: in a CUDA graph it is a kernel."""

    cells: tuple[int, ...]
    cmp: str
    value: int
    captured_kernel: bool = False


@dataclass(frozen=True)
class HostRecord(HostOp):
    event: int


@dataclass(frozen=True)
class HostAwait(HostOp):
    event: int


@dataclass(frozen=True)
class HostBarrier(HostOp):
    """A barrier of some ranks (all, if empty). ``quiet``: completes what they have sent, too."""

    name: str
    ranks: tuple[int, ...] = ()
    quiet: bool = True


@dataclass(frozen=True)
class HostFree(HostOp):
    """A buffer is freed."""

    root: int


@dataclass(frozen=True)
class UntrackedLaunch(HostOp):
    """A launch that is not followed: it may write anything."""


@dataclass
class Scenario:
    """Attributes:

    ranks, ranks_per_node: of the group. roots: buffers by number. steps: per rank, what its host does, in order.
    resident: programs that a rank's SMs take at a time. title: for reports, "4 ranks". calls: how often the whole is
    called. notes: what could not be described. drawn: whether it has values that were drawn at random. addresses: first
    address, length and pointer of each buffer of a rank.
    """

    ranks: int
    ranks_per_node: int
    roots: dict[int, HeapBuffer]
    steps: Sequence[Sequence[HostOp]]
    resident: int = 132
    calls: int = 1
    notes: list[str] = field(default_factory=list)
    drawn: bool = False
    addresses: Sequence[tuple[int, int, int]] = ()

    @property
    def key(self) -> str:
        """Of the integers in it, as far as they are data: what samples differ in."""
        digest = hashlib.sha256()
        for root in self.roots.values():
            digest.update(b"" if root.initial is None else root.initial.tobytes())
        for step in (step for steps in self.steps for step in steps):
            if isinstance(step, HostLaunch):
                digest.update(repr((step.kernel.name, step.grid, step.args)).encode())
            elif isinstance(step, HostAccess):
                for data in step.contents or ():
                    digest.update(data.tobytes())
        return digest.hexdigest()

    @property
    def title(self) -> str:
        nodes = self.ranks // self.ranks_per_node
        return f"{self.ranks} rank{'s' * (self.ranks > 1)}" + (f" on {nodes} nodes" if nodes > 1 else "")
