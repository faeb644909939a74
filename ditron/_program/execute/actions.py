"""Steps of a program as calls of the CUDA driver, planned ahead so that a call costs little Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ditron._program.execute.builtin_kernels import BuiltinPart
from ditron._program.execute.driver import WAIT_FLAGS
from ditron._program.execute.epochs import EPOCH, is_counted_by_kernels, linear_numbers
from ditron._program.execute.library import on_stream, tensor_of
from ditron._program.execute.residency import sm_limits, warn_of_waits_without_a_place
from ditron._program.execute.signal_runs import SignalRun, join_signals
from ditron._program.trace.dtypes import from_mlir
from ditron_compiler import host, ir
from ditron_compiler.analysis.linear import Polynomial
from ditron_compiler.errors import DitronError
from ditron_compiler.host.rows import PitchedRows, pitched_rows
from ditron_compiler.host.slots import location
from ditron_compiler.ir.dialects import ditron

if TYPE_CHECKING:
    import torch

    from ditron._program.execute.driver import Driver
    from ditron._program.execute.kernels import DeviceKernel
    from ditron._program.execute.loaded import LoadedProgram
    from ditron._program.execute.memory import Memory
    from ditron.distributed.gpu_group import GpuGroup

__all__ = ["CAPTURED_VALUES", "DEVICE_VALUES", "Action", "CapturedPlanner", "CountingPlanner", "Planner", "builtin_of"]

# One driver call, given the arguments' addresses (of numbers, their values) and the epoch.
Action = Callable[[list[int], int], None]

# int64 values on the device: the count of calls, two words, and what one call computes from it.
DEVICE_VALUES = 64
# The same for as many captured calls as fit; those that do not share the first.
CAPTURED_VALUES = 16384


def builtin_of(op: ir.Operation, sanitize: bool) -> tuple[str, dict[str, str]] | None:
    """The built-in kernel, and its constants, that carries out an operation where the host knows the epoch.

    None where the driver does.
    """
    if isinstance(op, ditron.SignalWaitOp):
        return wait_kernel(str(op.cmp), sanitize)
    if isinstance(op, ditron.SignalWriteOp) and str(op.op) == "add":
        return "add_value", {}
    return ("barrier", {}) if isinstance(op, ditron.StreamBarrierOp) else None


def wait_kernel(cmp: str, sanitize: bool) -> tuple[str, dict[str, str]] | None:
    """The built-in kernel that waits for a signal: the driver's wait has neither all comparisons nor a time limit."""
    return ("wait_value", {"CMP": cmp}) if cmp not in WAIT_FLAGS or sanitize else None


class Resources(Protocol):
    """What loads kernels and creates streams and events for a program on one GPU."""

    executable: LoadedProgram
    group: GpuGroup
    driver: Driver

    def kernel(
        self, symbol: str, options: tuple, pointers: tuple[int, ...] = (), counts: bool = False
    ) -> DeviceKernel: ...
    def builtin(self, kind: str, location: str, **constants: Any) -> DeviceKernel: ...
    def builtin_sequence(self, parts: Sequence[BuiltinPart]) -> DeviceKernel: ...
    def event(self, event: Any, captures: bool) -> int: ...
    def side_stream(self, name: str, index: int) -> int: ...


class ShapeMemory(Protocol):
    """The memory of a program for one set of argument shapes."""

    memory: Memory
    device: Any


