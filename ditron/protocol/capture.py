"""Captures host code without running its kernels, for the protocol checker.

Host code runs on simulated ranks, but a launch returns at once and computes nothing. Captured are each launch's kernel,
grid and arguments, the buffers, torch's accesses to them, copies and signals on streams, and barriers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ditron.protocol.asserts import cuts_short
from ditron.protocol.captured_stream import CapturedStream, is_integer
from ditron.protocol.host_values import bytes_at
from ditron.protocol.unknown_values import CapturingMode, NothingToPoll, ReadMode
from ditron.sim.host_accesses import byte_ranges
from ditron.sim.plain.launcher import simulated
from ditron.sim.rank import RankView, current_world, enter
from ditron.sim.world import World
from ditron_compiler.protocol import memory
from ditron_compiler.protocol.budget import check_budget
from ditron_compiler.protocol.scenario import (
    HostAccess,
    HostAwait,
    HostBarrier,
    HostFree,
    HostLaunch,
    HostOp,
    HostRecord,
    Scenario,
    UntrackedLaunch,
)
from ditron_compiler.protocol.translate import Kernel
from ditron_compiler.protocol.values import UNKNOWN
from ditron_compiler.source_location import caller_line, raised_at

__all__ = ["CapturedRank", "capture", "is_capturing"]


def is_capturing(rank: RankView | None) -> bool:
    """Whether the host code of a rank is being captured."""
    return isinstance(rank, CapturedRank)


def capture(
    function: Callable[..., Any],
    ranks: int,
    ranks_per_node: int | None = None,
    args: Sequence[Any] = (),
    *,
    resident: int = 132,
    modules: Sequence[Any] = (),
    values: Mapping[int, Any] | None = None,
    sample: int = 0,
) -> Scenario:
    """Run ``function(*args)`` on every rank, launching nothing, and return what it would have done.

    An AssertionError ends a rank's function: nothing was computed, so results are wrong. A note says so when there was
    more to come, as always in a script, which has ``modules``. Other errors are raised.
    ``modules``: what is ``__main__`` on each rank.
    ``values``: by line, what host code reads there of what a kernel computes. ``sample``: torch's seed, unless it is 0.
    """
    world = _CapturingWorld(ranks, ranks_per_node, values=values or {}, resident=resident, races=True)
    world.sample = sample

    def captured_function(*args: Any) -> None:  # its name ends the frames that dependence.py looks at
        if sample:
            torch.manual_seed(sample)
        before = torch.get_rng_state()
        try:
            function(*args)
        except SystemExit:
            reads = current_world().reads
            if reads:
                world.note(f"{reads[-1]}: the script reads what a kernel computes, which does not run here, and ends")
        except NothingToPoll:
            pass
        except AssertionError as error:
            line = raised_at(error)
            note = (
                f"{line}: a check of results, which mean nothing here, ends the "
                f"{'script' if modules else 'function'}; the calls after that are not checked"
            )
            if modules or cuts_short(error):
                world.note(note)
        finally:
            world.has_drawn |= not torch.equal(before, torch.get_rng_state())

    with simulated():
        world.run(captured_function, args, modules)
    return world.scenario()


class _CapturingWorld(World):
    """A world that captures what its ranks do."""

    def __init__(self, ranks: int, ranks_per_node: int | None, values: Mapping[int, Any], **facts: Any):
        super().__init__(ranks, ranks_per_node, 0, **facts)
        self.resident = facts.get("resident", 132)
        self.roots: dict[int, memory.HeapBuffer] = {}
        self.steps: list[list[HostOp]] = [[] for _ in range(ranks)]
        self.kept: list[Any] = []  # tensors: an address is used once
        self.known: dict[int, Any] = {}  # by offset in the heap: the allocation, and its buffer's number
        self.at_offset: dict[int, int] = {}
        self.own: dict[tuple[int, int], int] = {}
        self.calls = [Counter() for _ in range(ranks)]
        self.unseen: list[str] = []
        self.values = values
        self.sample, self.has_drawn = 0, False
        self.unknown: set[int] = set()  # buffers of which a kernel, a copy or a signal may have written the contents

    def _rank_main(self, rank: int, function: Callable[..., Any], args: Sequence[Any]) -> Callable[[], Any]:
        def main() -> Any:
            here = CapturedRank(self, rank)
            enter(here)
            with CapturingMode(here, self.values) as mode, ReadMode(mode, here):
                return function(*args)

        return main

    def note(self, text: str) -> None:
        """Note what is not followed."""
        if text not in self.unseen:
            self.unseen.append(text)

    def new_root(self, name: str, tensor: Any, **facts: Any) -> int:
        number = len(self.roots) + 1
        self.roots[number] = memory.HeapBuffer(
            number, name, tensor.nbytes, tensor.itemsize, tuple(tensor.shape), integer=is_integer(tensor), **facts
        )
        return number

    def scenario(self) -> Scenario:
        calls = max((max(counter.values(), default=1) for counter in self.calls), default=1)
        return Scenario(
            self.size,
            self.ranks_per_node,
            self.roots,
            self.steps,
            self.resident,
            calls,
            self.unseen,
            self.has_drawn,
            tuple(self._addresses()),
        )

    def _addresses(self) -> Iterator[tuple[int, int, int]]:
        """First address, length and the checker's pointer of each buffer of each rank."""
        for (rank, base), number in self.own.items():
            yield base, self.roots[number].nbytes, memory.address(rank, number)
        for offset, number in self.at_offset.items():
            for rank, heap in enumerate(self.heap_bases):
                yield heap + offset, self.roots[number].nbytes, memory.address(rank, number)


