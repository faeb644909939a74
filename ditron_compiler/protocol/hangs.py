"""Why the machine's run made no progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ditron_compiler.protocol import scenario as host
from ditron_compiler.protocol.finding import Finding
from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.memory import describe, parts
from ditron_compiler.protocol.records import SIGNALS, Blocked, Task, UpdateEvent, WaitEvent, satisfies
from ditron_compiler.protocol.streams import execute

__all__ = ["cell_name", "graph_notes", "hangs", "starvation"]


_LOOKED_AT = 16  # tasks that wait at one line


def hangs(machine: Machine) -> Iterator[Finding]:
    """One finding per line whose wait is never satisfied; causes only, where they are known."""
    waiting = sorted(
        (task for task in machine.stuck if isinstance(task.blocked, WaitEvent)),
        key=lambda task: (task.rank, task.pid or ()),
    )
    barriers = [task for task in machine.stuck if isinstance(task.blocked, Blocked) and task.blocked.kind == "barrier"]
    if machine.queued and waiting:
        yield _starved(machine, waiting)
        return
    lines: dict[str, list[Task]] = {}
    for task in waiting:
        if not any(parts(cell)[1] in machine.unsendable for cell in _missing(machine, task.blocked)):
            lines.setdefault(task.blocked.loc, []).append(task)
    if not lines:
        released = machine
    else:
        released = execute(
            machine.scenario,
            machine.places,
            machine.order_seed,
            machine.put_orders,
            machine.graphs,
            machine.impatient,
            release_waits=True,
        )
    found = [_at_line(machine, tasks, released) for tasks in lines.values()]
    # A wait for a signal that comes after another unsatisfied wait is a consequence, not a cause.
    causes = [finding for finding in found if finding.kind != "cycle"]
    yield from causes or found
    if not waiting and barriers:
        yield _barrier(machine, barriers[0])
    if not machine.stuck:
        yield from _looks_in_vain(machine)


def _looks_in_vain(machine: Machine) -> Iterator[Finding]:
    """Loops that looked repeatedly at flags, and gave up: those of which nobody changes any flag."""
    found: dict[str, Finding] = {}
    for (task, _), looks in machine.looks.items():
        seen = Counter((look.cells[0], look.value) for look in looks)
        if max(seen.values()) < 2 or any(_changes(machine, pointer, value) for pointer, value in seen):
            continue
        look = looks[-1]
        if look.loc in found:
            continue
        pointer = look.cells[0]
        elsewhere = tuple(_elsewhere(machine, look, pointer))
        found[look.loc] = Finding(
            "never-signalled",
            f"looks {len(looks)} times at {cell_name(machine, pointer)} of rank {parts(pointer)[0]}, which is "
            f"{look.value}, and gives up: nobody signals it",
            look.loc,
            _where(machine, [task]),
            "send it: dl.notify to this rank and this signal" + ("; the signals above go elsewhere" * bool(elsewhere)),
            elsewhere[:4],
        )
    yield from found.values()


def _changes(machine: Machine, pointer: int, value: int) -> bool:
    cell = machine.cell(pointer)
    return cell.doubtful or any(w.op == "add" or w.value != value for w in cell.writers)


def _at_line(machine: Machine, tasks: list[Task], released: Machine) -> Finding:
    """Of tasks that wait at one line, in the order of calls: one whose wait is a cause, if there is."""
    tasks = sorted(tasks, key=lambda task: task.call)
    firsts = list({(task.call, task.rank): task for task in reversed(tasks)}.values())[::-1]
    found = []
    for task in firsts[:_LOOKED_AT]:
        found.append(_unsatisfied(machine, [task, *(other for other in tasks if other is not task)], released))
        if found[-1].kind != "cycle":
            return found[-1]
    return found[0]


def _unsatisfied(machine: Machine, tasks: list[Task], released: Machine) -> Finding:
    task = tasks[0]
    wait: WaitEvent = task.blocked
    pointer = _missing(machine, wait)[0]
    cell, name = machine.cell(pointer), cell_name(machine, pointer)
    wants = f"{name} of rank {parts(pointer)[0]} {_SIGN[wait.cmp]} {wait.value}"
    others = tuple(dict.fromkeys((f"{w.how} of {w.value}", w.loc) for w in cell.writers))
    behind = [("a signal that is not reached", loc) for loc in _unreached(machine, released, wait, pointer)]
    elsewhere = tuple(_elsewhere(machine, wait, pointer))
    if wait.cmp not in ("ge", "gt") and any(satisfies(w.value, wait.cmp, wait.value) for w in cell.writers):
        return Finding(
            "overtaken",
            f"waits for {wants}, and a later signal has made it {cell.value} already",
            wait.loc,
            _where(machine, tasks),
            "wait for `ge`: signals only grow",
            others,
        )
    if behind:
        waits = tuple(
            ("also waits", other.blocked.loc)
            for other in machine.stuck
            if isinstance(other.blocked, WaitEvent) and other.blocked.loc != wait.loc
        )
        return Finding(
            "cycle",
            f"waits for {wants}, and what would signal it comes after a wait that is not satisfied either",
            wait.loc,
            _where(machine, tasks),
            "let each rank send before it waits, or begin with one that need not wait",
            tuple(dict.fromkeys((*waits, *behind[:4], *elsewhere[:2])))[:6],
        )
    if cell.writers:
        return Finding(
            "count",
            f"waits for {wants}, and all signals there make it {cell.value}",
            wait.loc,
            _where(machine, tasks),
            "wait for as many as are sent, or send what is missing",
            others,
        )
    return Finding(
        "never-signalled",
        f"waits for {wants}, and nobody signals it",
        wait.loc,
        _where(machine, tasks),
        "send it: dl.notify to this rank and this signal" + ("; the signals above go elsewhere" if elsewhere else ""),
        elsewhere[:4],
    )


def _missing(machine: Machine, wait: WaitEvent) -> list[int]:
    """The signals of a wait that do not satisfy it."""
    return [cell for cell in wait.cells if not satisfies(machine.cell(cell).value, wait.cmp, wait.value)]


_SIGN = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def _unreached(machine: Machine, released: Machine, wait: WaitEvent, pointer: int) -> list[str]:
    """Lines of the signals that would satisfy a wait if all waits returned: what sends them is blocked itself."""
    sent = Counter((str(w.task), w.call, w.loc) for w in machine.cell(pointer).writers)
    found = []
    for writer in released.cell(pointer).writers:
        key = (str(writer.task), writer.call, writer.loc)
        if sent[key]:
            sent[key] -= 1
        elif str(writer.task) == str(wait.task) and writer.how not in SIGNALS:
            continue  # a flag that a program sets for others
        elif _helps(writer, wait, machine.cell(pointer).value) and not _comes_later(machine, writer, wait):
            found.append(writer.loc)
    return list(dict.fromkeys(found))


def _helps(writer: UpdateEvent, wait: WaitEvent, value: int) -> bool:
    """Whether an update of a signal that has this value may, alone or with others, satisfy a wait."""
    if writer.op == "set":
        return satisfies(writer.value, wait.cmp, wait.value)
    return wait.cmp != "eq" or (value < wait.value) == (writer.value > 0)


def _comes_later(machine: Machine, writer: UpdateEvent, wait: WaitEvent) -> bool:
    """Whether a later launch sends it than one that could have: of the waiting kernel, or of one that has ended before
    and never sends it.
    """
    if writer.task.kernel is not None and writer.task.kernel is wait.task.kernel and writer.call > wait.call:
        return True
    if any(before.loc == writer.loc for before in machine.cell(writer.cell).writers):
        return False
    return any(
        task.done and task.kernel is not None and (task.rank, task.name) == (writer.task.rank, writer.task.name)
        for task in machine.tasks
        if task.step < writer.task.step
    )


def _elsewhere(machine: Machine, wait: WaitEvent, pointer: int) -> list[tuple[str, str]]:
    """Signals that went to other cells of the same buffer, the nearest first: to another rank, or to another index."""
    rank, root, offset = parts(pointer)
    found = []
    sent: dict[tuple[str, int], tuple[set[int], set[int]]] = {}  # by line and call: ranks and values
    for cell, other in machine.cells.items():
        for writer in other.writers:
            to, values = sent.setdefault((writer.loc, writer.call), (set(), set()))
            to.add(parts(cell)[0])
            values.add(writer.value)
    for cell, other in machine.cells.items():
        there, same, at = parts(cell)
        if same != root or cell == pointer:
            continue
        for writer in other.writers:
            if writer.how == "a plain store":
                continue
            name = f"{cell_name(machine, cell)} of rank {there}"
            to, values = sent[writer.loc, writer.call]
            swapped = (
                at == offset
                and writer.value == rank
                and satisfies(there, wait.cmp, wait.value)
                and not (len(values) == 1 < len(to))  # one value that goes to several ranks is no rank
            )
            if at != offset:
                asks = ": is the index right?" if there == rank else ": are the index and the rank right?"
            elif swapped:
                asks = f", not of rank {rank}: is the rank right, or swapped with the value?"
            else:
                asks = f", not of rank {rank}: is the rank right?"
            near = (
                writer.call != wait.call,
                not swapped,
                at != offset and there != rank,
                at != offset,
                there == writer.task.rank,
                abs(at - offset),
            )
            found.append((near, f"rank {writer.task.rank} signals {name}{asks}", writer.loc))
    return list(dict.fromkeys((text, loc) for _, text, loc in sorted(found)))


def _starved(machine: Machine, waiting: list[Task]) -> Finding:
    rank, op, left = next((q for q in machine.queued if isinstance(q[1], host.HostSignalWait)), machine.queued[0])
    task = next((t for t in waiting if t.rank == rank and t.kernel is not None), waiting[0])
    return _starvation(machine, task, rank, op, left, f"all {machine.scenario.resident} places")


def _starvation(machine: Machine, task: Task, rank: int, op: host.HostOp, left: int, places: str) -> Finding:
    if isinstance(op, host.HostSignalWait):
        return Finding(
            "starved",
            f"in a CUDA graph programs that wait here hold {places} on the SMs, and a stream's wait, which is a "
            "kernel there, cannot start before all programs of this launch have",
            task.blocked.loc,
            _where(machine, [task]),
            "launch no more programs than fit on the GPU, or let the stream wait before the launch",
            (("cannot start", op.loc),),
        )
    if isinstance(op, host.HostLaunch):
        same = op is _launch_of(machine, task)
        what = f"{left} program{'s' * (left > 1)} of {'this launch' if same else 'kernel ' + op.kernel.name}"
    else:
        same, what = False, f"{op.name}, which is a kernel,"
    hint = (
        "give the producers the lowest program ids, or launch no more programs than fit on the GPU"
        if same
        else "put it before the launch on the same stream"
        + (
            ", or let a copy engine do it: between ranks, that is"
            if not isinstance(op, host.HostLaunch)
            else ", or make one kernel of both: programs of two streams share the SMs in any order"
            if op.kernel.spins
            else ""
        )
    )
    return Finding(
        "starved",
        f"programs that wait here hold {places} on the SMs, and {what} cannot start",
        task.blocked.loc,
        _where(machine, [task]),
        hint,
        (("cannot start", op.loc),),
    )


def starvation(one_sm: Machine, resident: Machine) -> tuple[list[Finding], list[str]]:
    """Findings of a run with a single SM per rank, and notes about launches that must be resident as a whole.

    On a real GPU a launch that spins takes every SM once its grid is large enough, so what it waits for must come from
    programs before it, from other ranks, or from a copy engine. ``resident``: a run with the SMs that there are; two
    launches that fit in it together have a note.
    """
    findings, notes = [], []
    waiting = [task for task in one_sm.stuck if isinstance(task.blocked, WaitEvent) and task.kernel is not None]
    for rank, op, left in one_sm.queued:
        spinning = [task for task in waiting if task.rank == rank]
        if not spinning:
            continue
        task = spinning[0]
        if op is _launch_of(one_sm, task):
            notes.append(
                f"{task.blocked.loc}: programs of {task.name} wait here for others of the same launch that "
                "have higher numbers: its grid must not exceed what the GPU runs at a time"
            )
        elif isinstance(op, host.HostLaunch) and not resident.queued:
            notes.append(
                f"{task.blocked.loc}: programs of {task.name} wait here while kernel {op.kernel.name} ({op.loc}) may "
                "need their SMs: the programs of both must fit on the GPU, which is taken to run "
                f"{one_sm.scenario.resident} at a time (--resident); registers and shared memory may allow fewer"
            )
        else:
            findings.append(_starvation(one_sm, task, rank, op, left, "every place"))
    return findings[:1], list(dict.fromkeys(notes))


def _launch_of(machine: Machine, task: Task) -> host.HostOp:
    """The host's operation that has started a program."""
    return machine.scenario.steps[task.rank][task.step]


