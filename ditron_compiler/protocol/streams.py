"""Host streams on the abstract machine: operations of a stream run in order, streams run concurrently."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence

import numpy as np

from ditron_compiler.host import ONE_NODE
from ditron_compiler.protocol import scenario as host
from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.memory import parts
from ditron_compiler.protocol.program import AbstractProgram
from ditron_compiler.protocol.records import Blocked, Keys, PendingLaunch, Task, UpdateEvent, WaitEvent

__all__ = ["execute", "stream_task"]


def execute(
    scenario: host.Scenario,
    places: int = 0,
    order_seed: int = 0,
    put_orders: bool = True,
    graphs: bool = False,
    impatient: bool = False,
    release_waits: bool = False,
) -> Machine:
    """Run every rank's host code on a :class:`.machine.Machine`, to its end or until nothing makes progress."""
    machine = Machine(scenario, places, order_seed, put_orders, graphs, impatient, release_waits)
    for rank, steps in enumerate(scenario.steps):
        for stream in dict.fromkeys(["", *(step.stream for step in steps)]):
            task = Task(rank, "", stream, 1, None, machine.graph.add())
            task.body = stream_task(machine, task, steps)
            machine.start(task)
    return machine.run()


def stream_task(machine: Machine, task: Task, steps: Sequence[host.HostOp]) -> Generator[Keys, None, None]:
    """Execute the steps of one stream of a rank."""
    records: dict[int, int] = {}  # event -> number of its latest record so far, in the order of the host
    for number, step in enumerate(steps):
        if isinstance(step, host.HostRecord):
            records[step.event] = number
        if step.stream != task.stream:
            continue
        task.call, task.step = step.call, number
        if isinstance(step, host.HostLaunch):
            yield from _launch(machine, task, step)
        elif isinstance(step, host.HostAccess):
            yield from _host_access(machine, task, step)
        elif isinstance(step, host.HostSignalWrite):
            _signal_write(machine, task, step)
        elif isinstance(step, host.HostSignalWait):
            if machine.graphs and step.captured_kernel:
                yield from _start_wait(machine, task, step)
            wait = WaitEvent(task, task.node, -1, step.cells, step.cmp, step.value, step.loc, step.call)
            yield from machine.wait(task, wait)
        elif isinstance(step, host.HostRecord):
            machine.end_segment(task)
            machine.recorded[task.rank, number] = task.node
            machine.end_segment(task)
            machine.wake(("event", task.rank, number))
        elif isinstance(step, host.HostAwait):
            event = records.get(step.event)
            while event is not None and (task.rank, event) not in machine.recorded:
                task.blocked = Blocked(f"waits for an event that is recorded at {steps[event].loc}", step.loc, "event")
                yield (("event", task.rank, event),)
            if event is not None:
                task.blocked = None
                machine.end_segment(task, [machine.recorded[task.rank, event]])
        elif isinstance(step, host.UntrackedLaunch):
            machine.unknown_writes.append(machine.end_segment(task))
            machine.end_segment(task)
        elif isinstance(step, host.HostBarrier):
            yield from _host_barrier(machine, task, step)
        elif isinstance(step, host.HostFree):
            machine.free(task.rank, step.root)


def _start_wait(machine: Machine, task: Task, step: host.HostSignalWait) -> Generator[Keys, None, None]:
    """A wait that is a kernel starts after all programs that were launched before."""
    running = PendingLaunch(step, task, 1, False, is_wait=True)

    def begin() -> None:
        running.left = 0
        machine.wake(("launch", id(running)))

    machine.enqueue(running, [begin])
    while running.left:
        task.blocked = Blocked("waits to start a wait", step.loc, "sm")
        yield (("launch", id(running)),)
    task.blocked = None


def _host_barrier(machine: Machine, task: Task, step: host.HostBarrier) -> Generator[Keys, None, None]:
    """A host barrier completes everything that its rank has sent, whichever program sent it."""
    if step.quiet:
        landed = [node for nodes in machine.in_flight[task.rank].values() for node in nodes]
        machine.in_flight[task.rank].clear()
        task.pending.clear()
        machine.graph.published.add(machine.end_segment(task, landed))
    ranks = step.ranks or range(machine.scenario.ranks)
    yield from machine.barrier(task, ("host", step.name), ranks, step.name, step.loc)


