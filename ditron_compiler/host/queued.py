"""The steps of operations that are put on streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ditron_compiler import ir
from ditron_compiler.host.overlap import overlap
from ditron_compiler.host.slots import Action, EvaluationState, Slots, location
from ditron_compiler.host.steps import (
    ONE_NODE,
    Await,
    BufferView,
    Call,
    Copy,
    DescriptorView,
    EvaluationError,
    Fill,
    Launch,
    RankCopy,
    Record,
    SignalWait,
    SignalWrite,
    Step,
    StreamBarrier,
    StreamId,
)
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.ir.kernels import launch_options

__all__ = ["QueuedOperations"]

_MAX_GRID = 2**31 - 1


class QueuedOperations(Slots):
    """The actions of operations that are put on a stream."""

    def _step(self, op: ir.Operation, stream: ir.Value | None, make: Callable[..., Step | None]) -> Action:
        """The action that appends the step ``make(state, stream=, loc=)``."""
        get, loc, main = self._get(stream) if stream is not None else None, location(op), StreamId()

        def run(state: EvaluationState) -> None:
            step = make(state, stream=get(state.values) if get else main, loc=loc)
            if step is not None:
                state.steps.append(step)

        return run

    def _record(self, op: ditron.RecordOp) -> Action:
        event = self._new(op.result)

        def make(state: EvaluationState, **where: Any) -> Step:
            state.values[event] = state.events
            state.events += 1
            return Record(state.values[event], **where)

        return self._step(op, op.stream, make)

    def _await(self, op: ditron.AwaitOp) -> Action:
        event = self._get(op.event)
        return self._step(op, op.stream, lambda state, **where: Await(event(state.values), **where))

    def _stream_barrier(self, op: ditron.StreamBarrierOp) -> Action:
        return self._step(op, op.stream, lambda state, **where: StreamBarrier(**where))

    def _rank_copy(self, op: ditron.RankCopyOp) -> Action:
        src, dst, peer, push = self._get(op.src), self._get(op.dst), self._get(op.peer), not op.pull

        def make(state: EvaluationState, loc: str, **where: Any) -> Step:
            values = state.values
            _check_shapes(src(values), dst(values), loc)
            _check_peer(peer(values), state, loc)
            if peer(values) == state.placement.rank:
                _check_no_overlap(src(values), dst(values), loc)
            return RankCopy(src(values), dst(values), peer(values), push, loc=loc, **where)

        return self._step(op, op.stream, make)

    def _copy(self, op: ditron.CopyOp) -> Action:
        src, dst = self._get(op.src), self._get(op.dst)

        def make(state: EvaluationState, loc: str, **where: Any) -> Step:
            _check_shapes(src(state.values), dst(state.values), loc)
            _check_no_overlap(src(state.values), dst(state.values), loc)
            return Copy(src(state.values), dst(state.values), loc=loc, **where)

        return self._step(op, op.stream, make)

    def _fill(self, op: ditron.FillOp) -> Action:
        dst, value = self._get(op.dst), self._get(op.value)
        return self._step(op, op.stream, lambda state, **where: Fill(dst(state.values), value(state.values), **where))

    def _signal(self, op: ditron.SignalWriteOp | ditron.SignalWaitOp) -> Callable[[EvaluationState], BufferView]:
        """The signal of an operation, as a view of shape ``()``."""
        signal, loc = self._get(op.signal), location(op)
        indices = self._list(op.mixed_indices)

        def make(state: EvaluationState) -> BufferView:
            whole: BufferView = signal(state.values)
            at, offset = indices(state.values), whole.offset
            for i, (index, size, stride) in enumerate(zip(at, whole.shape, whole.strides, strict=True)):
                if not 0 <= index < size:
                    raise EvaluationError(
                        f"{loc}: there is no signal {index} in dimension {i} of '{whole.storage.name}', which has "
                        f"{size}"
                    )
                offset += index * stride
            return BufferView(whole.storage, offset, (), ())

        return make

    def _signal_write(self, op: ditron.SignalWriteOp) -> Action:
        signal, value, peer = self._signal(op), self._get(op.value), self._get(op.peer)
        how = str(op.op)

        def make(state: EvaluationState, loc: str, **where: Any) -> Step:
            _check_peer(peer(state.values), state, loc)
            return SignalWrite(signal(state), how, value(state.values), peer(state.values), loc=loc, **where)

        return self._step(op, op.stream, make)

    def _signal_wait(self, op: ditron.SignalWaitOp) -> Action:
        signal, value, cmp = self._signal(op), self._get(op.value), str(op.cmp)
        return self._step(
            op, op.stream, lambda state, **where: SignalWait(signal(state), cmp, value(state.values), **where)
        )

    def _call(self, op: ditron.CallOp) -> Action:
        callee = op.callee.value
        reads, writes = ([self._get(value) for value in values] for values in (op.reads, op.writes))

        def make(state: EvaluationState, **where: Any) -> Step:
            read, written = (tuple(get(state.values) for get in gets) for gets in (reads, writes))
            return Call(callee, read, written, **where)

        return self._step(op, op.stream, make)

    def _launch(self, op: ditron.LaunchOp) -> Action:
        kernel, args = op.kernel.value, [self._slots[value] for value in op.args]
        numbers = self._list(op.mixed_grid)
        options = launch_options(op)

        def make(state: EvaluationState, loc: str, **where: Any) -> Step | None:
            x, y, z = (*numbers(state.values), 1, 1)[:3]
            if min(x, y, z) < 0 or max(x, y, z) > _MAX_GRID:
                raise EvaluationError(f"{loc}: @{kernel} cannot be launched on a grid of {x} x {y} x {z}")
            if not x * y * z:
                return None  # no programs
            given = tuple(state.values[slot] for slot in args)
            _check_descriptors(kernel, given, loc)
            return Launch(kernel, (x, y, z), given, options, loc=loc, **where)

        return self._step(op, op.stream, make)


def _check_descriptors(kernel: str, args: tuple, loc: str) -> None:
    """Behind a descriptor a kernel is given its shape and strides, once more."""
    for index, value in enumerate(args, 1):
        if isinstance(value, DescriptorView):
            expected = *value.shape, *value.strides
            given = args[index : index + len(expected)]
            if given != expected:
                raise EvaluationError(
                    f"{loc}: @{kernel} is given {list(given)} behind a tensor descriptor, whose "
                    f" sizes and strides are {list(expected)}"
                )


def _check_shapes(src: BufferView, dst: BufferView, loc: str) -> None:
    if src.shape != dst.shape:
        raise EvaluationError(
            f"{loc}: a part of '{src.storage.name}' of shape {list(src.shape)} cannot be copied to one "
            f"of '{dst.storage.name}' of shape {list(dst.shape)}"
        )


def _check_no_overlap(src: BufferView, dst: BufferView, loc: str) -> None:
    """A copy has no order of elements: source and destination must not overlap, unless they are the same."""
    if (
        src.storage == dst.storage
        and (src.offset, src.strides) != (dst.offset, dst.strides)
        and overlap(src.shape, src.strides, dst.shape, dst.strides, dst.offset - src.offset)
    ):
        raise EvaluationError(
            f"{loc}: a part of '{src.storage.name}' is copied to one that overlaps it: copy through a "
            "temporary (dh.empty)"
        )


def _check_peer(peer: int, state: EvaluationState, loc: str) -> None:
    if not 0 <= peer < state.placement.num_ranks:
        raise EvaluationError(f"{loc}: there is no rank {peer}; the group has {state.placement.num_ranks}")
    if state.placement.node_ranks is not None and peer not in state.placement.node_ranks:
        raise EvaluationError(f"{loc}: rank {peer} is on another node: {ONE_NODE}")
