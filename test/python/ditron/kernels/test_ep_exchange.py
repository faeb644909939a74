"""Tokens to their experts' ranks and back, on simulated ranks, for many kinds of routes."""

import pytest
import torch
from test_moe import corpus

import ditron
import ditron.sim
from ditron import kernels
from ditron_compiler.errors import DitronError


def run(main, **options):
    def rank():
        ditron.init()
        return main()

    return ditron.sim.run(rank, **options)


def round_trips(ranks, tokens, H, parallel, **options):
    """Rows are their tokens, and sums are of what was made of them; in each call other tokens and routes."""
    top_k, experts = 2, 4
    x = torch.randn(ranks, tokens, H, generator=torch.Generator().manual_seed(1)).bfloat16()
    weights = torch.rand(ranks, tokens, top_k, generator=torch.Generator().manual_seed(2))

    def main():
        rank = ditron.rank()
        for call, (name, ids) in enumerate(corpus(ranks, tokens, top_k, experts).items()):
            turned = x.roll(call, 1)
            plan = kernels.moe_plan(ids[rank], weights[rank], num_experts=experts, parallel=parallel)
            rows = kernels.ep_dispatch(turned[rank].contiguous(), plan)
            route = plan.row_route[: int(plan.num_tiles) * plan.block_m].long()
            token = turned.reshape(-1, H)[route.clamp(min=0) // top_k]
            assert torch.equal(rows[: len(route)], torch.where((route >= 0)[:, None], token, 0)), name

            expert = ids.view(-1)[route.clamp(min=0)]
            made = torch.full_like(rows, torch.nan)  # what no route leads to is never read
            made[: len(route)][route >= 0] = (token * (expert[:, None] + 1))[route >= 0]
            got = kernels.ep_combine(made, plan)
            factor = (weights[rank] * (ids[rank] + 1) * (ids[rank] >= 0)).sum(1)[:, None]
            copies = ranks if parallel == "tp" else 1
            torch.testing.assert_close(got.float(), turned[rank].float() * factor * copies, rtol=2e-2, atol=1e-2)

    run(main, ranks=ranks, **options)


@pytest.mark.parametrize("parallel", ["ep", "tp"])
@pytest.mark.parametrize("ranks, H", [(1, 32), (2, 40), (4, 24)])
def test_there_and_back(ranks, H, parallel):
    round_trips(ranks, 24, H, parallel)


@pytest.mark.parametrize("seed", range(8))
def test_in_any_order(seed):
    round_trips(3, 37, 16, "ep", seed=seed)


def test_quantized_tokens_and_their_scales():
    x = torch.randn(2, 20, 256, generator=torch.Generator().manual_seed(1))
    scale = x.view(2, 20, 2, 128).abs().amax(3) / 448
    values = (x.view(2, 20, 2, 128) / scale[..., None]).to(torch.float8_e4m3fn).view(2, 20, 256)

    def main():
        rank = ditron.rank()
        plan = kernels.moe_plan(corpus(2, 20, 2, 4)["uniform"][rank], num_experts=4)
        rows, scales = kernels.ep_dispatch(values[rank], plan), kernels.ep_dispatch(scale[rank], plan)
        placed = torch.nonzero(plan.row_route[: int(plan.num_tiles) * plan.block_m] >= 0)[:, 0]
        token = plan.row_route[placed].long() // 2
        assert torch.equal(rows[placed].float(), values.view(-1, 256)[token].float())
        assert torch.equal(scales[placed], scale.view(-1, 2)[token])

    run(main, ranks=2)


def plan_of(tokens):
    return kernels.moe_plan(torch.zeros(tokens, 2, dtype=torch.int32).add_(torch.arange(2)), num_experts=4)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: kernels.ep_dispatch(torch.zeros(5, 8), plan_of(4)), "x has 5 rows, and the plan is for 4 tokens"),
        (lambda: kernels.ep_dispatch(torch.zeros(4), plan_of(4)), "x must be a matrix with elements"),
        (
            lambda: kernels.ep_dispatch(torch.zeros(4, 8).requires_grad_(), plan_of(4)),
            "no gradients yet, and x requires",
        ),
        (lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), splits=2), "unknown argument 'splits'"),
        (lambda: kernels.ep_combine(torch.zeros(3, 8), plan_of(4)), "y has 3 rows, and the plan is for [0-9]+ rows"),
        (
            lambda: kernels.ep_combine(torch.zeros(3, 8, dtype=torch.int8), plan_of(4)),
            "of bfloat16, float16 or float32",
        ),
    ],
)
def test_errors(call, message):
    def main():
        with pytest.raises(DitronError, match=message):
            call()

    run(main, ranks=2)
