"""Which candidates are measured, and in which order: by the times that ``predict_ahead.py`` predicts."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from ditron.machines import Machine
from ditron.tuning.cores import processes_for
from ditron.tuning.problem import Options, Problem
from ditron_compiler import knobs

__all__ = ["Timed", "ordered", "predicted", "with_tuples"]

#: Times of a library's products and of our kernels are predicted with different errors (docs/results/clock.md): which
#: of two algorithms is faster is not known where one is predicted to take at most so many times as long.
_CLOSE = 1.15

#: A candidate and its predicted microseconds; None: it cannot be predicted.
Timed = tuple[Options, float | None]


def ordered(candidates: Sequence[Options], timed: Sequence[Timed], top: int | None = None) -> list[Options]:
    """What is measured: the rule's choice, the first of the candidates, then others, the least predicted time first.

    Those that cannot be predicted come last. With ``top``, the rule's choice and the best so many of those that can;
    and of each other algorithm the best, if it is not far behind.
    """
    rule = candidates[0]
    known = sorted((us, number) for number, (_, us) in enumerate(timed) if us is not None)
    best = [timed[number][0] for _, number in known[:top]]
    for us, number in known[len(best) :]:
        options = timed[number][0]
        if us <= _CLOSE * known[0][0] and all(options["algorithm"] != one["algorithm"] for one in best):
            best.append(options)
    others = [options for options in candidates if options not in best] if top is None or not known else []
    return [rule, *(options for options in (*best, *others) if options != rule)]


def predicted(
    problems: Sequence[tuple[Problem, Sequence[Options]]],
    machine: Machine,
    search: int = 0,
    seed: int = 0,
    seconds: float = 600.0,
    say: Callable[[str], None] = lambda text: None,
) -> list[list[Timed]]:
    """Candidates of each problem with predicted times, as :mod:`ditron.tuning.bench` measures them.

    Args:
        search: predict so many schedules of the operator's space too, beginning with the candidates.
        seconds: for all of them. What is not predicted by then, or fails, has no times.
    """
    parts = processes_for(len(problems))
    found: list[list[Timed]] = [[] for _ in problems]
    begin = time.monotonic()
    say(f"predicting {len(problems)} shapes")
    with tempfile.TemporaryDirectory(prefix="ditron-tune-") as folder:
        file = Path(folder) / "problems.json"
        listed = [[asdict(problem), list(candidates)] for problem, candidates in problems]
        file.write_text(json.dumps({"machine": machine.file, "search": search, "seed": seed, "problems": listed}))
        command = [sys.executable, "-m", "ditron.tuning.predict_ahead", str(file)]
        environment = knobs.environment(DITRON_TUNE=0, OMP_NUM_THREADS=1, CUDA_VISIBLE_DEVICES="")
        outputs = [Path(folder) / f"part{part}" for part in range(parts)]
        processes = []
        for part, output in enumerate(outputs):
            with output.open("wb") as stream:
                processes.append(
                    subprocess.Popen([*command, str(part), str(parts)], env=environment, stdout=stream, stderr=stream)
                )
        try:
            for process in processes:
                process.wait(max(0.1, begin + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            say(f"predictions took longer than {seconds:g} s, and are left out where they were not made")
        finally:
            for process in processes:
                process.kill()
                process.wait()
        for output in outputs:
            for line in output.read_text(errors="replace").splitlines():
                if line.startswith("{"):
                    part = json.loads(line)
                    found[part["number"]] = [(with_tuples(options), us) for options, us in part["timed"]]
    say(f"predicted in {time.monotonic() - begin:.0f} s")
    return found


def with_tuples(options: Options) -> Options:
    """Options that were JSON."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
