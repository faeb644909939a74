"""Many schedules of some shapes, measured in one run: a table for ``benchmark/ranking.py --table``.

    python benchmark/ranking_gpu.py --output ranking.json           # on a machine with two GPUs, about ten minutes
    python benchmark/ranking.py --table ranking.json                # then, anywhere
    python benchmark/ranking_gpu.py --list lists.json               # what would be measured; needs no GPU
    python benchmark/ranking_gpu.py --lists lists.json              # measures that, and predicts nothing first

Of each shape: the declared candidates, the best eight that a search of a hundred predictions finds, and schedules of
the operator's space that are drawn at random, ``--schedules`` in all. As ``ditron tune`` measures: in processes that
are ended when a schedule hangs, samples of CUDA graphs in turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from pathlib import Path

from ditron import kernels, machines  # noqa: F401 (kernels declares the operators)
from ditron.tuning.order import predicted, with_tuples
from ditron.tuning.problem import Options, Problem, options_text
from ditron.tuning.registry import candidates_of, space_of
from ditron.tuning.search import Space

#: Operator, rows of a rank, N and K of its weight, for two ranks: MLPs of LLaMA 7B and 70B, and Qwen 32B.
SHAPES = (
    ("ag_gemm", 4096, 1376, 4096), ("ag_gemm", 1024, 5504, 4096), ("ag_gemm", 2048, 3200, 5120),
    ("ag_gemm", 1024, 3584, 8192), ("ag_gemm", 4096, 14336, 8192),
    ("gemm_rs", 4096, 4096, 1376), ("gemm_rs", 1024, 4096, 5504), ("gemm_rs", 2048, 5120, 3200),
    ("gemm_rs", 1024, 8192, 3584), ("gemm_rs", 4096, 8192, 14336),
)  # fmt: skip


def every(space: Space) -> list[Options]:
    """All schedules of a space."""
    names, values = list(space.parameters), space.parameters.values()
    points = [
        {"algorithm": space.algorithm} | dict(zip(names, point, strict=True)) for point in itertools.product(*values)
    ]
    return [point for point in points if space.is_valid(point)]


def schedules(problem: Problem, best: list[Options], count: int, sms: int, seed: int = 0) -> list[Options]:
    """The rule's choice, the other declared ones, the best predicted, and others at random, which ``seed`` decides."""
    space = space_of(problem, sms)
    found = candidates_of(problem)
    if space is None:
        return found
    known = [space.complete(options) for options in found]
    rest = every(space)
    random.Random(f"{problem} {seed}").shuffle(rest)
    for options in (*best, *rest):
        if len(found) >= count:
            break
        if space.complete(options) not in known:
            known.append(space.complete(options))
            found.append(options)
    return found


def drawn(shapes: int, count: int, seed: int, say: Callable[[str], None]) -> tuple[list[Problem], list[list[Options]]]:
    """The first shapes, the operators in turns, and the schedules of each that are measured."""
    machine = machines.load("h200x2")
    alternating = [shape for pair in zip(SHAPES[:5], SHAPES[5:], strict=True) for shape in pair]  # as time may end
    problems = [Problem(name, "bf16", 2, rows, N, K) for name, rows, N, K in alternating[:shapes]]
    timed = predicted([(problem, candidates_of(problem)) for problem in problems], machine, search=100, say=say)
    best = [[options for options, us in times if us is not None][:8] for times in timed]
    sms = int(machine["sm.count"])
    return problems, [schedules(p, own, count, sms, seed) for p, own in zip(problems, best, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=64, help="of each shape (default 64)")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="measure the first so many of both operators")
    parser.add_argument("--seed", type=int, default=0, help="of the schedules that are drawn at random (default 0)")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds that a schedule may take")
    parser.add_argument("--total", type=float, default=540.0, help="seconds for everything")
    parser.add_argument("--output", type=Path, default=Path("ranking.json"))
    parser.add_argument("--list", type=Path, help="print what would be measured, and write it to this file")
    parser.add_argument("--lists", type=Path, help="measure what --list wrote, and draw nothing")
    given = parser.parse_args()
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin:6.1f} s  {text}", file=sys.stderr, flush=True)

    if given.lists:
        written = json.loads(given.lists.read_text())
        problems = [Problem(**problem) for problem, _ in written]
        listed = [[with_tuples(options) for options in own] for _, own in written]
    else:
        problems, listed = drawn(given.shapes, given.schedules, given.seed, say)
    if given.list:
        for problem, options in zip(problems, listed, strict=True):
            print(problem, *(f"  {options_text(one)}" for one in options), sep="\n")
        given.list.write_text(json.dumps([[asdict(p), own] for p, own in zip(problems, listed, strict=True)]))
        return
    import torch

    from ditron.tuning import compile_ahead, processes
    from ditron.tuning.tables import Table, machine_name, versions

    gpu = torch.cuda.get_device_properties(0)
    jobs = [processes.Job(problem, options) for problem, options in zip(problems, listed, strict=True)]
    compile_ahead.run(jobs, gpu.major * 10 + gpu.minor, gpu.multi_processor_count, say)
    total = given.total - (time.monotonic() - begin)
    settings = processes.Settings(range(2), given.limit, total, given.rounds, say=say)
    entries = processes.measure(jobs, settings)
    about = {"date": str(date.today()), "torch": torch.__version__, "gpu": gpu.name}
    table = Table(machine_name(gpu.name), 2, versions(), about)
    for entry in entries:
        known = [candidate for candidate in entry.candidates if candidate.us is not None]
        failed = [c for c in entry.candidates if c.us is None and not processes.is_left_out(c)]
        print(f"{entry.problem}: {len(known)} measured, {len(failed)} failed", flush=True)
        for candidate in failed:
            print(f"  {options_text(candidate.options)}: {candidate.failure.splitlines()[0]}")
        if known:
            table.add(entry)
    table.save(given.output)
    print(f"{given.output}: {len(table.entries)} shapes in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
