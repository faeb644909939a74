"""One rank of those that measure: ``python -m ditron.tuning.worker FOLDER RANK FD``, started by ``processes.py``.

Every rank goes over the same candidates in the same order and says on FD, a JSON object per line, what it is at.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ditron.tuning.cores import end_with_parent
from ditron.tuning.problem import Options, Problem

__all__ = ["Bench", "run"]

_FIRST_ROUNDS = 4  # after which candidates that are far behind are sampled no more
_FAR_BEHIND = 1.3
_CLOSE = 1.05  # to the fastest: those candidates, and the rule's, are sampled as often again


class Bench(Protocol):
    """What runs and times the calls of a rank; a fake one in tests."""

    def __init__(self, rank: int, ranks: int, folder: str, timing: str): ...

    def gather(self, value: Any) -> list:
        """Every rank's value. Collective."""

    def prepare(self, problem: Problem) -> Callable[[Options], Any]:
        """The operator's call with given options, whose result is returned."""

    def differs(self, result: Any, expected: Any) -> str:
        """How a result differs from the rule's; empty when it does not."""

    def sampler(self, call: Callable[[], Any]) -> Callable[[], float]:
        """What takes a sample of a call: microseconds."""

    def recover(self) -> None:
        """After an error on this rank: raises when the process cannot go on."""


def run(spec: dict[str, Any], bench: Bench, rank: int, say: Callable[..., None]) -> None:
    """Measure the jobs of a specification."""
    for job in spec["jobs"]:
        number = job["number"]
        say(job=number, candidate=None, stage="prepare")
        call = bench.prepare(Problem(**job["problem"]))
        expected: list = []
        samplers: dict[int, Callable[[], float]] = {}
        for candidate, options in job["candidates"]:
            options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
            say(job=number, candidate=candidate, stage="check")
            failure = ""
            try:
                samplers[candidate] = _check(bench, call, options, expected)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
                say(job=number, candidate=candidate, failed=failure)
                bench.recover()
            failures = bench.gather(failure)
            if any(failures):
                samplers.pop(candidate, None)
                ranks = [f"rank {r}: {text}" for r, text in enumerate(failures) if text]
                why = f"every rank: {failures[0]}" if len(set(failures)) == 1 else "; ".join(ranks)
                say(job=number, candidate=candidate, excluded=why)
        times = _times(bench, samplers, spec["rounds"], partial(say, job=number, stage="time"))
        say(job=number, candidate=None, done=list(times.items()))


def _check(bench: Bench, call: Callable[[Options], Any], options: Options, expected: list) -> Callable[[], float]:
    """Two calls, which must give what the rule's choice gave; then what samples them."""
    for _ in range(2):
        result = call(options)
        if not expected:
            expected.append(result.clone() if hasattr(result, "clone") else result)
        if difference := bench.differs(result, expected[0]):
            raise ValueError(f"wrong result: {difference}")
    return bench.sampler(lambda: call(options))


def _times(
    bench: Bench, samplers: dict[int, Callable[[], float]], rounds: int, at: Callable[..., None]
) -> dict[int, float]:
    """Medians of the slowest rank; candidates take turns, in an order that rotates."""
    samples: dict[int, list[float]] = {candidate: [] for candidate in samplers}
    taken, rule = list(samplers), min(samplers, default=0)
    for turn in range(2 * rounds):
        if turn in (_FIRST_ROUNDS, rounds) and taken:
            limit = _FAR_BEHIND if turn < rounds else _CLOSE
            so_far = _slowest(bench, samples)
            taken = [c for c in taken if so_far[c] <= limit * min(so_far.values()) or turn == rounds and c == rule]
        if turn >= rounds and taken == [rule]:
            break
        shift = turn % max(1, len(taken))
        order = taken[shift:] + taken[:shift]
        for candidate in order[:: -1 if turn % 2 else 1]:
            at(candidate=candidate)
            samples[candidate].append(samplers[candidate]())
    return _slowest(bench, samples)


def _slowest(bench: Bench, samples: dict[int, list[float]]) -> dict[int, float]:
    """The median of each candidate on the slowest rank; a rank's first sample is left out. Collective."""
    mine = {candidate: statistics.median(taken[1:] or taken) for candidate, taken in samples.items()}
    everybody = bench.gather(mine)
    return {candidate: max(rank[candidate] for rank in everybody) for candidate in samples}


def main(folder: str, rank: int, fd: int) -> None:
    end_with_parent()  # nobody else would end this process if it hung
    spec = json.loads((Path(folder) / "jobs.json").read_text())

    def say(**event: Any) -> None:
        os.write(fd, json.dumps(event).encode() + b"\n")

    module, _, name = spec["bench"].partition(":")
    bench = getattr(importlib.import_module(module), name)(rank, spec["ranks"], folder, spec["timing"])
    run(spec, bench, rank, say)
    os._exit(0)  # leaving a world in order takes time, and there is nothing left to keep


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
