"""The abstract machine: runs a scenario once, each program as far as it can, and records what orders what.

The run is greedy: whatever is sent arrives at once. So if it makes no progress, the scenario deadlocks under every
schedule, unless a wait asks for a value that another signal has overwritten, which may happen too. That the run ends
says little; from what it records (graph, accesses, waits, updates of signals) :mod:`.edges` and :mod:`.races` derive
what holds in every execution.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable
from typing import Any

import numpy as np

from ditron_compiler.protocol import scenario as host
from ditron_compiler.protocol.budget import check_budget
from ditron_compiler.protocol.contents import Contents
from ditron_compiler.protocol.graph import Graph
from ditron_compiler.protocol.memory import Span, address, describe, merged, overlap, parts
from ditron_compiler.protocol.records import (
    AccessRecord,
    Blocked,
    Cell,
    Keys,
    PendingLaunch,
    Problem,
    Task,
    UpdateEvent,
    WaitEvent,
    WordReuse,
    satisfies,
)
from ditron_compiler.protocol.scenario import Scenario
from ditron_compiler.protocol.values import UNKNOWN, Anywhere, any_unknown

__all__ = ["MAX_NODES", "MAX_STEPS", "Machine"]

#: Beyond these a scenario is given up: iterations of a program, and nodes of the graph (memory is their square).
MAX_STEPS, MAX_NODES = 20_000, 30_000
_MAX_RELEASES = 1_000


class Machine:
    """Runs a scenario. ``places``: so many programs per rank at a time, those that may spin first and of their
    launches in turns; 0: as many as the scenario says, in the order of launches. ``order_seed``: other programs may
    run before each atomic, in an order that this number chooses; 0: none do. ``put_orders``: a put with a signal
    orders what its program did before; if not, its own data only, as OpenSHMEM says. ``graphs``: streams' waits are
    kernels, as CUDA graphs have them: one fits beside other programs, but starts after those before it have.
    ``impatient``: a program that looks at a value repeatedly, but not for ever, does not let others run between.
    ``release_waits``: where nothing makes progress, what is waited for comes from nowhere.

    Attributes after :meth:`run`: graph, accesses by (rank, buffer), waits, cells by pointer, contents of memory,
    problems; notes of what was not followed; doubts: nodes where something that may order was not; given_up: of
    what was not run to its end; stuck: the tasks that are blocked at the end; queued: (rank, what) that found no SM;
    copies: source and destination, by number; unknown_writes: nodes that may have written to unknown addresses;
    unfenced_stores: nodes with stores to other ranks before a put with a signal, without a fence between.
    """

    def __init__(
        self,
        scenario: Scenario,
        places: int = 0,
        order_seed: int = 0,
        put_orders: bool = True,
        graphs: bool = False,
        impatient: bool = False,
        release_waits: bool = False,
    ):
        self.scenario, self.places, self.order_seed, self.put_orders = scenario, places, order_seed, put_orders
        self.graphs, self.impatient, self.release_waits = graphs, impatient, release_waits
        self.graph = Graph()
        self.accesses: dict[tuple[int, int], list[AccessRecord]] = {}
        self.waits: list[WaitEvent] = []
        self.cells: dict[int, Cell] = {}
        self._cells_of: dict[int, list[int]] = {}  # by rank and buffer
        self.contents = Contents(scenario.roots)
        self.messages: dict[tuple[int, int], Any] = {}  # by address and epoch: the contents of packets
        self.word_writers: dict[int, Task] = {}  # by address: who has stored the data word (words.py) that is there
        self.word_clears: dict[int, tuple[int, Task, str]] = {}  # by address: who has cleared it, from which node on
        self.word_reuses: dict[tuple[int, int], WordReuse] = {}  # one for each two nodes
        self.unknown_sources: dict[str, None] = {}  # names of buffers whose contents were needed and not known
        self.float_sources: dict[str, None] = {}  # names of buffers of floats on which control or an address depends
        self.doubts: list[int] = []
        self.lets_others_run = False  # a program did before it saw a value again
        self.paths = 0  # branches on unknown conditions so far
        self._moment = 0  # accesses so far
        self.problems: list[Problem] = []
        self.notes: dict[str, None] = dict.fromkeys(scenario.notes)
        self.given_up: dict[str, None] = {}
        self.stuck: list[Task] = []
        self.queued: list[tuple[int, host.HostOp, int]] = []
        self.tasks: list[Task] = []
        self._ready: deque[Task] = deque()
        self._is_ready: set[Task] = set()  # the same: a task that several cells wake is there once
        self._random = random.Random(order_seed)
        self._waiting: dict[Hashable, dict[Task, None]] = {}
        self._queues: list[deque] = [deque() for _ in range(scenario.ranks)]
        self._free = [places or scenario.resident] * scenario.ranks
        self._barriers: dict[Hashable, dict] = {}
        self._releases = 0
        self.recorded: dict[tuple[int, int], int] = {}  # by (rank, step of its host): the node of an event
        self._freed: set[tuple[int, int]] = set()
        self.complete = True  # no task was given up
        self.looks: dict[tuple[Task, str], list[WaitEvent]] = {}  # by loop that only looks at flags, and may give up
        self.unsendable: set[int] = set()  # buffers of signals that went to ranks that do not exist
        self.copies: list[tuple[Span, Span]] = []
        self.unknown_writes: list[int] = []
        self.unfenced_stores: set[int] = set()
        self.in_flight: list[dict[int, set[int]]] = [{} for _ in range(scenario.ranks)]

    # --- running -------------------------------------------------------------------------------------------------

    def run(self) -> Machine:
        """Run the tasks that were started to their end, or until none makes progress."""
        while True:
            while self._ready:
                if self.order_seed:
                    self._ready.rotate(self._random.randrange(len(self._ready)))
                task = self._ready.popleft()
                self._is_ready.remove(task)
                self._resume(task)
                if not self.places:
                    self._fill()
            if not self._fill() and not (self.release_waits and self._release()):
                break
        self.stuck = [task for task in self.tasks if not task.done]
        for rank, queue in enumerate(self._queues):
            self.queued += [(rank, running.op, running.left) for running in {id(r): r for r, _ in queue}.values()]
        for task in self.stuck:
            self.end_segment(task)
        return self

    def _release(self) -> bool:
        """Satisfy the waits of all tasks that are blocked; whether there were any."""
        released = False
        for task in self.tasks:
            wait = task.blocked
            if task.done or not isinstance(wait, WaitEvent) or self._releases > _MAX_RELEASES:
                continue
            for pointer in wait.cells:
                cell = self.cell(pointer)
                if not any_unknown(cell.value) and not satisfies(cell.value, wait.cmp, wait.value):
                    cell.value = wait.value + {"gt": 1, "ne": 1, "lt": -1}.get(wait.cmp, 0)
                    self.contents.store(pointer, cell.size, cell.value)
                    self.wake(("cell", pointer))
                    self._releases += 1
                    released = True
        return released

    def start(self, task: Task) -> None:
        """Add a program or a stream."""
        self.tasks.append(task)
        self.again(task)

    def _resume(self, task: Task) -> None:
        if task.done:
            return
        try:
            keys = next(task.body)
        except StopIteration:
            task.done, task.blocked = True, None
            self.end_segment(task)
            return
        except TimeoutError as error:
            self.given_up[f"{error}: it is not checked to its end"] = None
            self.complete, keys = False, ()
            if len(self.graph.visibly) > MAX_NODES:
                self._ready.clear()
                self._is_ready.clear()
                for queue in self._queues:
                    queue.clear()
        for key in keys:
            self._waiting.setdefault(key, {})[task] = None

    def again(self, task: Task) -> None:
        """Run a task, after those that are ready."""
        if task not in self._is_ready:
            self._is_ready.add(task)
            self._ready.append(task)

    def wake(self, key: Hashable) -> None:
        """Make the tasks ready that wait for ``key``."""
        for task in self._waiting.pop(key, ()):
            self.again(task)

    # --- SMs -----------------------------------------------------------------------------------------------------

    def enqueue(self, running: PendingLaunch, bodies: Iterable[Callable[[], None]]) -> None:
        """Queue programs; they start in order as SMs become free."""
        queue = self._queues[running.task.rank]
        queue.extend((running, body) for body in bodies)
        if self.places and running.spins:
            spinning = [entry for entry in queue if entry[0].spins]
            others = [entry for entry in queue if not entry[0].spins]
            queue.clear()
            queue.extend((_in_turns(spinning) if self.places > 1 else spinning) + others)

    def _fill(self) -> bool:
        started = False
        for rank, queue in enumerate(self._queues):
            while queue and (self._free[rank] or queue[0][0].is_wait):
                self._free[rank] -= not queue[0][0].is_wait
                queue.popleft()[1]()
                started = True
        return started

    def leave(self, rank: int) -> None:
        """A program, or a copy that is a kernel, has ended and frees its SM."""
        self._free[rank] += 1

    # --- nodes and accesses --------------------------------------------------------------------------------------

    def end_segment(
        self, task: Task, visible: Iterable[int] = (), ordered: Iterable[int] = (), narrow: Iterable[int] = ()
    ) -> int:
        """End the task's segment; ``visible`` nodes happen before the next one, ``narrow`` ones as far as programs of
        this GPU see, and ``ordered`` ones precede it."""
        if len(self.graph.visibly) > MAX_NODES and self.complete:
            raise TimeoutError(
                f"more than {MAX_NODES} operations that order, with {self.scenario.title}: give smaller "
                "tensors or larger tiles"
            )
        check_budget()
        for (write, atomic, how, loc, site, copy, path), spans in task._accesses.items():
            moment, span = spans[-1][0], merged(np.concatenate([span for _, span in spans]))
            self._record(task, task.node, write, atomic, how, loc, site, span, copy, path, moment)
        task._accesses.clear()
        task.node = self.graph.add([task.node, *visible], ordered, narrow)
        return task.node

    def access(
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
        path: tuple[int, ...] | None = None,
    ) -> None:
        """Record a read or write, by the task or by ``node``."""
        if not len(span):
            return
        path = task.path if path is None else path
        self._moment += 1
        if not self.check_bounds(task, span, write, loc):
            if write:
                self.unknown_writes.append(task.node)
        elif node is not None:
            self._record(task, node, write, atomic, how, loc, site, span, copy, path, self._moment)
        else:
            same = task._accesses.setdefault((write, atomic, how, loc, site, copy, path), [])
            same.append((self._moment, span))

    def copied(self, source: Span, target: Span, in_order: bool = True) -> int:
        """The number of a copy; its bytes are followed if it copies them ``in_order`` and writes all that it reads."""
        known = in_order and np.diff(source).sum() == np.diff(target).sum()
        self.copies.append((source, target) if known else (source[:0], target[:0]))
        return len(self.copies) - 1

    def _record(
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
        path: tuple[int, ...],
        moment: int,
    ) -> None:
        buffers = span[:, 0] >> 36
        for buffer in np.unique(buffers) if buffers[0] != buffers[-1] else buffers[:1]:
            rank, root, _ = parts(int(buffer) << 36)
            here = span[buffers == buffer] if buffers[0] != buffers[-1] else span
            self.accesses.setdefault((rank, root), []).append(
                AccessRecord(node, task, write, atomic, how, loc, site, here, task.call, task.step, copy, path, moment)
            )

    def check_bounds(self, task: Task, span: Span, write: bool, loc: str) -> bool:
        """Whether an access is within the bounds of its buffer; report it if not."""
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
        """Report a copy whose source and destination overlap, unless they are the same bytes in the same order."""
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
        if not task.path:  # else a condition that is not known may rule it out
            self.problems.append(Problem(kind, text, task, loc, hint))

    def note(self, text: str) -> None:
        """Note what was not followed."""
        self.notes[text] = None

    def unfollowed(self, text: str) -> None:
        """Note what was not followed because a value is not known."""
        self.note(text)

    def unknown_source(self, pointer: int) -> None:
        """The contents of a buffer were needed, and are not known."""
        root = self.scenario.roots.get(parts(pointer)[1])
        if root is not None:
            self.unknown_sources[root.name] = None

    def floats_decide(self, pointer: int) -> None:
        """Control or an address depends on a buffer of floats."""
        root = self.scenario.roots.get(parts(pointer)[1])
        if root is not None:
            self.float_sources[root.name] = None

    def whole_buffer(self, pointer: Any) -> Span:
        """The buffer that an unknown address is in; if even that is not known, no contents are any longer."""
        if isinstance(pointer, Anywhere):
            rank, number, _ = parts(pointer.base)
            if rank >= 0 and number in self.scenario.roots:
                first = address(rank, number)
                return np.array([[first, first + self.scenario.roots[number].nbytes]], dtype=np.int64)
        self.contents.forget_all()
        for place, cell in self.cells.items():
            cell.value, cell.doubtful = UNKNOWN, True
            self.wake(("cell", place))
        return np.empty((0, 2), dtype=np.int64)

    def doubt(self, task: Task) -> None:
        """Something that may order the task after others was not followed."""
        self.doubts.append(task.node)
        self.end_segment(task)

    def free(self, rank: int, root: int) -> None:
        self._freed.add((rank, root))

    # --- signals -------------------------------------------------------------------------------------------------

    def cell(self, pointer: int, size: int = 8) -> Cell:
        """The integer at ``pointer``."""
        pointer = int(pointer)
        if pointer not in self.cells:
            value = self.contents.load(pointer, size)
            self.cells[pointer] = Cell(value, value, size, doubtful=any_unknown(value))
            self._cells_of.setdefault(pointer >> 36, []).append(pointer)
        return self.cells[pointer]

    def signal(self, writer: UpdateEvent) -> None:
        """A signal arrives."""
        self.cell(writer.cell).released_by(writer)
        self.write_cell(writer)

    def write_cell(self, writer: UpdateEvent, value: Any = None, size: int = 8) -> None:
        """An update arrives. ``value``: of the cell afterwards, where ``op`` does not determine it."""
        cell = self.cell(writer.cell, size)
        if value is None:
            value = writer.value if writer.op == "set" else cell.value + writer.value
        cell.doubtful |= any_unknown(writer.value, value)
        if not any_unknown(writer.value):
            cell.writers.append(writer)
        cell.value = value
        cell.version += 1
        self.contents.store(writer.cell, cell.size, value)
        self.wake(("cell", writer.cell))

    def contents_changed(self, task: Task, span: Span, node: int, how: str, loc: str, release: bool = False) -> None:
        """Something other than an update of a signal or an atomic, by ``node``, has written these bytes."""
        for low, high in span.tolist():
            for pointer in self._cells_of.get(low >> 36, ()):
                cell = self.cells[pointer]
                if pointer < high and low < pointer + cell.size:
                    value = self.contents.load(pointer, cell.size)
                    if release:  # ordered by the graph itself
                        cell.releases = []
                    writer = UpdateEvent(pointer, node, node, task, "set", value, loc, how, task.call, release=release)
                    self.write_cell(writer, value)

    def send(self, task: Task, target: int, *, visible: Iterable[int] = (), ordered: Iterable[int] = ()) -> int:
        """A node for what arrives at ``target`` later."""
        node = self.graph.add(visible, ordered)
        task.pending.setdefault(target, set()).add(node)
        self.in_flight[task.rank].setdefault(target, set()).add(node)
        return node

    def wait(self, task: Task, wait: WaitEvent) -> Generator[Keys, None, int]:
        """Wait until each cell has satisfied the comparison, not all at once; returns the last value observed."""
        left, value = list(wait.cells), 0
        while left:
            value = self.cell(left[0]).value
            if task.path or any_unknown(value) or satisfies(value, wait.cmp, wait.value):
                left.pop(0)
                continue
            task.blocked = wait
            yield (("cell", left[0]),)
        task.blocked = None
        if task.path:  # it may not be executed at all
            self.doubt(task)
            return value
        wait.after = self.end_segment(task)
        self.waits.append(wait)
        return value

    # --- barriers ------------------------------------------------------------------------------------------------

    def barrier(
        self, task: Task, key: Hashable, ranks: Iterable[int], name: str, loc: str
    ) -> Generator[Keys, None, None]:
        """Wait until one task of each rank has arrived."""
        before = self.end_segment(task)
        ranks = list(ranks)
        while task.rank in self._barriers.setdefault(key, {"arrived": {}, "release": -1, "epoch": 0})["arrived"]:
            task.blocked = Blocked(f"waits in {name} for the one before to end", loc, "barrier")
            yield (key,)
        state = self._barriers[key]
        state["arrived"][task.rank] = before
        epoch = state["epoch"]
        if len(state["arrived"]) == len(ranks):
            release = self.graph.add(state["arrived"].values())
            self._barriers[key] = {"arrived": {}, "release": release, "epoch": epoch + 1}
            self.wake(key)
        while self._barriers[key]["epoch"] == epoch:
            missing = sorted(set(ranks) - set(state["arrived"]))
            who = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            task.blocked = Blocked(f"waits in {name} for {who}", loc, "barrier")
            yield (key,)
        task.blocked = None
        self.end_segment(task, [self._barriers[key]["release"]])

    def quiet(self, task: Task) -> None:
        """All that the task has sent, or is ordered after the sending of, has arrived."""
        landed = [node for nodes in task.pending.values() for node in nodes]
        task.pending.clear()
        self.end_segment(task, landed)


def _in_turns(entries: list) -> list:
    """Programs that wait for SMs: the first of each launch, then the second of each, ..."""
    counts: Counter[int] = Counter()
    turns = []
    for running, body in entries:
        turns.append((counts[id(running)], (running, body)))
        counts[id(running)] += 1
    return [entry for _, entry in sorted(turns, key=lambda turn: turn[0])]
