"""Consecutive signal writes and waits of one stream, which captured calls fuse into one kernel of one warp.

In a CUDA graph each write is a copy node, and each wait a kernel: a handshake of four ranks is six nodes, one after the
other (docs/results/tensor-parallel-experiments.md). A copy needs no SM. So writes are fused only where their stream
begins with them: those behind a copy publish it, maybe to a kernel that leaves no SM for what follows on this stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ditron_compiler import host

__all__ = ["SignalRun", "join_signals"]

#: A run of fewer waits stays as it is: beside a library's product, one kernel for a write and a wait was up to 15 %
#: slower than a copy node and a kernel (docs/results/tensor-parallel-experiments.md), and saves one node only.
_FEWEST_WAITS = 2


@dataclass(frozen=True)
class SignalRun:
    """Steps of one stream, in order: writes that set signals, then waits."""

    steps: tuple[host.SignalWrite | host.SignalWait, ...]

    @property
    def stream(self) -> host.StreamId:
        """The stream of all of them."""
        return self.steps[0].stream

    @property
    def first_wait(self) -> host.SignalWait:
        """The first step that waits."""
        return next(step for step in self.steps if isinstance(step, host.SignalWait))


def join_signals(steps: list, is_kernel: Callable[[Any], bool]) -> list:
    """The steps, with a :class:`SignalRun` for those that one kernel can carry out.

    ``is_kernel``: whether a wait is a kernel, and not a memory operation of its stream (``cuStreamBatchMemOp``).
    """
    joined: list = []
    run: list = []
    behind: set[host.StreamId | int] = set()  # streams and events that come behind more than writes of signals

    def end_run() -> None:
        waits = sum(isinstance(step, host.SignalWait) for step in run)
        joined.extend([SignalRun(tuple(run))] if waits >= _FEWEST_WAITS else run)
        run.clear()

    for step in steps:
        is_wait = isinstance(step, host.SignalWait) and is_kernel(step)
        is_write = isinstance(step, host.SignalWrite) and step.op == "set" and step.stream not in behind
        if run and step.stream != run[0].stream:
            end_run()
        if is_wait or is_write:
            run.append(step)
        else:
            end_run()
            joined.append(step)
        if isinstance(step, host.Record):
            if step.stream in behind:
                behind.add(step.event)
        elif not is_write and (not isinstance(step, host.Await) or step.event in behind):
            behind.add(step.stream)
    end_run()
    return joined
