"""The abstract machine: runs a scenario once, each program as far as it can, and writes down what orders what.

The run is greedy: whatever is sent lands at once. So if it gets stuck, nothing could have gone on: the scenario hangs
whatever the schedule, unless a wait asks for what another signal has overtaken, and that may happen too. That the run
ends says little; what it leaves behind, the graph, the accesses, the waits and the writes to signals, is looked at by
:mod:`.edges` and :mod:`.races` for what holds in every execution.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ditron_compiler.protocol import scenario as host
from ditron_compiler.protocol.graph import Graph
from ditron_compiler.protocol.memory import Span, describe, merged, overlap, parts
from ditron_compiler.protocol.scenario import Scenario

__all__ = ["Access", "Blocked", "Cell", "Keys", "Machine", "Problem", "Running", "Task", "Wait", "Writer", "satisfies"]

#: What a generator yields: it goes on when one of these changes.
Keys = tuple[Hashable, ...]
#: Beyond these a scenario is given up: iterations of a program, and nodes of the graph (memory is their square).
MAX_STEPS, MAX_NODES = 20_000, 30_000


@dataclass
class Writer:
    """An update of a signal: ``set`` or ``add``. ``node`` is its landing, ``issued`` where it was sent."""

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
class Wait:
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
    fenced: int = -1  # a fence after a relaxed wait, which makes of the two an acquire


@dataclass(frozen=True)
class Blocked:
    """Why a task does not go on, when it is no signal. ``kind``: barrier, event, launch or sm."""

    text: str
    loc: str
    kind: str


@dataclass
class Cell:
    """A signal, or another integer that programs tell each other things by."""

    value: Any
    version: int = 0
    writers: list[Writer] = field(default_factory=list)
    releases: list[Writer] = field(default_factory=list)  # whom an acquire reads from


@dataclass
class Access:
    """What a node touches. ``atomic``: may meet other atomic ones. ``how``: in words. ``site``: in the kernel."""

    node: int
    task: Task
    write: bool
    atomic: bool
    how: str
    loc: str
    site: int | None
    span: Span
    call: int
    step: int  # of the host: which one it is part of
    copy: int | None = None  # the number of the copy, put or get that it is a half of


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
    blocked: Wait | Blocked | None = None
    pending: dict[int, set[int]] = field(default_factory=dict)  # target rank -> landings that no fence has covered
    done: bool = False
    _touched: dict = field(default_factory=dict)

    def __str__(self) -> str:
        if self.pid is None:
            return f"rank {self.rank}, {'stream ' + repr(self.stream) if self.stream else 'the main stream'}"
        return f"rank {self.rank}, kernel {self.name}, program {self.pid}"


@dataclass(eq=False)
class Running:
    """A launch: its programs wait for a place on the SMs, in order."""

    op: host.HostOp
    task: Task
    left: int
    spins: bool
    ends: list[int] = field(default_factory=list)
    base: dict[int, set[int]] = field(default_factory=dict)
    leftover: list[dict[int, set[int]]] = field(default_factory=list)


class Machine:
    """Runs a scenario. ``tight``: with one SM per rank, and whoever may spin goes first. ``turns``: the
    others may go on at each atomic, in an order that this number chooses: what atomics order is seen of one run only.

    Attributes after :meth:`run`: graph, accesses by (rank, buffer), waits, cells by pointer, problems, notes; stuck:
    the tasks that cannot go on; queued: (rank, what) that found no SM; copies: from where to where, by number; astray:
    nodes that may have written what is not known, anywhere.
    """

    def __init__(self, scenario: Scenario, tight: bool = False, turns: int = 0):
        self.scenario, self.tight, self.turns = scenario, tight, turns
        self.graph = Graph()
        self.accesses: dict[tuple[int, int], list[Access]] = {}
        self.waits: list[Wait] = []
        self.cells: dict[int, Cell] = {}
        self.problems: list[Problem] = []
        self.notes: dict[str, None] = dict.fromkeys(scenario.notes)
        self.stuck: list[Task] = []
        self.queued: list[tuple[int, host.HostOp, int]] = []
        self.tasks: list[Task] = []
        self._ready: deque[Task] = deque()
        self._random = random.Random(turns)
        self._waiting: dict[Hashable, list[Task]] = {}
        self._queues: list[deque] = [deque() for _ in range(scenario.ranks)]
        self._free = [1 if tight else scenario.resident] * scenario.ranks
        self._meetings: dict[Hashable, dict] = {}
        self.recorded: dict[tuple[int, int], int] = {}  # by (rank, step of its host): the node of an event
        self._freed: set[tuple[int, int]] = set()
        self.filled: set[tuple[int, int]] = set()  # (rank, buffer) that tiles or puts write: what it holds is not known
        self.complete = True  # nothing was given up
        self.sent: set[tuple[str, int]] = set()  # (kernel, site) of the signals that were sent
        self.steps_done: set[tuple[int, int]] = set()  # (rank, number) of the signals that streams wrote
        self.copies: list[tuple[Span, Span]] = []
        self.astray: list[int] = []
        self.in_flight: list[dict[int, set[int]]] = [{} for _ in range(scenario.ranks)]

    # --- running -------------------------------------------------------------------------------------------------

    def run(self) -> Machine:
        """Run every rank's host to its end, or until nothing goes on."""
        from ditron_compiler.protocol.streams import stream_task

        for rank, steps in enumerate(self.scenario.steps):
            for stream in dict.fromkeys(["", *(step.stream for step in steps)]):
                task = Task(rank, "", stream, 1, None, self.graph.add())
                task.body = stream_task(self, task, steps)
                self.start(task)
        while True:
            while self._ready:
                if self.turns:
                    self._ready.rotate(self._random.randrange(len(self._ready)))
                self._resume(self._ready.popleft())
                if not self.tight:
                    self._fill()
            if not self._fill():
                break
        self.stuck = [task for task in self.tasks if not task.done]
        for rank, queue in enumerate(self._queues):
            self.queued += [(rank, running.op, running.left) for running in {id(r): r for r, _ in queue}.values()]
        for task in self.stuck:
            self.cut(task)
        return self

    def start(self, task: Task) -> None:
        """A program, or a stream, begins."""
        self.tasks.append(task)
        self._ready.append(task)

    def _resume(self, task: Task) -> None:
        if task.done:
            return
        try:
            keys = next(task.body)
        except StopIteration:
            task.done, task.blocked = True, None
            self.cut(task)
            return
        except TimeoutError as error:
            self.note(f"{error}: it is not checked to its end")
            self.complete, keys = False, ()
            if len(self.graph.visibly) > MAX_NODES:
                self._ready.clear()
                for queue in self._queues:
                    queue.clear()
        for key in keys:
            self._waiting.setdefault(key, []).append(task)

    def again(self, task: Task) -> None:
        """Let a task go on later."""
        self._ready.append(task)

    def wake(self, key: Hashable) -> None:
        """Let those go on that wait for ``key``."""
        for task in self._waiting.pop(key, ()):
            self._ready.append(task)

    # --- SMs -----------------------------------------------------------------------------------------------------

    def enqueue(self, running: Running, bodies: Iterable[Callable[[], None]]) -> None:
        """Let programs start in order as places get free."""
        queue = self._queues[running.task.rank]
        queue.extend((running, body) for body in bodies)
        if self.tight and running.spins:
            spinning = [entry for entry in queue if entry[0].spins]
            others = [entry for entry in queue if not entry[0].spins]
            queue.clear()
            queue.extend(spinning + others)

    def _fill(self) -> bool:
        started = False
        for rank, queue in enumerate(self._queues):
            while queue and self._free[rank]:
                self._free[rank] -= 1
                queue.popleft()[1]()
                started = True
        return started

    def leave(self, rank: int) -> None:
        """A program, or a copy that is a kernel, has ended."""
        self._free[rank] += 1

    # --- nodes and accesses --------------------------------------------------------------------------------------

    def cut(self, task: Task, visible: Iterable[int] = (), late: Iterable[int] = ()) -> int:
        """End the task's stretch and begin the next one, which is also after the nodes given."""
        if len(self.graph.visibly) > MAX_NODES and self.complete:
            raise TimeoutError(
                f"more than {MAX_NODES} operations that order, with {self.scenario.title}: give smaller "
                "tensors or larger tiles"
            )
        for (write, atomic, how, loc, site, copy), spans in task._touched.items():
            self._keep(task, task.node, write, atomic, how, loc, site, merged(np.concatenate(spans)), copy)
        task._touched.clear()
        task.node = self.graph.add([task.node, *visible], late)
        return task.node

    def touch(
        self,
        task: Task,
        span: Span,
        write: bool,
        how: str,
        loc: str,
        *,
        site: int | None = None,
        atomic: bool = False,
        node: int | None = None,
        copy: int | None = None,
    ) -> None:
        """The task, or a node that is not its own, reads or writes."""
        if not len(span):
            return
        if not self.check_bounds(task, span, write, loc):
            if write:
                self.astray.append(task.node)
        elif node is not None:
            self._keep(task, node, write, atomic, how, loc, site, span, copy)
        else:
            task._touched.setdefault((write, atomic, how, loc, site, copy), []).append(span)

    def copied(self, source: Span, target: Span, in_order: bool = True) -> int:
        """The number of a copy. Where its bytes go is known if it takes them ``in_order``, and as many as it writes."""
        known = in_order and np.diff(source).sum() == np.diff(target).sum()
        self.copies.append((source, target) if known else (source[:0], target[:0]))
        return len(self.copies) - 1

    def _keep(
        self,
        task: Task,
        node: int,
        write: bool,
        atomic: bool,
        how: str,
        loc: str,
        site: int | None,
        span: Span,
        copy: int | None,
    ) -> None:
        buffers = span[:, 0] >> 36
        for buffer in np.unique(buffers) if buffers[0] != buffers[-1] else buffers[:1]:
            rank, root, _ = parts(int(buffer) << 36)
            here = span[buffers == buffer] if buffers[0] != buffers[-1] else span
            self.accesses.setdefault((rank, root), []).append(
                Access(node, task, write, atomic, how, loc, site, here, task.call, task.step, copy)
            )

    def check_bounds(self, task: Task, span: Span, write: bool, loc: str) -> bool:
        """Whether an access lies within its buffer; report it if not."""
        for pointer, end in ((int(span[0, 0]), int(span[0, 1])), (int(span[-1, 0]), int(span[-1, 1]))):
            rank, number, offset = parts(pointer)
            root = self.scenario.roots.get(number)
            what = "write" if write else "read"
            if rank < 0 or root is None:
                self.problem(
                    "bounds",
                    f"a {what} through a null pointer, or one that points at no buffer",
                    task,
                    loc,
                    "symm_at is null for a rank of another node: use putmem or getmem there, or say that "
                    "this is for one node, by max_nodes=1 (of ditron.init, of @ditron.program)",
                )
            elif offset < 0 or offset + end - pointer > root.nbytes:
                past = "before its beginning" if offset < 0 else "past its end"
                self.problem(
                    "bounds",
                    f"a {what} of {root.name} goes {past}: bytes {offset} to {offset + end - pointer} of {root.nbytes}",
                    task,
                    loc,
                    "mask the access, or make the buffer larger",
                )
            elif (rank, number) in self._freed:
                self.problem(
                    "freed",
                    f"a {what} of {root.name}, which was freed",
                    task,
                    loc,
                    "free it after its last use on every rank",
                )
            else:
                continue
            return False
        return True

    def check_copy(self, task: Task, source: Span, target: Span, what: str, loc: str, in_order: bool = True) -> None:
        """Report a copy onto what it has yet to read. In order, onto the very same bytes, it is none."""
        if len(source) and len(target) and overlap(source, target, but_same=in_order):
            rank, number, offset = parts(int(target[0, 0]))
            name = f"{describe(self.scenario.roots[number], offset)} of " if number in self.scenario.roots else ""
            self.problem(
                "overlap",
                f"{what} whose source and destination overlap, at {name}rank {rank}: it may read what it has written",
                task,
                loc,
                "copy through another buffer",
            )

    def problem(self, kind: str, text: str, task: Task, loc: str, hint: str) -> None:
        self.problems.append(Problem(kind, text, task, loc, hint))

    def note(self, text: str) -> None:
        """Say that something is not followed."""
        self.notes[text] = None

    def free(self, rank: int, root: int) -> None:
        self._freed.add((rank, root))

    # --- signals -------------------------------------------------------------------------------------------------

    def cell(self, pointer: int) -> Cell:
        """The integer at ``pointer``; what nobody has zeroed or written is taken to be 0."""
        return self.cells.setdefault(int(pointer), Cell(0))

    def write_cell(self, writer: Writer, value: Any = None) -> None:
        """An update lands. ``value``: what the cell holds then, when ``op`` does not say."""
        cell = self.cell(writer.cell)
        cell.writers.append(writer)
        if value is None:
            value = writer.value if writer.op == "set" else cell.value + writer.value
        cell.value = value
        cell.version += 1
        self.wake(("cell", writer.cell))

    def send(self, task: Task, target: int, *, visible: Iterable[int] = (), late: Iterable[int] = ()) -> int:
        """A node for what lands at ``target`` later."""
        node = self.graph.add(visible, late)
        task.pending.setdefault(target, set()).add(node)
        self.in_flight[task.rank].setdefault(target, set()).add(node)
        return node

    def wait(self, task: Task, wait: Wait) -> Generator[Keys, None, int]:
        """Until every cell satisfies the comparison, though not all at the same time. The value that ended the wait."""
        left, value = list(wait.cells), 0
        while left:
            value = self.cell(left[0]).value
            if satisfies(value, wait.cmp, wait.value):
                left.pop(0)
                continue
            task.blocked = wait
            yield (("cell", left[0]),)
        task.blocked = None
        wait.after = self.cut(task)
        self.waits.append(wait)
        return value

    # --- meetings ------------------------------------------------------------------------------------------------

    def meet(self, task: Task, key: Hashable, ranks: Iterable[int], name: str, loc: str) -> Generator[Keys, None, None]:
        """Wait until one task of each rank has come."""
        before = self.cut(task)
        ranks = list(ranks)
        while task.rank in self._meetings.setdefault(key, {"here": {}, "joint": -1, "number": 0})["here"]:
            task.blocked = Blocked(f"waits in {name} for the one before to end", loc, "barrier")
            yield (key,)
        meeting = self._meetings[key]
        meeting["here"][task.rank] = before
        number = meeting["number"]
        if len(meeting["here"]) == len(ranks):
            joint = self.graph.add(meeting["here"].values())
            self._meetings[key] = {"here": {}, "joint": joint, "number": number + 1}
            self.wake(key)
        while self._meetings[key]["number"] == number:
            missing = sorted(set(ranks) - set(meeting["here"]))
            who = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            task.blocked = Blocked(f"waits in {name} for {who}", loc, "barrier")
            yield (key,)
        task.blocked = None
        self.cut(task, [self._meetings[key]["joint"]])

    def quiet(self, task: Task) -> None:
        """All that the task knows to have been sent has arrived."""
        landed = [node for nodes in task.pending.values() for node in nodes]
        task.pending.clear()
        self.cut(task, landed)


def satisfies(value: int, cmp: str, other: int) -> bool:
    return {
        "eq": value == other,
        "ne": value != other,
        "gt": value > other,
        "ge": value >= other,
        "lt": value < other,
        "le": value <= other,
    }[cmp]
