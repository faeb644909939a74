"""The protocol checker for kernels, programs and scripts: ``ditron check``.

    report = ditron.checking.check_program(my_program)
    report = ditron.checking.check_function(main)       # what every rank of a script calls
    print(report)
    assert not report.findings

Nothing is run: launches are recorded on a few small groups of ranks, and analysed for every schedule. docs/checker.md.
"""
from __future__ import annotations

import builtins
import io
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ditron.errors import DitronError
from ditron.recording import record
from ditron_compiler.check import Report, check_scenarios

__all__ = ["GROUPS", "check_function", "check_program", "check_script"]

#: (ranks, ranks per node) that are looked at: what is symbolic in the number of ranks shows its mistakes by these.
GROUPS: tuple[tuple[int, int | None], ...] = ((1, None), (2, None), (3, None), (4, None), (4, 2))
CALLS = 3


def check_function(function: Callable[[], Any], groups: Iterable[tuple[int, int | None]] = GROUPS, *,
                   subject: str = "", resident: int = 132) -> Report:
    """Check what ``function`` launches when each rank of a group calls it; it calls ``ditron.init()`` first.

    Args:
        groups: (ranks, ranks per node; None: one node). resident: programs that a GPU takes at a time.
        subject: what the report calls it.

    The function's results mean nothing, for nothing is computed; an AssertionError about them is ignored.
    """
    name = subject or getattr(function, "__name__", "a function")
    return check_scenarios(name, (record(function, ranks, per_node, resident=resident) for ranks, per_node in groups))


def check_program(program: Any, groups: Iterable[tuple[int, int | None]] | None = None, *, calls: int = CALLS,
                  resident: int = 132) -> Report:
    """Check a ``ditron.program``, called ``calls`` times in a row, with the arguments that its ``check=`` says.

    Between calls the caller is taken to read and to write all its tensors. A program that copies between ranks is
    looked at on one node only, for copy engines reach no further. Raises DitronError without ``check=``.
    """
    if program.check is None:
        raise DitronError(f"program {program.__name__!r} does not say what it is checked with: give its decorator "
                          "check=lambda ranks: {...}, small arguments by name as for example=")
    if groups is None:
        groups = [group for group in GROUPS if group[1] is None or not _copies(program, group[0])]

    def run() -> None:
        import ditron
        from ditron.sim.view import current_world
        ditron.init()
        view = current_world()
        tensors, constants = program.arguments(program.check(ditron.num_ranks()))
        line = f"{program.fn.__code__.co_filename}:{program.fn.__code__.co_firstlineno}"
        for view.call in range(1, calls + 1):
            _by_caller(view, program, tensors, line, writes=True)
            program(*tensors, **constants)
            _by_caller(view, program, tensors, line, writes=False)

    return check_function(run, groups, subject=program.__name__, resident=resident)


def _by_caller(view: Any, program: Any, tensors: Sequence[Any], line: str, *, writes: bool) -> None:
    for name, tensor in zip(program.names, tensors, strict=True):
        if hasattr(tensor, "data_ptr"):
            view.touch(name, tensor, writes=writes, line=line)


def _copies(program: Any, ranks: int) -> bool:
    """Whether the program has copies between ranks."""
    found: list[str] = []
    module = program.module(**program.check(ranks))
    module.operation.walk(lambda op: found.append(op.name))
    return bool({"ditron.rank_copy", "ditron.all_gather"} & set(found))


def check_script(path: str | Path, argv: Sequence[str] = (),
                 groups: Iterable[tuple[int, int | None]] = GROUPS, *, resident: int = 132) -> Report:
    """Check what a script launches, run as ``ditron run`` runs it, with the arguments ``argv``."""
    path = str(path)
    code = compile(Path(path).read_bytes(), path, "exec")

    def scenarios() -> Iterable[Any]:
        for ranks, per_node in groups:
            modules = [types.ModuleType("__main__") for _ in range(ranks)]
            for module in modules:
                module.__file__, module.__builtins__ = path, builtins

            def main(modules: list[types.ModuleType] = modules) -> None:
                from ditron.sim.view import current_world
                exec(code, modules[current_world().rank].__dict__)

            yield record(main, ranks, per_node, resident=resident, modules=modules)

    old = sys.argv, sys.path
    printed = io.StringIO()  # results that mean nothing
    sys.argv, sys.path = [path, *argv], [str(Path(path).resolve().parent), *sys.path]
    try:
        with redirect_stdout(printed):
            return check_scenarios(Path(path).name, scenarios())
    finally:
        sys.argv, sys.path = old
