"""``ditron run``."""

from __future__ import annotations

import argparse
import faulthandler
import shlex
import sys
import traceback
import warnings
from pathlib import Path
from typing import NoReturn

from ditron.cli.exploring import explore, explore_in_parallel
from ditron.cli.kernels import UsageError
from ditron_compiler.errors import CompileError, DitronError, SimulationError

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
    _require_python(args.script)
    if not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__)  # an extension that dies says at which line of the script
    from ditron import sim
    from ditron.sim import recorder as watch

    try:
        watch.check(args.sim, args.trace, args.timeline)
    except (ValueError, ImportError) as error:
        raise UsageError(str(error)) from None

    def run(seed: int | None) -> int:
        return sim.run_script(
            args.script,
            args.args,
            ranks=args.sim,
            ranks_per_node=ranks_per_node,
            seed=seed,
            trace=args.trace,
            timeline=args.timeline,
            races=args.races,
            weak=args.weak,
            as_cuda=args.as_cuda,
        )

    def run_or_say(seed: int | None) -> int:
        try:
            return run(seed)
        except Exception as error:
            _failed(args, seed or 0, error)

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
        return run_or_say(args.seed)
    if args.seeds < 1:
        raise UsageError(f"--seeds {args.seeds}: expected at least 1 seed")
    seeds = range(args.seed or 0, (args.seed or 0) + args.seeds)
    if args.jobs is not None and min(args.jobs, args.seeds) > 1:
        code = explore_in_parallel(
            seeds, args.jobs, lambda part: _command(args, "--seed", str(part[0]), "--seeds", str(len(part)))
        )
    else:
        code = explore(seeds, run_or_say, lambda seed: _replay(args, seed))
    if not code:
        print(f"{args.seeds} seeds, {seeds[0]} to {seeds[-1]}: nothing found")
    return code


def _require_python(script: str) -> None:
    try:
        with warnings.catch_warnings(action="ignore"):  # they come when it is run
            compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # ValueError: the file holds null bytes
        said = "".join(traceback.format_exception_only(error)).rstrip()
        raise UsageError(f"{script} is no Python script\n{said}") from None


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
    places = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<"))
    ]
    return places[-1] if places else "an unknown line"


def _replay(args: argparse.Namespace, seed: int) -> str:
    return shlex.join(["ditron", *_command(args, "--replay", str(seed))])


def _command(args: argparse.Namespace, *seeds: str) -> list[str]:
    """The words after ``ditron`` that run the same with other seeds."""
    words = ["run", "--sim", str(args.sim)]
    if args.ranks_per_node is not None:
        words += ["--ranks-per-node", str(args.ranks_per_node)]
    if args.nodes is not None:
        words += ["--nodes", str(args.nodes)]
    if args.as_cuda:
        words.append("--as-cuda")
    for name, value in (("races", args.races), ("weak", args.weak)):
        if value is not None:
            words.append(f"--{name}" if value else f"--no-{name}")
    if args.traceback:
        words.append("--traceback")
    return [*words, *seeds, args.script, *args.args]