def _host_access(machine: Machine, task: Task, step: host.HostAccess) -> Generator[Keys, None, None]:
    """A copy, or whatever else reads and writes; one that is a kernel needs an SM."""
    if step.needs_sm:
        running = PendingLaunch(step, task, 1, False)

        def body() -> None:
            running.left = 0
            machine.leave(task.rank)
            machine.wake(("launch", id(running)))

        machine.enqueue(running, [body])
        while running.left:
            task.blocked = Blocked(f"waits for an SM, to {step.name}", step.loc, "sm")
            yield (("launch", id(running)),)
        task.blocked = None
    machine.end_segment(task)
    copy = None
    if step.reads is not None and step.writes is not None:
        machine.check_copy(task, step.reads, step.writes, step.name, step.loc, step.in_order)
        copy = machine.copied(step.reads, step.writes, step.in_order)
    for span, write in ((step.reads, False), (step.writes, True)):
        if span is not None:
            _check_node(machine, task, span[:1, 0], step.name, step.loc)
            machine.access(task, span, write, step.name, step.loc, copy=copy)
    if step.writes is not None and not step.keeps:
        if step.contents is not None:
            for (low, _), data in zip(step.writes.tolist(), step.contents, strict=True):
                machine.contents.put(low, data)
        elif step.reads is not None and step.in_order and not step.opaque:
            machine.contents.copy(step.reads, step.writes)
        else:
            machine.contents.forget(step.writes)
        node = machine.end_segment(task)
        machine.contents_changed(task, step.writes, node, step.name, step.loc, release=True)
    machine.end_segment(task)


def _check_node(machine: Machine, task: Task, pointers: Sequence[int], what: str, loc: str) -> None:
    """Report accesses of a stream to the memory of another node."""
    per_node = machine.scenario.ranks_per_node
    for rank in {parts(int(pointer))[0] for pointer in pointers}:
        if rank // per_node != task.rank // per_node:
            machine.problem(
                "node",
                f"{what} to rank {rank}, which is on another node",
                task,
                loc,
                f"{ONE_NODE}, or say that the program is for one node: @ditron.program(max_nodes=1)",
            )


def _signal_write(machine: Machine, task: Task, step: host.HostSignalWrite) -> None:
    """Ordered with what the stream does before and after."""
    _check_node(machine, task, step.cells, "a signal_write", step.loc)
    for cell in step.cells:
        issued = task.node
        landing = machine.end_segment(task)
        machine.graph.published.add(landing)
        machine.access(task, np.array([[cell, cell + 8]]), True, "a signal written by a stream", step.loc, atomic=True)
        machine.signal(
            UpdateEvent(cell, landing, issued, task, step.op, step.value, step.loc, "signal_write", step.call)
        )
        machine.end_segment(task)


def _launch(machine: Machine, task: Task, step: host.HostLaunch) -> Generator[Keys, None, None]:
    """Programs start after what the stream did before; the stream continues when all have ended."""
    grid = step.grid
    pids = [(x, y, z) for z, y, x in itertools.product(range(grid[2]), range(grid[1]), range(grid[0]))]
    machine.end_segment(task)
    running = PendingLaunch(step, task, len(pids), step.kernel.spins, base={r: set(s) for r, s in task.pending.items()})
    start = task.node

    def starter(pid: tuple[int, int, int]):
        def begin() -> None:
            program = Task(
                task.rank,
                step.kernel.name,
                task.stream,
                step.call,
                pid,
                machine.graph.add([start]),
                task.step,
                kernel=step.kernel,
                pending={r: set(s) for r, s in running.base.items()},
            )
            program.body = body(program)
            machine.start(program)

        return begin

    def body(program: Task) -> Generator[Keys, None, None]:
        yield from step.kernel.run(AbstractProgram(machine, program, grid, step.ranks), *step.args)
        running.left -= 1
        running.ends.append(machine.end_segment(program))
        running.unfenced_at_end.append(program.pending)
        machine.leave(task.rank)
        if not running.left:
            machine.wake(("launch", id(running)))

    machine.enqueue(running, [starter(pid) for pid in pids])
    while running.left:
        task.blocked = Blocked(f"waits for kernel {step.kernel.name} to end", step.loc, "launch")
        yield (("launch", id(running)),)
    task.blocked = None
    own = _unfenced_at_end(running)
    completed = own.pop(task.rank, set())  # a launch's end completes what a rank sends to itself
    task.pending = own
    machine.graph.published.add(machine.end_segment(task, [*running.ends, *completed]))


def _unfenced_at_end(running: PendingLaunch) -> dict[int, set[int]]:
    """What is in flight when all programs have ended; a program's quiet also completes what was sent before it."""
    result: dict[int, set[int]] = {}
    for target in {target for left in [running.base, *running.unfenced_at_end] for target in left}:
        base = running.base.get(target, set())
        mine = [left.get(target, set()) for left in running.unfenced_at_end]
        result[target] = set().union(*(nodes - base for nodes in mine)) | (base.intersection(*mine) if mine else base)
    return {target: nodes for target, nodes in result.items() if nodes}
