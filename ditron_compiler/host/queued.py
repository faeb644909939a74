"""What is put on streams, as steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ditron_compiler import ir
from ditron_compiler.host.overlap import overlap
from ditron_compiler.host.slots import Action, Slots, State, location
from ditron_compiler.host.steps import (
    ONE_NODE,
    Await,
    Buffer,
    Copy,
    EvaluationError,
    Fill,
    Launch,
    RankCopy,
    Record,
    SignalWait,
    SignalWrite,
    Step,
    Stream,
    StreamBarrier,
)
from ditron_compiler.ir.dialects.enums import keyword

__all__ = ["Queued"]

_MAX_GRID = 2**31 - 1


class Queued(Slots):
    """The actions of operations that are put on a stream; a method for each, by the operation's name."""

    def _step(self, op: ir.Operation, stream: ir.Value | None, make: Callable[..., Step | None]) -> Action:
        """The action that puts ``make(state, stream=, loc=)`` on the stream."""
        get, loc, main = self._get(stream) if stream is not None else None, location(op), Stream()

        def run(state: State) -> None:
            step = make(state, stream=get(state.values) if get else main, loc=loc)
            if step is not None:
                state.steps.append(step)

        return run

    def _ditron_record(self, op: ir.Operation) -> Action:
        event = self._new(op.results[0])

        def make(state: State, **where: Any) -> Step:
            state.values[event] = state.events
            state.events += 1
            return Record(state.values[event], **where)

        return self._step(op, op.stream, make)

    def _ditron_await(self, op: ir.Operation) -> Action:
        event = self._get(op.event)
        return self._step(op, op.stream, lambda state, **where: Await(event(state.values), **where))

    def _ditron_stream_barrier(self, op: ir.Operation) -> Action:
        return self._step(op, op.stream, lambda state, **where: StreamBarrier(**where))

    def _ditron_rank_copy(self, op: ir.Operation) -> Action:
        src, dst, peer, push = self._get(op.src), self._get(op.dst), self._get(op.peer), not op.pull

        def make(state: State, loc: str, **where: Any) -> Step:
            values = state.values
            _check_shapes(src(values), dst(values), loc)
            _check_peer(peer(values), state, loc)
            if peer(values) == state.place.rank:
                _check_apart(src(values), dst(values), loc)
            return RankCopy(src(values), dst(values), peer(values), push, loc=loc, **where)

        return self._step(op, op.stream, make)

    def _ditron_copy(self, op: ir.Operation) -> Action:
        src, dst = self._get(op.src), self._get(op.dst)

        def make(state: State, loc: str, **where: Any) -> Step:
            _check_shapes(src(state.values), dst(state.values), loc)
            _check_apart(src(state.values), dst(state.values), loc)
            return Copy(src(state.values), dst(state.values), loc=loc, **where)

        return self._step(op, op.stream, make)

    def _ditron_fill(self, op: ir.Operation) -> Action:
        dst, value = self._get(op.dst), self._get(op.value)
        return self._step(op, op.stream, lambda state, **where: Fill(dst(state.values), value(state.values), **where))

    def _signal(self, op: ir.Operation) -> Callable[[State], Buffer]:
        """The one signal that an operation is about, as a buffer of shape ``()``."""
        signal, loc = self._get(op.signal), location(op)
        indices = self._list(op.indices, op.attributes["static_indices"])

        def make(state: State) -> Buffer:
            whole: Buffer = signal(state.values)
            at, offset = indices(state.values), whole.offset
            for i, (index, size, stride) in enumerate(zip(at, whole.shape, whole.strides, strict=True)):
                if not 0 <= index < size:
                    raise EvaluationError(
                        f"{loc}: there is no signal {index} in dimension {i} of '{whole.root.name}', which has {size}"
                    )
                offset += index * stride
            return Buffer(whole.root, offset, (), ())

        return make

    def _ditron_signal_write(self, op: ir.Operation) -> Action:
        signal, value, peer = self._signal(op), self._get(op.value), self._get(op.peer)
        how = keyword(op.attributes["op"])

        def make(state: State, loc: str, **where: Any) -> Step:
            _check_peer(peer(state.values), state, loc)
            return SignalWrite(signal(state), how, value(state.values), peer(state.values), loc=loc, **where)

        return self._step(op, op.stream, make)

    def _ditron_signal_wait(self, op: ir.Operation) -> Action:
        signal, value, cmp = self._signal(op), self._get(op.value), keyword(op.attributes["cmp"])
        return self._step(
            op, op.stream, lambda state, **where: SignalWait(signal(state), cmp, value(state.values), **where)
        )

    def _ditron_launch(self, op: ir.Operation) -> Action:
        kernel, args = op.kernel.value, [self._slots[value] for value in op.args]
        numbers = self._list(op.grid, op.attributes["static_grid"])
        options = {name: value.value for name, value in op.options.items()} if op.options is not None else {}

        def make(state: State, loc: str, **where: Any) -> Step | None:
            x, y, z = (*numbers(state.values), 1, 1)[:3]
            if min(x, y, z) < 0 or max(x, y, z) > _MAX_GRID:
                raise EvaluationError(f"{loc}: @{kernel} cannot be launched on a grid of {x} x {y} x {z}")
            if not x * y * z:
                return None  # no programs
            return Launch(kernel, (x, y, z), tuple(state.values[slot] for slot in args), options, loc=loc, **where)

        return self._step(op, op.stream, make)


def _check_shapes(src: Buffer, dst: Buffer, loc: str) -> None:
    if src.shape != dst.shape:
        raise EvaluationError(
            f"{loc}: a part of '{src.root.name}' of shape {list(src.shape)} cannot be copied to one "
            f"of '{dst.root.name}' of shape {list(dst.shape)}"
        )


def _check_apart(src: Buffer, dst: Buffer, loc: str) -> None:
    """A copy goes through its elements in no order, so that what it writes must not be what it reads (but in place)."""
    if (
        src.root == dst.root
        and (src.offset, src.strides) != (dst.offset, dst.strides)
        and overlap(src.shape, src.strides, dst.shape, dst.strides, dst.offset - src.offset)
    ):
        raise EvaluationError(
            f"{loc}: a part of '{src.root.name}' is copied to one that overlaps it: copy by way of "
            "other memory (dh.empty)"
        )


def _check_peer(peer: int, state: State, loc: str) -> None:
    if not 0 <= peer < state.place.num_ranks:
        raise EvaluationError(f"{loc}: there is no rank {peer}; the group has {state.place.num_ranks}")
    if state.place.near is not None and peer not in state.place.near:
        raise EvaluationError(f"{loc}: rank {peer} is on another node: {ONE_NODE}")
