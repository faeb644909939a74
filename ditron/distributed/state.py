"""Which group the calling thread is in. Imports nothing of ours, so that everything may import it.

A rank on GPUs is a process; a simulated rank is a thread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Group = Any  # ditron.distributed.group.Group, which imports this

__all__ = [
    "clear",
    "current_group",
    "enter",
    "group_named",
    "importing",
    "is_importing",
    "leave",
    "register",
    "set_world",
    "world",
]


class _Names:
    """The groups of one rank by name, as long as they exist."""

    def __init__(self) -> None:
        self.groups: weakref.WeakValueDictionary[str, Group] = weakref.WeakValueDictionary()
        self.made: dict[str, int] = {}  # groups of the same ranks


class _ThreadState(threading.local):
    """What belongs to one thread."""

    def __init__(self) -> None:
        self.world: Group | None = None  # of a simulated rank
        self.entered: list[Group] = []  # by ``with group:``, innermost last
        self.names = _Names()  # of a simulated rank
        self.importing = False


_thread = _ThreadState()
_process_world: Group | None = None  # of a rank on GPUs
_process_names = _Names()  # of a rank on GPUs: autograd's threads look there


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


def register(group: Group) -> str:
    """Give a new group a name, the same on each of its ranks, and remember the group as long as it exists."""
    names = _thread.names if group.is_sim else _process_names
    ranks = ",".join(map(str, group.ranks))
    number = names.made[ranks] = names.made.get(ranks, 0) + 1
    name = ranks if number == 1 else f"{ranks}#{number}"
    names.groups[name] = group
    return name


def group_named(name: str) -> Group | None:
    """The group of this rank that has the name; the current one for ``""``; None when there is none."""
    if not name:
        return current_group()
    found = _thread.names.groups.get(name)
    return _process_names.groups.get(name) if found is None else found


def clear() -> Group | None:
    """Forget the groups of this rank; returns the world."""
    global _process_world, _process_names
    _thread.entered.clear()
    left = world()
    if _thread.world is not None:
        _thread.world = None
        _thread.names = _Names()
    else:
        _process_world = None
        _process_names = _Names()
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
