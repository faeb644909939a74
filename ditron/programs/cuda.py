"""Programs on GPUs: a list of calls of the driver, made once for each kind of call and run with little Python.

Copies between ranks are made by copy engines on peer pointers, signals are written and awaited by streams. What a call
needs is loaded before the first one begins on any rank: loading code waits for kernels that run, which may wait for
this rank.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ditron import checked
from ditron.errors import DitronError
from ditron.programs.driver import WAIT_FLAGS, driver
from ditron.programs.epochs import Affine, affine_steps, affines, period_of
from ditron.programs.executable import Memory
from ditron.programs.kernels import DeviceKernel, added_kernel, by_pointer
from ditron_compiler import host
from ditron_compiler.frontend.targets import Target

if TYPE_CHECKING:
    import torch

    from ditron.programs.executable import Executable

__all__ = ["Runner"]

# One thing to do: with the arguments' addresses and the number of the call.
Action = Callable[[list[int], int], None]

_streams: dict[tuple[int, str, int], torch.cuda.Stream] = {}


def _side_stream(device: Any, name: str, index: int) -> int:
    """The handle of a further stream: one of each name per GPU, for all programs."""
    import torch
    key = (device.index, name, index)
    if key not in _streams:
        _streams[key] = torch.cuda.Stream(device)
    return _streams[key].cuda_stream


def _current_stream(device: int) -> int:
    import torch
    return torch._C._cuda_getCurrentRawStream(device)


def _is_capturing() -> bool:
    import torch
    return torch.cuda.is_current_stream_capturing()


@dataclass
class _Shape:
    """What is known for one set of argument shapes: the memory, and the actions by place in the period and stream."""

    memory: Memory
    device: _DeviceEpoch
    plans: dict[Any, list[Action]] = field(default_factory=dict)


@dataclass
class _DeviceEpoch:
    """The number of the call where graphs can replay it: calls counted on the device, since ``before``.

    ``cells[0]`` is the count; the others hold the numbers of a call that depend on it.
    """

    cells: torch.Tensor
    before: int = -1  # calls that the host had counted; -1: it still counts


_CELLS = 64


class Runner:
    """One program on one rank's GPU."""

    def __init__(self, executable: Executable, group: Any):
        from triton.runtime.driver import driver as triton_driver
        gpu = triton_driver.active.get_current_target()
        if gpu.backend != "cuda":
            raise DitronError(f"program {executable.name!r}: host programs run on NVIDIA's GPUs and on the simulator; for "
                              f"{gpu.backend} their kernels compile, and can be launched one by one")
        self.executable, self.group = executable, group
        self.target = Target(gpu.backend, gpu.arch, group.transport, bool(group.check))
        self.period = period_of(executable.program)
        self.index = group.device.index
        self._shapes: dict[Any, _Shape] = {}
        self._memories: dict[Any, tuple[Memory, _DeviceEpoch]] = {}
        self._kernels: dict[Any, DeviceKernel] = {}
        self._events: dict[Any, int] = {}

    def __call__(self, args: tuple) -> None:
        if self.group.check:
            checked.before_launch(self.group)
        key = tuple([value if type(value) is int else (value.shape, value.stride()) for value in args])
        shape = self._shapes.get(key) or self._make_shape(key, args)
        stream = _current_stream(self.index)
        bases = [0 if type(value) is int else value.data_ptr() for value in args]
        if shape.device.before >= 0 or _is_capturing():
            actions, epoch = self._captured(shape, args, stream), 0
        else:
            epoch = shape.memory.epoch = shape.memory.epoch + 1
            actions = shape.plans.get((epoch % self.period if self.period else 0, stream)) if self.period else None
            if actions is None:
                actions = self._plan(shape, args, stream, epoch)
        for action in actions:
            action(bases, epoch)
        if self.group.check > 1:
            checked.check(self.group)

    def _make_shape(self, key: Any, args: tuple) -> _Shape:
        """Allocate, compile and load for new shapes: collective, and every rank has loaded when it returns."""
        import torch
        for name, value in zip(self.executable.parameters, args, strict=True):
            if type(value) is not int and value.device != self.group.device:
                raise DitronError(f"program {self.executable.name!r}: argument {name!r} lies on {value.device}, and this "
                                  f"rank's GPU is {self.group.device}: make tensors on ditron.device()")
        if _is_capturing():
            raise DitronError(f"program {self.executable.name!r} is captured before it was called with these shapes: call "
                              "it once on every rank first, which allocates its memory and loads its kernels")
        roots = self.executable.roots(args, self.group)
        if roots not in self._memories:
            memory = Memory.allocate(self.executable.name, roots, self.group)
            cells = torch.zeros(_CELLS, dtype=torch.int64, device=self.group.device)
            self._memories[roots] = memory, _DeviceEpoch(cells)
        shape = self._shapes[key] = _Shape(*self._memories[roots])
        for ahead in range(1, 1 + (self.period or 1)):
            self._plan(shape, args, _current_stream(self.index), shape.memory.epoch + ahead)
        self.group.barrier()
        return shape

    def _plan(self, shape: _Shape, args: tuple, stream: int, epoch: int) -> list[Action]:
        """The actions of call ``epoch``, kept when they repeat."""
        steps = self.executable.evaluate(args, self.group, epoch)
        if self.period:
            later = epoch + self.period
            alike = affine_steps(epoch, steps, later, self.executable.evaluate(args, self.group, later))
            if alike is None:
                self.period = None  # nothing repeats after all
            else:
                steps = alike
        actions = _Planner(self, shape, stream).actions(steps)
        if self.period:
            shape.plans[epoch % self.period, stream] = actions
        return actions

    def _captured(self, shape: _Shape, args: tuple, stream: int) -> list[Action]:
        """The actions of a call that can be replayed: what depends on its number is read from the device."""
        key = ("captured", stream)
        if key in shape.plans:
            return shape.plans[key]
        epoch = max(shape.memory.epoch, 1) + 4
        places = [self.executable.evaluate(args, self.group, epoch + ahead) for ahead in range(4)]
        steps = affine_steps(epoch, places[0], epoch + 1, places[1]) if self.period == 1 else None
        if steps is None:
            raise DitronError(
                f"program {self.executable.name!r} cannot be captured in a graph: which memory it uses depends on the number "
                "of the call (a slice by dh.epoch() % 2, most likely), and a graph's addresses do not change: use one "
                "workspace, and let its readers signal the writers that they are done (docs/programs.md)")
        if shape.device.before < 0:
            shape.device.before = shape.memory.epoch
        with driver().unsafe_while_capturing():
            shape.plans[key] = _CapturedPlanner(self, shape, stream).actions(steps)
        return shape.plans[key]

    def kernel(self, symbol: str, options: tuple, pointers: tuple[int, ...] = ()) -> DeviceKernel:
        """A kernel of the module; the parameters ``pointers`` are given by address."""
        key = (symbol, options, pointers)
        if key not in self._kernels:
            text = self.executable.kernel(symbol)
            text = by_pointer(text, pointers) if pointers else text
            self._kernels[key] = DeviceKernel(text, symbol, dict(options), self.target, self.group)
        return self._kernels[key]

    def added(self, kind: str, place: str, **constants: Any) -> DeviceKernel:
        """A kernel that stands for an operation of the program."""
        key = (kind, place, tuple(constants.items()))
        if key not in self._kernels:
            symbol = f"{self.executable.name}_{kind}"
            text = added_kernel(kind, symbol, place, **constants)
            self._kernels[key] = DeviceKernel(text, symbol, {"num_warps": 1}, self.target, self.group)
        return self._kernels[key]

    def event(self, event: Any, captures: bool) -> int:
        """The driver's event for one of the program."""
        if (event, captures) not in self._events:
            self._events[event, captures] = driver().event()
        return self._events[event, captures]


