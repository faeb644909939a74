"""The protocol checker for kernels, programs and scripts: ``ditron check``.

    report = ditron.protocol.api.check_program(my_program)
    report = ditron.protocol.api.check_function(main)       # what every rank of a script calls
    print(report)
    assert not report.findings

Nothing is run: host code is captured on a few small groups of ranks, and analysed for every schedule. docs/checker.md.
"""

from __future__ import annotations

import builtins
import hashlib
import inspect
import io
import json
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from torch.utils._pytree import tree_map

from ditron.protocol.calls import MAX_CALLS, with_calls_needed, with_missing_calls
from ditron.protocol.capture import capture, is_capturing
from ditron.protocol.samples import sample_args, scenarios_of
from ditron.sim.rank import current_world
from ditron_compiler.errors import DitronError
from ditron_compiler.protocol import CheckReport, check_scenarios
from ditron_compiler.protocol.budget import budget
from ditron_compiler.protocol.scenario import Scenario

__all__ = [
    "GROUPS",
    "ProtocolError",
    "ProtocolWarning",
    "at_compile_time",
    "check_function",
    "check_program",
    "check_script",
]

#: (ranks, ranks per node) that are looked at: what is symbolic in the number of ranks shows its mistakes by these.
GROUPS: tuple[tuple[int, int | None], ...] = ((1, None), (2, None), (3, None), (4, None), (4, 2))
#: Of a check: the seconds and the GB of memory that it may take, and samples of what is drawn at random.
SECONDS, GIGABYTES, SAMPLES = 60.0, 2.0, 3


class ProtocolError(DitronError):
    """A program was found wrong when it was compiled, and ``DITRON_PROTOCOL=error`` asks for this.

    Attributes: findings: as text, each with its Python lines.
    """

    findings: tuple[str, ...] = ()


class ProtocolWarning(UserWarning):
    """What the checker found in a program when it was compiled."""


def check_function(
    function: Callable[[], Any],
    groups: Iterable[tuple[int, int | None]] = GROUPS,
    *,
    subject: str = "",
    resident: int = 132,
    values: Mapping[int, Any] | None = None,
    larger: bool | None = None,
    samples: int = SAMPLES,
) -> CheckReport:
    """Check what ``function`` launches when each rank of a group calls it; it calls ``ditron.init()`` first.

    Args:
        groups: (ranks, ranks per node; None: one node). resident: programs that a GPU takes at a time.
        subject: what the report calls it. values: by line, what host code reads there of what a kernel computes.
        larger: also groups that are larger than a constant that a kernel compares the number of ranks with; default:
        with the default groups. samples: how often it is looked at where integers are drawn at random, with the seeds
        0, 1, ... of torch.

    The function's results mean nothing, for nothing is computed; an AssertionError about them ends it, with a note if
    there was more to come.
    """
    name = subject or getattr(function, "__name__", "a function")

    def make(ranks: int, per_node: int | None, sample: int) -> Scenario:
        captured = capture(function, ranks, per_node, resident=resident, values=values, sample=sample)
        return with_missing_calls(captured)

    larger = groups is GROUPS if larger is None else larger
    return check_scenarios(name, scenarios_of(groups, make, larger=larger, samples=samples))


def check_program(
    program: Any,
    groups: Iterable[tuple[int, int | None]] = GROUPS,
    *,
    calls: int | None = None,
    resident: int = 132,
    larger: bool | None = None,
    samples: int = SAMPLES,
) -> CheckReport:
    """Check a ``ditron.program``, called ``calls`` times in a row, with the arguments that its ``sample_args=`` says.

    Without ``calls`` three times, or more often where a buffer is chosen by the number of the call: once more than
    there are buffers.

    Between calls the caller is taken to read and to write all its tensors. Groups on more nodes than its ``max_nodes=``
    are left out. Raises DitronError without ``sample_args=``.
    """
    if program.sample_args is None:
        raise DitronError(
            f"program {program.__name__!r} does not say what it is checked with: give its decorator "
            "sample_args=lambda ranks: {...}, small arguments by name as for example="
        )
    if not callable(program.sample_args):
        code = inspect.unwrap(program.fn).__code__
        raise DitronError(
            f"{code.co_filename}:{code.co_firstlineno}: sample_args={program.sample_args!r} of program "
            f"{program.__name__!r}: expected a function of the number of ranks, as lambda ranks: {{...}}"
        )

    def run() -> None:
        import ditron

        ditron.init()
        view = current_world()
        given, drawn = sample_args(program, ditron.num_ranks(), view.sample, ditron.rank())
        view.has_drawn |= drawn
        tensors, constants = program.arguments(given, view.sample)
        code = inspect.unwrap(program.fn).__code__
        line = f"{code.co_filename}:{code.co_firstlineno}"
        for view.call in range(1, (calls or MAX_CALLS) + 1):
            _by_caller(view, program, tensors, line, writes=True)
            program(*tensors, **constants)
            _by_caller(view, program, tensors, line, writes=False)

    def make(ranks: int, per_node: int | None, sample: int) -> Scenario:
        scenario = capture(run, ranks, per_node, resident=resident, sample=sample)
        return scenario if calls else with_calls_needed(scenario)

    larger = groups is GROUPS if larger is None else larger
    return check_scenarios(program.__name__, scenarios_of(groups, make, larger=larger, samples=samples))


