"""What the abstract machine records of a run, and its tasks."""

from __future__ import annotations

from collections.abc import Generator, Hashable
from dataclasses import dataclass, field
from typing import Any

from ditron_compiler.protocol import scenario as host
from ditron_compiler.protocol.memory import Span

__all__ = [
    "SIGNALS",
    "AccessRecord",
    "Blocked",
    "Cell",
    "Keys",
    "PendingLaunch",
    "Problem",
    "Task",
    "UpdateEvent",
    "WaitEvent",
    "satisfies",
]

#: How an update is made that is a signal's, not an atomic's.
SIGNALS = ("notify", "signal_op", "putmem_signal", "signal_write", "ll_put")

#: What a generator yields: it is resumed when one of these changes.
Keys = tuple[Hashable, ...]


@dataclass
class UpdateEvent:
    """An update of a signal: ``set`` or ``add``. ``node`` is its arrival, ``issued`` the segment that sent it."""

    cell: int
    node: int
    issued: int
    task: Task
    op: str
    value: int
    loc: str
    how: str
    call: int
    scope: str = "world"
    release: bool = True


@dataclass
class WaitEvent:
    """A wait that has returned (or not: ``after`` is -1)."""

    task: Task
    before: int
    after: int
    cells: tuple[int, ...]
    cmp: str
    value: int
    loc: str
    call: int
    site: int | None = None
    scope: str = "world"
    acquire: bool = True
    fenced: int = -1  # a fence after a relaxed wait: both together are an acquire


@dataclass(frozen=True)
class Blocked:
    """Why a task is blocked, when it is not by a signal. ``kind``: barrier, event, launch or sm."""

    text: str
    loc: str
    kind: str


@dataclass
class Cell:
    """A signal, or another integer in memory that programs synchronize by. ``doubtful``: it may have been updated by
    what was not followed.
    """

    value: Any
    initial: Any = 0
    size: int = 8
    version: int = 0
    doubtful: bool = False
    writers: list[UpdateEvent] = field(default_factory=list)
    releases: list[UpdateEvent] = field(default_factory=list)  # what an acquire load synchronizes with

    def released_by(self, signal: UpdateEvent) -> None:
        """An acquire load synchronizes with this signal; an addition continues the release sequence."""
        if signal.op == "set":
            self.releases = []
        if signal.release:
            self.releases.append(signal)


@dataclass
class AccessRecord:
    """An access by a node. ``atomic``: does not race with atomic ones. ``how``: in words. ``site``: in the kernel."""

    node: int
    task: Task
    write: bool
    atomic: bool
    how: str
    loc: str
    site: int | None
    span: Span
    call: int
    step: int  # of the host code, that it belongs to
    copy: int | None = None  # number of the copy, put or get whose source or destination it is
    path: tuple[int, ...] = ()  # the branches on unknown conditions that it is in
    moment: int = 0  # of the machine's run, when it was made last: nodes are in the order in which segments begin


@dataclass(frozen=True)
class WordReuse:
    """A data word that is stored at ``pointer`` by ``task``, after ``reader`` has read and cleared the one before."""

    pointer: int
    cleared: int  # node
    reader: Task
    cleared_loc: str
    stored: int  # node
    task: Task
    loc: str


@dataclass(frozen=True)
class Problem:
    """A mistake that a single operation makes."""

    kind: str
    text: str
    task: Task
    loc: str
    hint: str


@dataclass(eq=False)
class Task:
    """A program, or a stream of a rank's host."""

    rank: int
    name: str
    stream: str
    call: int
    pid: tuple[int, int, int] | None
    node: int
    step: int = 0
    kernel: Any = None
    body: Generator[Keys, None, None] | None = None
    blocked: WaitEvent | Blocked | None = None
    pending: dict[int, set[int]] = field(default_factory=dict)  # target rank -> arrivals that no fence has ordered
    done: bool = False
    path: tuple[int, ...] = ()
    _accesses: dict = field(default_factory=dict)

    def __str__(self) -> str:
        if self.pid is None:
            return f"rank {self.rank}, {'stream ' + repr(self.stream) if self.stream else 'the main stream'}"
        return f"rank {self.rank}, kernel {self.name}, program {self.pid}"


@dataclass(eq=False)
class PendingLaunch:
    """A launch whose programs wait for SMs, in order."""

    op: host.HostOp
    task: Task
    left: int
    spins: bool
    is_wait: bool = False  # a stream's in a CUDA graph: it takes no SM, and keeps its turn
    ends: list[int] = field(default_factory=list)
    base: dict[int, set[int]] = field(default_factory=dict)
    unfenced_at_end: list[dict[int, set[int]]] = field(default_factory=list)


def satisfies(value: int, cmp: str, other: int) -> bool:
    return {
        "eq": value == other,
        "ne": value != other,
        "gt": value > other,
        "ge": value >= other,
        "lt": value < other,
        "le": value <= other,
    }[cmp]
