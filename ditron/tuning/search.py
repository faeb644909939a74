"""A search through schedules that are too many to predict or measure all: FlexTensor's heuristic, on predicted times.

Points that are known start steps to neighbours, the better ones more often: with probability exp(-gamma (v* - v) / v*)
for a point of performance v = 1 / time, v* being the best known. A neighbour has one parameter's next value.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ditron.tuning.problem import Options

__all__ = ["Space", "search"]


@dataclass(frozen=True)
class Space:
    """Schedules of an algorithm: every combination of the parameters' values that is valid.

    Attributes:
        algorithm: that they are of. parameters: values by name, in the order of their steps. defaults: values of
            parameters that a candidate does not name. is_valid: whether a combination can run.
    """

    algorithm: str
    parameters: Mapping[str, Sequence[Any]]
    defaults: Options
    is_valid: Callable[[Options], bool] = lambda options: True

    def complete(self, options: Options) -> Options:
        """The same schedule with a value of every parameter; others than of the algorithm stay."""
        return options if options.get("algorithm") != self.algorithm else self.defaults | options

    def neighbours(self, options: Options) -> Iterator[Options]:
        """One step from a schedule, to any other tile, which have no order; none from those of other algorithms."""
        if options.get("algorithm") != self.algorithm:
            return
        for name, values in self.parameters.items():
            known = options[name] in values
            at = values.index(options[name]) if known else -1
            for step in (at - 1, at + 1) if known and not isinstance(options[name], tuple) else range(len(values)):
                if 0 <= step < len(values) and step != at:
                    neighbour = options | {name: values[step]}
                    if self.is_valid(neighbour):
                        yield neighbour


def search(
    space: Space,
    cost: Callable[[Options], float | None],
    starts: Iterable[Options],
    evaluations: int = 64,
    gamma: float = 4.0,
    seed: int = 0,
) -> list[tuple[float, Options]]:
    """Options with their cost, the least first: of ``starts`` and of what steps from them led to.

    ``cost`` is asked at most ``evaluations`` times, or for all starts if those are more; None: it has none, and no
    step begins there. The same seed, the same search.
    """
    generator = random.Random(seed)
    known: dict[str, tuple[float, Options]] = {}

    def visit(options: Options) -> None:
        us = cost(options)
        known[_key(options)] = (math.inf if us is None else us, options)

    for options in map(space.complete, starts):
        if _key(options) not in known:
            visit(options)
    while len(known) < evaluations:
        around = [
            (us, unknown)
            for us, options in known.values()
            if us < math.inf and (unknown := [n for n in space.neighbours(options) if _key(n) not in known])
        ]
        if not around:
            break
        best = min(us for us, _ in known.values())
        weights = [math.exp(-gamma * (1 - best / us)) for us, _ in around]
        ((_, unknown),) = generator.choices(around, weights)
        visit(generator.choice(unknown))
    return sorted((point for point in known.values() if point[0] < math.inf), key=lambda point: point[0])


def _key(options: Options) -> str:
    return repr(sorted(options.items()))
