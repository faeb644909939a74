"""``ditron run``."""
from __future__ import annotations

import argparse
import io
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import NoReturn

from ditron.cli.kernels import UsageError
from ditron.cli.progress import progress
from ditron.errors import CompileError, DitronError, SimulationError

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

    if args.seeds is not None:
        if args.seeds < 1:
            raise UsageError(f"--seeds {args.seeds}: expected at least 1 seed")
        return _explore(args, run)
    try:
        return run(args.seed)
    except Exception as error:
        _failed(args, args.seed or 0, error)


def _explore(args: argparse.Namespace, run: Callable[[int], int]) -> int:
    """Run with one seed after another until one fails; its exit code."""
    start = args.seed or 0
    for seed in range(start, start + args.seeds):
        try:
            with progress() as say, _shown_if_wrong() as printed:
                say(f"seed {seed}, {seed - start + 1} of {args.seeds}")
                code = run(seed)
        except Exception as error:
            _failed(args, seed, error)
        if code:
            sys.stdout.write(printed.getvalue())
            print(f"the script ended with exit code {code}; again: {_replay(args, seed)}", file=sys.stderr)
            return code
    print(f"{args.seeds} seeds, {start} to {start + args.seeds - 1}: nothing found")
    return 0


@contextmanager
def _shown_if_wrong() -> Iterator[io.StringIO]:
    """Keeps back what is printed within it, unless it ends by an exception."""
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            yield printed
    except BaseException:
        sys.stdout.write(printed.getvalue())
        sys.stdout.flush()
        raise


def _failed(args: argparse.Namespace, seed: int, error: Exception) -> NoReturn:
    """Raise an error of a run, which then says what finds it again; a wrong call says where it stands, too."""
    again = f"seed {seed}; again: {_replay(args, seed)}"
    if isinstance(error, CompileError):  # which is the same with every seed
        raise error
    if isinstance(error, SimulationError):
        error.args = (f"{error}\n{again}",)
    elif isinstance(error, DitronError):
        place = _place(error)
        error.args = (f"{error}\n" + ("" if place in str(error) else f"  at {place}\n") + again,)
    else:
        error.add_note(again)
    raise error


def _place(error: Exception) -> str:
    """``file:line`` of the innermost frame that is not ours."""
    ours = str(Path(__file__).resolve().parents[1])
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)
              if not frame.filename.startswith((ours, "<"))]
    return places[-1] if places else "an unknown line"


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
