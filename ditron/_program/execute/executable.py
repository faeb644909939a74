"""A module with a ``ditron.program`` in it, ready to run: on simulated ranks and on GPUs.

What runs is what the module says, kernels included: a module that passes have changed, or one that was read from a
file, runs like one that was traced a moment ago.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from ditron._program.calls import LibraryFunction
from ditron._program.execute.loaded import LoadedProgram
from ditron.distributed.group import Group, require_group
from ditron_compiler import ir

__all__ = ["BACKENDS", "Executable", "argument_key"]


class Executable(LoadedProgram):
    """A program that can be run, on every rank of a group."""

    def __init__(
        self, module: ir.Module | str, name: str | None = None, functions: Mapping[str, LibraryFunction] | None = None
    ):
        super().__init__(module, name, functions)
        self._runners: weakref.WeakKeyDictionary[Group, Any] = weakref.WeakKeyDictionary()

    def __call__(self, *args: Any) -> None:
        """Run it in the current group."""
        self.run(args, require_group(None, f"program {self.name!r} was called"))

    def run(self, args: tuple, group: Group) -> None:
        """Run it on this rank of ``group``; every rank of the group does so, with arguments of the same shapes."""
        self.runner(group).prepared(args, argument_key(args))(args)

    def runner(self, group: Group) -> Any:
        """What runs it on this rank of ``group``.

        ``prepared(args, key)`` gives what runs calls with such arguments, ``key`` is what of them a call depends on.
        """
        runner = self._runners.get(group)
        if runner is None:
            runner = self._runners[group] = BACKENDS[group.backend](self, group)
        return runner

    def free(self, group: Group) -> None:
        """Give back what it keeps between calls in ``group``: collective."""
        runner = self._runners.pop(group, None)
        for memory in runner.memories() if runner is not None else ():
            memory.free(group)


def _cuda(program: LoadedProgram, group: Group) -> Any:
    from ditron._program.execute.cuda import CudaRunner

    return CudaRunner(program, group)


def _sim(program: LoadedProgram, group: Group) -> Any:
    from ditron._program.execute.sim import SimRunner

    return SimRunner(program, group)


#: What runs programs, by a group's ``backend``.
BACKENDS: dict[str, Callable[[LoadedProgram, Group], Any]] = {"cuda": _cuda, "sim": _sim}


def argument_key(args: tuple) -> tuple:
    """What of the arguments a call depends on. AttributeError for what is neither a tensor nor a number."""
    return tuple(
        [
            value
            if type(value) is int
            else float
            if type(value) is float  # its value is passed on, and decides nothing
            else (value.shape, value.stride(), value.dtype, value.get_device(), value.data_ptr() % 16 == 0)
            for value in args
        ]
    )
