"""The steps of one rank in one call of a program, and the memory that they access."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "Await",
    "BufferView",
    "Call",
    "Copy",
    "DescriptorView",
    "EvaluationError",
    "Fill",
    "FloatArgument",
    "Launch",
    "ONE_NODE",
    "RankPlacement",
    "RankCopy",
    "Record",
    "Storage",
    "SignalWait",
    "SignalWrite",
    "Step",
    "StreamId",
    "StreamBarrier",
]


#: The error of executors and the checker for a copy or a signal to a rank of another node.
ONE_NODE = "a rank_copy and a stream's signal reach the ranks of one node; let a kernel put there (dl.putmem_signal)"


class EvaluationError(ValueError):
    """A program that cannot be executed with these arguments on this rank; the message begins with its line."""


@dataclass(frozen=True)
class RankPlacement:
    """A rank's number in its group, on its node and, where it is known, in the world of all ranks.

    ``node_ranks``: the group's ranks on its node, which its copies and signals reach; None when they reach all.
    """

    rank: int
    num_ranks: int
    local_rank: int
    num_local_ranks: int
    node: int
    world_rank: int | None = None
    world_size: int | None = None
    node_ranks: frozenset[int] | None = None


@dataclass(frozen=True)
class Storage:
    """The memory of an argument, or of an allocation of the program.

    Attributes:
        kind: "argument", "symmetric" or "local". name: of the argument or the allocation. index: the number of the
            argument, or of the allocation in the program. shape: in elements. dtype: element type in MLIR, "bf16".
        zeroed: filled with zeros when it is allocated.
    """

    kind: Literal["argument", "symmetric", "local"]
    name: str
    index: int
    shape: tuple[int, ...]
    dtype: str
    zeroed: bool = False


@dataclass(frozen=True)
class BufferView:
    """A strided part of a storage. Offset (from its first element) and strides are in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """The element type as MLIR names it."""
        return self.storage.dtype


@dataclass(frozen=True)
class DescriptorView:
    """A host-made tensor descriptor: a tensor in a buffer, from its first element on. Strides are in elements.

    ``nan_padding``: what a load reads outside of the tensor is NaN, not zero.
    """

    buffer: BufferView
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nan_padding: bool = False


class FloatArgument(float):
    """The value of a float argument of the program, which passes it on; ``index``: the number of the argument."""

    index: int

    def __new__(cls, value: float, index: int) -> FloatArgument:
        made = super().__new__(cls, value)
        made.index = index
        return made


@dataclass(frozen=True)
class StreamId:
    """A stream of the rank's GPU. The one that the program is called on has the name ""."""

    name: str = ""
    index: int = 0


@dataclass(frozen=True, kw_only=True)
class Step:
    """An operation on a stream; ``loc`` is the program's line, ``file:line:column``."""

    stream: StreamId
    loc: str


@dataclass(frozen=True)
class Launch(Step):
    """A launch of a kernel, by its symbol, with at least one program. ``args`` do not include the hidden context.

    Behind a descriptor are its shape and its strides, which are parameters of the kernel, too.
    """

    kernel: str
    grid: tuple[int, int, int]
    args: tuple[int | float | BufferView | DescriptorView, ...]
    options: dict[str, int | float | bool | str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Call(Step):
    """A call of a Python function, by its name in the program, with tensors of ``reads`` and then of ``writes``."""

    callee: str
    reads: tuple[BufferView, ...]
    writes: tuple[BufferView, ...]


@dataclass(frozen=True)
class RankCopy(Step):
    """A copy between ranks. ``push``: to ``dst`` on ``peer``; otherwise from ``src`` on ``peer``. Shapes are equal."""

    src: BufferView
    dst: BufferView
    peer: int
    push: bool


@dataclass(frozen=True)
class Copy(Step):
    """A copy within the rank's memory. Shapes are equal."""

    src: BufferView
    dst: BufferView


@dataclass(frozen=True)
class Fill(Step):
    """Every element of ``dst`` becomes ``value``."""

    dst: BufferView
    value: int | float


@dataclass(frozen=True)
class SignalWrite(Step):
    """``op``, "set" or "add", with ``value`` on the signal (a buffer of shape ``()``) of rank ``peer``."""

    signal: BufferView
    op: str
    value: int
    peer: int


@dataclass(frozen=True)
class SignalWait(Step):
    """The stream waits until ``signal cmp value`` holds; ``cmp`` is "ge" or another of ``#ditron.cmp``."""

    signal: BufferView
    cmp: str
    value: int


@dataclass(frozen=True)
class Record(Step):
    """Records event number ``event``, one per record and call."""

    event: int


@dataclass(frozen=True)
class Await(Step):
    """The stream waits for an event that was recorded before."""

    event: int


@dataclass(frozen=True)
class StreamBarrier(Step):
    """The streams of all ranks of the group wait for each other."""
