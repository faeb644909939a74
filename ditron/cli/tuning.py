"""``ditron tune`` and ``ditron explain``."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from ditron.cli.kernels import UsageError
from ditron.cli.progress import progress

if TYPE_CHECKING:
    from ditron.tuning.problem import Options, Problem
    from ditron.tuning.tables import Entry

__all__ = ["FORMS", "explain_command", "tune_command"]

FORMS = ("strong", "weight-per-rank")


def tune_command(args: argparse.Namespace) -> int:
    """Measure the candidates of every shape, print them, and keep the table."""
    import torch

    count = torch.cuda.device_count()
    ranks = args.ranks or max(count, 1)
    problems = list(dict.fromkeys(_bucket(problem) for problem in _problems(args, ranks)))
    _check_only(problems, args.only)
    if count == 0:
        print("ditron tune: measures on GPUs, and there is none here: 'ditron explain' needs none", file=sys.stderr)
        return 1
    if ranks > count:
        raise UsageError(f"--ranks {ranks}: this machine has {count} GPUs")
    with progress() as show:
        return _tune(args, problems, ranks, _say(args.verbose, show))


def _say(verbose: bool, show: Callable[[str], None]) -> Callable[[str], None]:
    begin = time.monotonic()

    def say(text: str) -> None:
        if verbose:
            print(f"{time.monotonic() - begin:6.1f} s  {text}", file=sys.stderr, flush=True)
        else:
            show(text)

    return say


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
    jobs = [processes.Job(problem, _only(candidates_of(problem), args.only)) for problem in problems]
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


def _rows(entry: Entry, machine: str) -> Iterator[str]:
    """A table of the candidates of a problem."""
    from ditron.tuning.machines import LEAST_FLOOR, floor_of, machine_of
    from ditron.tuning.problem import options_text
    from ditron.tuning.registry import OPERATORS

    limits = machine_of(machine)
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


def explain_command(args: argparse.Namespace) -> int:
    """Print what would run, why, and what it costs."""
    from ditron.tuning.explain import explain
    from ditron.tuning.machines import machine_of
    from ditron.tuning.tables import tables_of

    machine, ranks = _machine(args.machine, args.ranks)
    limits = machine_of(machine)
    problems = list(_problems(args, ranks))  # before the tables, whose entries are of operators that are declared
    table = tables_of(machine, ranks)
    answers = [explain(problem, _bucket(problem), table, limits) for problem in problems]
    if args.json:
        print(json.dumps([answer.to_json() for answer in answers], indent=1))
    else:
        print("\n\n".join(answer.text() for answer in answers))
    return 0


def _machine(text: str | None, ranks: int | None) -> tuple[str, int]:
    """Name and number of ranks: as named, or of this machine's GPUs; without any, two H200s."""
    if text is not None:
        found = re.fullmatch(r"(?!x[0-9]*$)([a-z0-9][a-z0-9_-]*?)(?:x([0-9]{1,6}))?", text.lower())
        if found is None or found[2] is not None and int(found[2]) < 1:
            raise UsageError(f"--machine {text!r}: expected a GPU and how many, from 1, as h200x2, or a GPU, as h200")
        name, number = found[1], found[2]
        if ranks is not None and number and int(number) != ranks:
            raise UsageError(f"--machine {text} has {number} ranks, and --ranks says {ranks}")
        return name, ranks or int(number or 2)
    import torch

    from ditron.tuning.tables import machine_name

    if torch.cuda.is_available():
        return machine_name(torch.cuda.get_device_name()), ranks or torch.cuda.device_count()
    return "h200", ranks or 2


def _bucket(problem: Problem) -> Problem:
    from ditron.tuning.problem import bucket_of

    return replace(problem, rows=bucket_of(problem.rows))


def _problems(args: argparse.Namespace, ranks: int) -> Iterator[Problem]:
    """The shapes on the command line, or those in a file, of one operator a line."""
    if args.shapes is None:
        if args.operator is None:
            raise UsageError("name an operator and its sizes, as in 'ag_gemm 8192 11008 4096', or a --shapes file")
        yield from _shapes(args.operator, args.sizes, ranks, args.dtype, args.form)
        return
    if args.operator is not None:
        raise UsageError("a --shapes file names the operators itself")
    try:
        lines = Path(args.shapes).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {args.shapes}: {error}") from error
    if not any(line.partition("#")[0].strip() for line in lines):
        raise UsageError(f"{args.shapes} has no shapes: expected lines as 'ag_gemm 8192 11008 4096'")
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        form = words.pop() if words and words[-1] in FORMS else args.form
        if words:
            try:
                if len(words) > 1 and not words[-1][0].isdigit():
                    raise UsageError(f"{words[-1]!r} is neither a size nor a form: forms are {', '.join(FORMS)}")
                yield from _shapes(words[0], words[1:], ranks, args.dtype, form)
            except UsageError as error:
                raise UsageError(f"{args.shapes}:{number}: {error}") from None


def _shapes(operator: str, sizes: Sequence[str], ranks: int, dtype: str, form: str) -> Iterator[Problem]:
    from ditron import kernels  # noqa: F401 (declares what can be tuned)
    from ditron.tuning.problem import DTYPES, Problem
    from ditron.tuning.registry import OPERATORS

    if operator not in OPERATORS:
        raise UsageError(f"{operator!r} has no choice to make: expected one of {', '.join(sorted(OPERATORS))}")
    numbers = [_size(size) for size in sizes]
    if "gemm" not in operator:
        if not numbers:
            raise UsageError(f"{operator} takes sizes in bytes of a rank's tensor, as in '{operator} 64K 2M'")
        for nbytes in numbers:
            share = ranks if operator == "reduce_scatter" else 1  # its result is a part of the tensor
            yield Problem(operator, dtype, ranks, max(1, nbytes // DTYPES[dtype] // share))
        return
    if not numbers or len(numbers) % 3:
        raise UsageError(f"{operator} takes M N K, or several times M N K, got {' '.join(sizes) or 'no sizes'}")
    for at in range(0, len(numbers), 3):
        yield _product(operator, *numbers[at : at + 3], ranks, dtype, form)


def _product(operator: str, M: int, N: int, K: int, ranks: int, dtype: str, form: str) -> Problem:
    from ditron.tuning.problem import Problem

    divided = {"ag_gemm": N, "gemm_rs": K, "gemm_ar": K}[operator]
    if form == "strong":
        if divided % ranks:
            what = "N" if operator == "ag_gemm" else "K"
            raise UsageError(f"{operator}: {ranks} ranks cannot share {what} = {divided} (--form weight-per-rank?)")
        N, K = (N // ranks, K) if operator == "ag_gemm" else (N, K // ranks)
    if operator == "gemm_rs" and M % ranks:
        raise UsageError(f"{operator}: {ranks} ranks cannot share {M} rows")
    return Problem(operator, dtype, ranks, M if operator == "gemm_ar" else -(-M // ranks), N, K)


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if found is None or int(found[1]) < 1:
        raise UsageError(f"{text!r} is no size: expected a number from 1, as 8192, or with K, M or G, as 64K")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]
