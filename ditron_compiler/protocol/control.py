"""Control flow of a program on the abstract machine: loops that wait, and conditions that are not known.

Where a condition is not known both sides are executed, one after the other. What they do may happen or not: a wait does
not block there, a signal may be any, and an integer that is stored is not known afterwards.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from ditron_compiler.ir.dialects import ditron, tt
from ditron_compiler.protocol.budget import check_budget
from ditron_compiler.protocol.machine import MAX_STEPS, Machine
from ditron_compiler.protocol.records import Keys, Task, WaitEvent
from ditron_compiler.protocol.sites import Site
from ditron_compiler.protocol.values import UNKNOWN, any_unknown

__all__ = ["Control"]

#: Reads of what other programs may change meanwhile.
_LOOKS = (ditron.SignalReadOpInterface, ditron.AtomicOpInterface, tt.AtomicRMWOp, tt.AtomicCASOp)


class Control:
    """The control flow of a :class:`.program.AbstractProgram`."""

    machine: Machine
    task: Task
    sites: tuple[Site, ...]
    _relaxed_reads: list[Any]

    def __init__(self) -> None:
        self._steps = 0
        self._changes = 0  # what the program has written or sent
        self._reads: list[tuple[int, Any, Any]] = []  # in loops that may spin, since then: site, addresses, value
        # By loop, at the beginning of its latest iteration: values, changes, reads.
        self._iterations: dict[int, tuple[Any, int, int]] = {}
        self._unknown_loops: set[int] = set()
        self._polls: dict[int, tuple[int, str, int] | None] = {}
        self._last_seen: dict[tuple[int, int], Any] = {}

    # --- loops ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Count iterations: a loop that does not terminate is given up."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TimeoutError(f"{self.task.name} makes more than {MAX_STEPS} steps")
        check_budget()

    def range(self, number: int, low: Any, high: Any, step: Any) -> Iterator[int]:
        if any_unknown(low, high, step):
            self._unknown_control(number, "the number of iterations of a loop depends on data: it is looked at once")
            with_path = self.task.path
            self.task.path = (*with_path, self._new_path())
            yield UNKNOWN
            self.task.path = with_path
            return
        low, high, step = int(low), int(high), int(step)
        if step <= 0 or (high - low) // step > MAX_STEPS:
            raise TimeoutError(f"{self.task.name} makes more than {MAX_STEPS} steps")
        yield from range(low, high, step)

    def enter(self, loop: int) -> None:
        """A ``while`` loop begins."""
        self._iterations.pop(loop, None)
        self._unknown_loops.discard(loop)

    def iteration(self, loop: int, *values: Any) -> Generator[Keys, None, None]:
        """An iteration of a ``while`` loop begins with these values. If nothing has changed since the last one, and
        what the program has read since then is still the same, this one will end as that: block until it changes.
        """
        self.step()
        before = self._iterations.get(loop)
        if before is not None and before[1] == self._changes and _same(before[0], values) and not self.task.path:
            reads = self._reads[before[2] :]
            while reads and all(self._unchanged(*read) for read in reads):
                yield from self._block(reads)
            self.task.blocked = None
        self._iterations[loop] = values, self._changes, len(self._reads)

    def polls(self, number: int, pointer: Any, cmp: str, bound: Any) -> None:
        """A loop repeats a read until it compares so."""
        self._polls[number] = (
            None if any_unknown(pointer, bound) or np.ndim(pointer) else (int(pointer), cmp, int(bound))
        )

    def polled(self, number: int) -> None:
        """Such a loop has ended: its program has waited, in every execution, for a value that compares so."""
        poll, site, task = self._polls.pop(number, None), self.sites[number], self.task
        if poll is None or task.path or any_unknown(self.machine.contents.load(poll[0], site.itemsize)):
            return
        wait = self._poll_wait(number, poll)
        self.machine.cell(poll[0], site.itemsize)
        wait.after = self.machine.end_segment(task)
        self.machine.waits.append(wait)
        if not wait.acquire:
            self._relaxed_reads.append(wait)

    def _poll_wait(self, number: int, poll: tuple[int, str, int]) -> WaitEvent:
        site, task = self.sites[number], self.task
        pointer, cmp, value = poll
        acquire = site.get("semantic", "relaxed") in ("acquire", "acq_rel")
        scope = site.get("scope", "gpu")
        return WaitEvent(task, task.node, -1, (pointer,), cmp, value, site.loc, task.call, number, scope, acquire)

    def _unchanged(self, number: int, pointer: Any, value: Any) -> bool:
        return _same(self.machine.contents.load(pointer, self.sites[number].itemsize), value)

    def _block(self, reads: list[tuple[int, Any, Any]]) -> Generator[Keys, None, None]:
        number, pointer, value = reads[-1]
        task, cells = self.task, []
        for at, pointers, _ in reads:
            for cell in np.ravel(pointers).tolist():
                self.machine.cell(cell, self.sites[at].itemsize)
                cells.append(cell)
        first, now = (int(np.atleast_1d(x).flat[0]) for x in (pointer, value))
        poll = self._polls.get(number) or (first, "ne", now)
        task.blocked = self._poll_wait(number, poll)
        yield tuple(("cell", cell) for cell in dict.fromkeys(cells))

    def _has_read(self, number: int, pointer: Any, value: Any) -> None:
        """A value that a loop may be spinning on."""
        loop = self.sites[number].get("gives_up", "")
        if loop and not any_unknown(value) and not np.ndim(pointer) and not self.task.path:
            looks = self.machine.looks.setdefault((self.task, loop), [])
            looks.append(self._poll_wait(number, (int(pointer), "ne", int(value))))
        if self.sites[number].spins and not any_unknown(value):
            self._reads.append((number, pointer, value))

    def _stores(self, number: int, pointer: Any, value: Any, mask: Any = True) -> None:
        """The program is about to store integers: a change, unless they are there already."""
        if any_unknown(pointer, value, mask) or not _same(
            self.machine.contents.load(pointer, self.sites[number].itemsize, mask, value),
            np.broadcast_to(value, np.broadcast_shapes(*map(np.shape, (pointer, mask, value)))),
        ):
            self._has_changed()

    def _has_changed(self) -> None:
        """The program has written or sent something, and not what was there before."""
        self._changes += 1
        self._reads.clear()

    def _let_others_run(self, number: int, pointer: Any, value: Any) -> Generator[Keys, None, None]:
        """Before the same site sees the same value again."""
        key = number, int(np.atleast_1d(pointer).flat[0])
        if key in self._last_seen and _same(self._last_seen[key], value) and not self.machine.impatient:
            site = self.sites[number]
            self.machine.lets_others_run |= site.spins or (bool(site.loops) and site.isa(*_LOOKS))
            self.machine.again(self.task)
            yield ()
        self._last_seen[key] = value

    # --- conditions that are not known ---------------------------------------------------------------------------

    def sides(self, number: int, condition: Any) -> Iterator[bool]:
        """Which sides of a branch are executed: both of one on an unknown condition."""
        if not any_unknown(condition):
            yield bool(condition)
            return
        self._unknown_control(number, "a branch depends on data: both sides are looked at")
        path = self.task.path
        for side in (True, False):
            self.task.path = (*path, self._new_path())
            yield side
        self.task.path = path

    def passes(self, number: int, loop: int, condition: Any) -> bool:
        """Whether a ``while`` loop goes on: on an unknown condition, for one iteration."""
        if loop in self._unknown_loops:
            self.task.path = self.task.path[:-1]
            return False
        if not any_unknown(condition):
            return bool(condition)
        self._unknown_control(number, "the condition of a loop depends on data: one more iteration is looked at")
        self._unknown_loops.add(loop)
        self.task.path = (*self.task.path, self._new_path())
        return True

    def ended_unknown(self, loop: int) -> bool:
        """Whether the number of iterations of the ``while`` loop that ends was not known."""
        return loop in self._unknown_loops

    def jumps(self, number: int, condition: Any, otherwise: bool) -> bool:
        """The condition of a jump, such as an early return; if not known, what goes on may not be executed at all."""
        if not any_unknown(condition):
            return bool(condition)
        self._unknown_control(number, "an early return depends on data: what follows may not be executed")
        self.task.path = (*self.task.path, self._new_path())
        return otherwise

    def not_followed(self, number: int, *_: Any) -> Any:
        site = self.sites[number]
        self._unfollowed(number, f"{site.name} is not followed{site.get('why', '')}")
        self.machine.unknown_writes.append(self.task.node)
        self.machine.doubt(self.task)
        return UNKNOWN

    def _unknown_control(self, number: int, text: str) -> None:
        self._unfollowed(number, text)
        self.machine.unknown_writes.append(self.task.node)
        if self.sites[number].get("orders", ""):
            self.machine.doubt(self.task)

    def _new_path(self) -> int:
        self.machine.paths += 1
        return self.machine.paths

    def _unfollowed(self, number: int, text: str) -> None:
        self.machine.unfollowed(f"{self.sites[number].loc}: {text}")


def _same(a: Any, b: Any) -> bool:
    """Whether two values, or tuples of them, are equal."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if any_unknown(a, b):
        return a is b
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else a is b or a == b
