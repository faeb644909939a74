"""Which group the calling thread is in. Imports nothing of ours, so that everything may import it.

A rank on GPUs is a process; a simulated rank is a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Group = Any  # ditron.distributed.group.Group, which imports this

__all__ = ["clear", "current_group", "enter", "importing", "is_importing", "leave", "set_world", "world"]


class _ThreadState(threading.local):
    """What belongs to one thread."""

    def __init__(self) -> None:
        self.world: Group | None = None  # of a simulated rank
        self.entered: list[Group] = []  # by ``with group:``, innermost last
        self.importing = False


_thread = _ThreadState()
_process_world: Group | None = None  # of a rank on GPUs


def current_group() -> Group | None:
    """The group that kernels launched by this thread run in; None before :func:`ditron.init`."""
    return _thread.entered[-1] if _thread.entered else world()


def world() -> Group | None:
    """The group of all ranks; None before :func:`ditron.init`."""
    return _thread.world or _process_world


def set_world(group: Group) -> None:
    """Make ``group`` the world of this thread, when it is simulated, or of this process."""
    global _process_world
    if group.is_sim:
        _thread.world = group
    else:
        _process_world = group


def clear() -> Group | None:
    """Forget the groups of this rank; returns the world."""
    global _process_world
    _thread.entered.clear()
    left = world()
    if _thread.world is not None:
        _thread.world = None
    else:
        _process_world = None
    return left


def enter(group: Group) -> None:
    """Make ``group`` the current one until :func:`leave`."""
    _thread.entered.append(group)


def leave() -> None:
    """Go back to the group before the latest :func:`enter`."""
    _thread.entered.pop()


def is_importing() -> bool:
    """Whether this thread is within :func:`importing`."""
    return _thread.importing


@contextmanager
def importing() -> Iterator[None]:
    """Within it a file is imported for what it defines, and ``ditron.init()`` raises ImportedScriptError."""
    _thread.importing = True
    try:
        yield
    finally:
        _thread.importing = False
