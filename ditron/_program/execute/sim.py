"""Programs on simulated ranks: steps are enqueued on the simulator's streams."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ditron._program.execute.loaded import LoadedProgram
from ditron._program.execute.lru import LruCache
from ditron._program.execute.memory import Memory
from ditron._program.trace.dtypes import as_allocated
from ditron_compiler import host
from ditron_compiler.errors import DitronError, SimulationError
from ditron_compiler.lowering.sim.arguments import FLOATS, float_bits

if TYPE_CHECKING:
    import torch

__all__ = ["SimRunner"]


class SimRunner:
    """One program on one simulated rank."""

    def __init__(self, executable: LoadedProgram, group: Any):
        self.executable = executable
        self._group = weakref.ref(group)  # a program keeps runners by group, and keeps no group alive
        self._memories: dict[Any, Memory] = {}
        self._events: dict[Any, Any] = {}  # of the call in progress
        self._overlaps = LruCache(512)

    @property
    def group(self) -> Any:
        return self._group()

    @property
    def view(self) -> Any:
        return self.group.world

    def prepared(self, args: tuple, key: Any) -> Callable[[tuple], None]:
        """What runs calls with such arguments; ``key``: of them."""
        return functools.partial(self._run, key)

    def _run(self, key: Any, args: tuple) -> None:
        for name, value in zip(self.executable.parameters, args, strict=True):
            if not isinstance(value, (int, float)) and value.device.type != "cpu":
                raise DitronError(
                    f"program {self.executable.name!r}: argument {name!r} is on {value.device}, and "
                    "the program runs on the simulator: make tensors on ditron.device()"
                )
        if not self.executable.is_local:
            self._check_shapes(args)
        overlaps = self._overlaps.get(key)
        if overlaps is None:
            overlaps = self._overlaps[key] = self.executable.overlap_check(args)
        overlaps.check([0 if isinstance(value, (int, float)) else value.data_ptr() for value in args])
        storages = self.executable.allocations(args, self.group)
        memory = self._memories.get(storages)
        if memory is None:
            memory = self._memories[storages] = Memory.allocate(self.executable.name, storages, self.group)
        memory.epoch += 1
        try:
            with self.view.timed(self.executable.name):
                for step in self.executable.evaluate(args, self.group, memory.epoch):
                    stream = self.view.stream(step.stream.name, step.stream.index)
                    _STEPS[type(step)](self, step, stream, lambda buffer: self._tensor(buffer, args, memory))
                self.view.synchronize(self.view.stream())
        finally:
            self._events.clear()  # an event holds the world, whose failure may hold the group that this is kept for

    def _check_shapes(self, args: tuple) -> None:
        """Raise where another rank's call of this number has other shapes; allocations need not show it."""
        shapes = [(tuple(value.shape), value.dtype) if hasattr(value, "shape") else None for value in args]
        what = tuple(self.group.ranks), self.executable.name
        rank, others = self.view.compared_with_other_ranks(what, len(self.group.ranks), (self.group.rank, shapes))
        for name, mine, theirs in zip(self.executable.parameters, shapes, others, strict=False):
            if mine != theirs and None not in (mine, theirs):
                raise SimulationError(
                    f"program {self.executable.name!r}: argument {name!r} is {_spell(mine)} on rank {self.group.rank} "
                    f"and {_spell(theirs)} on rank {rank}: all ranks call a program with the same shapes"
                )

    def memories(self) -> list[Memory]:
        """The memory that is kept between calls."""
        return list(self._memories.values())

    @staticmethod
    def _tensor(buffer: Any, args: tuple, memory: Memory) -> torch.Tensor:
        storage = buffer.storage
        whole = as_allocated(args[storage.index]) if storage.kind == "argument" else memory.tensors[storage]
        return whole.as_strided(buffer.shape, buffer.strides, whole.storage_offset() + buffer.offset)

    def _launch(self, step: Any, stream: Any, tensor: Any) -> None:
        kernel = self.view.compile(self.executable.kernel(step.kernel), step.options)
        slots, tensors, pads = [], [], []
        for kind, value in zip(kernel.arg_types, step.args, strict=False):
            if isinstance(value, host.DescriptorView):
                pads.append(int(value.nan_padding))
                value = value.buffer
            if isinstance(value, host.BufferView):
                given = tensor(value)
                slots.append(given.data_ptr())
                tensors.append((value.storage.name, given))
            elif kind in FLOATS:
                slots.append(float_bits(value, kind))
            else:
                slots.append(int(value))
        if kernel.packets:
            given = [slots[argument.index] for argument in kernel.packets]
            self.group.require_packets(kernel.packets, given, step.grid, step.kernel, None)
        slots += [0] * (len(kernel.arg_types) - len(slots)) + pads  # the context, which the simulator does not need
        stream.launch(kernel, step.grid, slots, group=self.group.handle, tensors=tensors, line=step.loc)

    def _call(self, step: Any, stream: Any, tensor: Any) -> None:
        reads, writes = ([tensor(buffer) for buffer in buffers] for buffers in (step.reads, step.writes))
        function = self.executable.function(step)
        stream.call(
            lambda: function([*reads, *writes], step.loc),
            reads,
            writes,
            name=step.callee,
            names=[buffer.storage.name for buffer in (*step.reads, *step.writes)],
            line=step.loc,
        )

    def _rank_copy(self, step: Any, stream: Any, tensor: Any) -> None:
        stream.rank_copy(
            tensor(step.src),
            tensor(step.dst),
            step.peer,
            push=step.push,
            group=self.group.handle,
            names=(step.src.storage.name, step.dst.storage.name),
            line=step.loc,
        )

    def _copy(self, step: Any, stream: Any, tensor: Any) -> None:
        stream.copy(
            tensor(step.src), tensor(step.dst), names=(step.src.storage.name, step.dst.storage.name), line=step.loc
        )

    def _fill(self, step: Any, stream: Any, tensor: Any) -> None:
        stream.fill(tensor(step.dst), step.value, name=step.dst.storage.name, line=step.loc)

    def _signal_write(self, step: Any, stream: Any, tensor: Any) -> None:
        stream.signal_write(
            tensor(step.signal), step.value, op=step.op, peer=step.peer, group=self.group.handle, line=step.loc
        )

    def _signal_wait(self, step: Any, stream: Any, tensor: Any) -> None:
        kernel = self.executable.waits_by_kernel_in_graphs(step)
        stream.signal_wait(tensor(step.signal), step.value, cmp=step.cmp, captured_kernel=kernel, line=step.loc)

    def _record(self, step: Any, stream: Any, tensor: Any) -> None:
        self._events[step.event] = stream.record(line=step.loc)

    def _await(self, step: Any, stream: Any, tensor: Any) -> None:
        stream.wait_event(self._events[step.event], line=step.loc)

    def _barrier(self, step: Any, stream: Any, tensor: Any) -> None:
        stream.barrier(self.group.handle, line=step.loc)


def _spell(shape: tuple) -> str:
    return f"{str(shape[1]).removeprefix('torch.')}{list(shape[0])}"


_STEPS = {
    host.Launch: SimRunner._launch,
    host.Call: SimRunner._call,
    host.RankCopy: SimRunner._rank_copy,
    host.Copy: SimRunner._copy,
    host.Fill: SimRunner._fill,
    host.SignalWrite: SimRunner._signal_write,
    host.SignalWait: SimRunner._signal_wait,
    host.Record: SimRunner._record,
    host.Await: SimRunner._await,
    host.StreamBarrier: SimRunner._barrier,
}