class CapturedRank(RankView):
    """A rank whose host code is captured."""

    def __init__(self, world: _CapturingWorld, rank: int):
        super().__init__(world, rank)
        self._streams: dict[tuple[str, int], CapturedStream] = {}
        self._over = 0  # the event that the host has waited for, and by stream the one that it waits for
        self._awaited: dict[str, int] = {}
        self.current: str | None = None  # the stream that launches of host code go to; without, it waits for them
        self.events = 0
        self.host_writes: list[tuple[int, int, int]] = []  # of one operation: number of the step, address, length
        self.reads: list[str] = []  # lines at which host code has read what is not known
        self._unknown: dict[int, Any] = {}  # by address: other memory whose contents are not known, which is kept
        self.call = 0  # number of the program's call, when a program is captured

    @property
    def compile_mode(self) -> str:
        return "protocol checker"

    def compile(self, module: Any, options: Mapping[str, Any]) -> Kernel:
        """In place of machine code: what the checker runs of a mixed module's kernel."""
        from ditron_compiler.protocol.translate import translate_module

        return translate_module(module)

    def add(self, step: HostOp, waits: bool = False) -> None:
        """What the rank's host does next. ``waits``: until it is over, so what follows on any stream is after it."""
        check_budget()
        steps = self._world.steps[self.rank]
        if step.stream and self._awaited.get(step.stream, 0) < self._over:
            self._awaited[step.stream] = self._over
            steps.append(HostAwait(step.stream, step.loc, step.call, self._over))
        steps.append(step)
        if waits and not self.call and any(key != ("", 0) for key in self._streams):
            self._host_waits(step.loc)

    def _host_waits(self, loc: str) -> None:
        """The host knows that its main stream has come here."""
        self.events += 1
        self._over = self.events
        self._world.steps[self.rank].append(HostRecord("", loc, self.call_number(), self._over))

    def stream(self, name: str = "", index: int = 0) -> CapturedStream:
        """As :meth:`RankView.stream`."""
        if (name, index) not in self._streams:
            self._streams[name, index] = CapturedStream(self, name, index)
            if not self.call and sum(key != ("", 0) for key in self._streams) == 1:
                self._host_waits(caller_line())
        return self._streams[name, index]

    def synchronize(self, stream: CapturedStream | None = None) -> None:
        """As :meth:`RankView.synchronize`: host code is on the main stream here."""
        self._join(self._streams.values() if stream is None else [stream])
        if not self.call:
            self._host_waits(caller_line())

    def _join(self, streams: Iterable[CapturedStream]) -> None:
        """Let the main stream be after others."""
        for other in list(streams):
            if other.key:
                self.stream().wait_event(other.record(line=caller_line()), line=caller_line())

    def call_number(self) -> int:
        """Which call this is: as the program says, or as often as the most launched kernel was launched."""
        return self.call or max(self._world.calls[self.rank].values(), default=0) or 1

    def alloc(
        self, shape: Sequence[int], dtype: Any, *, name: str = "", group: Any = None, undefined: bool = False
    ) -> Any:
        tensor = super().alloc(shape, dtype, name=name, group=group, undefined=undefined)
        offset = self._offset(tensor.data_ptr())
        world = self._world
        allocation = world.allocations[offset]
        if world.known.get(offset) is not allocation:
            world.known[offset] = allocation
            world.at_offset[offset] = world.new_root(
                allocation.name, tensor, symmetric=True, zeroed=not undefined, given=False
            )
        return tensor

    def free(self, tensor: Any) -> None:
        root = self._world.at_offset.get(self._offset(tensor.data_ptr()))
        super().free(tensor)
        if root is not None:
            self.add(HostFree("", caller_line(), self.call_number(), root))

    def _offset(self, address: int) -> int:
        return address - self._world.heap_bases[self.rank]

    def host_access(self, address: int, nbytes: int, writes: bool, line: str) -> list:
        pointer = self._known(address)
        if pointer:
            span = np.array([[pointer, pointer + nbytes]], dtype=np.int64)
            reads, written = (None, span) if writes else (span, None)
            name = "a write by the host code" if writes else "a read by the host code"
            self.add(HostAccess("", line, self.call_number(), name, reads, written), waits=True)
            if writes:
                steps = self._world.steps[self.rank]
                number = next(i for i in range(len(steps) - 1, -1, -1) if isinstance(steps[i], HostAccess))
                self.host_writes.append((number, address, nbytes))
        return []

    def fill_host_writes(self, known: bool) -> None:
        """An operation of host code is over: note what it has written, if that is ``known``."""
        steps = self._world.steps[self.rank]
        for number, address, nbytes in self.host_writes if known else ():
            steps[number] = replace(steps[number], contents=bytes_at([(address, nbytes)]))
        self.host_writes.clear()

    def may_race(self, tensor: Any) -> bool:
        """As :meth:`RankView.may_race`: also memory of this rank alone that a launch has been given."""
        return self.is_symmetric(tensor) or (
            type(tensor).__name__ in ("Tensor", "Parameter")
            and (self.rank, tensor.untyped_storage().data_ptr()) in self._world.own
        )

    def note(self, text: str) -> None:
        """Note what is not followed."""
        self._world.note(text)

    @property
    def sample(self) -> int:
        """The number of the sample, where values are drawn."""
        return self._world.sample

    @property
    def has_drawn(self) -> bool:
        """Whether they are."""
        return self._world.has_drawn

    @has_drawn.setter
    def has_drawn(self, drawn: bool) -> None:
        self._world.has_drawn = drawn

    def knows(self, tensor: Any) -> bool:
        """Whether a tensor holds what it would in a run: no kernel, and no copy, may have written to it."""
        if not _has_memory(tensor):
            return True
        return not (self._root(tensor) in self._world.unknown or tensor.untyped_storage().data_ptr() in self._unknown)

    def mark(self, tensor: Any, known: bool) -> None:
        """Note of the memory of a tensor whether its contents are known."""
        if not _has_memory(tensor):
            return
        root, base = self._root(tensor), tensor.untyped_storage().data_ptr()
        if known:
            self._world.unknown.discard(root)
            self._unknown.pop(base, None)
        elif root:
            self._world.unknown.add(root)
        else:
            self._unknown[base] = tensor

    def written(self, span: memory.Span) -> memory.Span:
        """The bytes of ``span``, whose contents are not known from now on."""
        self._world.unknown.update(memory.parts(int(start))[1] for start in span[:, 0])
        return span

    def _root(self, tensor: Any) -> int:
        """The number of the buffer that a tensor is in, or 0."""
        pointer = self._symmetric(tensor.data_ptr()) if self.is_symmetric(tensor) else 0
        return (
            memory.parts(pointer)[1]
            if pointer
            else self._world.own.get((self.rank, tensor.untyped_storage().data_ptr()), 0)
        )

    def _known(self, address: int) -> int:
        """The checker's pointer to an address in memory that it knows of, or 0."""
        pointer = self._symmetric(address)
        if pointer:
            return pointer
        for (rank, base), root in self._world.own.items():
            if rank == self.rank and base <= address < base + self._world.roots[root].nbytes:
                return memory.address(self.rank, root, address - base)
        return 0

    def _symmetric(self, address: int) -> int:
        """The checker's pointer to an address in this rank's symmetric memory, or 0."""
        offset = self._offset(address)
        for start, root in self._world.at_offset.items():
            if start <= offset < start + max(self._world.roots[root].nbytes, 1):
                return memory.address(self.rank, root, offset - start)
        return 0

    def barrier(self, group: Any = None) -> None:
        ranks = tuple(range(self.world_size)) if group is None else tuple(group.ranks)
        self._join(self._streams.values())
        name = "ditron.barrier()" if len(ranks) == self.world_size else f"ditron.barrier() of ranks {list(ranks)}"
        self.add(HostBarrier("", caller_line(), self.call_number(), name, ranks), waits=True)
        super().barrier(group)

    def launch(
        self,
        kernel: Any,
        grid: Sequence[int],
        slots: Sequence[int],
        *,
        group: Any = None,
        tensors: Sequence[tuple[str, Any]] = (),
        stream: str | None = None,
        line: str = "",
    ) -> None:
        line = line or caller_line()
        if not isinstance(kernel, Kernel):
            self._world.note(f"{line}: kernel {kernel.name} is not Python's: its launch is not followed")
            self.add(UntrackedLaunch(stream or self.current or "", line, self.call_number()))
            return
        self._world.calls[self.rank][kernel.name] += 1
        pointers = {tensor.data_ptr(): self.pointer(name, tensor) for name, tensor in tensors}
        values = [_argument(kind, slot, pointers) for kind, slot in zip(kernel.arg_types, [*slots, 0], strict=False)]
        written = values if -1 in kernel.written else [values[n] for n in kernel.written if n < len(values)]
        self._world.unknown.update(
            memory.parts(value)[1] for value in written if isinstance(value, int) and memory.parts(value)[0] >= 0
        )
        if -1 in kernel.written:
            self._world.unknown.update(self._world.at_offset.values())
        extents = tuple([int(extent) for extent in grid] + [1] * (3 - len(grid)))
        call = self.call or self._world.calls[self.rank][kernel.name]
        where = self.current if stream is None else stream
        ranks = () if group is None else tuple(group.ranks)
        self.add(HostLaunch(where or "", line, call, kernel, extents, tuple(values), ranks), waits=where is None)

    def allocated(self, name: str, tensor: Any, zeroed: bool) -> None:
        """Memory of a program, of this rank alone: nothing is in it but zeros, if those."""
        number = len(self._world.roots) + 1
        self._world.roots[number] = memory.HeapBuffer(
            number,
            name,
            tensor.nbytes,
            tensor.itemsize,
            tuple(tensor.shape),
            zeroed=zeroed,
            given=False,
            integer=is_integer(tensor),
        )
        self._world.own[self.rank, tensor.untyped_storage().data_ptr()] = number
        self._world.kept.append(tensor)

    def touch(self, name: str, tensor: Any, *, writes: bool, line: str = "") -> None:
        """Capture an access of host code to a tensor, of whichever memory, on the main stream."""
        span = self.span(name, tensor)
        self.add(
            HostAccess(
                "",
                line or caller_line(),
                self.call_number(),
                f"a {'write' if writes else 'read'} by the caller",
                *((None, span) if writes else (span, None)),
                keeps=True,
            )
        )

    def span(self, name: str, tensor: Any) -> memory.Span:
        """The bytes of a tensor."""
        first = self.pointer(name, tensor)
        rows = [
            [first + address - tensor.data_ptr(), first + address - tensor.data_ptr() + nbytes]
            for address, nbytes in byte_ranges(tensor)
        ]
        return memory.merged(np.array(rows, dtype=np.int64).reshape(-1, 2))

    def pointer(self, name: str, tensor: Any) -> int:
        """The checker's pointer to the beginning of a tensor."""
        pointer = self._symmetric(tensor.data_ptr()) if self.is_symmetric(tensor) else 0
        if pointer:
            return pointer
        base = tensor.untyped_storage().data_ptr()
        key = (self.rank, base)
        if key not in self._world.own:
            self._world.kept.append(tensor)
            number = len(self._world.roots) + 1
            nbytes = tensor.untyped_storage().nbytes()
            integer = is_integer(tensor)
            self._world.roots[number] = memory.HeapBuffer(
                number,
                name,
                nbytes,
                tensor.itemsize,
                tuple(tensor.shape) if tensor.nbytes == nbytes else (),
                integer=integer,
                initial=bytes_at([(base, nbytes)])[0] if integer and nbytes and self.knows(tensor) else None,
            )
            self._world.own[key] = number
        return memory.address(self.rank, self._world.own[key], tensor.data_ptr() - base)


def _has_memory(tensor: Any) -> bool:
    return type(tensor).__name__ in ("Tensor", "Parameter") and tensor.layout == torch.strided


def _argument(kind: str, slot: int, pointers: dict[int, int]) -> Any:
    if kind.startswith(("!tt.ptr", "!tt.tensordesc")):
        return pointers.get(slot, memory.NULL)
    return slot if kind.startswith("i") else UNKNOWN
