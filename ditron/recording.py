"""What a script does with its kernels, written down without running them, for the protocol checker.

The script runs on simulated ranks as ever, but a launch returns at once and computes nothing. What is kept: which kernel
with which grid and arguments, where buffers lie, what torch reads and writes in symmetric memory, and where ranks meet.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ditron.sim import view, world
from ditron.sim.report import script_line
from ditron_compiler.check import memory
from ditron_compiler.check.scenario import Free, HostOp, Launch, Meet, Move, Scenario
from ditron_compiler.check.translate import Kernel
from ditron_compiler.check.values import UNKNOWN

__all__ = ["CHECKED", "record", "translate_module"]

#: What :attr:`RankView.recording` says of a rank that is recorded: kernels are translated for the checker.
CHECKED = "checked"


def record(function: Callable[..., Any], ranks: int, ranks_per_node: int | None = None, args: Sequence[Any] = (), *,
           resident: int = 132) -> Scenario:
    """Run ``function(*args)`` on every rank, launching nothing, and return what it would have done.

    An AssertionError ends a rank's script quietly: nothing was computed, so results are wrong. Other errors are raised.
    """
    recorder = _Recorder(ranks, ranks_per_node, resident=resident, races=True)

    def tolerant(*args: Any) -> None:
        try:
            function(*args)
        except AssertionError:
            pass

    from ditron.sim.plain import simulated
    with simulated():
        recorder.run(tolerant, args)
    return recorder.scenario()


def translate_module(module: Any) -> Kernel:
    """The kernel of a mixed module, for the checker."""
    from ditron_compiler import pipeline
    from ditron_compiler.check.translate import translate
    from ditron_compiler.frontend.modules import kernels_of
    with module.context:
        pipeline.run(module, ["lower-swizzle"])
        (kernel,) = kernels_of(module).values()
        return translate(kernel, module)


class _Recorder(world.World):
    """A world in which launches are written down."""

    def __init__(self, ranks: int, ranks_per_node: int | None, **facts: Any):
        super().__init__(ranks, ranks_per_node, 0, **facts)
        self.resident = facts.get("resident", 132)
        self.roots: dict[int, memory.Root] = {}
        self.steps: list[list[HostOp]] = [[] for _ in range(ranks)]
        self.kept: list[Any] = []  # tensors: an address is used once
        self.known: dict[int, Any] = {}  # by offset in the heap: the allocation, and its buffer's number
        self.at_offset: dict[int, int] = {}
        self.own: dict[tuple[int, int], int] = {}
        self.calls = [Counter() for _ in range(ranks)]
        self.unseen: list[str] = []

    def _rank_main(self, rank: int, function: Callable[..., Any], args: Sequence[Any]) -> Callable[[], Any]:
        def main() -> Any:
            from ditron.sim.script_accesses import watch_script
            here = _View(self, rank)
            view.enter(here)
            with watch_script(here):
                return function(*args)
        return main

    def new_root(self, name: str, tensor: Any, **facts: Any) -> int:
        number = len(self.roots) + 1
        self.roots[number] = memory.Root(number, name, tensor.nbytes, tensor.itemsize, tuple(tensor.shape), **facts)
        return number

    def scenario(self) -> Scenario:
        calls = max((max(counter.values(), default=1) for counter in self.calls), default=1)
        return Scenario(self.size, self.ranks_per_node, self.roots, self.steps, self.resident, calls,
                        notes=self.unseen)


class _View(view.RankView):
    """A rank whose launches are written down."""

    @property
    def recording(self) -> str:
        return CHECKED

    def _add(self, step: HostOp) -> None:
        self._world.steps[self.rank].append(step)

    def _call(self) -> int:
        return max(self._world.calls[self.rank].values(), default=0) or 1

    def alloc(self, shape: Sequence[int], dtype: Any, *, name: str = "", group: Any = None, undefined: bool = False
              ) -> Any:
        tensor = super().alloc(shape, dtype, name=name, group=group, undefined=undefined)
        offset = self._offset(tensor.data_ptr())
        recorder = self._world
        allocation = recorder.allocations[offset]
        if recorder.known.get(offset) is not allocation:
            recorder.known[offset] = allocation
            recorder.at_offset[offset] = recorder.new_root(allocation.name, tensor, symmetric=True,
                                                           zeroed=not undefined, given=False)
        return tensor

    def free(self, tensor: Any) -> None:
        root = self._world.at_offset.get(self._offset(tensor.data_ptr()))
        super().free(tensor)
        if root is not None:
            self._add(Free("", script_line(), self._call(), root))

    def _offset(self, address: int) -> int:
        return address - self._world.heap_bases[self.rank]

    def script_access(self, address: int, nbytes: int, writes: bool, line: str) -> list:
        pointer = self._symmetric(address)
        if pointer:
            span = np.array([[pointer, pointer + nbytes]], dtype=np.int64)
            reads, written = (None, span) if writes else (span, None)
            name = "a write by the script" if writes else "a read by the script"
            self._add(Move("", line, self._call(), name, reads, written))
        return []

    def _symmetric(self, address: int) -> int:
        """The checker's pointer to an address in this rank's symmetric memory, or 0."""
        offset = self._offset(address)
        for start, root in self._world.at_offset.items():
            if start <= offset < start + max(self._world.roots[root].nbytes, 1):
                return memory.address(self.rank, root, offset - start)
        return 0

    def barrier(self, group: Any = None) -> None:
        if group is None or len(group.ranks) == self.world_size:
            self._add(Meet("", script_line(), self._call(), "ditron.barrier()"))
        super().barrier(group)

    def launch(self, kernel: Any, grid: Sequence[int], slots: Sequence[int], *, group: Any = None,
               tensors: Sequence[tuple[str, Any]] = ()) -> None:
        if not isinstance(kernel, Kernel):
            self._world.unseen.append(f"{script_line()}: a plain Triton kernel is not followed")
            return
        if group is not None and len(group.ranks) != self.world_size:
            self._world.unseen.append(f"{script_line()}: a launch in a group of some ranks is not followed")
            return
        self._world.calls[self.rank][kernel.name] += 1
        pointers = {tensor.data_ptr(): self._pointer(name, tensor) for name, tensor in tensors}
        values = [_argument(kind, slot, pointers)
                  for kind, slot in zip(kernel.argument_types, [*slots, 0], strict=False)]
        extents = tuple([int(extent) for extent in grid] + [1] * (3 - len(grid)))
        self._add(Launch("", script_line(), self._world.calls[self.rank][kernel.name], kernel, extents, tuple(values)))

    def _pointer(self, name: str, tensor: Any) -> int:
        pointer = self._symmetric(tensor.data_ptr()) if self.is_symmetric(tensor) else 0
        if pointer:
            return pointer
        base = tensor.untyped_storage().data_ptr()
        key = (self.rank, base)
        if key not in self._world.own:
            self._world.kept.append(tensor)
            number = len(self._world.roots) + 1
            nbytes = tensor.untyped_storage().nbytes()
            self._world.roots[number] = memory.Root(number, name, nbytes, tensor.itemsize,
                                                    tuple(tensor.shape) if tensor.nbytes == nbytes else ())
            self._world.own[key] = number
        return memory.address(self.rank, self._world.own[key], tensor.data_ptr() - base)


def _argument(kind: str, slot: int, pointers: dict[int, int]) -> Any:
    if kind.startswith(("!tt.ptr", "!tt.tensordesc")):
        return pointers.get(slot, memory.NULL)
    return slot if kind.startswith("i") else UNKNOWN
