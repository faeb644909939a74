"""What a check looks at: groups of ranks, and samples of what is drawn at random."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ditron._program.arguments import TensorSpec, parse_argument
from ditron.protocol.calls import MAX_RANKS, rank_counts
from ditron_compiler.errors import NodesError
from ditron_compiler.protocol.scenario import Scenario

__all__ = ["sample_args", "scenarios_of"]


def scenarios_of(
    groups: Iterable[tuple[int, int | None]],
    make: Callable[[int, int | None, int], Scenario],
    *,
    larger: bool,
    samples: int,
) -> Iterator[Scenario]:
    """Of the groups that the subject is for, and larger ones, each sample. Raises NodesError when it is for none.

    ``make``: the scenario of a number of ranks, of ranks per node, and of a sample's number.
    """
    made, refused = 0, None
    wanted, most = set(), 0

    def scenarios(groups: Iterable[tuple[int, int | None]]) -> Iterator[Scenario]:
        nonlocal made, refused, wanted, most
        for ranks, per_node in groups:
            try:
                for scenario in _samples(lambda sample, of=(ranks, per_node): make(*of, sample), samples):
                    made += 1
                    most = max(most, ranks)
                    wanted |= rank_counts(scenario)
                    yield scenario
            except NodesError as error:
                refused = error

    yield from scenarios(groups)
    if larger and made:
        for ranks in sorted(wanted):
            if most < ranks <= MAX_RANKS:
                yield from scenarios([(ranks, None)])
    if refused is not None and not made:
        raise refused


def _samples(make: Callable[[int], Scenario], samples: int) -> Iterator[Scenario]:
    """Different samples of one group; one where nothing is drawn that a kernel sees as an integer."""
    keys: set[str] = set()
    for sample in range(samples):
        scenario = make(sample)
        if scenario.key not in keys:
            keys.add(scenario.key)
            yield scenario
        elif sample == 1:
            return
        if not scenario.drawn:
            return


def sample_args(program: Any, ranks: int, sample: int, rank: int = 0) -> tuple[Mapping[str, Any], bool]:
    """What a program's ``sample_args=`` says for a rank of a group and a sample, and whether samples differ."""
    parameters = inspect.signature(program.sample_args).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    if len(names) > 1:
        of_rank = {"rank": rank} if "rank" in names else {}
        return program.sample_args(ranks, torch.Generator().manual_seed(sample), **of_rank), True
    given = program.sample_args(ranks)
    leaves = [
        parse_argument(value) if isinstance(value, str) and "[" in value else value for value in tree_leaves(given)
    ]
    return given, any(inspect.isfunction(leaf) or (isinstance(leaf, TensorSpec) and leaf.is_drawn) for leaf in leaves)
