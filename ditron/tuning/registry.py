"""The operators that have a choice: each declares its candidates and its rule beside itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ditron.tuning.problem import Options, Problem
from ditron.tuning.search import Space

__all__ = ["OPERATORS", "Rule", "Tunable", "candidates_of", "space_of", "tunable"]


class Rule(NamedTuple):
    """What an operator runs where nothing is measured, and why, with the numbers."""

    options: Options
    why: str


class Tunable(NamedTuple):
    """An operator with a choice.

    Attributes:
        candidates: what is worth measuring, the likeliest first.
        rule: what runs where nothing is measured.
        named_only: algorithms that are measured beside the others, and run only where the caller names them.
        space: more schedules than are declared, for a search, by the problem and the GPU's number of SMs.
    """

    candidates: Callable[[Problem], Iterable[Options]]
    rule: Callable[[Problem], Rule]
    named_only: tuple[str, ...]
    space: Callable[[Problem, int], Space | None] | None = None


OPERATORS: dict[str, Tunable] = {}


def tunable(
    name: str,
    rule: Callable[[Problem], Rule],
    named_only: tuple[str, ...] = (),
    space: Callable[[Problem, int], Space | None] | None = None,
) -> Callable[[Callable[[Problem], Iterable[Options]]], Callable[[Problem], Iterable[Options]]]:
    """Declare the candidates of an operator, a function of the problem."""

    def declare(candidates: Callable[[Problem], Iterable[Options]]) -> Callable[[Problem], Iterable[Options]]:
        OPERATORS[name] = Tunable(candidates, rule, named_only, space)
        return candidates

    return declare


def candidates_of(problem: Problem) -> list[Options]:
    """What is measured: first what the rule says, then the operator's other candidates."""
    operator = OPERATORS[problem.operator]
    found = [operator.rule(problem).options]
    for options in operator.candidates(problem):
        if options not in found and not options.items() <= found[0].items():
            found.append(options)
    return found


def space_of(problem: Problem, sms: int) -> Space | None:
    """More schedules than are declared, on a GPU of so many SMs; None where there are none."""
    make = OPERATORS[problem.operator].space
    return make(problem, sms) if make is not None else None
