"""Which host program this thread traces, if any: a kernel that is launched in a trace becomes an operation of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

__all__ = ["Trace", "active", "tracing"]


class Trace(Protocol):
    """What a launch needs of the tracer of a host program."""

    name: str

    def record_launch(self, kernel: Any, grid: Any, args: tuple, kwargs: dict) -> None:
        """Add the launch of a kernel to the program."""

    def fail(self, message: str) -> NoReturn:
        """Raise CompileError at the user's current line."""


class _ActiveTrace(threading.local):
    trace: Any = None


_active = _ActiveTrace()


def active() -> Any:
    """The trace that this thread is in, or None."""
    return _active.trace


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """Within it, ``trace`` is the active one."""
    _active.trace = trace
    try:
        yield
    finally:
        _active.trace = None
