"""``ditron run``."""
from __future__ import annotations

import argparse
import io
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from ditron.cli.kernels import UsageError
from ditron.errors import SimulationError

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

    def run(seed: int | None) -> int:
        return sim.run_script(args.script, args.args, ranks=args.sim, ranks_per_node=ranks_per_node, seed=seed,
                              trace=args.trace, timeline=args.timeline, races=args.races, weak=args.weak,
                              as_cuda=args.as_cuda)

    if args.seeds is None:
        with _saying_how_to_replay(args, args.seed or 0):
            return run(args.seed)
    if args.seeds < 1:
        raise UsageError(f"--seeds {args.seeds}: expected at least 1 seed")
    return _explore(args, run)


def _explore(args: argparse.Namespace, run: Callable[[int], int]) -> int:
    """Run with one seed after another until one fails; its exit code, or what it raised."""
    start = args.seed or 0
    for seed in range(start, start + args.seeds):
        printed = io.StringIO()
        try:
            with _saying_how_to_replay(args, seed), redirect_stdout(printed):
                code = run(seed)
        except BaseException:
            sys.stdout.write(printed.getvalue())
            raise
        if code:
            sys.stdout.write(printed.getvalue())
            print(f"the script ended with exit code {code}; again: {_replay(args, seed)}", file=sys.stderr)
            return code
    print(f"{args.seeds} seeds, {start} to {start + args.seeds - 1}: nothing found")
    return 0


@contextmanager
def _saying_how_to_replay(args: argparse.Namespace, seed: int) -> Iterator[None]:
    """Let an error say which seed shows it again."""
    try:
        yield
    except SimulationError as error:
        error.args = (f"{error}\nseed {seed}; again: {_replay(args, seed)}",)
        raise
    except Exception:
        print(f"seed {seed}; again: {_replay(args, seed)}", file=sys.stderr)
        raise


def _replay(args: argparse.Namespace, seed: int) -> str:
    words = ["ditron", "run", "--sim", str(args.sim)]
    if args.ranks_per_node is not None:
        words += ["--ranks-per-node", str(args.ranks_per_node)]
    if args.nodes is not None:
        words += ["--nodes", str(args.nodes)]
    if args.as_cuda:
        words.append("--as-cuda")
    for name, value in (("races", args.races), ("weak", args.weak)):
        if value is not None:
            words.append(f"--{name}" if value else f"--no-{name}")
    words += ["--replay", str(seed)]
    return shlex.join([*words, args.script, *args.args])