class _Planner:
    """Makes the actions of steps, for calls whose number the host knows."""

    captures = False

    def __init__(self, runner: Runner, shape: _Shape, main: int):
        self.runner, self.shape, self.main, self.driver = runner, shape, main, driver()
        self.group = runner.group

    def actions(self, steps: list) -> list[Action]:
        made = (_STEPS[type(step)](self, step, self._stream(step.stream)) for step in steps)
        return [action for action in made if action is not None]

    def _stream(self, stream: Any) -> int:
        return self.main if not stream.name else _side_stream(self.group.device, stream.name, stream.index)

    # Addresses: of what the program allocated they are known; an argument's comes with each call.

    def _place(self, buffer: Any) -> tuple[int, int]:
        """(argument, byte offset), or (-1, address)."""
        nbytes = buffer.offset * _itemsize(buffer)
        if buffer.root.kind == "argument":
            return buffer.root.index, nbytes
        return -1, self.shape.memory.tensors[buffer.root].data_ptr() + nbytes

    def _at(self, buffer: Any, peer: int) -> int:
        """The address of symmetric memory of a peer."""
        heap = self.group.heap
        base = heap.peer_bases[peer]
        if not base:
            raise DitronError(f"rank {peer} is on another node, whose memory copies and streams do not reach: host programs "
                              "run on the ranks of one node")
        return self._place(buffer)[1] - heap.base + base

    def _launch(self, step: Any, stream: int) -> Action:
        kernel = self._kernel_of(step)
        grid = step.grid
        template, pointers, numbers = [], [], []
        for position, value in enumerate(step.args):
            if isinstance(value, host.Buffer):
                argument, value = self._place(value)
                if argument >= 0:
                    pointers.append((position, argument, value))
            elif isinstance(value, Affine):
                value = self._number_of(position, value, numbers)
            template.append(value)
        template += [self.group.context.data_ptr()] * (len(kernel.parameters) - len(template))
        launch = kernel.launch

        def action(bases: list[int], epoch: int) -> None:
            arguments = template.copy()
            for position, argument, offset in pointers:
                arguments[position] = bases[argument] + offset
            for position, slope, offset in numbers:
                arguments[position] = slope * epoch + offset
            launch(grid, stream, arguments)

        return action

    def _kernel_of(self, step: Any) -> DeviceKernel:
        return self.runner.kernel(step.kernel, _options(step))

    def _number_of(self, position: int, value: Affine, numbers: list) -> int:
        numbers.append((position, value.slope, value.offset))
        return 0

    def _rank_copy(self, step: Any, stream: int) -> Action | None:
        src = self._place(step.src) if step.push else (-1, self._at(step.src, step.peer))
        dst = (-1, self._at(step.dst, step.peer)) if step.push else self._place(step.dst)
        return self._transfer(step, src, dst, stream)

    def _copy(self, step: Any, stream: int) -> Action | None:
        return self._transfer(step, self._place(step.src), self._place(step.dst), stream)

    def _transfer(self, step: Any, src: tuple[int, int], dst: tuple[int, int], stream: int) -> Action | None:
        (from_, at), (to, there) = src, dst
        width, height, src_pitch, dst_pitch = _rows(step)
        if width * height == 0:
            return None
        copy, copy_rows = self.driver.copy, self.driver.copy_rows
        rows = self.driver.rows(width, height, src_pitch, dst_pitch) if height > 1 else None

        def action(bases: list[int], epoch: int) -> None:
            source = at if from_ < 0 else bases[from_] + at
            target = there if to < 0 else bases[to] + there
            if rows is None:
                copy(target, source, width, stream)
            else:
                copy_rows(rows, target, source, stream)

        return action

    def _fill(self, step: Any, stream: int) -> Action | None:
        argument, at = self._place(step.dst)
        size = _itemsize(step.dst)
        (width, height, _, pitch), bits = _rows(step, "dst", "dst"), _bits(step.value, step.dst)
        fill = self.driver.fill
        if width * height == 0:
            return None
        return lambda bases, epoch: fill(at if argument < 0 else bases[argument] + at, bits, size, width // size, height,
                                         pitch, stream)

    def _signal_write(self, step: Any, stream: int) -> Action:
        if step.op == "add":
            return self._add(step, stream)
        address, write, value = self._at(step.signal, step.peer), self.driver.write_value, step.value
        if not isinstance(value, Affine):
            return lambda bases, epoch: write(address, value, stream)
        slope, offset = value.slope, value.offset
        return lambda bases, epoch: write(address, slope * epoch + offset, stream)

    def _add(self, step: Any, stream: int) -> Action:
        kernel, place = self.runner.added("add_value", step.loc), self._place(step.signal)[1]
        return self._small(kernel, stream, [place, step.value, step.peer])

    def _signal_wait(self, step: Any, stream: int) -> Action:
        flags = WAIT_FLAGS.get(step.cmp)
        if flags is None or self.group.check:  # the driver's wait has neither the comparison nor a limit
            kernel = self.runner.added("wait_value", step.loc, CMP=step.cmp)
            return self._small(kernel, stream, [self._place(step.signal)[1], step.value])
        address, wait, value = self._place(step.signal)[1], self.driver.wait_value, step.value
        if not isinstance(value, Affine):
            return lambda bases, epoch: wait(address, value, flags, stream)
        slope, offset = value.slope, value.offset
        return lambda bases, epoch: wait(address, slope * epoch + offset, flags, stream)

    def _small(self, kernel: DeviceKernel, stream: int, values: list) -> Action:
        """A launch of one program of an added kernel."""
        template = [*values, *[self.group.context.data_ptr()] * (len(kernel.parameters) - len(values))]
        numbers = [(i, v.slope, v.offset) for i, v in enumerate(values) if isinstance(v, Affine)]

        def action(bases: list[int], epoch: int) -> None:
            arguments = template.copy()
            for position, slope, offset in numbers:
                arguments[position] = slope * epoch + offset
            kernel.launch((1, 1, 1), stream, arguments)

        return action

    def _record(self, step: Any, stream: int) -> Action:
        event, record = self.runner.event(step.event, self.captures), self.driver.record
        return lambda bases, epoch: record(event, stream)

    def _await(self, step: Any, stream: int) -> Action:
        event, wait = self.runner.event(step.event, self.captures), self.driver.wait_event
        return lambda bases, epoch: wait(event, stream)

    def _barrier(self, step: Any, stream: int) -> Action:
        return self._small(self.runner.added("barrier", step.loc), stream, [])


