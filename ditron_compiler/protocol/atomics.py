"""Atomic accesses: integers by which programs of any rank synchronize without signals."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.memory import NULL, describe, parts
from ditron_compiler.protocol.records import Keys, Task, UpdateEvent, WordReuse
from ditron_compiler.protocol.sites import Site
from ditron_compiler.protocol.values import UNKNOWN, any_unknown

__all__ = ["Atomics", "reaches"]

#: Of a larger tile of atomics the values are not followed.
_MAX_LANES = 1024


class Atomics:
    """The atomic accesses of a :class:`.program.AbstractProgram`, ordered as in the machine's run."""

    machine: Machine
    task: Task
    sites: tuple[Site, ...]
    _begin: int
    _fence: int
    _relaxed_reads: list[Any]

    def ld(self, number: int, pointer: Any) -> Generator[Keys, None, Any]:
        yield from self._yield()
        value = yield from self._value(number, pointer, True, 0)  # others may run before
        self._access(number, pointer, True, False, "an atomic load", atomic=True)
        self._observe_all(number, pointer)
        if any_unknown(value):
            self._doubt_if_used(number)
        return value

    def st(self, number: int, pointer: Any, value: Any = UNKNOWN) -> Generator[Keys, None, None]:
        yield from self._yield()
        span = self._access(number, pointer, True, True, "an atomic store", atomic=True)
        if not any_unknown(pointer) and np.size(pointer) <= _MAX_LANES:  # else nobody is seen to wait for them
            if self.sites[number].get("stores_words", "") == "data":
                self._require_no_words(number, pointer)
            elif not any_unknown(value) and not np.any(value):
                self._clear_words(number, pointer)
        self._stores(number, pointer, value)
        if any_unknown(pointer, value) or np.size(pointer) > _MAX_LANES:
            self._stored(number, pointer, True, value, span)
        else:
            lanes, values = np.atleast_1d(pointer), np.broadcast_to(value, np.shape(pointer)).reshape(-1)
            for at, one in zip(lanes.reshape(-1).tolist(), values.tolist(), strict=True):
                self._update(number, at, "set", one, "st")

    def _require_no_words(self, number: int, pointer: Any) -> None:
        """Report data words that are stored where another one is: a reader could take that one for them.

        Where one has been, keep who cleared it: nothing may be stored there before that, in any order.
        """
        machine, site = self.machine, self.sites[number]
        stale = None
        for at in np.unique(pointer).tolist():
            there = machine.contents.load(at, site.itemsize)
            writer = machine.word_writers.get(at)
            if not any_unknown(there) and there and writer is not None and writer is not self.task:
                stale = at if stale is None else stale
            machine.word_writers[at] = self.task
            if not self.task.path and (clear := machine.word_clears.get(at)) is not None:
                reuse = WordReuse(at, *clear, self.task.node, self.task, site.loc)
                machine.word_reuses.setdefault((reuse.cleared, reuse.stored), reuse)
        if stale is not None:
            _, number, offset = parts(stale)
            place = describe(machine.scenario.roots[number], offset)
            machine.problem(
                "reuse",
                f"a word is stored to {place}, where an earlier one still is, which its reader takes for this",
                self.task,
                site.loc,
                "who has read words stores 0 to each of them, before the next ones are sent there",
            )

    def _clear_words(self, number: int, pointer: Any) -> None:
        """Keep which data words this stores 0 to."""
        if self.machine.word_writers and not self.task.path:
            clear = self.task.node, self.task, self.sites[number].loc
            words = [at for at in np.unique(pointer).tolist() if at in self.machine.word_writers]
            self.machine.word_clears.update(dict.fromkeys(words, clear))

    def atomic(self, number: int, pointer: Any, value: Any = UNKNOWN, mask: Any = True) -> Generator[Keys, None, Any]:
        yield from self._yield()
        span = self._access(number, pointer, mask, True, "an atomic update", atomic=True)
        site = self.sites[number]
        many = np.size(pointer) > _MAX_LANES
        if any_unknown(pointer, value, mask) or many or any_unknown(site.get("integer", UNKNOWN)) or self.task.path:
            self._stored(number, pointer, mask, UNKNOWN, span)
            self._has_changed()
            self._doubt_if_used(number)
            return UNKNOWN
        if isinstance(pointer, (int, np.integer)):
            return self._combine(number, int(pointer), value) if np.any(mask) else 0
        shape = np.broadcast_shapes(np.shape(pointer), np.shape(value), np.shape(mask))
        lanes = [np.broadcast_to(x, shape).reshape(-1).tolist() for x in (pointer, value, mask)]
        old = [self._combine(number, p, v) if m else 0 for p, v, m in zip(*lanes, strict=True)]
        return UNKNOWN if any_unknown(*old) else np.array(old, dtype=np.int64).reshape(shape)

    def _combine(self, number: int, pointer: int, value: Any) -> Any:
        """A read-modify-write of one integer; what was there. One that changes nothing only reads."""
        site, size = self.sites[number], self.sites[number].itemsize
        old, op = self.machine.cell(pointer, size).value, site.get("op", "add")
        self._observe(number, pointer)
        if any_unknown(old):
            self.machine.unknown_source(pointer)
            self._update(number, pointer, "set", value if op == "set" else UNKNOWN, site.name)
            self._has_changed()
            self._doubt_if_used(number)
            return UNKNOWN
        new = wrapped(
            {
                "add": old + value,
                "min": min(old, value),
                "max": max(old, value),
                "and": old & value,
                "or": old | value,
                "xor": old ^ value,
                "set": value,
            }[op],
            size,
        )
        if new == old:
            self._has_read(number, pointer, old)
            return old
        self._has_changed()
        self._update(number, pointer, "add" if op == "add" else "set", value if op == "add" else new, site.name, new)
        return old

    def cas(self, number: int, pointer: Any, expected: Any, value: Any) -> Generator[Keys, None, Any]:
        yield from self._yield()
        span = self._access(number, pointer, True, True, "an atomic update", atomic=True)
        if any_unknown(pointer, expected) or not isinstance(pointer, (int, np.integer)) or self.task.path:
            self._stored(number, pointer, True, UNKNOWN, span)
            self._has_changed()
            self._doubt_if_used(number)
            return UNKNOWN
        old = yield from self._value(number, pointer, True, 0)
        self._observe(number, pointer)
        if any_unknown(old):
            self._update(number, pointer, "set", UNKNOWN, "atomic_cas")
            self._doubt_if_used(number)
        elif old == expected and (any_unknown(value) or old != value):
            self._has_changed()
            self._update(number, pointer, "set", value, "atomic_cas", value)
        return old

    def _yield(self) -> Generator[Keys, None, None]:
        """Let other programs run first, where the machine varies the order."""
        if self.machine.order_seed:
            self.machine.again(self.task)
            yield ()

    def _value(self, number: int, pointer: Any, mask: Any, other: Any) -> Generator[Keys, None, Any]:
        """The integers that a load finds, as far as they are known."""
        site, machine = self.sites[number], self.machine
        if any_unknown(site.get("integer", UNKNOWN)):
            machine.floats_decide(int(np.atleast_1d(pointer).flat[0]) if not any_unknown(pointer) else NULL)
        if any_unknown(pointer, mask, site.get("integer", UNKNOWN)):
            return UNKNOWN
        if kinds := machine.contents.kinds_of_words(pointer):
            if site.get("data", "") and not site.get("waited", ""):
                self._unfollowed(
                    number,
                    "it is not seen that a loop waits for all of these words: write "
                    "`while tl.max((words == 0).to(tl.int32)) != 0` around their load",
                )
            if kinds - {site.get("reads_words", "")}:
                return UNKNOWN
        size = site.itemsize
        if isinstance(pointer, (int, np.integer)) or site.spins:
            yield from self._let_others_run(number, pointer, machine.contents.load(pointer, size, mask, other))
        value = machine.contents.load(pointer, size, mask, other)
        if any_unknown(value):
            machine.unknown_source(int(np.atleast_1d(pointer).flat[0]))
        elif site.get("integer", "") == "1":
            value = value != 0
        if mask is True:
            self._has_read(number, pointer, value)
        return value

    def _doubt_if_used(self, number: int) -> None:
        """What an atomic has read is not known, and something depends on it: it may order this program."""
        if self.sites[number].get("used", ""):
            self.machine.doubt(self.task)

    def _observe_all(self, number: int, pointer: Any) -> None:
        if isinstance(pointer, (int, np.integer)):
            self._observe(number, int(pointer))
        elif not any_unknown(pointer):
            for one in np.unique(pointer).tolist():
                if one in self.machine.cells:
                    self._observe(number, one)

    def _observe(self, number: int, pointer: int) -> None:
        """Synchronize with the writes that are read, if both sides have the semantics for it."""
        site = self.sites[number]
        if parts(pointer)[0] < 0 or site.get("polls", ""):
            return
        cell = self.machine.cell(pointer, site.itemsize)
        acquire = site.get("semantic", "relaxed") in ("acquire", "acq_rel")
        seen = [w for w in cell.releases if reaches(self.machine, w, self.task.rank, site.get("scope", "gpu"))]
        visible, narrow = ([w.node for w in seen if (w.scope == "gpu") is on_gpu] for on_gpu in (False, True))
        latest = [w.node for w in cell.writers[-1:]]
        if acquire:
            self.machine.end_segment(self.task, visible, latest, narrow)
        else:
            self._relaxed_reads += visible + narrow
            self.machine.end_segment(self.task, ordered=latest)

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
        site, task = self.sites[number], self.task
        if parts(int(pointer))[0] < 0:
            return
        cell = self.machine.cell(pointer, site.itemsize)
        if task.path:
            value = new = UNKNOWN
        if release is None:
            release = site.get("semantic", "relaxed") in ("release", "acq_rel")
        issued = task.node
        # As in C++, a relaxed write publishes what came before the latest fence.
        node = self.machine.end_segment(task) if release else self.machine.graph.add([self._fence], [issued])
        if release and site.get("scope", "gpu") != "gpu":
            self.machine.graph.published.add(node)
        release = release or self._fence != self._begin
        writer = UpdateEvent(
            int(pointer),
            node,
            issued,
            task,
            op,
            value if any_unknown(value) else int(value),
            site.loc,
            how,
            task.call,
            site.get("scope", "gpu"),
            release,
        )
        if new is None:  # a store ends the release sequence; a read-modify-write continues it
            cell.releases = []
        if release:
            acquires = site.get("semantic", "relaxed") == "acq_rel"
            # What acquires all that were released before stands for them.
            known = acquires and all(
                other.scope == writer.scope and reaches(self.machine, other, self.rank, writer.scope)
                for other in cell.releases
            )
            cell.releases = [writer] if known else [*cell.releases, writer]
        self.machine.write_cell(writer, new, site.itemsize)
        self.machine.end_segment(task)


def reaches(machine: Machine, writer: UpdateEvent, rank: int, scope: str) -> bool:
    """Whether the scopes of a write and of a read by ``rank`` include each other."""
    if writer.task.rank == rank:
        return True
    per_node = machine.scenario.ranks_per_node
    here = writer.task.rank // per_node == rank // per_node
    return all(reach == "world" or (reach == "node" and here) for reach in (writer.scope, scope))


def wrapped(value: int, size: int) -> int:
    """As a signed integer of so many bytes."""
    half = 1 << (8 * size - 1)
    return (value + half) % (2 * half) - half
