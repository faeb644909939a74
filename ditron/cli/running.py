"""``ditron run``."""
from __future__ import annotations

import argparse
from pathlib import Path

from ditron.cli.kernels import UsageError

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
    from ditron import sim
    from ditron.sim import watch
    try:
        watch.check(args.sim, args.trace, args.timeline)
    except (ValueError, ImportError) as error:
        raise UsageError(str(error)) from None
    return sim.run_script(args.script, args.args, ranks=args.sim, ranks_per_node=ranks_per_node, seed=args.seed,
                          trace=args.trace, timeline=args.timeline, as_cuda=args.as_cuda)
