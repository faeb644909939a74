"""``ditron run``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ditron.cli.exploring import explore, explore_in_parallel
from ditron.cli.kernels import UsageError, require_python

__all__ = ["run_command"]


def run_command(args: argparse.Namespace) -> int:
    """Run a script on simulated ranks; its exit code is the command's."""
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
    from ditron.sim import recorder
    from ditron.sim.script_run import ScriptRun

    try:
        recorder.require_writable(args.sim, args.trace, args.timeline)
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
    )
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
