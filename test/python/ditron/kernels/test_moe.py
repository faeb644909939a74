"""The first product of mixture-of-experts layers against torch in fp64, on simulated ranks, and what MoE operators refuse."""

import importlib
import sys
from pathlib import Path

import numerics
import pytest
import torch
from simulated import run

import ditron
import ditron.sim
from ditron import kernels
from ditron.kernels.routing import tables_on_host
from ditron.protocol.api import check_program
from ditron_compiler.errors import DitronError


def drawn(ranks, tokens, top_k, experts, seed=0):
    """Distinct experts of every rank's tokens."""
    scores = torch.rand(ranks, tokens, experts, generator=torch.Generator().manual_seed(seed))
    return scores.topk(top_k).indices.int()


def corpus(ranks, tokens, top_k, experts):
    """Routes by name."""
    uniform = drawn(ranks, tokens, top_k, experts)
    few, silent = uniform.clone(), uniform.clone()
    few[:, 1:] = -1
    silent[ranks // 2] = -1
    one = torch.full_like(uniform, -1)
    one[..., 0] = experts - 1
    exact = torch.full_like(uniform, -1)
    exact.view(-1, top_k)[:16, 0] = 0  # a tile's rows
    exact.view(-1, top_k)[:17, 1] = 1  # and one more
    return {
        "uniform": uniform,
        "one token": few,
        "a rank without tokens": silent,
        "one expert": one,
        "none": torch.full_like(uniform, -1),
        "whole tiles": exact,
    }


@pytest.mark.parametrize("ranks, experts", [(2, 5), (3, 7), (4, 6)])
def test_uneven(ranks, experts):
    """Ranks with fewer tokens than others, and with fewer experts; experts that have other numbers."""
    most, top_k, K, N = 20, 3, 32, 48
    ids = drawn(ranks, most, top_k, experts)
    counts = [most - 7 * (rank % 3) for rank in range(ranks)]
    padded = torch.stack(
        [torch.where(torch.arange(most)[:, None] < n, of, -1) for n, of in zip(counts, ids, strict=True)]
    )
    weights = torch.rand(ranks, most, top_k)
    numbers = torch.randperm(experts + 2).int()  # two more that are nobody's
    numbers[numbers >= experts] = -1
    mapped = torch.where(padded >= 0, numbers[padded], -1)
    x, w = torch.randn(ranks, most, K).half(), torch.randn(experts, N, K).half()

    def main():
        rank = ditron.rank()
        first, behind = rank * experts // ranks, (rank + 1) * experts // ranks
        for expert_map, routes in ((None, padded), (numbers, mapped)):
            mine = slice(counts[rank])
            plan = kernels.moe_plan(
                ids[rank, mine].contiguous(),
                weights[rank, mine].contiguous(),
                num_experts=experts,
                max_tokens=most,
                expert_map=expert_map,
            )
            want = tables_on_host(routes, rank, first, behind - first, 16)
            assert torch.equal(plan.route_row, want.route_row)
            assert torch.equal(plan.expert_rows[: behind - first], want.expert_rows[:-1])
            assert plan.expert_rows[behind - first] == plan.expert_rows[-1] == want.expert_rows[-1]
            sent = routes.view(-1, top_k) >= 0
            assert torch.equal(plan.route_weight[sent], weights.view(-1, top_k)[sent])
            matrices = torch.full((plan.experts, N, K), float("nan")).half()  # of which the last may be nobody's
            matrices[: behind - first] = w[first:behind]
            rows = kernels.ag_moe(x[rank, mine].contiguous(), matrices, plan)
            found = torch.nonzero(want.row_route >= 0)[:, 0]
            route = want.row_route[found].long()
            expert = routes.view(-1)[route].long()
            exact = torch.einsum("rk,rnk->rn", x.view(-1, K)[route // top_k].double(), w[expert].double())
            torch.testing.assert_close(rows[found].double(), exact, rtol=2e-3, atol=2e-2)

    run(main, ranks=ranks)


@pytest.mark.parametrize("algorithm, swap_ab", [("stored", True), ("copied", False), ("copied", True)])
@pytest.mark.parametrize("parallel", ["ep", "tp"])
@pytest.mark.parametrize("ranks, K", [(1, 32), (2, 40), (4, 32)])
def test_ag_moe(ranks, K, parallel, algorithm, swap_ab):
    tokens, top_k, experts, N = 24, 2, 4, 48
    own = experts // ranks if parallel == "ep" else experts
    x = torch.randn(ranks, tokens, K, generator=torch.Generator().manual_seed(1)).bfloat16()
    w = torch.randn(ranks, own, N, K, generator=torch.Generator().manual_seed(2)).bfloat16()

    def main():
        rank = ditron.rank()
        first = rank * own if parallel == "ep" else 0
        for call, (name, ids) in enumerate(corpus(ranks, tokens, top_k, experts).items()):
            everyone = x.roll(call, 1)
            mine = everyone[rank].contiguous()
            plan = kernels.moe_plan(ids[rank], num_experts=experts, parallel=parallel, stage_groups=1 + call % ranks)
            rows = kernels.ag_moe(mine, w[rank], plan, algorithm=algorithm, swap_ab=swap_ab)
            placed = torch.nonzero(plan.row_route[: int(plan.num_tiles) * plan.block_m] >= 0)[:, 0]
            routes = plan.row_route[placed].long()
            expert = ids.view(-1)[routes] - first
            assert ((expert >= 0) & (expert < own)).all(), name
            assert len(routes) == ((ids >= first) & (ids < first + own)).sum(), name
            for e in range(own):
                of_e = expert == e
                token = everyone.reshape(-1, K)[routes[of_e] // top_k]
                if len(token):
                    numerics.assert_product(rows[placed[of_e]], token, w[rank, e].T)

    run(main, ranks=ranks)


@pytest.mark.parametrize("parallel", ["ep", "tp"])
@pytest.mark.parametrize("ranks, N", [(1, 64), (2, 48), (4, 64)])
def test_ag_moe_backward(ranks, N, parallel):
    """Against autograd in fp64; what stands in the padding of the rows' gradient counts for nothing."""
    tokens, top_k, experts, K = 24, 2, 4, 48
    own = experts // ranks if parallel == "ep" else experts
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ranks, tokens, K, generator=generator).half()
    w = torch.randn(ranks, own, N, K, generator=generator).half()

    def main():
        rank = ditron.rank()
        for ids in corpus(ranks, tokens, top_k, experts).values():
            plan = kernels.moe_plan(ids[rank], num_experts=experts, parallel=parallel)
            grads = []  # of each rank's rows, by route
            of_x, of_w = torch.zeros(ranks * tokens, K).double(), torch.zeros(ranks, own, N, K).double()
            for r in range(ranks):
                first = r * own if parallel == "ep" else 0
                grads.append(torch.randn(ids.numel(), N, generator=torch.Generator().manual_seed(r)).half())
                for route, expert in enumerate((ids.view(-1) - first).tolist()):
                    if 0 <= expert < own:
                        grad = grads[r][route].double()
                        of_x[route // top_k] += grad @ w[r, expert].double()
                        of_w[r, expert] += grad[:, None] * x.view(-1, K)[route // top_k].double()
            count = int(plan.num_tiles) * plan.block_m
            grad = torch.full((plan.max_rows, N), float("nan")).half()
            placed = torch.nonzero(plan.row_route[:count] >= 0)[:, 0]
            grad[placed] = grads[rank][plan.row_route[placed].long()]
            grad_x, grad_w = kernels.ag_moe_backward(grad, x[rank], w[rank], plan)
            mine = slice(rank * tokens, (rank + 1) * tokens)
            torch.testing.assert_close(grad_x.double(), of_x[mine], rtol=4e-3, atol=6e-2)
            torch.testing.assert_close(grad_w.double(), of_w[rank], rtol=2e-3, atol=2e-2)
            leaves = x[rank].clone().requires_grad_(), w[rank].clone().requires_grad_()
            kernels.ag_moe(*leaves, plan).backward(grad)
            assert torch.equal(leaves[0].grad, grad_x) and torch.equal(leaves[1].grad, grad_w)
            frozen = x[rank].clone().requires_grad_()
            kernels.ag_moe(frozen, w[rank], plan).backward(grad)
            assert torch.equal(frozen.grad, grad_x)
            leaf = x[rank].clone().requires_grad_()
            gated = kernels.ag_moe(leaf, w[rank], plan, activation="swiglu")
            torch.testing.assert_close(
                gated.detach()[placed],
                kernels.ag_moe(x[rank], w[rank], plan, activation="swiglu")[placed],
                rtol=4e-3,
                atol=4e-3,
            )
            gate, up = kernels.ag_moe(x[rank], w[rank], plan).float().chunk(2, 1)
            sigmoid, of_gated = gate.sigmoid(), torch.zeros_like(gated)
            of_gated[placed] = grad[placed, : N // 2]
            gated.backward(of_gated)
            of_gate = of_gated.float() * up * sigmoid * (1 + gate * (1 - sigmoid))
            of_rows = torch.cat((of_gate, of_gated.float() * gate * sigmoid), 1).half()
            expected, _ = kernels.ag_moe_backward(of_rows, x[rank], w[rank], plan, of_w=False)
            torch.testing.assert_close(leaf.grad, expected, rtol=2e-2, atol=0.2)

    run(main, ranks=ranks)


@pytest.mark.parametrize("algorithm", ["stored", "copied"])
def test_ag_moe_in_any_order(algorithm):
    """Rows wait for the tokens that they are made of."""
    x, ids = torch.randn(3, 20, 32).half(), drawn(3, 20, 2, 6)
    w = torch.randn(3, 2, 32, 32).half()

    def main():
        rank = ditron.rank()
        for call in range(3):
            plan = kernels.moe_plan(ids[rank].roll(call, 0), num_experts=6, stage_groups=3)
            rows = kernels.ag_moe(x[rank].roll(call, 0), w[rank], plan, algorithm=algorithm)
            slot = plan.row_slot[: int(plan.num_tiles) * plan.block_m]
            found = torch.nonzero(slot >= 0)[:, 0]
            token = x.roll(call, 1).roll(-rank, 0).reshape(-1, 32)[slot[found].long()]
            expert = ids.roll(call, 1).view(-1)[plan.row_route[found].long()] - 2 * rank
            exact = torch.einsum("rk,rnk->rn", token.double(), w[rank].double()[expert.long()])
            torch.testing.assert_close(rows[found].double(), exact, rtol=2e-3, atol=2e-2)

    for seed in range(20):
        run(main, ranks=3, seed=seed)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: kernels.moe_plan(torch.zeros(4, 2), num_experts=4), "topk_ids must be .* of int16, int32 or int64"),
        (lambda: kernels.moe_plan(torch.zeros(0, 2, dtype=torch.int32), num_experts=4), "with elements, .* got .0, 2."),
        (
            lambda: kernels.moe_plan(torch.zeros(4, 2, dtype=torch.int32), torch.zeros(4, 1), num_experts=4),
            "topk_weights must be .4, 2., as topk_ids, of float32.* got .4, 1.",
        ),
        (
            lambda: kernels.moe_plan(
                torch.zeros(4, 2, dtype=torch.int32), torch.zeros(4, 2, dtype=torch.float64), num_experts=4
            ),
            "of float32, bfloat16 or float16, got .4, 2. of torch.float64",
        ),
        (
            lambda: kernels.moe_plan(torch.zeros(4, 2, dtype=torch.int32), num_experts=4, max_tokens=3),
            "topk_ids has 4 tokens, and max_tokens is 3",
        ),
        (
            lambda: kernels.moe_plan(
                torch.zeros(4, 2, dtype=torch.int32), num_experts=4, expert_map=torch.zeros(4, dtype=torch.int64)
            ),
            "expert_map must be a vector with elements, of int32",
        ),
        (
            lambda: kernels.ag_moe(torch.zeros(4, 32).half(), torch.zeros(2, 32, 32).half(), [torch.zeros(2)]),
            "plan must be a Plan, got list",
        ),
        (
            lambda: kernels.moe_plan(torch.zeros(4, 2, dtype=torch.int32), num_experts=4, tile=3),
            "unknown argument .tile.: a schedule has places, at_once, experts_at_once, makers, placed_routes, "
            "slice_tokens, num_warps, place_warps, protocol",
        ),
        (
            lambda: kernels.moe_plan(torch.zeros(4, 2, dtype=torch.int32), num_experts=4, placed_routes=48),
            "placed_routes must be a power of two, got 48",
        ),
        (
            lambda: kernels.moe_plan(torch.zeros(4, 2, dtype=torch.int32), num_experts=4, at_once=False, places=512),
            "a segment has at most 128 tokens, got places=512 for top_k 2",
        ),
        (lambda: kernels.moe_plan(torch.zeros(4, 2, dtype=torch.int32), num_experts=1), "1 experts cannot be divided"),
        (
            lambda: kernels.moe_plan(torch.zeros(4, 2, dtype=torch.int32), num_experts=4, stage_groups=0),
            "stage_groups must be a number from 1 on, got 0",
        ),
        (
            lambda: kernels.moe_plan(torch.zeros(4, 2, dtype=torch.int32), num_experts=4, stage_groups=1.5),
            "stage_groups must be a number from 1 on, got 1.5",
        ),
        (lambda: kernels.moe_plan(torch.zeros(4, 5, dtype=torch.int32), num_experts=4), "5 experts for a token"),
        (
            lambda: kernels.moe_plan(torch.zeros(4, 2, dtype=torch.int32), num_experts=4, parallel="dp"),
            "unknown parallel 'dp': expected 'ep' or 'tp'",
        ),
        (
            lambda: kernels.moe_plan(torch.zeros(4, 2, dtype=torch.int32), num_experts=4, block_m=24),
            "block_m must be a power of two from 16 on, got 24",
        ),
        (
            lambda: ag_moe(torch.zeros(5, 32), torch.zeros(2, 32, 32)),
            "must have 2 dimensions and be bfloat16 or float16",
        ),
        (lambda: ag_moe(torch.zeros(5, 32).half(), torch.zeros(2, 32, 32).half()), "x has 5 tokens and w 2 experts"),
        (lambda: ag_moe(torch.zeros(4, 32).half(), torch.zeros(3, 32, 32).half()), "x has 4 tokens and w 3 experts"),
        (lambda: ag_moe(torch.zeros(4, 32).half(), torch.zeros(2, 32, 16).half()), "expected w to be .2, 32, 32."),
        (
            lambda: ag_moe(torch.zeros(4, 32).half(), torch.zeros(2, 36, 32).half()),
            "expected rows of a multiple of 16 bytes",
        ),
        (
            lambda: ag_moe(torch.zeros(4, 32).half(), torch.zeros(2, 32, 32).half(), algorithm="nccl"),
            "unknown algorithm 'nccl': expected 'copied' or 'stored'",
        ),
        (
            lambda: ag_moe(torch.zeros(4, 32).half(), torch.zeros(2, 32, 32).half(), pieces=2),
            "unknown argument .pieces.: a schedule has block",
        ),
        (
            lambda: ag_moe(torch.zeros(4, 32).half(), torch.zeros(2, 32, 32).half(), programs=9, algorithm="stored"),
            "9 programs do not run at one time on 8 multiprocessors: give fewer programs=",
        ),
        (
            lambda: ag_moe(torch.zeros(4, 32).half(), torch.zeros(2, 32, 32).half(), swap_ab=1),
            "swap_ab must be True or False, got 1",
        ),
    ],
)
def test_errors(call, message):
    def main():
        with pytest.raises(DitronError, match=message):
            call()

    run(main, ranks=2)


def ag_moe(x, w, **options):
    plan = kernels.moe_plan(torch.tensor([[0, 1]] * 4), num_experts=4)
    return kernels.ag_moe(x, w, plan, **options)


@pytest.mark.parametrize(
    "line, instead",
    [
        ("            dl.wait(arrived_ptr + 1, dl.num_ranks() - 1, epoch)\n", "            pass\n"),
        ("tl.maximum(last_stage + 1 - first_stage, 0), epoch)", "tl.maximum(last_stage - first_stage, 0), epoch)"),
        ("(epoch % 2).to(tl.int64) * dl.num_ranks()", "0 * dl.num_ranks()"),
    ],
)
def test_what_the_checker_finds(line, instead, tmp_path, monkeypatch):
    """A rank that does not wait for those whose tokens it needs none of; tokens of the last stage; one half of memory."""
    source = Path(sys.modules["ditron.kernels.ag_moe"].__file__).read_text()
    assert line in source
    (tmp_path / "mutated_ag_moe.py").write_text(source.replace(line, instead).replace("@torch_operator()\n", ""))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mutated_ag_moe", raising=False)
    report = check_program(importlib.import_module("mutated_ag_moe").ag_moe_stored_program)
    assert report.findings