class Planner:
    """Plans the actions of steps, for calls whose epoch the host knows."""

    captures = False

    def __init__(self, runner: Resources, shape: ShapeMemory, main: int):
        self.runner, self.shape, self.main, self.driver = runner, shape, main, runner.driver
        self.group = runner.group

    def actions(self, steps: list) -> list[Action]:
        planned = (getattr(self, _STEPS[type(step)])(step, self._stream(step.stream)) for step in steps)
        return [action for action in planned if action is not None]

    def _stream(self, stream: Any) -> int:
        return self.main if not stream.name else self.runner.side_stream(stream.name, stream.index)

    # Addresses of what the program allocated are known; those of arguments come with each call.

    def _address(self, buffer: Any) -> tuple[int, int]:
        """(index of an argument, byte offset), or (-1, address)."""
        nbytes = buffer.offset * _itemsize(buffer)
        if buffer.storage.kind == "argument":
            return buffer.storage.index, nbytes
        return -1, self.shape.memory.tensors[buffer.storage].data_ptr() + nbytes

    def _peer_address(self, buffer: Any, peer: int) -> int:
        """The address of a symmetric buffer of a peer."""
        heap = self.group.heap
        base = heap.peer_bases[peer]
        if not base:  # on this node, or the evaluator would have refused it
            raise DitronError(
                f"the memory of rank {peer} is not mapped on this rank's GPU: host programs need GPUs "
                "that reach each other (NVLink, or peer access over PCIe)"
            )
        return self._address(buffer)[1] - heap.base + base

    def _launch(self, step: Any, stream: int) -> Action:
        kernel = self._beside_others(self._kernel_of(step), stream)
        grid = step.grid
        template, pointers, numbers, descriptors = [], [], [], []
        for position, value in enumerate(step.args):
            if isinstance(value, host.DescriptorView):
                encode = kernel.encoder(position, value)
                argument, address = self._address(value.buffer)
                if argument >= 0:
                    descriptors.append((position, argument, address, encode))
                value = encode(address) if argument < 0 else None
            elif isinstance(value, host.BufferView):
                argument, value = self._address(value)
                if argument >= 0:
                    pointers.append((position, argument, value))
            elif isinstance(value, Polynomial):
                value = self._number_of(position, value, numbers)
            elif isinstance(value, host.FloatArgument):
                pointers.append((position, value.index, 0))
            template.append(value)
        template += [self.group.context.data_ptr()] * (len(kernel.parameters) - len(template))
        launch = kernel.launch

        def action(bases: list[int], epoch: int) -> None:
            arguments = template.copy()
            for position, argument, offset in pointers:
                arguments[position] = bases[argument] + offset
            for position, argument, offset, encode in descriptors:
                arguments[position] = encode(bases[argument] + offset)
            for position, slope, offset in numbers:
                arguments[position] = slope * epoch + offset
            launch(grid, stream, arguments)

        return action

    def _kernel_of(self, step: Any) -> DeviceKernel:
        return self.runner.kernel(step.kernel, _options(step))

    def _beside_others(self, kernel: DeviceKernel, stream: int) -> DeviceKernel:
        """The kernel, to be launched on ``stream``, where others may run beside it: kernels of the caller's stream, or
        the next one of its own.
        """
        if stream != self.main or kernel.lets_next_begin:
            kernel.leave_shared_memory(self.driver)
        return kernel

    def _call(self, step: Any, stream: int) -> Action:
        function, memory = self.runner.executable.function(step), self.shape.memory
        buffers, device = (*step.reads, *step.writes), self.group.device

        def action(bases: list[int], epoch: int) -> None:
            tensors = [tensor_of(buffer, bases.tensors, memory) for buffer in buffers]  # type: ignore[attr-defined]
            with on_stream(stream, device):
                function(tensors, step.loc)

        return action

    def _number_of(self, position: int, value: Polynomial, numbers: list) -> int:
        numbers.append((position, *_slope_and_offset(value)))
        return 0

    def _rank_copy(self, step: Any, stream: int) -> Action | None:
        src = self._address(step.src) if step.push else (-1, self._peer_address(step.src, step.peer))
        dst = (-1, self._peer_address(step.dst, step.peer)) if step.push else self._address(step.dst)
        return self._transfer(step, src, dst, stream)

    def _copy(self, step: Any, stream: int) -> Action | None:
        return self._transfer(step, self._address(step.src), self._address(step.dst), stream)

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
        argument, at = self._address(step.dst)
        size = _itemsize(step.dst)
        (width, height, _, pitch), bits = _rows(step, "dst", "dst"), _bits(step.value, step.dst)
        fill = self.driver.fill
        if width * height == 0:
            return None
        return lambda bases, epoch: fill(
            at if argument < 0 else bases[argument] + at, bits, size, width // size, height, pitch, stream
        )

    def _signal_write(self, step: Any, stream: int) -> Action:
        if step.op == "add":
            return self._add(step, stream)
        address, write, value = self._peer_address(step.signal, step.peer), self.driver.write_value, step.value
        if not isinstance(value, Polynomial):
            return lambda bases, epoch: write(address, value, stream)
        slope, offset = _slope_and_offset(value)
        return lambda bases, epoch: write(address, slope * epoch + offset, stream)

    def _add(self, step: Any, stream: int) -> Action:
        kernel, signal = self.runner.builtin("add_value", step.loc), self._address(step.signal)[1]
        return self._single(kernel, stream, [signal, step.value, step.peer])

    def _signal_wait(self, step: Any, stream: int) -> Action:
        if (builtin := wait_kernel(step.cmp, bool(self.group.sanitize))) is not None:
            kind, constants = builtin
            kernel = self.runner.builtin(kind, step.loc, **constants)
            return self._single(kernel, stream, [self._address(step.signal)[1], step.value])
        flags = WAIT_FLAGS[step.cmp]
        address, wait, value = self._address(step.signal)[1], self.driver.wait_value, step.value
        if not isinstance(value, Polynomial):
            return lambda bases, epoch: wait(address, value, flags, stream)
        slope, offset = _slope_and_offset(value)
        return lambda bases, epoch: wait(address, slope * epoch + offset, flags, stream)

    def _single(self, kernel: DeviceKernel, stream: int, values: list) -> Action:
        """A launch of one program of a built-in kernel."""
        self._beside_others(kernel, stream)
        template = [*values, *[self.group.context.data_ptr()] * (len(kernel.parameters) - len(values))]
        numbers = [(i, *_slope_and_offset(v)) for i, v in enumerate(values) if isinstance(v, Polynomial)]

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
        return self._single(self.runner.builtin("barrier", step.loc), stream, [])


