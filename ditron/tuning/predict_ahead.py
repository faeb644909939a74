"""Candidates with predicted times: in processes of their own, before any is measured, without a GPU.

``python -m ditron.tuning.predict_ahead FILE PART PARTS`` predicts those of a part of the problems that ``FILE`` lists.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ditron import kernels, machines  # noqa: F401 (kernels declares the operators)
from ditron.machines import Machine
from ditron.tuning.order import Timed, with_tuples
from ditron.tuning.prediction import Predictor
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import space_of
from ditron.tuning.search import search

__all__ = ["predict"]


def predict(
    problem: Problem, candidates: Sequence[Options], machine: Machine, search_for: int, seed: int
) -> list[Timed]:
    """Candidates with predicted times; with ``search_for``, of so many schedules, those that a search comes to too."""
    predictor = Predictor(machine.sustained().in_graph())
    space = space_of(problem, int(machine["sm.count"])) if search_for else None
    if space is None:
        return [(options, predictor(problem, options).us) for options in candidates]
    complete = [space.complete(options) for options in candidates]
    best = search(space, lambda options: predictor(problem, options).us, candidates, search_for, seed=seed)
    known = [(candidates[complete.index(options)] if options in complete else options, us) for us, options in best]
    return [*known, *((options, None) for options in candidates if options not in [one for one, _ in known])]


def main(file: str, part: int, parts: int) -> None:
    spec = json.loads(Path(file).read_text())
    machine = machines.load(spec["machine"])
    for number, (problem, candidates) in list(enumerate(spec["problems"]))[part::parts]:
        options = [with_tuples(candidate) for candidate in candidates]
        timed = predict(Problem(**problem), options, machine, spec["search"], spec["seed"])
        print(json.dumps({"number": number, "timed": timed}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
