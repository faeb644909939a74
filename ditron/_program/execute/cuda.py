"""Programs on GPUs: a list of driver calls, planned once per argument shapes and replayed with little Python.

Copies between ranks are made by copy engines on peer pointers, signals are written and awaited by streams. All kernels
are loaded before the first call on any rank: loading code waits for running kernels, which may wait for this rank.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from triton.runtime.errors import OutOfResources

from ditron._program.execute.actions import (
    CAPTURED_VALUES,
    DEVICE_VALUES,
    Action,
    CapturedPlanner,
    CountingPlanner,
    Planner,
    builtin_of,
)
from ditron._program.execute.builtin_kernels import BuiltinPart, builtin_kernel, builtin_sequence
from ditron._program.execute.counts import CapturedCounts
from ditron._program.execute.driver import driver
from ditron._program.execute.epochs import is_counted_by_kernels, linear_steps
from ditron._program.execute.kernels import DeviceKernel, captured_form
from ditron._program.execute.library import Arguments, warm_up
from ditron._program.execute.loaded import LoadedProgram
from ditron._program.execute.lru import LruCache
from ditron._program.execute.memory import Memory
from ditron._program.execute.order import CallOrder
from ditron_compiler import ir
from ditron_compiler.errors import CompileError, DitronError
from ditron_compiler.host.slots import location
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.ir.kernels import launch_options

if TYPE_CHECKING:
    import torch

    from ditron._program.execute.overlaps import OverlapCheck

__all__ = ["CudaRunner"]

_MAX_SHAPES = 512  # of which plans are kept; calls with others plan anew
_MAX_PLANS = 64  # of one set of shapes: by stream and epoch

_streams: dict[tuple[int, str, str, int], torch.cuda.Stream] = {}


def _side_stream(device: Any, group: str, name: str, index: int) -> int:
    """The handle of a named stream: one per GPU, group and name, for all programs.

    Per group, because a stream that waits for a peer of one group must not hold up what another group waits for.
    """
    import torch

    key = (device.index, group, name, index)
    if key not in _streams:
        _streams[key] = torch.cuda.Stream(device)
    return _streams[key].cuda_stream


def _current_stream(device: int) -> int:
    import torch

    return torch._C._cuda_getCurrentRawStream(device)


def _is_capturing() -> bool:
    import torch

    return torch._C._cuda_isCurrentStreamCapturing()


@dataclass
class Shape:
    """State for one set of argument shapes: memory, and actions by stream and by epoch modulo the period."""

    args: tuple  # like those of its calls, without memory
    memory: Memory
    device: _DeviceEpoch
    overlaps: OverlapCheck
    plans: LruCache = field(default_factory=lambda: LruCache(_MAX_PLANS))


@dataclass
class _DeviceEpoch:
    """The epoch on the device, where CUDA graphs can replay it: calls are counted there, from ``before`` on.

    ``counts`` stand for signals that captured calls wait for by memory operations (:mod:`.counts`).
    ``values[:2]`` is the count, of which the larger word holds; the others hold what the program computes from the
    epoch: first that of calls that are not captured, then, from ``used`` on free, that of captured ones.
    """

    values: torch.Tensor
    order: CallOrder  # of the calls with this memory
    before: int = -1  # calls that the host counted before; -1: the host still counts
    later: int = 0  # calls since then that were not captured
    used: int = DEVICE_VALUES
    counts: CapturedCounts = field(default_factory=CapturedCounts)

    def take(self, count: int) -> int | None:
        """The address of ``count`` values for one captured call; None when there are no more."""
        first, self.used = self.used, self.used + count + count % 2  # at a multiple of 16 bytes
        return self.values.data_ptr() + 8 * first if self.used <= self.values.numel() else None


class CudaCall:
    """Calls of a program with arguments of the same shapes."""

    def __init__(self, runner: CudaRunner, shape: Shape):
        self._runner, self._shape = runner, shape

    def __call__(self, args: tuple) -> None:
        bases: list = [value if isinstance(value, (int, float)) else value.data_ptr() for value in args]
        self._shape.overlaps.check(bases)
        if self._runner.executable.functions:
            bases = Arguments(bases, args)
        self._runner.enqueue(self._shape, bases)

    @property
    def takes_tensors(self) -> bool:
        """Whether the program calls functions, with parts of its arguments."""
        return bool(self._runner.executable.functions)

    @property
    def writes(self) -> frozenset[int]:
        """The indices of the arguments that the program may write."""
        return self._shape.overlaps.writes

    def are_apart(self, bases: list) -> bool:
        """Whether tensors at these addresses are known not to overlap where the program writes one."""
        return self._shape.overlaps.are_apart(bases)

    def at(self, bases: list, tensors: Sequence[Any] | None) -> None:
        """Run one with tensors at these addresses, which are apart, and numbers.

        ``tensors``: where functions take them; they may be of other shapes than the arguments they stand for, if they
        begin there and are of their dtypes.
        """
        functions = self._runner.executable.functions
        self._runner.enqueue(self._shape, Arguments(bases, tensors) if functions else bases)


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


class CudaRunner:
    """One program on one rank's GPU."""

    def __init__(self, executable: LoadedProgram, group: Any):
        # The runner dies with the group, and does not keep it alive.
        self.executable, self.group, self.target = executable, weakref.proxy(group), group.target()
        if self.target.backend != "cuda":
            raise DitronError(
                f"program {executable.name!r}: host programs run on NVIDIA's GPUs and on the simulator; "
                f"for {self.target.backend} their kernels compile, and can be launched one by one"
            )
        self.period = executable.period
        self.index = group.device.index
        self._shapes = LruCache(_MAX_SHAPES)
        self._is_loaded = False
        self._memories: dict[Any, tuple[Memory, _DeviceEpoch]] = {}
        self._kernels: dict[Any, DeviceKernel] = {}
        self._events: dict[Any, int] = {}
        self.driver = driver()

    def prepared(self, args: tuple, key: Any) -> CudaCall:
        """What runs calls with such arguments, for which memory and plans are there; ``key``: of the arguments."""
        self.group.before_launch()
        return CudaCall(self, self._shapes.get(key) or self._make_shape(key, args))

    def enqueue(self, shape: Shape, bases: list) -> None:
        """Enqueue a call; ``bases`` are the addresses of its tensors, and its numbers."""
        self.group.before_launch()
        stream, capturing = _current_stream(self.index), _is_capturing()
        if self.executable.is_local:  # it keeps no memory, so that its calls need neither a number nor an order
            with self.driver.unsafe_while_capturing() if capturing else nullcontext():
                actions = self._planned(shape, stream, 0)
            for action in actions:
                action(bases, 0)
        else:
            self._enqueue_ordered(shape, bases, stream, capturing)
        self.group.after_launch()

    def _enqueue_ordered(self, shape: Shape, bases: list, stream: int, capturing: bool) -> None:
        """Enqueue a call with a number, behind the one before it that has its memory."""
        if shape.device.before >= 0 or capturing:
            actions, epoch = self._counted(shape, stream, capturing)
        else:
            epoch = shape.memory.epoch = shape.memory.epoch + 1
            actions = self._planned(shape, stream, epoch)
        shape.device.order.begin(stream, capturing)
        try:
            for action in actions:
                action(bases, epoch)
        except BaseException:
            shape.device.later = 0  # its kernels may not have counted it: the next call is counted before its kernels
            raise
        shape.device.order.end(stream, capturing)
        self.group.after_launch()

    def memories(self) -> list[Memory]:
        """The memory that is kept between calls."""
        return [memory for memory, _ in self._memories.values()]

    def _make_shape(self, key: Any, args: tuple) -> Shape:
        """Plan for new shapes.

        Collective where memory has to be allocated, and in the first call: every rank has loaded when it returns.
        """
        import torch

        for name, value in zip(self.executable.parameters, args, strict=True):
            if not isinstance(value, (int, float)) and value.device != self.group.device:
                raise DitronError(
                    f"program {self.executable.name!r}: argument {name!r} is on {value.device}, and "
                    f"this rank's GPU is {self.group.device}: make tensors on ditron.device()"
                )
        storages, is_first = self.executable.allocations(args, self.group), not self._is_loaded
        if _is_capturing() and (is_first or storages not in self._memories):
            raise DitronError(
                f"program {self.executable.name!r} is captured before it was called with these shapes: "
                "call it once on every rank first, which allocates its memory and loads its kernels"
            )
        self._load()
        if storages not in self._memories:
            memory = Memory.allocate(self.executable.name, storages, self.group)
            values = torch.zeros(DEVICE_VALUES + CAPTURED_VALUES, dtype=torch.int64, device=self.group.device)
            counts = CapturedCounts.allocate(self, storages)
            self._memories[storages] = memory, _DeviceEpoch(values, CallOrder(self.driver), counts=counts)
        like = tuple([value if isinstance(value, (int, float)) else _without_memory(value) for value in args])
        shape = self._shapes[key] = Shape(like, *self._memories[storages], self.executable.overlap_check(args))
        if self.executable.functions and not _is_capturing():
            steps = self.executable.evaluate(args, self.group, shape.memory.epoch + 1)
            main = _current_stream(self.index)
            streams = lambda s: self.side_stream(s.name, s.index) if s.name else main  # noqa: E731
            warm_up(self.executable, steps, streams, self.group.device)
        for ahead in range(1, 1 + (self.period or 1)):
            self._plan(shape, _current_stream(self.index), shape.memory.epoch + ahead)
        if is_first and not self.executable.is_local:
            self.group.barrier()
        return shape

    def _load(self) -> None:
        """Compile and load every kernel of the program, also those that this rank does not launch in this call.

        What fails does so here, before anything waits on a stream.
        """
        if self._is_loaded:
            return
        operations: list[ir.Operation] = []
        self.executable.program.walk(operations.append, ir.WalkOrder.PRE_ORDER)
        for op in operations:
            if isinstance(op, ditron.LaunchOp):
                symbol = op.kernel.value
                try:
                    self.kernel(symbol, tuple(sorted(launch_options(op).items())))
                except OutOfResources as error:
                    place = op.location.file_line_col or (None, 0, 0)
                    raise CompileError(f"kernel {symbol!r} cannot run on this GPU: {error}", *place) from error
            elif (builtin := builtin_of(op, bool(self.group.sanitize))) is not None:
                kind, constants = builtin
                self.builtin(kind, location(op), **constants)
        self._is_loaded = True

    def _planned(self, shape: Shape, stream: int, epoch: int) -> list[Action]:
        """The actions of call ``epoch``."""
        actions = shape.plans.get((epoch % self.period, stream)) if self.period else None
        return self._plan(shape, stream, epoch) if actions is None else actions

    def _plan(self, shape: Shape, stream: int, epoch: int) -> list[Action]:
        """Plan the actions of call ``epoch``, and keep them when they repeat."""
        steps = self.executable.evaluate(shape.args, self.group, epoch)
        if self.period:
            later = epoch + self.period
            linear = linear_steps(epoch, steps, later, self.executable.evaluate(shape.args, self.group, later))
            if linear is None:
                self.period = None  # it does not repeat
            else:
                steps = linear
        actions = Planner(self, shape, stream).actions(steps)
        if self.period:
            shape.plans[epoch % self.period, stream] = actions
        return actions

    def _counted(self, shape: Shape, stream: int, capturing: bool) -> tuple[list[Action], int]:
        """The actions of a call whose number is on the device, where what depends on the epoch is read; and a number.

        The first one that is not captured sets the count, if no replay has; kernels count from there on if they can.
        """
        device = shape.device
        if capturing:
            steps = self._steps_in_graphs(shape)
            if device.before < 0:
                device.before = shape.memory.epoch
            with self.driver.unsafe_while_capturing():
                return CapturedPlanner(self, shape, stream, ahead=True).actions(steps), 0
        actions = shape.plans.get(("counted", stream)) if device.later else None
        if actions is None:
            steps = self._steps_in_graphs(shape)
            kind = CountingPlanner if is_counted_by_kernels(steps) and device.later else CapturedPlanner
            actions = kind(self, shape, stream).actions(steps)
            if device.later:
                shape.plans["counted", stream] = actions
        device.later += 1
        return actions, device.later % 2

    def _steps_in_graphs(self, shape: Shape) -> list:
        """The steps of any call, with linear forms in the epoch; DitronError when a graph cannot hold them."""
        epoch = max(shape.memory.epoch, 1) + 4
        calls = [self.executable.evaluate(shape.args, self.group, epoch + ahead) for ahead in range(2)]
        steps = linear_steps(epoch, calls[0], epoch + 1, calls[1]) if self.period == 1 else None
        if steps is None:
            raise DitronError(
                f"program {self.executable.name!r} cannot be captured in a graph: which memory it uses depends on the "
                "epoch (a slice by dh.epoch() % 2, most likely), and a graph's addresses do not change: "
                "use one workspace, and let its readers signal the writers that they are done (docs/programs.md)"
            )
        return steps

    def kernel(self, symbol: str, options: tuple, pointers: tuple[int, ...] = (), counts: bool = False) -> DeviceKernel:
        """A kernel of the module; the integer parameters ``pointers`` are passed as pointers to them.

        With ``counts`` the one of ``pointers`` is the epoch, which the kernel itself counts.
        """
        key = (symbol, options, pointers, counts)
        if key not in self._kernels:
            text = self.executable.kernel(symbol)
            if pointers:
                text = captured_form(text, pointers, counts)
            self._kernels[key] = DeviceKernel(text, symbol, dict(options), self.target, self.group)
        return self._kernels[key]

    def builtin(self, kind: str, location: str, **constants: Any) -> DeviceKernel:
        """A kernel of ours that implements an operation of the program at ``location``."""
        key = (kind, location, tuple(constants.items()))
        if key not in self._kernels:
            symbol = f"{self.executable.name}_{kind}"
            self._kernels[key] = self._one_warp(builtin_kernel(kind, symbol, location, **constants), symbol)
        return self._kernels[key]

    def builtin_sequence(self, parts: Sequence[BuiltinPart]) -> DeviceKernel:
        """A kernel of ours that implements operations of a stream, one after the other."""
        key = tuple(parts)
        if key not in self._kernels:
            symbol = f"{self.executable.name}_signals"
            self._kernels[key] = self._one_warp(builtin_sequence(symbol, parts), symbol)
        return self._kernels[key]

    def _one_warp(self, text: str, symbol: str) -> DeviceKernel:
        return DeviceKernel(text, symbol, {"num_warps": 1}, self.target, self.group)

    def event(self, event: Any, captures: bool) -> int:
        """The CUDA event for an event of the program."""
        if (event, captures) not in self._events:
            self._events[event, captures] = self.driver.event()
        return self._events[event, captures]

    def side_stream(self, name: str, index: int) -> int:
        """The handle of a named stream."""
        return _side_stream(self.group.device, self.group.name, name, index)