class CapturedPlanner(Planner):
    """Plans actions that a CUDA graph can replay: what depends on the epoch is read from device memory.

    With ``ahead``, the values of this call have memory of their own and are computed on a stream of their own, on which
    captured calls follow each other: in a graph that is done long before the call begins.
    """

    captures = True

    def __init__(self, runner: Resources, shape: Any, stream: int, ahead: bool = False):
        super().__init__(runner, shape, stream)
        self.ahead = ahead
        self.counts, self.clears_waits = shape.device.counts, True
        self.wait_kernels: list[tuple[Any, DeviceKernel]] = []  # waits that are kernels
        self.kernels_count = False  # whether launches take the count of calls before, and not what they need

    def actions(self, steps: list) -> list[Action]:
        self.kernels_count = is_counted_by_kernels(steps)
        needed = [(1, -1), (1, 0)] if self.kernels_count else self._needed(steps)
        self.values = {pair: index for index, pair in enumerate(dict.fromkeys(needed))}
        if len(self.values) > DEVICE_VALUES - 2:
            raise DitronError(
                f"program {self.runner.executable.name!r} has {len(self.values)} values that depend on "
                f"the epoch, and a captured one can have {DEVICE_VALUES - 2}"
            )
        epoch = self.shape.device
        count = epoch.values.data_ptr()
        own = epoch.take(len(self.values)) if self.ahead else None
        self.first_value = count + 16 if own is None else own
        advance = self.runner.builtin(
            "advance",
            location(self.runner.executable.program),  # without a step the call counts, too
            SLOPES=tuple(slope for slope, _ in self.values),
            OFFSETS=tuple(offset for _, offset in self.values),
        )
        arguments = [count, self.first_value, epoch.before]
        begin = self._single(advance, self.main, arguments) if own is None else self._advance_ahead(advance, arguments)
        return [begin, *self._after_counting(steps)]

    def _needed(self, steps: list) -> list[tuple[int, int]]:
        """The linear forms of the epoch whose values the steps take from the device."""
        needed = [_slope_and_offset(number) for number in linear_numbers(steps)]
        needed += [
            (0, step.value)
            for step in steps
            if isinstance(step, host.SignalWrite) and not isinstance(step.value, Polynomial)
        ]
        return needed

    def _after_counting(self, steps: list) -> list[Action]:
        self.clears_waits = self.counts.clears_waits(steps)
        clear = [] if self.clears_waits else [self._clear(tensor) for tensor in self.counts.tensors.values()]
        planned = super().actions(join_signals(steps, lambda wait: self._growth(wait) is None))
        launches = [s for s in steps if isinstance(s, host.Launch) and self.runner.executable.has_waits(s.kernel)]
        if launches and self.wait_kernels:
            warn_of_waits_without_a_place(
                self.runner.executable.name,
                sm_limits(self.group.device),
                [(step, self._kernel_of(step)) for step in launches],
                self.wait_kernels,
            )
        return [*clear, *planned, *clear]

    def _address(self, buffer: Any) -> tuple[int, int]:
        counts = self.counts.tensors.get(buffer.storage)
        return super()._address(buffer) if counts is None else (-1, counts.data_ptr() + 8 * buffer.offset)

    def _clear(self, counts: torch.Tensor) -> Action:
        fill, address, number, main = self.driver.fill, counts.data_ptr(), counts.numel(), self.main
        return lambda bases, epoch: fill(address, 0, 8, number, 1, 0, main)

    def _advance_ahead(self, advance: DeviceKernel, arguments: list) -> Action:
        """Compute the call's values on the stream for that; it joins the capture when it is first used in it."""
        stream, main, driver = self.runner.side_stream("count of captured calls", 0), self.main, self.driver
        launch = self._single(advance, stream, arguments)
        begun, done = (self.runner.event(name, self.captures) for name in ("call begins", "values are computed"))

        def action(bases: list[int], epoch: int) -> None:
            if driver.capture_of(stream) != driver.capture_of(main):
                driver.record(begun, main)
                driver.wait_event(begun, stream)
            launch(bases, epoch)
            driver.record(done, stream)
            driver.wait_event(done, main)

        return action

    def _value_address(self, value: int | Polynomial) -> int:
        """The address of a number."""
        pair = _slope_and_offset(value) if isinstance(value, Polynomial) else (0, value)
        return self.first_value + 8 * self.values[pair]

    def _kernel_of(self, step: Any) -> DeviceKernel:
        pointers = tuple(index for index, value in enumerate(step.args) if isinstance(value, Polynomial))
        return self.runner.kernel(step.kernel, _options(step), pointers, counts=bool(pointers) and self.kernels_count)

    def _number_of(self, position: int, value: Polynomial, numbers: list) -> int:
        return self.first_value if self.kernels_count else self._value_address(value)

    def _growth(self, wait: host.SignalWait) -> int | None:
        """By what a call adds to the signal, if the wait is a memory operation of the stream; else None."""
        return self.counts.growth.get(wait.signal.storage)

    def _signal_write(self, step: Any, stream: int) -> Action:
        value = self._value_address(step.value)
        if step.op == "add":
            kernel = self.runner.builtin("add_loaded", step.loc)
            return self._single(kernel, stream, [self._address(step.signal)[1], value, step.peer])
        address, copy = self._peer_address(step.signal, step.peer), self.driver.copy
        return lambda bases, epoch: copy(address, value, 8, stream)

    def _signal_wait(self, step: Any, stream: int) -> Action:
        if (growth := self._growth(step)) is not None:
            address, batch = self._address(step.signal)[1], self.driver.batch
            wait = self.driver.count_wait(address, growth, self.clears_waits)
            return lambda bases, epoch: batch(wait, stream)
        kind, value = self._wait(step)
        kernel = self.runner.builtin(kind, step.loc, CMP=step.cmp)
        self.wait_kernels.append((step, kernel))
        return self._single(kernel, stream, [self._address(step.signal)[1], value])

    def _wait(self, step: host.SignalWait) -> tuple[str, int]:
        """The built-in kernel that waits, and what it is given: a number, or the address of one."""
        if isinstance(step.value, Polynomial):
            return "wait_loaded", self._value_address(step.value)
        return "wait_value", step.value

    def _signal_run(self, run: SignalRun, stream: int) -> Action:
        parts: list[BuiltinPart] = []
        values: list[int] = []
        for step in run.steps:
            signal = self._address(step.signal)[1]
            if isinstance(step, host.SignalWait):
                kind, value = self._wait(step)
                parts.append(BuiltinPart(kind, step.loc, ("CMP", step.cmp)))
                values += [signal, value]
            else:  # the fence of the first write is one for all
                parts.append(BuiltinPart("write_loaded", step.loc, ("RELEASES", not parts)))
                values += [signal, self._value_address(step.value), step.peer]
        kernel = self.runner.builtin_sequence(parts)
        self.wait_kernels.append((run.first_wait, kernel))
        return self._single(kernel, stream, values)


