"""The operations of a kernel on the abstract machine; the translated kernel passes the number of its site."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from ditron_compiler.analysis.packet_layout import packet_bytes
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.protocol.atomics import Atomics
from ditron_compiler.protocol.control import Control
from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.memory import NULL, is_remote, parts, runs, with_rank
from ditron_compiler.protocol.records import Keys, Task, UpdateEvent, WaitEvent
from ditron_compiler.protocol.sites import Site, signature_of
from ditron_compiler.protocol.values import UNKNOWN, Anywhere, BlockDescriptor, any_unknown

__all__ = ["AbstractProgram"]


class AbstractProgram(Atomics, Control):
    """One program of a launch. A method that may have to wait is a generator.

    Attributes: rank, num_ranks, local_rank, num_local_ranks: as the kernel sees them, in the group of its launch.
    group: the group's ranks in the world. home: this rank in the world, as pointers have it.
    """

    def __init__(self, machine: Machine, task: Task, grid: tuple[int, int, int], group: tuple[int, ...] = ()):
        self.machine, self.task, self.grid, self.pid = machine, task, grid, task.pid
        self.sites: tuple[Site, ...] = task.kernel.sites
        scenario = machine.scenario
        self.home, self.group = task.rank, np.array(group or range(scenario.ranks))
        self.rank, self.num_ranks = self.group.tolist().index(task.rank), len(self.group)
        self.node = task.rank // scenario.ranks_per_node
        self.local = self.group[self.group // scenario.ranks_per_node == self.node].tolist()
        self.local_rank, self.num_local_ranks = self.local.index(task.rank), len(self.local)
        Control.__init__(self)
        self._begin = task.node
        self._fence = task.node  # the segment that the latest fence has ended
        self._fenced: dict[int, set[int]] = {}
        self._unfenced_stores: set[int] = set()  # segments since then with stores to other ranks
        self._gets: set[int] = set()
        self._relaxed_reads: list[Any] = []  # read without acquire since the latest fence: waits, and nodes of writes

    # --- plain accesses ------------------------------------------------------------------------------------------

    def read(self, number: int, pointer: Any, mask: Any = True, *_: Any) -> Any:
        self._access(number, pointer, mask, False, "a load")
        return UNKNOWN

    def write(self, number: int, pointer: Any, mask: Any = True, value: Any = None) -> None:
        if self.task.node == self._fence:
            self.machine.end_segment(self.task)  # what the latest fence or barrier orders ends before this
        if not any_unknown(pointer) and is_remote(pointer, self.home):
            self._unfenced_stores.add(self.task.node)
        span = self._access(number, pointer, mask, True, "a store")
        if value is not None:
            self._stores(number, pointer, value, mask)
        if value is None or any_unknown(value, mask) or self.task.path or not self._is_flag(pointer):
            self._stored(number, pointer, mask, UNKNOWN if value is None else value, span)
        elif np.all(mask):
            self._update(number, pointer, "set", value, "a plain store", release=False)

    def _stored(self, number: int, pointer: Any, mask: Any, value: Any, span: Any) -> None:
        """What is in memory after a store; ``span``: its bytes, None where they are not known."""
        contents, site = self.machine.contents, self.sites[number]
        if span is None:
            span = self.machine.whole_buffer(pointer)
            contents.forget(span)
        elif any_unknown(value, mask) or self.task.path:
            contents.forget(span)
        else:
            contents.store(pointer, site.itemsize, value, mask)
        self.machine.contents_changed(self.task, span, self.task.node, "a plain store", site.loc)

    def _is_flag(self, pointer: Any) -> bool:
        """Whether an integer there may be a flag: it is in symmetric memory, or was accessed by atomics before."""
        if not isinstance(pointer, (int, np.integer)) or parts(int(pointer))[0] < 0:
            return False
        root = self.machine.scenario.roots.get(parts(int(pointer))[1])
        return int(pointer) in self.machine.cells or (root is not None and root.symmetric)

    def read_box(self, number: int, descriptor: Any, *coordinates: Any) -> Any:
        return self.read(number, *self._box(descriptor, coordinates))

    def write_box(self, number: int, descriptor: Any, *coordinates: Any) -> None:
        self.write(number, *self._box(descriptor, coordinates))

    def _box(self, descriptor: Any, coordinates: tuple[Any, ...]) -> tuple[Any, Any]:
        return descriptor.box(coordinates) if isinstance(descriptor, BlockDescriptor) else (UNKNOWN, True)

    def multimem_read(self, number: int, pointer: Any) -> Any:
        for rank in self.group.tolist():
            self._access(number, self._moved(pointer, rank), True, False, "a multimem load")
        return UNKNOWN

    def multimem_write(self, number: int, pointer: Any) -> None:
        for rank in self.group.tolist():
            self._access(number, self._moved(pointer, rank), True, True, "a multimem store", atomic=True)

    def load(self, number: int, pointer: Any, mask: Any = True, other: Any = 0) -> Generator[Keys, None, Any]:
        """A load whose value is needed: known if it is an integer that is known."""
        self._access(number, pointer, mask, False, "a load")
        return (yield from self._value(number, pointer, mask, 0 if other is True else other))

    def load_box(self, number: int, descriptor: Any, *coordinates: Any) -> Generator[Keys, None, Any]:
        """A load through a descriptor whose value is needed."""
        return (yield from self.load(number, *self._box(descriptor, coordinates)))

    def _access(
        self, number: int, pointer: Any, mask: Any, write: bool, how: str, atomic: bool = False, size: int = 0
    ) -> Any:
        """Record an access; its bytes, or None where the address is not known."""
        site, path = self.sites[number], self.task.path
        if any_unknown(pointer):
            self._unfollowed(number, f"the address of {how} depends on data: it is not checked")
            if write:
                self.machine.unknown_writes.append(self.task.node)
            return None
        if any_unknown(mask):
            self._unfollowed(number, f"the mask of {how} depends on data: it is taken to be true")
            mask, path = True, (*path, self._new_path())
        if kind := site.get("stores_words", ""):
            self.machine.contents.mark_words(pointer, {kind})
        span = runs(pointer, mask, size or site.itemsize)
        self.machine.access(self.task, span, write, how, site.loc, site=number, atomic=atomic, path=path)
        return span

    # --- pointers ------------------------------------------------------------------------------------------------

    def symm_at(self, number: int, pointer: Any, rank: Any) -> Any:
        if any_unknown(rank) or pointer is UNKNOWN:
            return UNKNOWN
        per_node = self.machine.scenario.ranks_per_node
        if isinstance(rank, np.ndarray):
            if not all(self._rank_exists(number, extreme) for extreme in dict.fromkeys((rank.min(), rank.max()))):
                return UNKNOWN
            rank = self.group[rank]
            self._require_symmetric(number, pointer, rank)
            return np.where(rank // per_node == self.node, self._moved(pointer, rank.astype(np.int64)), NULL)
        if not self._rank_exists(number, rank):
            return UNKNOWN
        rank = int(self.group[rank])
        self._require_symmetric(number, pointer, rank)
        if rank // per_node != self.node:
            return NULL
        return self._moved(pointer, rank)

    def multicast(self, number: int, pointer: Any) -> Any:
        return pointer

    def pointer(self, value: Any) -> Any:
        """The pointer that an integer is: one of ours, or the address of a tensor, as tables of addresses have it."""
        if isinstance(value, np.ndarray):
            each = [self.pointer(one) for one in value.reshape(-1).tolist()]
            return UNKNOWN if any_unknown(*each) else np.array(each, dtype=np.int64).reshape(value.shape)
        if any_unknown(value) or value == NULL or parts(value)[0] >= 0:
            return value
        for first, nbytes, pointer in self.machine.scenario.addresses:
            if first <= value < first + nbytes:
                return pointer + value - first
        return UNKNOWN

    def _moved(self, pointer: Any, rank: Any) -> Any:
        if isinstance(pointer, Anywhere):
            return Anywhere(with_rank(pointer.base, rank)) if isinstance(rank, (int, np.integer)) else UNKNOWN
        return pointer if pointer is UNKNOWN else with_rank(pointer, rank)

    def _require_symmetric(self, number: int, pointer: Any, rank: Any) -> None:
        """Report an address on another rank that is asked for of memory which that rank does not reach."""
        if any_unknown(pointer, rank) or isinstance(pointer, Anywhere) or np.all(rank == self.home):
            return
        root = self.machine.scenario.roots.get(parts(int(np.min(pointer)))[1])
        if root is not None and not root.symmetric:
            self.machine.problem(
                "symmetric",
                f"{root.name} is not symmetric memory, and rank {int(np.max(rank))} is asked for its copy of it",
                self.task,
                self.sites[number].loc,
                "allocate it by ditron.symm_empty or ditron.symm_zeros (in a program dh.symm_empty, dh.symm_zeros)",
            )

    def _rank_exists(self, number: int, rank: int, given: Any = UNKNOWN, signal: int = NULL) -> bool:
        """Report a rank that does not exist. ``given``: another operand, that may be meant as the rank."""
        if 0 <= rank < self.num_ranks:
            return True
        self.machine.unsendable.add(parts(int(signal))[1])
        swapped = not any_unknown(given) and 0 <= given < self.num_ranks
        what, signature = signature_of(self.sites[number])
        self.machine.problem(
            "rank",
            f"rank {rank} is asked for, of {self.num_ranks}"
            + (f", and {int(given)} is given as {what}: are the two swapped?" if swapped else ""),
            self.task,
            self.sites[number].loc,
            f"the order is {signature}" if swapped else "take the rank modulo num_ranks",
        )
        return False

    # --- signals -------------------------------------------------------------------------------------------------

    def wait(self, number: int, pointer: Any, count: Any, value: Any) -> Generator[Keys, None, Any]:
        if any_unknown(pointer, count, value):
            return self.not_followed(number)
        cells = tuple(int(pointer) + 8 * i for i in range(int(count)))
        return (yield from self._wait(number, cells, value))

    def wait_until(self, number: int, pointer: Any, value: Any) -> Generator[Keys, None, Any]:
        if any_unknown(pointer, value):
            return self.not_followed(number)
        return (yield from self._wait(number, (int(pointer),), value))

    def fetch(self, number: int, pointer: Any) -> Generator[Keys, None, Any]:
        """A signal's value now. What it implies is what a wait for at least that value would: signals only grow."""
        if any_unknown(pointer):
            return self.not_followed(number)
        yield from self._yield()
        yield from self._let_others_run(number, pointer, self.machine.cell(int(pointer)).value)
        value = self.machine.cell(int(pointer)).value
        if any_unknown(value):
            return self.not_followed(number)
        self._has_read(number, pointer, value)
        return (yield from self._wait(number, (int(pointer),), value))

    def _wait(self, number: int, cells: tuple[int, ...], value: int) -> Generator[Keys, None, int]:
        site, task = self.sites[number], self.task
        signals = site.isa(ditron.WaitOp)
        wait = WaitEvent(
            task,
            task.node,
            -1,
            cells,
            site.get("cmp", "ge"),
            int(value),
            site.loc,
            task.call,
            number,
            site.get("scope", "node") if signals else "world",
            site.get("semantic", "acquire") == "acquire",
        )
        if cells:
            span = np.array([[cells[0], cells[-1] + 8]], dtype=np.int64)
            if not self.machine.check_bounds(task, span, False, site.loc):
                return UNKNOWN
            value = yield from self.machine.wait(task, wait)
            if not wait.acquire:
                self._relaxed_reads.append(wait)
            self.machine.access(task, span, False, "a wait", site.loc, site=number, atomic=True)
            return value
        return 0

    def notify(self, number: int, pointer: Any, value: Any, rank: Any) -> None:
        if any_unknown(pointer, value, rank):
            self.not_followed(number)
        elif self._rank_exists(number, rank, value, pointer):
            self._send(number, int(self.group[rank]), None, (pointer, value))

    def put(self, number: int, to: Any, source: Any, nbytes: Any, rank: Any) -> None:
        self._transfer(number, to, source, nbytes, rank, None)

    def put_signal(self, number: int, to: Any, source: Any, nbytes: Any, pointer: Any, value: Any, rank: Any) -> None:
        self.machine.unfenced_stores |= self._unfenced_stores
        self._transfer(number, to, source, nbytes, rank, (pointer, value))

    def _transfer(self, number: int, to: Any, source: Any, nbytes: Any, rank: Any, signal: tuple | None) -> None:
        if any_unknown(to, source, nbytes, rank, *(signal or ())):
            self.not_followed(number)
        elif self._rank_exists(number, rank, signal[1] if signal else nbytes, signal[0] if signal else NULL):
            self._send(number, int(self.group[rank]), (int(to), int(source), int(nbytes)), signal)

    def _send(self, number: int, rank: int, data: tuple[int, int, int] | None, signal: tuple[int, int] | None) -> None:
        """Send data, a signal, or both to a rank."""
        machine, task, site = self.machine, self.task, self.sites[number]
        self._has_changed()
        notify, issued = site.isa(ditron.NotifyOp), task.node
        for there in (data, signal):
            if there is not None:
                self._require_symmetric(number, there[0], rank)
        if data is not None and data[2] > 0:
            to, source, nbytes = data
            own = signal is None or machine.put_orders
            earlier = [issued if own else self._fence, *self._fenced.get(rank, ())]
            lands = machine.send(task, rank, visible=earlier, ordered=[issued])
            here = np.array([[source, source + nbytes]], dtype=np.int64)
            nbi = site.get("nbi", "")
            there = with_rank(np.array([[to, to + nbytes]], dtype=np.int64), rank)
            copy = machine.copied(here, there)
            machine.access(
                task, here, False, "the source of a put", site.loc, site=number, node=lands if nbi else None, copy=copy
            )
            machine.check_copy(task, here, there, "a put", site.loc)
            machine.access(task, there, True, "a put", site.loc, site=number, node=lands, copy=copy)
            self._moved_bytes(here, there, lands, "a put", site.loc)
        if signal is not None:
            pointer, value = with_rank(int(signal[0]), rank), UNKNOWN if task.path else int(signal[1])
            covered = task.pending.get(rank, set()) if notify else self._fenced.get(rank, set())
            if data is not None and data[2] > 0:
                node = machine.send(task, rank, visible=[lands])
            elif notify:
                node = machine.send(task, rank, visible=[issued, *covered])
                task.pending[rank] = {node}
            else:
                node = machine.send(task, rank, visible=[self._fence, *covered], ordered=[issued])
            span = np.array([[pointer, pointer + 8]], dtype=np.int64)
            if machine.check_bounds(task, span, True, site.loc):
                machine.access(task, span, True, "a signal", site.loc, site=number, node=node, atomic=True)
                scope = site.get("scope", "node") if notify else "world"
                if notify and scope != "gpu":
                    machine.graph.published |= {issued, node}
                machine.signal(
                    UpdateEvent(
                        pointer,
                        node,
                        issued,
                        task,
                        site.get("op", "set"),
                        value,
                        site.loc,
                        site.mnemonic,
                        task.call,
                        scope,
                    )
                )
        machine.end_segment(task)

    def get(self, number: int, to: Any, source: Any, nbytes: Any, rank: Any) -> None:
        if any_unknown(to, source, nbytes, rank):
            self.not_followed(number)
            return
        if not self._rank_exists(number, rank, nbytes) or nbytes <= 0:
            return
        rank = int(self.group[rank])
        self._require_symmetric(number, source, rank)
        machine, task, site = self.machine, self.task, self.sites[number]
        node = None
        if site.get("nbi", ""):
            node = machine.graph.add([task.node])
            self._gets.add(node)
        there = with_rank(np.array([[source, source + nbytes]], dtype=np.int64), int(rank))
        here = np.array([[to, to + nbytes]], dtype=np.int64)
        copy = machine.copied(there, here)
        machine.access(task, there, False, "the source of a get", site.loc, site=number, node=node, copy=copy)
        machine.check_copy(task, there, here, "a get", site.loc)
        machine.access(task, here, True, "a get", site.loc, site=number, node=node, copy=copy)
        self._moved_bytes(there, here, task.node if node is None else node, "a get", site.loc)
        self._has_changed()
        machine.end_segment(task)

    def _moved_bytes(self, source: Any, target: Any, node: int, how: str, loc: str) -> None:
        """What is in memory after a put or a get."""
        if self.task.path:
            self.machine.contents.forget(target)
        else:
            self.machine.contents.copy(source, target)
        self.machine.contents_changed(self.task, target, node, how, loc)

    # --- packets -------------------------------------------------------------------------------------------------

    def ll_put(self, number: int, packets: Any, source: Any, nbytes: Any, epoch: Any, rank: Any) -> None:
        """A message that carries its own flag: it orders no other memory."""
        if any_unknown(packets, source, nbytes, epoch, rank):
            self.not_followed(number)
        elif self._rank_exists(number, rank) and self._is_epoch(number, epoch):
            rank = int(self.group[rank])
            self._require_symmetric(number, packets, rank)
            machine, task, site = self.machine, self.task, self.sites[number]
            machine.access(
                task, np.array([[source, source + nbytes]]), False, "the source of packets", site.loc, site=number
            )
            issued, there = task.node, with_rank(int(packets), int(rank))
            node = machine.graph.add([issued])
            machine.access(
                task, _packets(there, nbytes), True, "packets", site.loc, site=number, node=node, atomic=True
            )
            value = UNKNOWN if task.path else int(epoch)
            machine.write_cell(
                UpdateEvent(there, node, issued, task, "set", value, site.loc, "ll_put", task.call, release=False)
            )
            machine.messages[there, value] = int(nbytes), machine.contents.bytes_of(int(source), int(nbytes))
            self._has_changed()
            machine.end_segment(task)

    def ll_get(self, number: int, to: Any, packets: Any, nbytes: Any, epoch: Any) -> Generator[Keys, None, Any]:
        if any_unknown(to, packets, nbytes, epoch):
            return self.not_followed(number)
        if not self._is_epoch(number, epoch):
            return UNKNOWN
        machine, task, site = self.machine, self.task, self.sites[number]
        wait = WaitEvent(
            task, task.node, -1, (int(packets),), "eq", int(epoch), site.loc, task.call, number, acquire=False
        )
        yield from machine.wait(task, wait)
        machine.access(task, _packets(packets, nbytes), False, "packets", site.loc, site=number, atomic=True)
        span = np.array([[to, to + nbytes]])
        machine.access(task, span, True, "unpacked data", site.loc, site=number)
        machine.contents.forget(span)
        sent, message = machine.messages.get((int(packets), int(epoch)), (nbytes, None))
        if sent != nbytes:
            machine.problem(
                "count",
                f"takes {nbytes} bytes of a message of {sent}",
                task,
                site.loc,
                "take as many bytes as are sent: sizes that are exchanged or read from one table",
            )
        elif message is not None and not task.path:
            machine.contents.put(int(to), *message)
        machine.contents_changed(task, span, task.node, "unpacked data", site.loc)
        self._has_changed()
        return UNKNOWN

    def _is_epoch(self, number: int, epoch: int) -> bool:
        """Whether packets of that epoch differ from memory to which none were sent; notes a problem otherwise."""
        if epoch > 0 or self.task.path:
            return True
        self.machine.problem(
            "count",
            f"is given the epoch {epoch}, and epochs begin with 1: packet memory nobody has written to has epoch 0",
            self.task,
            self.sites[number].loc,
            "count calls from 1 on",
        )
        return False

    # --- order ---------------------------------------------------------------------------------------------------

    def fence(self, number: int) -> None:
        self._fenced = {rank: set(nodes) for rank, nodes in self.task.pending.items()}
        self._fence = self.task.node
        self._unfenced_stores.clear()
        self._acquire()

    def quiet(self, number: int) -> None:
        self.machine.end_segment(self.task, self._gets)
        self._gets = set()
        self.machine.quiet(self.task)
        self._fenced, self._fence = {}, self.task.node
        self._unfenced_stores.clear()
        self._acquire()

    def _acquire(self) -> None:
        """As in C++, a fence turns the relaxed reads before it into acquires, and publishes what is before it."""
        node = self.machine.end_segment(self.task, [node for node in self._relaxed_reads if isinstance(node, int)])
        self.machine.graph.published.add(node)
        for wait in self._relaxed_reads:
            if isinstance(wait, WaitEvent):
                wait.fenced = self.task.node
        self._relaxed_reads = []

    def barrier(self, number: int) -> Generator[Keys, None, None]:
        site = self.sites[number]
        if not site.isa(ditron.SyncAllOp):
            self.quiet(number)
        self._has_changed()
        if self.task.path:
            self.machine.doubt(self.task)
            return
        everyone = range(self.machine.scenario.ranks)
        team = {"node": self.local, "world": everyone}.get(site.get("team", "group"), self.group.tolist())
        yield from self.machine.barrier(self.task, ("team", *sorted(team)), team, site.mnemonic, site.loc)
        self._fence = self.task.node


def _packets(pointer: int, nbytes: int) -> np.ndarray:
    """The memory of a message: at least one line of packets."""
    return np.array([[pointer, pointer + packet_bytes(int(nbytes))]], dtype=np.int64)
