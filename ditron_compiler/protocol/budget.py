"""Limits of time and memory for a check, looked at wherever it may take long."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["BudgetExceeded", "budget", "check_budget"]

_EVERY = 64  # calls between two looks at the clock


class BudgetExceeded(Exception):
    """A limit was reached; says which, and how to change it."""


class _Budget:
    deadline: float = float("inf")
    seconds: float = float("inf")
    nbytes: float = float("inf")
    calls: int = 0


_now = _Budget()


@contextmanager
def budget(seconds: float | None, gigabytes: float | None) -> Iterator[None]:
    """Within it, :func:`check_budget` raises once so much time has passed, or the process has more memory than this."""
    before = _now.deadline, _now.seconds, _now.nbytes
    _now.seconds = float("inf") if seconds is None else seconds
    _now.deadline = time.monotonic() + _now.seconds
    _now.nbytes = float("inf") if gigabytes is None else gigabytes * 1e9
    try:
        yield
    finally:
        _now.deadline, _now.seconds, _now.nbytes = before


def check_budget() -> None:
    """Raise BudgetExceeded when a limit is reached."""
    _now.calls += 1
    if _now.calls % _EVERY:
        return
    if time.monotonic() > _now.deadline:
        raise BudgetExceeded(f"stopped after {_now.seconds:g} s (--time-limit)")
    if _now.nbytes != float("inf") and _resident() > _now.nbytes:
        raise BudgetExceeded(f"stopped at {_now.nbytes / 1e9:g} GB (--memory-limit)")


def _resident() -> int:
    """Bytes of memory that the process holds now; where that is not told, the most that it has held."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
