"""Atomic accesses: integers by which programs of any rank synchronize without signals."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from ditron_compiler.protocol.machine import Cell, Keys, Machine, Task, UpdateEvent, WaitEvent
from ditron_compiler.protocol.memory import parts
from ditron_compiler.protocol.sites import Site
from ditron_compiler.protocol.values import UNKNOWN

__all__ = ["Atomics", "reaches"]


class Atomics:
    """The atomic accesses of a :class:`.program.AbstractProgram`, ordered as in the machine's run."""

    machine: Machine
    task: Task
    rank: int
    sites: tuple[Site, ...]
    _begin: int
    _fence: int
    _observed_versions: dict[tuple[int, int], int]
    _relaxed_reads: list[Any]

    def _access(self, number: int, pointer: Any, mask: Any, write: bool, how: str, atomic: bool = False) -> None:
        raise NotImplementedError

    def ld(self, number: int, pointer: Any) -> Generator[Keys, None, Any]:
        yield from self._yield()
        self._access(number, pointer, True, False, "an atomic load", atomic=True)
        if not self._is_cell(pointer):
            return UNKNOWN
        yield from self._wait_for_change(number, pointer)
        self._observe(number, pointer)
        return self.machine.cell(pointer).value

    def st(self, number: int, pointer: Any, value: Any = UNKNOWN) -> Generator[Keys, None, None]:
        yield from self._yield()
        self._access(number, pointer, True, True, "an atomic store", atomic=True)
        if isinstance(pointer, (int, np.integer)) and value is not UNKNOWN:
            self._update(number, pointer, "set", value, "st")

    def atomic(self, number: int, pointer: Any, value: Any = UNKNOWN, mask: Any = True) -> Generator[Keys, None, Any]:
        yield from self._yield()
        self._access(number, pointer, mask, True, "an atomic update", atomic=True)
        if not isinstance(pointer, (int, np.integer)) or value is UNKNOWN or not self._is_cell(pointer):
            return UNKNOWN
        site = self.sites[number]
        self._observe(number, pointer)
        old, op = self.machine.cell(pointer).value, site.get("op", "add")
        new = {
            "add": old + value,
            "min": min(old, value),
            "max": max(old, value),
            "and": old & value,
            "or": old | value,
            "xor": old ^ value,
            "set": value,
        }[op]
        self._update(number, pointer, "add" if op == "add" else "set", value if op == "add" else new, site.name, new)
        return old

    def cas(self, number: int, pointer: Any, expected: Any, value: Any) -> Generator[Keys, None, Any]:
        yield from self._yield()
        self._access(number, pointer, True, True, "an atomic update", atomic=True)
        if not self._is_cell(pointer) or expected is UNKNOWN:
            return UNKNOWN
        yield from self._wait_for_change(number, pointer)
        self._observe(number, pointer)
        old = self.machine.cell(pointer).value
        if old == expected and value is not UNKNOWN:
            self._update(number, pointer, "set", value, "atomic_cas", value)
        return old

    def _yield(self) -> Generator[Keys, None, None]:
        """Let other programs run first, where the machine varies the order."""
        if self.machine.order_seed:
            self.machine.again(self.task)
            yield ()

    def _is_cell(self, pointer: Any) -> bool:
        if not isinstance(pointer, (int, np.integer)) or parts(int(pointer))[0] < 0:
            return False
        rank, number, _ = parts(int(pointer))
        root = self.machine.scenario.roots.get(number)
        if root is None or (rank, number) in self.machine.filled:
            return False
        return root.zeroed or not root.given or bool(self.machine.cells.get(int(pointer), Cell(0)).writers)

    def _wait_for_change(self, number: int, pointer: int) -> Generator[Keys, None, None]:
        """Before a second load of an unchanged cell: block until it changes if a loop may spin on it, else let others
        run first.
        """
        key, cell = (number, int(pointer)), self.machine.cell(pointer)
        while self._observed_versions.get(key) == cell.version:
            if not self.sites[number].spins:
                self.machine.again(self.task)
                yield ()
                break
            self.task.blocked = WaitEvent(
                self.task,
                self.task.node,
                -1,
                (int(pointer),),
                "ne",
                cell.value,
                self.sites[number].loc,
                self.task.call,
                number,
            )
            yield (("cell", int(pointer)),)
        self.task.blocked = None
        self._observed_versions[key] = cell.version

    def _observe(self, number: int, pointer: int) -> None:
        """Synchronize with the writes that are read, if both sides have the semantics for it."""
        site, cell = self.sites[number], self.machine.cell(pointer)
        acquire = site.get("semantic", "relaxed") in ("acquire", "acq_rel")
        visible = [w.node for w in cell.releases if reaches(self.machine, w, self.rank, site.get("scope", "gpu"))]
        if not acquire:
            self._relaxed_reads += visible
        self.machine.end_segment(self.task, visible if acquire else (), [w.node for w in cell.writers[-1:]])

    def _update(
        self,
        number: int,
        pointer: int,
        op: str,
        value: int,
        how: str,
        new: int | None = None,
        release: bool | None = None,
    ) -> None:
        """A write by the program itself, which takes effect at once."""
        site, task, cell = self.sites[number], self.task, self.machine.cell(pointer)
        if release is None:
            release = site.get("semantic", "relaxed") in ("release", "acq_rel")
        issued = task.node
        # As in C++, a relaxed write publishes what came before the latest fence.
        node = self.machine.end_segment(task) if release else self.machine.graph.add([self._fence], [issued])
        release = release or self._fence != self._begin
        writer = UpdateEvent(
            int(pointer),
            node,
            issued,
            task,
            op,
            int(value),
            site.loc,
            how,
            task.call,
            site.get("scope", "gpu"),
            release,
        )
        if new is None:  # a store ends the release sequence; a read-modify-write continues it
            cell.releases = []
        if release:
            cell.releases = [*cell.releases, writer]
        self.machine.write_cell(writer, new)
        self.machine.end_segment(task)


def reaches(machine: Machine, writer: UpdateEvent, rank: int, scope: str) -> bool:
    """Whether the scopes of a write and of a read by ``rank`` include each other."""
    if writer.task.rank == rank:
        return True
    per_node = machine.scenario.ranks_per_node
    here = writer.task.rank // per_node == rank // per_node
    return all(
        reach == "world" or (reach == "node" and (here or not machine.scenario.strict))
        for reach in (writer.scope, scope)
    )
