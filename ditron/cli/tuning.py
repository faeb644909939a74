"""``ditron tune``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from ditron.cli.kernels import UsageError
from ditron.cli.progress import progress, timed
from ditron.cli.shapes import bucket, problems

if TYPE_CHECKING:
    from ditron.tuning.problem import Options, Problem
    from ditron.tuning.tables import Entry

__all__ = ["tune_command"]

_TOP_OF_SEARCH = 8


def tune_command(args: argparse.Namespace) -> int:
    """Measure the candidates of every shape, print them, and keep the table."""
    import torch

    count = torch.cuda.device_count()
    ranks = args.ranks or max(count, 1)
    buckets = list(dict.fromkeys(bucket(problem) for problem in problems(args, ranks)))
    _check_only(buckets, args.only)
    if count == 0:
        print("ditron tune: measures on GPUs, and there is none here: 'ditron explain' needs none", file=sys.stderr)
        return 1
    if ranks > count:
        raise UsageError(f"--ranks {ranks}: this machine has {count} GPUs")
    with progress() as show:
        return _tune(args, buckets, ranks, timed(show, args.verbose))


def _tune(args: argparse.Namespace, problems: list[Problem], ranks: int, say: Callable[[str], None]) -> int:
    import torch

    from ditron.tuning import compile_ahead, processes
    from ditron.tuning.registry import candidates_of
    from ditron.tuning.tables import Table, machine_name, user_path, versions
    from ditron_compiler.errors import DitronError

    begin, gpu = time.monotonic(), torch.cuda.get_device_properties(0)
    machine, sms = machine_name(gpu.name), gpu.multi_processor_count
    path = Path(args.output) if args.output else user_path(machine, ranks)
    try:
        processes.check_output(path, machine, ranks)
    except DitronError as error:
        raise UsageError(str(error)) from None
    declared = [(problem, _only(candidates_of(problem), args.only)) for problem in problems]
    jobs = [processes.Job(problem, candidates) for problem, candidates in _ordered(args, declared, machine, say)]
    compile_ahead.run(jobs, gpu.major * 10 + gpu.minor, sms, say)
    settings = processes.Settings(
        range(ranks), args.limit, args.total or float("inf"), args.rounds, args.timing, say=say
    )
    entries = processes.measure(jobs, settings)
    say("")
    about = {"date": str(date.today()), "torch": torch.__version__, "gpu": gpu.name}
    table = Table(machine, ranks, versions(), about)
    done = [entry for entry in entries if not any(map(processes.is_left_out, entry.candidates))]
    for entry in done:
        table.add(entry)
        print("\n".join(_rows(entry, machine)))
    processes.keep(table, path)
    print(f"{path}: {len(done)} of {len(entries)} shapes in {time.monotonic() - begin:.0f} s")
    return 0 if len(done) == len(entries) and all(entry.best() for entry in entries) else 1


def _ordered(
    args: argparse.Namespace, declared: list[tuple[Problem, list[Options]]], machine: str, say: Callable[[str], None]
) -> list[tuple[Problem, list[Options]]]:
    """Those that ``--top`` and ``--search`` ask for, by predicted time; without them all, as they are declared."""
    from ditron.tuning.floors import machine_of
    from ditron.tuning.order import ordered, predicted

    if not args.top and not args.search:
        return declared
    described = machine_of(machine, declared[0][0].ranks)
    if described is None:
        option = "--top" if args.top else "--search"
        raise UsageError(f"{option} needs predictions, and no file in ditron/machines describes {machine}")
    top = args.top or _TOP_OF_SEARCH
    timed = predicted(declared, described, args.search or 0, args.seed, say=say)
    return [
        (problem, ordered(candidates, times, top)) for (problem, candidates), times in zip(declared, timed, strict=True)
    ]


def _rows(entry: Entry, machine: str) -> Iterator[str]:
    """A table of the candidates of a problem."""
    from ditron.tuning.floors import LEAST_FLOOR, floor_of, machine_of
    from ditron.tuning.problem import options_text
    from ditron.tuning.registry import OPERATORS

    limits = machine_of(machine, entry.problem.ranks)
    floor = floor_of(entry.problem, limits).us if limits else None
    floor = floor if floor and floor >= LEAST_FLOOR else None
    chosen = entry.best(None, OPERATORS[entry.problem.operator].named_only)
    yield f"{entry.problem}" + (f", floor {floor:.1f} us" if floor else "")
    for candidate in entry.candidates:
        marks = [word for word, is_so in (("rule", candidate.is_rule), ("chosen", candidate is chosen)) if is_so]
        time = f"{candidate.us:10.1f} us" if candidate.us is not None else f"{'-':>10}   "
        over = f" {candidate.us / floor:6.2f}" if floor and candidate.us is not None else " " * 7
        why = f"  {candidate.failure.splitlines()[0]}" if candidate.failure else ""
        marked = f"  <- {', '.join(marks)}" if marks else ""
        yield f"{time}{over}  {options_text(candidate.options)}{marked}{why}"
    yield ""


def _only(candidates: list[Options], algorithms: Sequence[str] | None) -> list[Options]:
    """The rule's choice, which the others are compared with, and the candidates of some algorithms."""
    first, *others = candidates
    return [first, *(other for other in others if not algorithms or other.get("algorithm") in algorithms)]


def _check_only(problems: list[Problem], algorithms: Sequence[str] | None) -> None:
    from ditron.tuning.registry import candidates_of

    known = {options.get("algorithm") for problem in problems for options in candidates_of(problem)}
    for name in algorithms or ():
        if name not in known:
            raise UsageError(f"--only {name}: no candidate of these shapes; there are {', '.join(sorted(known))}")