class _CapturedPlanner(_Planner):
    """Makes the actions of steps that a graph can replay: each number of the call is a cell on the device."""

    captures = True

    def actions(self, steps: list) -> list[Action]:
        self.cells = {pair: index for index, pair in enumerate(dict.fromkeys((a.slope, a.offset) for a in affines(steps)))}
        if len(self.cells) >= _CELLS:
            raise DitronError(f"program {self.runner.executable.name!r} has {len(self.cells)} numbers that depend on the "
                              f"epoch, and a captured one can have {_CELLS - 1}")
        epoch = self.shape.device
        count = epoch.cells.data_ptr()
        advance = self.runner.added("advance", steps[0].loc, SLOPES=tuple(slope for slope, _ in self.cells),
                                    OFFSETS=tuple(offset for _, offset in self.cells))
        first = self._small(advance, self.main, [count, count + 8, epoch.before])
        return [first, *super().actions(steps)]

    def _cell(self, value: Affine) -> int:
        return self.shape.device.cells.data_ptr() + 8 * (1 + self.cells[value.slope, value.offset])

    def _kernel_of(self, step: Any) -> DeviceKernel:
        pointers = tuple(index for index, value in enumerate(step.args) if isinstance(value, Affine))
        return self.runner.kernel(step.kernel, _options(step), pointers)

    def _number_of(self, position: int, value: Affine, numbers: list) -> int:
        return self._cell(value)

    def _signal_write(self, step: Any, stream: int) -> Action:
        if step.op != "add" and isinstance(step.value, Affine):
            address, cell, copy = self._at(step.signal, step.peer), self._cell(step.value), self.driver.copy
            return lambda bases, epoch: copy(address, cell, 8, stream)
        kind, value = ("add_cell", self._cell(step.value)) if isinstance(step.value, Affine) else ("add_value", step.value)
        if step.op != "add":
            raise DitronError(f"{step.loc}: a captured program sets a signal to what grows with dh.epoch(), not to {value}")
        return self._small(self.runner.added(kind, step.loc), stream, [self._place(step.signal)[1], value, step.peer])

    def _signal_wait(self, step: Any, stream: int) -> Action:
        if not isinstance(step.value, Affine):
            kernel, value = self.runner.added("wait_value", step.loc, CMP=step.cmp), step.value
        else:
            kernel, value = self.runner.added("wait_cell", step.loc, CMP=step.cmp), self._cell(step.value)
        return self._small(kernel, stream, [self._place(step.signal)[1], value])


