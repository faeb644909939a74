"""The operators that have a choice: each declares its candidates and its rule beside itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ditron.tuning.problem import Options, Problem
from ditron.tuning.search import Space

__all__ = ["OPERATORS", "Rule", "Tunable", "candidates_of", "rule_of", "space_of", "tunable"]


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
        on_nodes: what runs in a group on several nodes; None: nothing unless an algorithm is named.
        node_algorithms: those that run there. one_node_arguments: of schedules that do not.
    """

    candidates: Callable[[Problem], Iterable[Options]]
    rule: Callable[[Problem], Rule]
    named_only: tuple[str, ...]
    space: Callable[[Problem, int], Space | None] | None = None
    on_nodes: Callable[[Problem], Rule | None] | None = None
    node_algorithms: tuple[str, ...] = ("nccl",)
    one_node_arguments: tuple[str, ...] = ()


OPERATORS: dict[str, Tunable] = {}


def tunable(
    name: str,
    rule: Callable[[Problem], Rule],
    named_only: tuple[str, ...] = (),
    space: Callable[[Problem, int], Space | None] | None = None,
    on_nodes: Callable[[Problem], Rule | None] | None = None,
    node_algorithms: tuple[str, ...] = ("nccl",),
    one_node_arguments: tuple[str, ...] = (),
) -> Callable[[Callable[[Problem], Iterable[Options]]], Callable[[Problem], Iterable[Options]]]:
    """Declare the candidates of an operator, a function of the problem."""

    def declare(candidates: Callable[[Problem], Iterable[Options]]) -> Callable[[Problem], Iterable[Options]]:
        kept = space, on_nodes, node_algorithms, one_node_arguments
        OPERATORS[name] = Tunable(candidates, rule, named_only, *kept)
        return candidates

    return declare


def rule_of(problem: Problem, nodes: int = 1) -> Rule | None:
    """What runs on so many nodes where nothing is measured; None: nothing unless an algorithm is named."""
    operator = OPERATORS[problem.operator]
    if nodes == 1:
        return operator.rule(problem)
    return operator.on_nodes(problem) if operator.on_nodes is not None else None


def candidates_of(problem: Problem, nodes: int = 1) -> list[Options]:
    """What is measured: first what the rule says, then the operator's other candidates that run on so many nodes.

    Empty on several nodes, where an operator is of one.
    """
    operator, rule = OPERATORS[problem.operator], rule_of(problem, nodes)
    found = [rule.options] if rule is not None else []
    for options in operator.candidates(problem):
        runs = nodes == 1 or (
            options.get("algorithm") in operator.node_algorithms
            and not any(name in options for name in operator.one_node_arguments)
        )
        if runs and options not in found and not (found and _is_same(options, found[0], operator)):
            found.append(options)
    if not found and "nccl" in operator.node_algorithms:
        found.append({"algorithm": "nccl"})
    return found


def _is_same(options: Options, rule: Options, operator: Tunable) -> bool:
    """Whether the rule's choice only names more of the same schedule."""
    more = rule.keys() - options.keys()
    return options.items() <= rule.items() and not more.intersection(operator.one_node_arguments)


def space_of(problem: Problem, sms: int) -> Space | None:
    """More schedules than are declared, on a GPU of so many SMs; None where there are none."""
    make = OPERATORS[problem.operator].space
    return make(problem, sms) if make is not None else None
