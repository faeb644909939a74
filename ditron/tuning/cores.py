"""How many processes predict, or compile, what is measured later."""

from __future__ import annotations

import os

__all__ = ["processes_for"]

_MOST = 32  # each has PyTorch and LLVM in its memory


def processes_for(tasks: int) -> int:
    """As many as there are tasks, on all cores that this process may run on but two; 0 where there are no tasks.

    Two cores are left to what runs beside them, ranks that wait for instance; of three or fewer, up to two are used.
    """
    cores = len(os.sched_getaffinity(0))
    return min(tasks, _MOST, max(cores - 2, min(cores, 2)))
