"""``ditron explain``."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ditron.cli.kernels import UsageError
from ditron.cli.progress import progress
from ditron.cli.shapes import bucket, problems
from ditron.tuning.problem import OF_EXPERTS, Problem

if TYPE_CHECKING:
    from ditron.machines import Machine
    from ditron.tuning.tables import Table

__all__ = ["explain_command"]

_STATES = {"graph": "calls that follow each other in CUDA graphs", "call": "single calls, after a pause"}


def explain_command(args: argparse.Namespace) -> int:
    """Print what would run, why, and what it costs."""
    from ditron.tuning.explain import explain
    from ditron.tuning.floors import nodes_of
    from ditron.tuning.outlook import outlook
    from ditron.tuning.registry import candidates_of

    gpu, ranks, machine = _machine(args.machine, args.ranks)
    if args.set and machine is None:
        raise UsageError(f"--set is for machines with a file, and {gpu} x {ranks} has none: name one, as h200x2")
    changed = machine.with_changes(args.set) if machine is not None else None
    # Before the tables, whose entries are of operators that are declared.
    shapes = [_routed(problem, args.routing) for problem in problems(args, ranks)]
    table = _table(gpu, ranks, machine, changed)
    answers = []
    with progress() as show:
        for problem in shapes:
            predicted = None
            candidates = candidates_of(problem, nodes_of(problem, machine))
            if machine is not None and candidates:
                timed = machine.sustained().in_graph() if args.timing == "graph" else machine
                found = table.find(bucket(problem))
                predicted = outlook(
                    problem,
                    candidates,
                    timed.with_changes(args.set),
                    _STATES[args.timing] + "".join(f", {change}" for change in args.set),
                    found.entry if found is not None else None,
                    show,
                )
            answers.append(explain(problem, bucket(problem), table, changed, None, predicted))
    if args.json:
        print(json.dumps([answer.to_json() for answer in answers], indent=1))
    else:
        print("\n\n".join(answer.text() for answer in answers))
    return 0


def _routed(problem: Problem, routing: str) -> Problem:
    """The problem under a distribution of routes; UsageError where it has no experts, or there is none of that name."""
    from ditron.kernels.route_draws import RouteDistribution

    try:
        RouteDistribution.parse(routing)
    except ValueError as error:
        raise UsageError(f"--routing: {error}") from None
    if routing != "uniform" and not problem.experts:
        raise UsageError(
            f"--routing {routing}: {problem.operator} has no experts, as {', '.join(sorted(OF_EXPERTS))} have; "
            "predict a script that calls ditron.kernels.draw_routes, by ditron run --machine NAME --routing"
        )
    return replace(problem, routing=routing)


def _is_file(name: str) -> bool:
    """Whether a machine's file is of that name, or of a node of it."""
    from ditron import machines

    return any(re.fullmatch(rf"{re.escape(known)}(x[0-9]+)?", name) for known in machines.names())


def _table(gpu: str | None, ranks: int, machine: Machine | None, changed: Machine | None) -> Table:
    """What was measured there: nothing on a machine that is described by a file of the user's, or with --set.

    Raises UsageError for a machine that has neither a file nor a table.
    """
    from ditron import machines
    from ditron.tuning.tables import Table, tables_of, versions

    if gpu is None or changed is not machine:
        name = gpu or (machine.name if machine is not None else "")
        return Table(name, ranks, versions())
    table = tables_of(gpu, ranks)
    if machine is None and not table.entries:
        raise UsageError(
            f"--machine {gpu}x{ranks}: there is neither a file nor a table of it; there are files of "
            f"{', '.join(machines.names())}: name one of them, or a file of yours that ends in .toml "
            "(docs/predicting.md), or measure with 'ditron tune' there"
        )
    return table


def _machine(text: str | None, ranks: int | None) -> tuple[str | None, int, Machine | None]:
    """A GPU as tables name it, the number of ranks, and the machine's file: as named, or of this machine's GPUs.

    Without any of them, two H200s.
    """
    from ditron.tuning.floors import machine_of

    if text is None:
        import torch

        from ditron.tuning.tables import machine_name

        gpu = "h200"
        if torch.cuda.is_available():
            gpu, ranks = machine_name(torch.cuda.get_device_name()), ranks or torch.cuda.device_count()
        return gpu, ranks or 2, machine_of(gpu, ranks or 2)
    from ditron import machines

    found = re.fullmatch(r"(?!x[0-9]*$)([a-z0-9][a-z0-9_-]*?)(?:x([0-9]{1,6}))?", text.lower())
    if text.endswith(".toml") or found and _is_file(text.lower()):
        machine = machines.load(text if text.endswith(".toml") else text.lower())
        if ranks is not None and ranks > machine.size:
            raise UsageError(
                f"--machine {text} has {machine.size} ranks, and --ranks says {ranks}: ask for fewer, or name a "
                "larger machine"
            )
        of_gpu = found is not None and machine.nodes == 1 and machine_of(found[1], machine.size) == machine
        return found[1] if found and of_gpu else None, ranks or machine.size, machine
    if found is None or found[2] is not None and int(found[2]) < 1:
        raise UsageError(f"--machine {text!r}: expected a GPU and how many, from 1, as h200x2, or a GPU, as h200")
    gpu, number = found[1], found[2]
    if ranks is not None and number and int(number) != ranks:
        raise UsageError(f"--machine {text} has {number} ranks, and --ranks says {ranks}")
    ranks = ranks or int(number or 2)
    return gpu, ranks, machine_of(gpu, ranks)
