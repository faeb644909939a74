"""``ditron run``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ditron.cli.exploring import explore, explore_in_parallel
from ditron.cli.kernels import UsageError, require_python

__all__ = ["run_command"]


def _machine(args: argparse.Namespace) -> Any:
    """The machine that options ask for; None without --machine."""
    if args.machine is None:
        for name in ("set", "timing_only", "sustained", "graph"):
            if getattr(args, name):
                raise UsageError(f"--{name.replace('_', '-')} is for --machine: name one, as --machine h200x4")
        return None
    from ditron import machines

    machine = machines.load(args.machine)
    if args.sustained:
        machine = machine.sustained()
    if args.graph:
        machine = machine.in_graph()
    return machine.with_changes(args.set)


def run_command(args: argparse.Namespace) -> int:
    """Run a script on simulated ranks; its exit code is the command's."""
    machine = _machine(args)
    if args.sim is None:
        if machine is None:
            raise UsageError("--sim N says how many ranks, or --machine NAME which machine's")
        args.sim = machine.size
    if args.sim < 1:
        raise UsageError(f"--sim {args.sim}: expected at least 1 rank")
    ranks_per_node = args.ranks_per_node
    if args.nodes is not None:
        if args.nodes < 1 or args.sim % args.nodes:
            raise UsageError(f"--nodes {args.nodes}: expected a number that divides the {args.sim} ranks")
        ranks_per_node = args.sim // args.nodes
    if ranks_per_node is not None and (ranks_per_node < 1 or args.sim % ranks_per_node):
        raise UsageError(f"--ranks-per-node {ranks_per_node}: expected a number that divides the {args.sim} ranks")
    if not Path(args.script).is_file():
        raise UsageError(f"no such file: {args.script}")
    require_python(args.script)
    if args.routing is not None:
        from ditron.kernels.route_draws import RouteDistribution

        try:
            RouteDistribution.parse(args.routing)
        except ValueError as error:
            raise UsageError(f"--routing: {error}") from None
    from ditron.sim import recorder
    from ditron.sim.prediction import require_ranks
    from ditron.sim.script_run import ScriptRun

    try:
        recorder.require_writable(args.sim, args.trace, args.timeline, has_clock=machine is not None)
    except (ValueError, ImportError) as error:
        raise UsageError(str(error)) from None

    run = ScriptRun(
        args.script,
        args.args,
        args.sim,
        ranks_per_node,
        args.trace,
        args.timeline,
        args.races,
        args.weak,
        args.as_cuda,
        args.traceback,
        machine,
        args.timing_only,
        args.routing,
    )
    if machine is not None:
        if args.seeds is not None:
            raise UsageError(
                "--seeds explores schedules, and with --machine the clock makes one: leave one of them out"
            )
        require_ranks(machine, args.sim, ranks_per_node or min(args.sim, machine.ranks))
    if args.replay is not None:
        if args.seed is not None or args.seeds is not None:
            raise UsageError(
                "--replay is one seed's run: leave out --seed and --seeds, or explore from there on by "
                f"--seed {args.replay} --seeds COUNT"
            )
        args.seed = args.replay
    if args.seed is not None and not 0 <= args.seed < 2**63:
        raise UsageError(f"seed {args.seed}: expected a number from 0 to 2**63 - 1")
    if args.jobs is not None:
        if args.jobs < 1:
            raise UsageError(f"--jobs {args.jobs}: expected at least 1 process")
        if args.seeds is None:
            raise UsageError("--jobs is for the runs of --seeds")
        if args.trace or args.timeline:
            raise UsageError("--trace and --timeline are of one run: leave --jobs out, or --replay the seed it finds")
    if args.seeds is None:
        return run(args.seed)
    if args.seeds < 1:
        raise UsageError(f"--seeds {args.seeds}: expected at least 1 seed")
    seeds = range(args.seed or 0, (args.seed or 0) + args.seeds)
    if args.jobs is not None and min(args.jobs, args.seeds) > 1:
        code = explore_in_parallel(
            seeds, args.jobs, lambda part: run.command("--seed", str(part[0]), "--seeds", str(len(part)))
        )
    else:
        code = explore(seeds, run, run.replay)
    if not code:
        print(f"{args.seeds} seeds, {seeds[0]} to {seeds[-1]}: nothing found")
    return code
