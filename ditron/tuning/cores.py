"""Processes that predict, compile or measure: how many, and that they do not outlive who started them."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["end_with_parent", "processes_for"]

_PR_SET_PDEATHSIG = 1
_MOST = 32  # each has PyTorch and LLVM in its memory


def processes_for(tasks: int) -> int:
    """As many as there are tasks, on all cores that this process may run on but two; 0 where there are no tasks.

    Two cores are left to what runs beside them, ranks that wait for instance; of three or fewer, up to two are used.
    """
    cores = len(os.sched_getaffinity(0))
    return min(tasks, _MOST, max(cores - 2, min(cores, 2)))


def end_with_parent() -> None:
    """Kill this process when the one that started it ends, however that does."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
