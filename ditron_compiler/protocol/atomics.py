"""Atomics: integers that programs of any rank tell each other things by, without signals."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from ditron_compiler.protocol.effects import Site
from ditron_compiler.protocol.machine import Cell, Keys, Machine, Task, Wait, Writer
from ditron_compiler.protocol.memory import parts
from ditron_compiler.protocol.values import UNKNOWN

__all__ = ["Atomics", "reaches"]


class Atomics:
    """What of a :class:`.program.Program` are atomics. Their order is that in which the machine's run makes them."""

    machine: Machine
    task: Task
    rank: int
    sites: tuple[Site, ...]
    _begin: int
    _fence: int
    _looked: dict[tuple[int, int], int]
    _loose: list[Any]

    def _touch(self, number: int, pointer: Any, mask: Any, write: bool, how: str, atomic: bool = False) -> None:
        raise NotImplementedError

    def ld(self, number: int, pointer: Any) -> Generator[Keys, None, Any]:
        yield from self._turn()
        self._touch(number, pointer, True, False, "an atomic load", atomic=True)
        if not self._is_cell(pointer):
            return UNKNOWN
        yield from self._look(number, pointer)
        self._observe(number, pointer)
        return self.machine.cell(pointer).value

    def st(self, number: int, pointer: Any, value: Any = UNKNOWN) -> Generator[Keys, None, None]:
        yield from self._turn()
        self._touch(number, pointer, True, True, "an atomic store", atomic=True)
        if isinstance(pointer, (int, np.integer)) and value is not UNKNOWN:
            self._update(number, pointer, "set", value, "st")

    def atomic(self, number: int, pointer: Any, value: Any = UNKNOWN, mask: Any = True) -> Generator[Keys, None, Any]:
        yield from self._turn()
        self._touch(number, pointer, mask, True, "an atomic update", atomic=True)
        if not isinstance(pointer, (int, np.integer)) or value is UNKNOWN or not self._is_cell(pointer):
            return UNKNOWN
        site = self.sites[number]
        self._observe(number, pointer)
        old, op = self.machine.cell(pointer).value, site.fact("op", "add")
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
        yield from self._turn()
        self._touch(number, pointer, True, True, "an atomic update", atomic=True)
        if not self._is_cell(pointer) or expected is UNKNOWN:
            return UNKNOWN
        yield from self._look(number, pointer)
        self._observe(number, pointer)
        old = self.machine.cell(pointer).value
        if old == expected and value is not UNKNOWN:
            self._update(number, pointer, "set", value, "atomic_cas", value)
        return old

    def _turn(self) -> Generator[Keys, None, None]:
        """Let the others go on first, when the machine takes turns."""
        if self.machine.turns:
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

    def _look(self, number: int, pointer: int) -> Generator[Keys, None, None]:
        """Before a second look at a cell that has not changed: wait until it does."""
        key, cell = (number, int(pointer)), self.machine.cell(pointer)
        while self._looked.get(key) == cell.version:
            self.task.blocked = Wait(
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
        self._looked[key] = cell.version

    def _observe(self, number: int, pointer: int) -> None:
        """Be after the writes that are read: visibly, if both sides ask for it."""
        site, cell = self.sites[number], self.machine.cell(pointer)
        acquire = site.fact("semantic", "relaxed") in ("acquire", "acq_rel")
        visible = [w.node for w in cell.releases if reaches(self.machine, w, self.rank, site.fact("scope", "gpu"))]
        if not acquire:
            self._loose += visible
        self.machine.cut(self.task, visible if acquire else (), [w.node for w in cell.writers[-1:]])

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
        """A write by the program itself: there when it is made."""
        site, task, cell = self.sites[number], self.task, self.machine.cell(pointer)
        if release is None:
            release = site.fact("semantic", "relaxed") in ("release", "acq_rel")
        issued = task.node
        # As in C++, a relaxed write publishes what came before the latest fence.
        node = self.machine.cut(task) if release else self.machine.graph.add([self._fence], [issued])
        release = release or self._fence != self._begin
        writer = Writer(
            int(pointer),
            node,
            issued,
            task,
            op,
            int(value),
            site.loc,
            how,
            task.call,
            site.fact("scope", "gpu"),
            release,
        )
        if new is None:  # a store ends the release sequence; an update goes on with it
            cell.releases = []
        if release:
            cell.releases = [*cell.releases, writer]
        self.machine.write_cell(writer, new)
        self.machine.cut(task)


def reaches(machine: Machine, writer: Writer, rank: int, scope: str) -> bool:
    """Whether the scopes of a write and of a read by ``rank`` let it see what came before the write."""
    if writer.task.rank == rank:
        return True
    per_node = machine.scenario.ranks_per_node
    here = writer.task.rank // per_node == rank // per_node
    return all(
        reach == "world" or (reach == "node" and (here or not machine.scenario.strict))
        for reach in (writer.scope, scope)
    )
