"""Signals that a stream writes and waits for one after the other, which captured calls do in one kernel.

In a CUDA graph each write is a copy of its own, and each wait a kernel: a handshake of four ranks is six nodes,
one after the other (docs/results/tensor-parallel-experiments.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ditron_compiler import host

__all__ = ["SignalRun", "join_signals"]

#: Waits of a run at least: beside a library's product, one kernel for a write and a wait was up to 15 % behind a copy
#: and a kernel (docs/results/tensor-parallel-experiments.md), and saves one node of a graph only.
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

    ``is_kernel``: whether a wait is a kernel, and not an operation of its stream.
    """
    joined: list = []
    run: list = []

    def end_run() -> None:
        waits = sum(isinstance(step, host.SignalWait) for step in run)
        joined.extend([SignalRun(tuple(run))] if waits >= _FEWEST_WAITS else run)
        run.clear()

    for step in steps:
        is_wait = isinstance(step, host.SignalWait) and is_kernel(step)
        is_write = isinstance(step, host.SignalWrite) and step.op == "set"
        if run and (step.stream != run[0].stream or (is_write and isinstance(run[-1], host.SignalWait))):
            end_run()
        if is_wait or is_write:
            run.append(step)
        else:
            end_run()
            joined.append(step)
    end_run()
    return joined
