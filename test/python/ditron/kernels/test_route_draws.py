"""Routes that are drawn by a distribution, and what they do to predictions."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import ditron
from ditron import kernels, sim
from ditron.kernels.route_draws import RouteDistribution
from ditron_compiler.errors import DitronError

TOKENS, EXPERTS = 20_000, 16


def shares(text: str, top_k: int) -> torch.Tensor:
    """Of tokens that choose each expert, most popular first."""
    ids, weights = RouteDistribution.parse(text).draw(TOKENS, EXPERTS, top_k, seed=3)
    assert ids.shape == weights.shape == (TOKENS, top_k) and ids.dtype == torch.int32 and (weights >= 0).all()
    assert (ids.sort(1).values.diff(dim=1) > 0).all(), "an expert twice"
    return torch.bincount(ids.flatten(), minlength=EXPERTS).sort(descending=True).values / TOKENS


def test_first_choices_are_by_weight():
    """Within 4 standard deviations of a binomial distribution."""
    weights = torch.arange(1, EXPERTS + 1) ** -1.2
    for text, expected in (
        ("uniform", torch.full((EXPERTS,), 1 / EXPERTS)),
        ("zipf:0", torch.full((EXPERTS,), 1 / EXPERTS)),
        ("zipf:1.2", weights / weights.sum()),
        ("onehot", torch.nn.functional.one_hot(torch.tensor(0), EXPERTS).float()),
    ):
        deviation = (expected * (1 - expected) / TOKENS).sqrt()
        assert ((shares(text, 1) - expected).abs() <= 4 * deviation).all(), text


def test_later_choices_are_without_replacement():
    """The second of two, by what is left of the weights; beside a hot expert the others are uniform."""
    weights = torch.arange(1, EXPERTS + 1) ** -1.2
    first = weights / weights.sum()
    second = (first[:, None] * weights / (weights.sum() - weights[:, None])).fill_diagonal_(0).sum(0)
    expected = first + second
    assert ((shares("zipf:1.2", 2) - expected).abs() <= 4 * (expected / TOKENS).sqrt()).all()
    hot = shares("onehot", 4)
    assert hot[0] == 1 and ((hot[1:] - 3 / 15).abs() <= 4 * (0.2 / TOKENS) ** 0.5).all()


def test_popular_experts_are_the_same_everywhere_and_spread():
    """Of 128 experts, on 8 ranks: the rank with most has less than if the popular ones followed each other."""
    draws = [RouteDistribution.parse("zipf:1.2").draw(2000, 128, 8, seed)[0] for seed in range(3)]
    tops = [torch.bincount(ids.flatten(), minlength=128).argmax() for ids in draws]
    assert len({int(top) for top in tops}) == 1 and not torch.equal(draws[0], draws[1])
    of_rank = torch.bincount(draws[0].flatten(), minlength=128).view(8, 16).sum(1)
    in_order = torch.bincount(draws[0].flatten(), minlength=128).sort(descending=True).values.view(8, 16).sum(1)
    assert of_rank.max() < 0.6 * in_order.max() and of_rank.max() > 1.3 * of_rank.float().mean()


@pytest.mark.parametrize("text", ["", "zipf", "zipf:", "zipf:-1", "zipf:x", "zipf:inf", "zipf:1e3", "Uniform", "one"])
def test_what_is_no_distribution(text):
    with pytest.raises(ValueError, match="is no distribution of routes: expected 'uniform', 'zipf:S'"):
        RouteDistribution.parse(text)


def test_errors_of_draw_routes():
    def main():
        ditron.init()
        with pytest.raises(DitronError, match="draw_routes: 4 tokens cannot choose 9 of 8 experts each"):
            kernels.draw_routes(4, 8, 9)
        with pytest.raises(DitronError, match="draw_routes: 'hot' is no distribution of routes"):
            kernels.draw_routes(4, 8, 2, "hot")
        with pytest.raises(DitronError, match="draw_routes: 1.2 is no distribution of routes"):
            kernels.draw_routes(4, 8, 2, 1.2)
        assert kernels.draw_routes(np.int64(4), 8, 2, seed=-1)[0].shape == (4, 2)

    sim.run(main, 1)


@pytest.mark.parametrize(
    "name, value",
    [("tokens", 4.5), ("tokens", None), ("experts", "8"), ("top_k", 2.0), ("seed", 1.5), ("seed", 1 << 80)],
)
def test_sizes_of_routes_that_are_no_integers(name, value):
    def main():
        ditron.init()
        message = f"draw_routes: {name} must be an integer of at most 48 bits, got {value!r}"
        with pytest.raises(DitronError, match=re.escape(message)):
            kernels.draw_routes(**{"tokens": 4, "experts": 8, "top_k": 2} | {name: value})

    sim.run(main, 1)


def routes(**given):
    def main():
        ditron.init()
        return kernels.draw_routes(64, 8, 2, **given)[0]

    return main


def test_a_run_says_how_routes_are_drawn():
    """What a call names goes before; a run that names what nobody draws by is an error."""
    uniform, zipf = (RouteDistribution.parse(text).draw(64, 8, 2, 1)[0] for text in ("uniform", "zipf:1.2"))
    assert torch.equal(sim.run(routes(), 2)[1], uniform)
    assert torch.equal(sim.run(routes(), 2, routing="zipf:1.2")[1], zipf)
    assert torch.equal(sim.run(routes(distribution="zipf:1.2"), 2)[1], zipf)
    assert not torch.equal(sim.run(routes(seed=1), 2)[1], uniform)
    with pytest.raises(DitronError, match="draw_routes: '' is no distribution of routes"):
        sim.run(routes(), 2, routing="")
    for body in (ditron.init, routes(distribution="uniform")):
        with pytest.raises(DitronError, match="routing 'zipf:1.2' was not used: it is for ditron.kernels.draw_routes"):
            sim.run(body, 2, routing="zipf:1.2")


def layer():
    """A block with a router, in timing-only mode without scores."""
    ditron.init()
    moe = ditron.nn.MoE(256, 512, num_experts=16, top_k=2, dtype=torch.bfloat16)
    for _ in range(2):
        moe(torch.zeros(1024, 256, dtype=torch.bfloat16))


def test_the_router_of_a_block_draws_in_timing_only_mode():
    """All of the routes to few experts take longer than as many to each."""

    def us(routing):
        return max(call.us for call in sim.predict(layer, "h200x4", routing=routing).calls[-1])

    assert us(None) == us("uniform") < us("onehot")
