"""What one rank does in one call of a program, and the memory that it does it with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "Await",
    "Buffer",
    "Copy",
    "EvaluationError",
    "Fill",
    "Launch",
    "ONE_NODE",
    "Place",
    "RankCopy",
    "Record",
    "Root",
    "SignalWait",
    "SignalWrite",
    "Step",
    "Stream",
    "StreamBarrier",
]


#: What executors and the checker say of a copy or a signal to a rank of another node.
ONE_NODE = "a rank_copy and a stream's signal reach the ranks of one node; let a kernel put there (dl.putmem_signal)"


class EvaluationError(ValueError):
    """A program that cannot be carried out with these arguments on this rank; the message begins with its line."""


@dataclass(frozen=True)
class Place:
    """Where a rank is: in its group, on its node and, where it is known, in the world of all ranks.

    ``near``: the group's ranks on its node, which its copies and signals reach; None when all do.
    """

    rank: int
    num_ranks: int
    local_rank: int
    num_local_ranks: int
    node: int
    world_rank: int | None = None
    world_size: int | None = None
    near: frozenset[int] | None = None


@dataclass(frozen=True)
class Root:
    """A piece of memory: an argument, or what the program allocates.

    Attributes:
        kind: "argument", "symmetric" or "local". name: of the argument or the allocation. index: which argument, or
            which allocation of the program. shape: in elements. dtype: element type as MLIR names it, "bf16".
        zeroed: filled with zeros when it is allocated.
    """

    kind: Literal["argument", "symmetric", "local"]
    name: str
    index: int
    shape: tuple[int, ...]
    dtype: str
    zeroed: bool = False


@dataclass(frozen=True)
class Buffer:
    """A rectangular part of a root. Offset (from the root's first element) and strides are in elements."""

    root: Root
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """The element type as MLIR names it."""
        return self.root.dtype


@dataclass(frozen=True)
class Stream:
    """A stream of the rank's GPU. The one that the program is called on has the name ""."""

    name: str = ""
    index: int = 0


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something put on a stream; ``loc`` is the program's line, ``file:line:column``."""

    stream: Stream
    loc: str


@dataclass(frozen=True)
class Launch(Step):
    """A kernel, by its symbol; at least one program. ``args`` are without the kernel's hidden context."""

    kernel: str
    grid: tuple[int, int, int]
    args: tuple[int | float | Buffer, ...]
    options: dict[str, int | float | bool | str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class RankCopy(Step):
    """A copy between ranks. ``push``: to ``dst`` on ``peer``; otherwise from ``src`` on ``peer``. Shapes are equal."""

    src: Buffer
    dst: Buffer
    peer: int
    push: bool


@dataclass(frozen=True)
class Copy(Step):
    """A copy within the rank's memory. Shapes are equal."""

    src: Buffer
    dst: Buffer


@dataclass(frozen=True)
class Fill(Step):
    """Every element of ``dst`` becomes ``value``."""

    dst: Buffer
    value: int | float


@dataclass(frozen=True)
class SignalWrite(Step):
    """``op``, "set" or "add", with ``value`` on the signal (a buffer of shape ``()``) of rank ``peer``."""

    signal: Buffer
    op: str
    value: int
    peer: int


@dataclass(frozen=True)
class SignalWait(Step):
    """The stream goes on when ``signal cmp value`` holds; ``cmp`` is "ge" or another of ``#ditron.cmp``."""

    signal: Buffer
    cmp: str
    value: int


@dataclass(frozen=True)
class Record(Step):
    """Marks a point of the stream as event number ``event``, one per record and call."""

    event: int


@dataclass(frozen=True)
class Await(Step):
    """The stream goes on after an event that was recorded before."""

    event: int


@dataclass(frozen=True)
class StreamBarrier(Step):
    """The stream goes on when those of all ranks of the group have come."""
