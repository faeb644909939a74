"""A sample of test/routing_corpus.py: every kind of routing through the operators of mixtures of experts."""

import sys
from pathlib import Path

import pytest
import torch
from routings import Routing, routings

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import routing_corpus

from ditron.kernels.route_draws import RouteDistribution


@pytest.mark.parametrize("ranks, per_node", [(2, None), (3, None)])
def test_every_kind(ranks, per_node):
    assert routing_corpus.run(ranks, 1000 + ranks, per_node) == len(routings(ranks, 0))


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_routes_are_what_operators_take(ranks, seed):
    for name, routing in routings(ranks, seed).items():
        ids = routing.ids
        assert ((ids >= -1) & (ids < routing.experts)).all(), name
        ordered = ids.sort(2).values
        assert not ((ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)).any(), name
        for rank, given in enumerate(routing.given):
            assert (ids[rank, given:] == -1).all(), name


def test_few_experts_are_popular():
    """By zipf the most popular one of four is chosen more than 1.5 times as often as the least."""
    place = RouteDistribution._popularity(4).tolist()
    first, last = place.index(1), place.index(4)
    for seed in range(3):
        ids = routings(2, seed)["zipf"].ids
        assert (ids == first).sum() > 1.5 * (ids == last).sum()


def test_a_difference_is_seen():
    """The check is one that can fail."""
    assert not routing_corpus.near(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 0.0]).double())
    assert not routing_corpus.near(torch.tensor([1.1]), torch.tensor([1.0]).double())
    assert Routing(torch.zeros(1, 2, 1), 1, [1]).ids.tolist() == [[[0], [-1]]]