def _by_caller(view: Any, program: Any, tensors: Sequence[Any], line: str, *, writes: bool) -> None:
    from ditron._program.arguments import flatten, leaf_names

    leaves, form = flatten(tuple(tensors))
    for name, tensor in zip(leaf_names(program.names, form), leaves, strict=True):
        if hasattr(tensor, "data_ptr"):
            view.touch(name, tensor, writes=writes, line=line)


def check_script(
    path: str | Path,
    argv: Sequence[str] = (),
    groups: Iterable[tuple[int, int | None]] = GROUPS,
    *,
    resident: int = 132,
    values: Mapping[int, Any] | None = None,
    larger: bool | None = None,
    samples: int = SAMPLES,
) -> CheckReport:
    """Check what a script launches, run as ``ditron run`` runs it, with the arguments ``argv``.

    ``values``: by line, what the script reads there of what a kernel computes.
    """
    path = str(path)
    code = compile(Path(path).read_bytes(), path, "exec", optimize=1)  # no assert of its results ends it

    def scenario(ranks: int, per_node: int | None, sample: int) -> Scenario:
        modules = [types.ModuleType("__main__") for _ in range(ranks)]
        for module in modules:
            module.__file__, module.__builtins__ = path, builtins

        def main() -> None:
            exec(code, modules[current_world().rank].__dict__)

        captured = capture(main, ranks, per_node, resident=resident, modules=modules, values=values, sample=sample)
        return with_missing_calls(captured)

    old = sys.argv, sys.path
    printed = io.StringIO()  # results that mean nothing
    sys.argv, sys.path = [path, *argv], [str(Path(path).resolve().parent), *sys.path]
    try:
        with redirect_stdout(printed):
            larger = groups is GROUPS if larger is None else larger
            return check_scenarios(Path(path).name, scenarios_of(groups, scenario, larger=larger, samples=samples))
    finally:
        sys.argv, sys.path = old


_looked_at: set[str] = set()


def at_compile_time(program: Any, module: Any) -> None:
    """Check a program that has just become ``module``, once, and warn of (or raise) what is found: ``DITRON_PROTOCOL``.

    Nothing is done for a program without ``sample_args=``. The verdict is cached on disk, keyed by the module and our
    own sources.
    """
    from ditron_compiler import knobs

    how = knobs.protocol.get()
    if how == "off" or program.sample_args is None or is_capturing(current_world()):
        return
    if program.fn.__module__.startswith("ditron.kernels."):  # shipped, and checked by our tests
        return
    code = program.fn.__code__
    place = dict(category=ProtocolWarning, filename=code.co_filename, lineno=code.co_firstlineno)
    try:
        key = _key(program, module)
        if key in _looked_at:
            return
        _looked_at.add(key)
        findings, given_up = _verdict(program, Path(knobs.cache_dir.get()) / "check" / f"{key}.json")
    except Exception as error:  # the program may be right: that it cannot be looked at is no reason not to run it
        why = f"{type(error).__name__}: {error}"
        warnings.warn_explicit(f"program {program.__name__!r} was not checked: {why}", **place)
        return
    if given_up:
        warnings.warn_explicit(
            f"program {program.__name__!r} was not checked to the end on {', '.join(given_up)}, "
            "which takes too many operations: let sample_args= give smaller tensors",
            **place,
        )
    if not findings:
        return
    text = "\n".join(findings) + f"\n(found by `ditron check`; {knobs.protocol.name}=off says nothing of it)"
    if how == "error":
        error = ProtocolError(text)
        error.findings = tuple(findings)
        raise error
    warnings.warn_explicit(text, **place)


def _verdict(program: Any, path: Path) -> tuple[list[str], list[str]]:
    """The findings, and the groups that were given up; from the cache if they are there."""
    try:
        known = json.loads(path.read_text())
        return known["findings"], known["given_up"]
    except (OSError, ValueError, KeyError):
        pass
    with budget(SECONDS, None):
        report = check_program(program)
    findings = [str(finding) for finding in report.findings]
    try:  # a cache that cannot be written only costs time
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(
            json.dumps(
                {"findings": findings, "given_up": report.given_up, "notes": report.notes, "seconds": report.seconds}
            )
        )
        temporary.replace(path)
    except OSError:
        pass
    return findings, report.given_up


def _spelled(value: Any) -> Any:
    """A value whose repr is the same in every process."""
    return (value.__code__.co_code, value.__code__.co_consts) if inspect.isfunction(value) else value


def _key(program: Any, module: Any) -> str:
    """Of what a verdict depends on: the program and its kernels, what it is checked with, and our sources."""
    from ditron_compiler.frontend.source import compiler_key
    from ditron_compiler.frontend.targets import SIM_TARGET

    text = module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
    parts = (
        compiler_key(SIM_TARGET),
        program.__name__,
        repr(tree_map(_spelled, sample_args(program, 2, 0)[0])),
        str(program.max_nodes),
        text,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
