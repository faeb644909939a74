"""``ditron check``."""

from __future__ import annotations

import argparse
import ast
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ditron.cli.kernels import RunsWhenImported, UsageError, import_file, require_python
from ditron.cli.progress import progress
from ditron_compiler.protocol.budget import budget

__all__ = ["check_command"]


def check_command(args: argparse.Namespace) -> int:
    """Check programs, a kernel, or a script; print the reports. 1: findings; 3: none, but not all was checked."""
    file, _, name = args.subject.rpartition(":") if not Path(args.subject).is_file() else (args.subject, "", "")
    path = Path(file or args.subject)
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    if name and args.args:
        raise UsageError(
            f"{' '.join(args.args)!r} after {args.subject}: options come before it, and only a script has arguments"
        )
    groups = _groups(args)
    limits = budget(args.time_limit, args.memory_limit, alarm=threading.current_thread() is threading.main_thread())
    with progress() as say, limits:
        reports = _named(path, name, groups, args, say) if name else _all(path, groups, args, say)
    print("\n\n".join(str(report) for report in reports))
    if any(report.findings for report in reports):
        return 1
    return 0 if all(report.is_complete for report in reports) else 3


def _groups(args: argparse.Namespace) -> Sequence[tuple[int, int | None]]:
    if args.ranks is None:
        if args.ranks_per_node is not None:
            raise UsageError("--ranks-per-node: expected --ranks N with it")
        from ditron.protocol.api import GROUPS

        return GROUPS
    per_node = args.ranks_per_node
    if args.ranks < 1 or (per_node is not None and (per_node < 1 or args.ranks % per_node)):
        raise UsageError(f"--ranks {args.ranks}: expected at least 1, and a whole number of nodes")
    return [(args.ranks, per_node)]


def _values(given: Sequence[str]) -> dict[int, Any]:
    """``--value LINE=VALUE``, by line."""
    found = {}
    for text in given:
        line, equals, value = text.partition("=")
        try:
            found[int(line)] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, TypeError):
            equals = ""
        if not equals:
            raise UsageError(f"--value {text!r}: expected LINE=VALUE, a line of the script and a number or a list")
    return found


def _announced(
    groups: Sequence[tuple[int, int | None]], subject: str, say: Callable[[str], None]
) -> Iterator[tuple[int, int | None]]:
    """The groups, each announced before it is checked."""
    for ranks, per_node in groups:
        nodes = f" on {ranks // per_node} nodes" if per_node else ""
        say(f"{subject}: {ranks} ranks{nodes} ...")
        yield ranks, per_node


def _programs(module: Any) -> dict[str, Any]:
    try:
        from ditron._program.program import Program
    except ImportError:
        return {}
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Program) and value.fn.__module__ == module.__name__
    }


def _named(path: Path, name: str, groups: Any, args: argparse.Namespace, say: Callable[[str], None]) -> list[Any]:
    """The program ``FILE:NAME``, or the kernel by the file's ``EXAMPLE["check"]``."""
    from ditron.protocol import api as checking

    module = import_file(path, asserts=False)  # results mean nothing here, and an assert about them would end the check
    programs = _programs(module)
    if name in programs and programs[name].sample_args is None:
        raise UsageError(
            f"program {name!r} has no sample arguments to check it with: give its decorator "
            "sample_args=lambda ranks: {...}, small arguments by name as for example="
        )
    if name in programs:
        facts = dict(resident=args.resident, larger=args.ranks is None, samples=args.samples)
        return [checking.check_program(programs[name], _announced(groups, name, say), **facts)]
    value = getattr(module, name, None)
    if value is None:
        raise UsageError(f"{path} has no {name!r}; its programs are: {', '.join(programs) or 'none'}")
    example = getattr(value, "example", None) or getattr(module, "EXAMPLE", None) or {}
    run = example.get("check") or (value if callable(value) and not hasattr(value, "fn") else None)
    if run is None:
        raise UsageError(
            f'{path}:{name} is a kernel, and it is not known how it is launched: give EXAMPLE["check"], a '
            f"function that each rank calls, or check the script that launches it: ditron check {path}"
        )
    return [
        checking.check_function(
            run,
            _announced(groups, name, say),
            subject=name,
            resident=args.resident,
            larger=args.ranks is None,
            values=_values(args.value),
            samples=args.samples,
        )
    ]


def _all(path: Path, groups: Any, args: argparse.Namespace, say: Callable[[str], None]) -> list[Any]:
    """All programs of a file; of one that has none, what it launches as a script."""
    from ditron.protocol import api as checking

    if not args.args:
        try:
            module = import_file(path, asserts=False)
            programs = [program for program in _programs(module).values() if program.sample_args is not None]
        except RunsWhenImported:  # a script without "if __name__ ...": it is checked as a script
            programs = []
        if programs:
            return [
                checking.check_program(
                    program,
                    _announced(groups, program.__name__, say),
                    resident=args.resident,
                    larger=args.ranks is None,
                    samples=args.samples,
                )
                for program in programs
            ]
    require_python(str(path))
    announced = _announced(groups, path.name, say)
    facts = dict(resident=args.resident, larger=args.ranks is None, samples=args.samples)
    return [checking.check_script(path, args.args, announced, values=_values(args.value), **facts)]