_STEPS = {host.Launch: lambda p, s, on: p._launch(s, on), host.RankCopy: lambda p, s, on: p._rank_copy(s, on),
          host.Copy: lambda p, s, on: p._copy(s, on), host.Fill: lambda p, s, on: p._fill(s, on),
          host.SignalWrite: lambda p, s, on: p._signal_write(s, on), host.SignalWait: lambda p, s, on: p._signal_wait(s, on),
          host.Record: lambda p, s, on: p._record(s, on), host.Await: lambda p, s, on: p._await(s, on),
          host.StreamBarrier: lambda p, s, on: p._barrier(s, on)}


def _options(step: Any) -> tuple:
    return tuple(sorted(step.options.items()))


def _itemsize(buffer: Any) -> int:
    from ditron.programs.dtypes import from_mlir
    return from_mlir(buffer.dtype).itemsize


def _bits(value: Any, buffer: Any) -> int:
    """The bits of one element."""
    import torch

    from ditron.programs.dtypes import from_mlir
    one = torch.tensor([value], dtype=from_mlir(buffer.dtype))
    return int.from_bytes(bytes(one.view(torch.uint8).tolist()), "little")


def _rows(step: Any, src: str = "src", dst: str = "dst") -> tuple[int, int, int, int]:
    """A transfer as rows: bytes of a row, rows, and the bytes from one row to the next in the source and the target."""
    source, target = getattr(step, src), getattr(step, dst)
    size = _itemsize(source)
    merged: list[list[int]] = []  # extent, stride in the source, stride in the target; innermost first
    for extent, *strides in zip(source.shape, source.strides, target.strides, strict=True):
        merged = [[extent, *strides], *merged] if extent != 1 else merged
    if any(extent == 0 for extent, *_ in merged):
        return 0, 0, 0, 0
    dims: list[list[int]] = []
    for extent, a, b in merged:
        if dims and a == dims[-1][0] * dims[-1][1] and b == dims[-1][0] * dims[-1][2]:
            dims[-1][0] *= extent
        else:
            dims.append([extent, a, b])
    dims = [[1, 1, 1], *dims] if not dims or dims[0][1:] != [1, 1] else dims
    if len(dims) > 2:
        raise DitronError(f"{step.loc}: a copy moves elements that lie together, or rows of them; {source.shape} with strides "
                          f"{source.strides} and {target.strides} is neither")
    (width, *_), (height, a, b) = dims[0], dims[1] if len(dims) > 1 else (1, 0, 0)
    return width * size, height, a * size, b * size
