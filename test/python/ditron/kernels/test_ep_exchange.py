"""Tokens to their experts' ranks and back, on simulated ranks, for many kinds of routes."""

import pytest
import torch
from simulated import run
from test_moe import corpus

import ditron
import ditron.sim
from ditron import kernels
from ditron_compiler.errors import DitronError


def round_trips(ranks, tokens, H, parallel, experts=4, **options):
    """Rows are their tokens, and sums are of what was made of them; in each call other tokens and routes."""
    top_k = 2
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


@pytest.mark.parametrize("parallel", ["ep", "tp"])
@pytest.mark.parametrize("nodes, per_node, H", [(2, 1, 40), (2, 4, 24), (4, 4, 8)])
def test_there_and_back_over_nodes(nodes, per_node, H, parallel):
    ranks = nodes * per_node
    round_trips(ranks, 24, H, parallel, max(4, ranks + 1), ranks_per_node=per_node)


@pytest.mark.parametrize("seed", range(8))
def test_over_nodes_in_any_order(seed):
    round_trips(4, 37, 16, "ep", seed=seed, ranks_per_node=2)


@pytest.mark.parametrize("seed", range(8))
def test_in_any_order(seed):
    round_trips(3, 37, 16, "ep", seed=seed)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_quantized_tokens_and_their_scales(at_once, seed):
    x = torch.randn(2, 20, 256, generator=torch.Generator().manual_seed(1))
    scale = x.view(2, 20, 2, 128).abs().amax(3) / 448
    values = (x.view(2, 20, 2, 128) / scale[..., None]).to(torch.float8_e4m3fn).view(2, 20, 256)

    def main():
        rank = ditron.rank()
        plan = kernels.moe_plan(corpus(2, 20, 2, 4)["uniform"][rank], num_experts=4)
        if at_once:
            rows, scales = kernels.ep_dispatch(values[rank], plan, scale_x=scale[rank])
        else:
            rows, scales = kernels.ep_dispatch(values[rank], plan), kernels.ep_dispatch(scale[rank], plan)
        count = int(plan.num_tiles) * plan.block_m
        padding = plan.row_route[:count] < 0
        assert not rows[:count][padding].float().any() and not scales[:count][padding].any()
        placed = torch.nonzero(plan.row_route[: int(plan.num_tiles) * plan.block_m] >= 0)[:, 0]
        token = plan.row_route[placed].long() // 2
        assert torch.equal(rows[placed].float(), values.view(-1, 256)[token].float())
        assert torch.equal(scales[placed], scale.view(-1, 2)[token])

    run(main, ranks=2, seed=seed)


@pytest.mark.parametrize("parallel", ["ep", "tp"])
def test_gradients(parallel):
    """Of tokens and of routing weights, against the whole computation."""
    ranks, tokens, H, top_k, experts = 2, 10, 8, 2, 4
    x, grads = (torch.randn(ranks, tokens, H, generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    weights = torch.rand(ranks, tokens, top_k, generator=torch.Generator().manual_seed(3))
    ids = corpus(ranks, tokens, top_k, experts)["a rank without tokens"]
    copies = ranks if parallel == "tp" else 1

    whole = [t.double().requires_grad_() for t in (x, weights)]
    made_of = torch.where(ids >= 0, ids + 1, 0)[..., None] * torch.tanh(whole[0])[:, :, None]
    ((made_of * whole[1][..., None]).sum(2) * copies * grads).sum().backward()

    def main():
        rank = ditron.rank()
        mine = [t[rank].clone().requires_grad_() for t in (x, weights)]
        plan = kernels.moe_plan(ids[rank], mine[1], num_experts=experts, parallel=parallel)
        rows = kernels.ep_dispatch(torch.tanh(mine[0]), plan)
        count = int(plan.num_tiles) * plan.block_m
        expert = ids.view(-1)[plan.row_route[:count].long().clamp(min=0)]
        made = torch.cat([rows[:count] * (expert[:, None] + 1), torch.full((plan.max_rows - count, H), torch.nan)])
        kernels.ep_combine(made, plan).backward(grads[rank])
        for got, expected in zip(mine, whole, strict=True):
            torch.testing.assert_close(got.grad.double(), expected.grad[rank], rtol=1e-4, atol=1e-4)

    run(main, ranks=ranks)


def plan_of(tokens):
    return kernels.moe_plan(torch.zeros(tokens, 2, dtype=torch.int32).add_(torch.arange(2)), num_experts=4)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: kernels.ep_dispatch(torch.zeros(5, 8), plan_of(4)), "x has 5 rows, and the plan is for 4 tokens"),
        (lambda: kernels.ep_dispatch(torch.zeros(4), plan_of(4)), "x must be a matrix with elements"),
        (lambda: kernels.ep_dispatch(torch.zeros(4, 8), None), "plan must be a Plan, got NoneType"),
        (lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), splits=2), "unknown argument 'splits'"),
        (
            lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), scale_x=torch.zeros(5, 1)),
            "scale_x has 5 rows, and the plan is for 4 tokens",
        ),
        (
            lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), scale_out=torch.zeros(4, 1)),
            "scale_out= is given, and no scale_x=",
        ),
        (
            lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), scale_x=torch.zeros(4, 1), scales=1),
            "unknown argument 'scales'",
        ),
        (
            lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), scale_x=torch.zeros(4, 1).requires_grad_()),
            "no gradients",
        ),
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
