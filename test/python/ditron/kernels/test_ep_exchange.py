"""Tokens to their experts' ranks and back, on simulated ranks, for many kinds of routes."""

import pytest
import torch
from simulated import run
from test_moe import corpus
from test_moe_rs import findings_of

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


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("ranks, top_k, words, padding_programs", [(1, 2, 64, 3), (2, 3, 64, 1), (3, 2, 128, 5)])
def test_schedules_and_numbers_of_tokens(ranks, top_k, words, padding_programs, seed):
    """Rows of one part and of several, the last not whole, in memory that other calls have used."""
    dispatch, combine = {"words": words, "padding_programs": padding_programs}, {"words": words}

    def main():
        rank = ditron.rank()
        for call, tokens in enumerate((7, 1, 20, 5, 32)):
            x = torch.randn(ranks, tokens, 520, generator=torch.Generator().manual_seed(call)).bfloat16()
            scale = torch.rand(ranks, tokens, 3, generator=torch.Generator().manual_seed(call))
            scores = torch.rand(ranks, tokens, 4 * ranks, generator=torch.Generator().manual_seed(call))
            ids = scores.topk(top_k).indices.masked_fill_(scores[..., :1] < 0.2, -1)  # a fifth of the tokens has none
            plan = kernels.moe_plan(ids[rank], num_experts=4 * ranks)
            rows, scale_rows = kernels.ep_dispatch(x[rank], plan, scale_x=scale[rank], **dispatch)
            route = plan.row_route[: int(plan.num_tiles) * plan.block_m].long()
            token = route.clamp(min=0) // top_k
            for got, sent in ((rows, x), (scale_rows, scale)):
                expected = torch.where((route >= 0)[:, None], sent.view(ranks * tokens, -1)[token], 0)
                assert torch.equal(got[: len(route)], expected), tokens
            sums = kernels.ep_combine(rows, plan, **combine)
            routes = (ids[rank] >= 0).sum(1)[:, None]
            torch.testing.assert_close(sums.float(), x[rank].float() * routes, rtol=2e-2, atol=1e-2)

    run(main, ranks=ranks, seed=seed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8])
def test_bits_of_tokens(dtype):
    """Words of zeros, and of nothing but ones, which in int8 are numbers, and in floats NaNs that may become others."""
    x = (torch.randn(2, 9, 72, generator=torch.Generator().manual_seed(1)) * 10).to(dtype)
    x.view(torch.int8)[:, 0, :32] = -1
    x.view(torch.int8)[:, 1] = 0
    x.view(torch.int8)[:, 2] = -128

    def main():
        plan = kernels.moe_plan(torch.arange(2).expand(9, 2), num_experts=4)
        for _ in range(3):
            rows = kernels.ep_dispatch(x[ditron.rank()], plan)
            route = plan.row_route[: int(plan.num_tiles) * plan.block_m].long()
            sent = x.view(18, 72)[route.clamp(min=0) // 2].float()
            expected = torch.where((route >= 0)[:, None], sent, 0)
            torch.testing.assert_close(rows[: len(route)].float(), expected, rtol=0, atol=0, equal_nan=True)

    run(main, ranks=2)


@pytest.mark.parametrize("seed", range(12))
def test_a_rank_that_waits_for_nobody(seed):
    """Rank 0 sends tokens and sums to the others, and has none of theirs to wait for; it does not overtake them."""
    ids = torch.tensor([[[1], [1], [2], [1]], [[-1]] * 4, [[-1]] * 4])  # of experts of ranks 1 and 2
    back = torch.tensor([[[-1]] * 4, [[0], [0], [0], [0]], [[0], [-1], [0], [0]]])  # of rank 0's

    def main():
        rank = ditron.rank()
        plans = [kernels.moe_plan(routes[rank].contiguous(), num_experts=3) for routes in (ids, back)]
        rows = torch.arange(plans[1].max_rows)[:, None].expand(-1, 8).float() + 1
        for call in range(6):
            x = torch.full((4, 8), call + 10.0 * rank + 1)
            got = kernels.ep_dispatch(x, plans[0])
            row = plans[0].route_row.view(-1)[:4].long()  # of rank 0's tokens
            assert (got[row[row >= 0]] == call + 1).all(), call
            sums = kernels.ep_combine(rows * (call + 1), plans[1])
            count = int((back[rank] >= 0).sum())
            assert int((sums != 0).any(1).sum()) == count and bool((sums % (call + 1) == 0).all()), call

    run(main, ranks=3, seed=seed)


def test_a_weight_of_no_expert_counts_for_nothing():
    ids = torch.tensor([[0, -1], [-1, -1], [1, 2], [-1, 3]], dtype=torch.int32)
    weights = torch.tensor([[1.0, torch.nan], [torch.nan, torch.inf], [1.0, 1.0], [-torch.inf, 1.0]])

    def main():
        plan = kernels.moe_plan(ids, weights, num_experts=4)
        rows = kernels.ep_dispatch(torch.ones(4, 8), plan)
        assert kernels.ep_combine(rows, plan)[:, 0].tolist() == [1, 0, 2, 1]

    run(main, ranks=2)


def test_scales_beside_weights_with_gradients():
    """A plan's weights are not dispatched."""

    def main():
        weights = torch.rand(4, 2, requires_grad=True)
        plan = kernels.moe_plan(torch.tensor([[0, 1]] * 4), weights, num_experts=4)
        rows, scales = kernels.ep_dispatch(torch.ones(4, 8), plan, scale_x=torch.ones(4, 1))
        assert not rows.requires_grad and not scales.requires_grad

    run(main, ranks=2)


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
            "ep_dispatch: with scale_x= there are no gradients",
        ),
        (
            lambda: kernels.ep_dispatch(
                torch.zeros(4, 8), plan_of(4), scale_x=torch.zeros(4, 1), scale_out=torch.zeros(4, 1)
            ),
            "scale_out must be contiguous, of shape",
        ),
        (
            lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), scale_x=torch.zeros(4, 1), scale_out=3),
            "scale_out must be a tensor, got int",
        ),
        (lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), out=3), "out must be a tensor, got int"),
        (lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), words=96), "words must be a power of two, got 96"),
        (lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), words=32), "words must be from 64 to 1024, got 32"),
        (lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), floats=True), "unknown argument 'floats'"),
        (lambda: kernels.ep_dispatch(torch.zeros(4, 8), plan_of(4), width=8), "unknown argument 'width'"),
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


@pytest.mark.parametrize("program", ["ep_dispatch_program", "ep_combine_program"])
def test_the_checker_finds_ranks_that_do_not_wait_for_each_other(program, tmp_path, monkeypatch):
    """One that has nothing for another in a call does not hold it up, and may be two calls behind."""
    names, line = ("ep_exchange_kernels", "ep_exchange"), "        exchange_signals(begun_ptr, epoch, RANKS)"
    findings = findings_of(program, names[0], line, "        pass", tmp_path, monkeypatch, names)
    assert {finding.kind for finding in findings} == {"reuse"}, findings
