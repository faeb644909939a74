"""A stream of a captured rank: its operations become steps of the scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ditron_compiler.protocol import memory
from ditron_compiler.protocol.scenario import (
    HostAccess,
    HostAwait,
    HostBarrier,
    HostRecord,
    HostSignalWait,
    HostSignalWrite,
)
from ditron_compiler.source_location import caller_line

if TYPE_CHECKING:
    from ditron.protocol.capture import CapturedRank

__all__ = ["CapturedStream", "is_integer"]


class CapturedStream:
    """A stream of a captured rank; methods as :class:`ditron.sim.streams.SimStream`'s."""

    def __init__(self, owner: CapturedRank, name: str, index: int):
        self.name, self.index, self.rank, self._owner = name, index, owner.rank, owner
        self.key = name if not index else f"{name}[{index}]"
        self._outer: list[str | None] = []

    def __enter__(self) -> CapturedStream:
        self._outer.append(self._owner.current)
        self._owner.current = self.key
        return self

    def __exit__(self, *_: object) -> None:
        self._owner.current = self._outer.pop()

    def _facts(self, line: str) -> tuple[str, str, int]:
        return self.key, line or caller_line(), self._owner.call_number()

    def launch(
        self,
        kernel: Any,
        grid: Sequence[int],
        slots: Sequence[int],
        *,
        group: Any = None,
        tensors: Sequence[tuple[str, Any]] = (),
        line: str = "",
    ) -> None:
        self._owner.launch(kernel, grid, slots, group=group, tensors=tensors, stream=self.key, line=line)

    def rank_copy(
        self,
        src: Any,
        dst: Any,
        peer: int,
        *,
        push: bool = True,
        group: Any = None,
        names: tuple[str, str] = ("src", "dst"),
        line: str = "",
    ) -> None:
        owner = self._owner
        reads, writes = owner.span(names[0], src), owner.span(names[1], dst)
        if push:
            writes = memory.with_rank(writes, peer)
        else:
            reads = memory.with_rank(reads, peer)
        # To the own rank it is a copy within the GPU, which is a kernel.
        own = peer == owner.rank
        name = "a rank_copy to this rank itself" if own else "a rank_copy"
        owner.add(HostAccess(*self._facts(line), name, reads, owner.written(writes), own, _in_order(src, dst)))

    def copy(self, src: Any, dst: Any, *, names: tuple[str, str] = ("src", "dst"), line: str = "") -> None:
        owner = self._owner
        owner.add(
            HostAccess(
                *self._facts(line),
                "a copy",
                owner.span(names[0], src),
                owner.written(owner.span(names[1], dst)),
                True,
                _in_order(src, dst),
            )
        )

    def fill(self, dst: Any, value: float, *, name: str = "dst", line: str = "") -> None:
        span = self._owner.written(self._owner.span(name, dst))
        contents = None
        if is_integer(dst):
            one = np.frombuffer(np.int64(int(value)).tobytes(), np.uint8)[: dst.itemsize]
            contents = [np.tile(one, (high - low) // dst.itemsize) for low, high in span.tolist()]
        self._owner.add(HostAccess(*self._facts(line), "a fill", None, span, needs_sm=True, contents=contents))

    def call(
        self,
        function: Callable[[], Any],
        reads: Sequence[Any] = (),
        writes: Sequence[Any] = (),
        *,
        name: str = "",
        names: Sequence[str] = (),
        line: str = "",
    ) -> None:
        owner, what = self._owner, f"a call of {name or 'a function'}"
        names = names or ["a tensor"] * (len(reads) + len(writes))
        for tensors, given, written in ((reads, names, False), (writes, names[len(reads) :], True)):
            spans = [owner.span(key, tensor) for key, tensor in zip(given, tensors, strict=False)]
            if spans:
                span = memory.merged(np.concatenate(spans))
                accesses = (None, owner.written(span)) if written else (span, None)
                owner.add(HostAccess(*self._facts(line), what, *accesses, needs_sm=True, opaque=written))

    def signal_write(
        self, signal: Any, value: int, *, op: str = "set", peer: int | None = None, group: Any = None, line: str = ""
    ) -> None:
        cells = memory.with_rank(self._cells(signal), self._owner.rank if peer is None else peer)
        self._owner.written(cells.reshape(-1, 1))
        self._owner.add(HostSignalWrite(*self._facts(line), tuple(cells.tolist()), op, int(value)))

    def signal_wait(
        self, signal: Any, value: int, *, cmp: str = "ge", captured_kernel: bool = False, line: str = ""
    ) -> None:
        cells = tuple(self._cells(signal).tolist())
        self._owner.add(HostSignalWait(*self._facts(line), cells, cmp, int(value), captured_kernel))

    def _cells(self, signal: Any) -> np.ndarray:
        return self._owner.pointer("signal", signal) + 8 * np.arange(signal.numel())

    def record(self, *, line: str = "") -> int:
        owner = self._owner
        owner.events += 1
        owner.add(HostRecord(*self._facts(line), owner.events))
        return owner.events

    def wait_event(self, event: int, *, line: str = "") -> None:
        self._owner.add(HostAwait(*self._facts(line), event))

    def barrier(self, group: Any = None, *, line: str = "") -> None:
        self._owner.add(HostBarrier(*self._facts(line), f"the barrier of stream {self.key!r}"))

    def synchronize(self) -> None:
        self._owner.synchronize(self)


def _in_order(src: Any, dst: Any) -> bool:
    """Whether elements that are at the same indices come in the same order in memory."""
    falling = [
        sorted((d for d in range(t.dim()) if t.shape[d] > 1), key=lambda d, t=t: -t.stride(d)) for t in (src, dst)
    ]
    return falling[0] == falling[1]


def is_integer(tensor: Any) -> bool:
    return not tensor.dtype.is_floating_point and not tensor.dtype.is_complex
