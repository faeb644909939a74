"""Several predictions of one problem: one after the other, and each in a process of its own once one takes seconds.

``python -m ditron.tuning.predict_beside`` makes one, of what is pickled on its standard input.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

from ditron import kernels  # noqa: F401 (declares the operators, in a new process too)
from ditron.machines import Machine
from ditron.tuning.cores import end_with_parent, processes_for
from ditron.tuning.prediction import Predicted, Predictor
from ditron.tuning.problem import Options, Problem
from ditron_compiler import knobs

__all__ = ["Asked", "Predictions"]

_LONG = 5.0  # seconds of a prediction, from which on a process for each, whose start takes two, is worth it


class Asked(NamedTuple):
    """A prediction to make; ``why`` is for people."""

    machine: Machine
    options: Options
    why: str


class Predictions:
    """Predictions of a problem, of which ``show`` is told."""

    def __init__(self, problem: Problem, show: Callable[[str], None]):
        self.problem, self.show = problem, show
        self.longest = 0.0  # seconds
        self.running: set[subprocess.Popen] = set()
        self.is_ended = False

    def __call__(self, asked: Sequence[Asked]) -> list[Predicted]:
        """What is asked, in order."""
        found: list[Predicted] = []
        for number, one in enumerate(asked):
            if self.longest > _LONG and (most := processes_for(len(asked) - number)) > 1:
                return found + self._in_processes(asked[number:], most)
            self.show(f"{self.problem}: {one.why}")
            began = time.monotonic()
            found.append(Predictor(one.machine)(self.problem, one.options))
            self.longest = max(self.longest, time.monotonic() - began)
        return found

    def _in_processes(self, asked: Sequence[Asked], most: int) -> list[Predicted]:
        told = f"{self.problem}: {{}} of {len(asked)} predictions, in {most} processes"
        self.show(told.format(0))
        with ThreadPoolExecutor(most) as pool:
            futures = [pool.submit(self._elsewhere, one) for one in asked]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    self.show(told.format(done))
            except BaseException:  # an interrupt: nothing is waited for
                self.is_ended = True
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list(self.running):
                    process.kill()
                raise
        return [future.result() for future in futures]

    def _elsewhere(self, asked: Asked) -> Predicted:
        """In a process of its own, not by multiprocessing, which would import the command's script again."""
        command, pipe = [sys.executable, "-m", "ditron.tuning.predict_beside"], subprocess.PIPE
        environment = knobs.environment(OMP_NUM_THREADS=1)
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as process:
            self.running.add(process)
            if self.is_ended:
                process.kill()
            answer, _ = process.communicate(pickle.dumps((self.problem, asked.machine, asked.options)))
            self.running.discard(process)
        if process.returncode:
            return Predicted(None, f"not predicted: its process ended with exit code {process.returncode}")
        return pickle.loads(answer)


def main() -> None:
    end_with_parent()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a kernel prints is no answer
    problem, machine, options = pickle.load(sys.stdin.buffer)
    with out:
        pickle.dump(Predictor(machine)(problem, options), out)


if __name__ == "__main__":
    main()
