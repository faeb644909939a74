"""Limits of time and memory for a check, looked at wherever it may take long."""

from __future__ import annotations

import ctypes
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["BudgetExceeded", "budget", "check_budget"]

_EVERY = 64  # calls between two looks at the clock
_GRACE = 5.0  # seconds


class BudgetExceeded(Exception):
    """A limit was reached; says which, and how to change it."""


class _OutOfTime(BudgetExceeded):
    def __init__(self) -> None:
        super().__init__(f"stopped after {_now.seconds:g} s (--time-limit)")


class _Budget:
    deadline: float = float("inf")
    seconds: float = float("inf")
    nbytes: float = float("inf")
    gigabytes: float | None = None
    calls: int = 0


_now = _Budget()


@contextmanager
def budget(seconds: float | None, gigabytes: float | None, alarm: bool = False) -> Iterator[None]:
    """Within it, :func:`check_budget` raises once so much time has passed, or the process has got so much more memory.

    ``alarm``: a little later a signal raises it, wherever Python is. For the main thread.
    """
    before = _now.deadline, _now.seconds, _now.nbytes
    if alarm and seconds is not None:
        handler = signal.signal(signal.SIGALRM, _out_of_time)
        signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE)
    _now.seconds = float("inf") if seconds is None else seconds
    _now.deadline = time.monotonic() + _now.seconds
    _now.gigabytes = gigabytes
    _now.nbytes = float("inf") if gigabytes is None else _resident() + gigabytes * 1e9
    try:
        yield
    finally:
        if alarm and seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
        _now.deadline, _now.seconds, _now.nbytes = before


def _out_of_time(*_: object) -> None:
    """Raise it in the threads that run host code, if any; else here."""
    busy = [thread for thread in sys._current_frames() if thread != threading.get_ident()]
    captured = [thread for thread in busy if _runs_host_code(sys._current_frames()[thread])]
    if not captured:
        raise _OutOfTime
    for thread in captured:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_OutOfTime))


def _runs_host_code(frame: Any) -> bool:
    while frame is not None and frame.f_code.co_name != "captured_function":
        frame = frame.f_back
    return frame is not None


def check_budget() -> None:
    """Raise BudgetExceeded when a limit is reached."""
    _now.calls += 1
    if _now.calls % _EVERY:
        return
    if time.monotonic() > _now.deadline:
        raise _OutOfTime
    if _now.nbytes != float("inf") and _resident() >= _now.nbytes:
        raise BudgetExceeded(f"stopped at {_now.gigabytes:g} GB (--memory-limit)")


def _resident() -> int:
    """Bytes of memory that the process holds now; where that is not told, the most that it has held."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