def graph_notes(one_sm: Machine) -> list[str]:
    """Notes of a run with one SM per rank in the form of CUDA graphs: launches that must be resident as a whole."""
    waiting = [task for task in one_sm.stuck if isinstance(task.blocked, WaitEvent) and task.kernel is not None]
    notes = []
    for rank, op, _ in one_sm.queued:
        task = next((task for task in waiting if task.rank == rank), None)
        if isinstance(op, host.HostSignalWait) and task is not None:
            notes.append(
                f"{task.blocked.loc}: programs of {task.name} wait here for what a stream does after its wait at "
                f"{op.loc}, which is a kernel in a CUDA graph: there the grid must not exceed what a GPU runs at a time"
            )
    return list(dict.fromkeys(notes))


def _barrier(machine: Machine, task: Task) -> Finding:
    return Finding(
        "barrier",
        f"{task.blocked.text}, which never come",
        task.blocked.loc,
        _where(machine, [task]),
        "let one program of every rank come to it, on every path",
    )


def _where(machine: Machine, tasks: list[Task]) -> str:
    ranks = sorted({task.rank for task in tasks})
    more = f" (and {len(tasks) - 1} more, ranks {', '.join(map(str, ranks))})" if len(tasks) > 1 else ""
    return f"with {machine.scenario.title}: {tasks[0]}{more}, call {tasks[0].call}"


def cell_name(machine: Machine, pointer: int) -> str:
    _, number, offset = parts(pointer)
    root = machine.scenario.roots.get(number)
    return describe(root, offset) if root else "memory of no buffer"