class CountingPlanner(CapturedPlanner):
    """Plans actions of calls that are not captured, of a program that has been, whose kernels count them.

    The number that actions are given is that of the call modulo 2: which of the count's two words the kernels read.
    """

    def actions(self, steps: list) -> list[Action]:
        self.kernels_count = True
        return self._after_counting(steps)

    def _number_of(self, position: int, value: Polynomial, numbers: list) -> int:
        numbers.append((position, 8, self.shape.device.values.data_ptr()))
        return 0


_STEPS = {
    host.Launch: "_launch",
    host.Call: "_call",
    host.RankCopy: "_rank_copy",
    host.Copy: "_copy",
    host.Fill: "_fill",
    host.SignalWrite: "_signal_write",
    host.SignalWait: "_signal_wait",
    host.Record: "_record",
    host.Await: "_await",
    host.StreamBarrier: "_barrier",
    SignalRun: "_signal_run",
}


def _slope_and_offset(value: Polynomial) -> tuple[int, int]:
    """Of a linear form in the epoch."""
    return value.coefficient(EPOCH), value.constant_term


def _options(step: Any) -> tuple:
    return tuple(sorted(step.options.items()))


def _itemsize(buffer: Any) -> int:
    return from_mlir(buffer.dtype).itemsize


def _bits(value: Any, buffer: Any) -> int:
    """The bits of one element."""
    import torch

    one = torch.tensor([value], dtype=from_mlir(buffer.dtype))
    return int.from_bytes(bytes(one.view(torch.uint8).tolist()), "little")


def _rows(step: Any, src: str = "src", dst: str = "dst") -> PitchedRows:
    """A transfer as rows, in bytes."""
    source, target = getattr(step, src), getattr(step, dst)
    rows = pitched_rows(source.shape, source.strides, target.strides, _itemsize(source))
    if rows is None:
        raise DitronError(
            f"{step.loc}: a copy moves contiguous elements, or rows of them; {source.shape} with "
            f"strides {source.strides} and {target.strides} is neither"
        )
    return rows
