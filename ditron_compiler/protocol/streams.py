"""The host's streams on the abstract machine: each does its operations in order, beside the others."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence

import numpy as np

from ditron_compiler.host import ONE_NODE
from ditron_compiler.protocol import scenario as host
from ditron_compiler.protocol.machine import Blocked, Keys, Machine, Running, Task, Wait, Writer
from ditron_compiler.protocol.memory import parts

__all__ = ["stream_task"]


def stream_task(machine: Machine, task: Task, steps: Sequence[host.HostOp]) -> Generator[Keys, None, None]:
    """Carry out the steps of one stream of a rank's host."""
    records: dict[int, int] = {}  # event -> number of its latest record so far, in the order of the host
    for number, step in enumerate(steps):
        if isinstance(step, host.Record):
            records[step.event] = number
        if step.stream != task.stream:
            continue
        task.call, task.step = step.call, number
        if isinstance(step, host.Launch):
            yield from _launch(machine, task, step)
        elif isinstance(step, host.Move):
            yield from _move(machine, task, step)
        elif isinstance(step, host.SignalWrite):
            _signal_write(machine, task, step)
            machine.steps_done.add((task.rank, number))
        elif isinstance(step, host.SignalWait):
            wait = Wait(task, task.node, -1, step.cells, step.cmp, step.value, step.loc, step.call)
            yield from machine.wait(task, wait)
        elif isinstance(step, host.Record):
            machine.cut(task)
            machine.recorded[task.rank, number] = task.node
            machine.cut(task)
            machine.wake(("event", task.rank, number))
        elif isinstance(step, host.Await):
            event = records.get(step.event)
            while event is not None and (task.rank, event) not in machine.recorded:
                task.blocked = Blocked(f"waits for an event that is recorded at {steps[event].loc}", step.loc, "event")
                yield (("event", task.rank, event),)
            if event is not None:
                task.blocked = None
                machine.cut(task, [machine.recorded[task.rank, event]])
        elif isinstance(step, host.Unseen):
            machine.astray.append(machine.cut(task))
            machine.cut(task)
        elif isinstance(step, host.Meet):
            yield from _meet(machine, task, step)
        elif isinstance(step, host.Free):
            machine.free(task.rank, step.root)


def _meet(machine: Machine, task: Task, step: host.Meet) -> Generator[Keys, None, None]:
    """A barrier of the host waits for all that its rank has sent, by whichever program."""
    if step.quiet:
        landed = [node for nodes in machine.in_flight[task.rank].values() for node in nodes]
        machine.in_flight[task.rank].clear()
        task.pending.clear()
        machine.cut(task, landed)
    yield from machine.meet(task, ("host", step.name), range(machine.scenario.ranks), step.name, step.loc)


def _move(machine: Machine, task: Task, step: host.Move) -> Generator[Keys, None, None]:
    """A copy, or whatever else reads and writes; one that is a kernel needs a place on an SM."""
    if step.needs_sm:
        running = Running(step, task, 1, False)

        def body() -> None:
            running.left = 0
            machine.leave(task.rank)
            machine.wake(("launch", id(running)))

        machine.enqueue(running, [body])
        while running.left:
            task.blocked = Blocked(f"waits for an SM, to {step.name}", step.loc, "sm")
            yield (("launch", id(running)),)
        task.blocked = None
    machine.cut(task)
    copy = None
    if step.reads is not None and step.writes is not None:
        machine.check_copy(task, step.reads, step.writes, step.name, step.loc, step.in_order)
        copy = machine.copied(step.reads, step.writes, step.in_order)
    for span, write in ((step.reads, False), (step.writes, True)):
        if span is not None:
            _stay_near(machine, task, span[:1, 0], step.name, step.loc)
            machine.touch(task, span, write, step.name, step.loc, copy=copy)
    machine.cut(task)


def _stay_near(machine: Machine, task: Task, pointers: Sequence[int], what: str, loc: str) -> None:
    """Report what a stream does to the memory of another node."""
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


def _signal_write(machine: Machine, task: Task, step: host.SignalWrite) -> None:
    """In the order of the stream: what follows comes after it, too."""
    _stay_near(machine, task, step.cells, "a signal_write", step.loc)
    for cell in step.cells:
        issued = task.node
        landing = machine.cut(task)
        machine.touch(task, np.array([[cell, cell + 8]]), True, "a signal written by a stream", step.loc, atomic=True)
        machine.write_cell(
            Writer(cell, landing, issued, task, step.op, step.value, step.loc, "signal_write", step.call)
        )
        machine.cut(task)


def _launch(machine: Machine, task: Task, step: host.Launch) -> Generator[Keys, None, None]:
    """All programs start after what the stream did before; the stream goes on when all have ended."""
    from ditron_compiler.protocol.program import Program

    grid = step.grid
    pids = [(x, y, z) for z, y, x in itertools.product(range(grid[2]), range(grid[1]), range(grid[0]))]
    machine.cut(task)
    running = Running(step, task, len(pids), step.kernel.spins, base={r: set(s) for r, s in task.pending.items()})
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
        yield from step.kernel.run(Program(machine, program, grid), *step.args)
        running.left -= 1
        running.ends.append(machine.cut(program))
        running.leftover.append(program.pending)
        machine.leave(task.rank)
        if not running.left:
            machine.wake(("launch", id(running)))

    machine.enqueue(running, [starter(pid) for pid in pids])
    while running.left:
        task.blocked = Blocked(f"waits for kernel {step.kernel.name} to end", step.loc, "launch")
        yield (("launch", id(running)),)
    task.blocked = None
    own = _leftover(running)
    settled = own.pop(task.rank, set())  # what a rank sends to itself has arrived when the launch is over
    task.pending = own
    machine.cut(task, [*running.ends, *settled])


def _leftover(running: Running) -> dict[int, set[int]]:
    """What is under way when all programs have ended: a program that was quiet was so for what came before, too."""
    result: dict[int, set[int]] = {}
    for target in {target for left in [running.base, *running.leftover] for target in left}:
        base = running.base.get(target, set())
        mine = [left.get(target, set()) for left in running.leftover]
        result[target] = set().union(*(nodes - base for nodes in mine)) | (base.intersection(*mine) if mine else base)
    return {target: nodes for target, nodes in result.items() if nodes}
