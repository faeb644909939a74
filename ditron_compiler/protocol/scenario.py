"""What is checked: ranks, their buffers, and what the host does on each, with every number known.

A scenario is recorded from a script, or from calls of a host program, by :mod:`ditron.protocol.capture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ditron_compiler.protocol.memory import Root, Span
from ditron_compiler.protocol.translate import Kernel

__all__ = [
    "Await",
    "Free",
    "HostOp",
    "Launch",
    "Meet",
    "Move",
    "Record",
    "Scenario",
    "SignalWait",
    "SignalWrite",
    "Unseen",
]


@dataclass(frozen=True)
class HostOp:
    """Something the host enqueues on a stream (``""`` is the main one), in call number ``call``, at a Python line."""

    stream: str
    loc: str
    call: int


@dataclass(frozen=True)
class Launch(HostOp):
    """A kernel. ``args``: integers, pointers (:mod:`.memory`), UNKNOWN for floats; one per argument of the function."""

    kernel: Kernel
    grid: tuple[int, int, int]
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Move(HostOp):
    """Reads and writes by the host, a copy engine, or, with ``needs_sm``, a kernel of no interest. ``name`` it.

    ``in_order``: what it copies goes, in the order of addresses, to what it writes; it does not transpose.
    """

    name: str
    reads: Span | None
    writes: Span | None
    needs_sm: bool = False
    in_order: bool = True


@dataclass(frozen=True)
class SignalWrite(HostOp):
    """A stream writes signals, after all that it did before. ``cells``: pointers, which say on which rank."""

    cells: tuple[int, ...]
    op: str
    value: int


@dataclass(frozen=True)
class SignalWait(HostOp):
    cells: tuple[int, ...]
    cmp: str
    value: int


@dataclass(frozen=True)
class Record(HostOp):
    event: int


@dataclass(frozen=True)
class Await(HostOp):
    event: int


@dataclass(frozen=True)
class Meet(HostOp):
    """All ranks meet. ``quiet``: what they have sent has arrived."""

    name: str
    quiet: bool = True


@dataclass(frozen=True)
class Free(HostOp):
    """A buffer is given back."""

    root: int


@dataclass(frozen=True)
class Unseen(HostOp):
    """A launch that is not followed: it may write anything."""


@dataclass
class Scenario:
    """Attributes:

    ranks, ranks_per_node: of the group. roots: buffers by number. steps: per rank, what its host does, in order.
    resident: programs that a rank's SMs take at a time. title: for reports, "4 ranks". calls: how often the whole is
    called. strict: a scope of ``node`` does not reach another node. notes: what could not be described.
    """

    ranks: int
    ranks_per_node: int
    roots: dict[int, Root]
    steps: Sequence[Sequence[HostOp]]
    resident: int = 132
    calls: int = 1
    strict: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        nodes = self.ranks // self.ranks_per_node
        return f"{self.ranks} rank{'s' * (self.ranks > 1)}" + (f" on {nodes} nodes" if nodes > 1 else "")
