"""Routing tables on simulated ranks against plain loops, and what is refused or counted of routes."""

import pytest
import torch
from simulated import run
from test_moe import corpus, drawn

import ditron
import ditron.sim
from ditron import kernels
from ditron.kernels.routing import max_rows, tables_on_host
from ditron_compiler.errors import DitronError


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(
    "ranks, tokens, top_k, experts, parallel",
    [(1, 40, 2, 6, "ep"), (2, 300, 2, 10, "ep"), (3, 13, 4, 16, "tp"), (4, 37, 3, 40, "ep"), (2, 20, 3, 200, "tp")],
)
def test_tables(ranks, tokens, top_k, experts, parallel, groups, at_once):
    weights = torch.rand(ranks, tokens, top_k)

    def main():
        rank = ditron.rank()
        own = experts if parallel == "tp" else experts // ranks
        first = 0 if parallel == "tp" else rank * own
        options = {"num_experts": experts, "parallel": parallel, "block_m": 16, "stage_groups": groups}
        for name, ids in corpus(ranks, tokens, top_k, experts).items():
            got = kernels.moe_plan(ids[rank], weights[rank], at_once=at_once, **options)
            divided = None if parallel == "tp" else experts
            want = tables_on_host(ids, rank, first, own, 16, groups, weights, divided)
            count = int(got.num_tiles)
            assert count == int(want.num_tiles), name
            assert count * 16 <= got.max_rows
            for what in ("row_slot", "row_route"):
                assert torch.equal(getattr(got, what)[: 16 * count], getattr(want, what)), (name, what)
            assert torch.equal(got.route_row, want.route_row), name
            assert torch.equal(got.route_weight, weights.view(-1, top_k)), name
            assert torch.equal(got.tiles[:count], want.tiles), name
            assert torch.equal(got.tiles_by_expert[:count], want.tiles_by_expert), name
            assert torch.equal(got.expert_rows, want.expert_rows), name
            assert torch.equal(got.token_ranks, want.token_ranks), name

    run(main, ranks=ranks)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("makers", [1, 2, 7])
def test_makers_of_tiles(makers, at_once):
    """With fewer than groups, of which some make several, and with more, of which the last group has those left."""
    ids = drawn(4, 70, 2, 4)

    def main():
        for groups in (1, 2, 4):
            options = {"num_experts": 4, "parallel": "tp", "block_m": 16, "stage_groups": groups}
            got = kernels.moe_plan(ids[ditron.rank()], at_once=at_once, makers=makers, **options)
            want = tables_on_host(ids, ditron.rank(), 0, 4, 16, groups)
            count = int(want.num_tiles)
            assert torch.equal(got.tiles[:count], want.tiles), groups
            assert torch.equal(got.tiles_by_expert[:count], want.tiles_by_expert), groups

    run(main, ranks=4)


def test_calls_of_other_sizes():
    """What a call counts is gone when the next but one counts, of more or fewer segments, in the same memory."""

    def main():
        for number, tokens in enumerate((300, 20, 20, 300, 300, 40, 300)):
            ids = drawn(2, tokens, 2, 10, seed=number)
            got = kernels.moe_plan(ids[ditron.rank()], num_experts=10, block_m=16, stage_groups=1, at_once=False)
            want = tables_on_host(ids, ditron.rank(), ditron.rank() * 5, 5, 16)
            assert torch.equal(got.route_row, want.route_row), number
            assert torch.equal(got.expert_rows, want.expert_rows), number

    run(main, ranks=2)


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_moe_plan(ranks, dtype):
    """The tables of all ranks' routes, and their weights, on every rank."""
    weights = torch.rand(ranks, 24, 2, generator=torch.Generator().manual_seed(3)).to(dtype or torch.float32)
    exact = weights.float() if dtype else torch.ones(ranks, 24, 2)

    def main():
        for name, ids in corpus(ranks, 24, 2, 4).items():
            own = 4 // ranks
            mine = None if dtype is None else weights[ditron.rank()]
            got = kernels.moe_plan(ids[ditron.rank()].long(), mine, num_experts=4)
            want = tables_on_host(ids, ditron.rank(), ditron.rank() * own, own, got.block_m, 1, exact)
            count = int(got.num_tiles)
            assert count == int(want.num_tiles), name
            assert torch.equal(got.row_route[: count * got.block_m], want.row_route), name
            assert torch.equal(got.route_row, want.route_row), name
            assert torch.equal(got.expert_rows, want.expert_rows), name
            assert got.route_weight.dtype == torch.float32 and torch.equal(got.route_weight, want.route_weight), name

    run(main, ranks=ranks)


def test_routes_that_go_nowhere():
    """Wrong and repeated experts are an error at once here, and elsewhere are counted when asked for."""
    ids = torch.tensor([[0, 1], [2, 2], [-2, 3], [1 << 32, 4], [-1, 0]])

    def main(monkeypatch):
        with pytest.raises(DitronError, match="3 of topk_ids are neither -1 nor .* and 1 repeat an expert"):
            kernels.moe_plan(ids, num_experts=4)
        monkeypatch.setattr("ditron.kernels.routing.Plan.check", lambda self: None)
        plan = kernels.moe_plan(ids, num_experts=4)
        assert plan.errors.tolist() == [[0, 0], [0, 1], [1, 0], [2, 0], [0, 0]]
        clean = torch.tensor([[0, 1], [2, -1], [-1, 3], [-1, -1], [-1, 0]])
        want = tables_on_host(clean[None], 0, 0, 4, 16)
        assert torch.equal(plan.route_row, want.route_row) and int(plan.num_tiles) == int(want.num_tiles)
        monkeypatch.undo()
        with pytest.raises(DitronError, match="3 of topk_ids"):
            plan.check()
        kernels.moe_plan(clean, num_experts=4).check()

    with pytest.MonkeyPatch.context() as monkeypatch:
        run(lambda: main(monkeypatch), ranks=1)


@pytest.mark.parametrize("with_map", [False, True])
def test_routes_that_go_nowhere_without_data(with_map):
    """Where a machine's clock counts and no floating-point data is computed, integers are checked as with data."""
    ids = torch.tensor([[0, 1], [2, 2], [-2, 3], [1 << 32, 4], [-1, 0]])
    clean = torch.tensor([[0, 1], [2, -1], [-1, 3], [-1, -1], [-1, 0]])
    expert_map = torch.tensor([0, 1, 2, 3], dtype=torch.int32) if with_map else None

    def main():
        ditron.init()
        with pytest.raises(DitronError, match="3 of topk_ids are neither -1 nor .* and 1 repeat an expert"):
            kernels.moe_plan(ids, expert_map=expert_map, num_experts=4)
        plan = kernels.moe_plan(clean, expert_map=expert_map, num_experts=4)
        assert torch.equal(plan.route_row, tables_on_host(clean[None], 0, 0, 4, plan.block_m).route_row)
        assert plan.errors.tolist() == [[0, 0]] * 5
        if with_map:
            with pytest.raises(DitronError, match="1 of topk_ids"):
                kernels.moe_plan(clean[:1], expert_map=torch.tensor([0, 4], dtype=torch.int32), num_experts=4)

    ditron.sim.predict(main, "h200x2", ranks=1)


def test_ranks_that_differ():
    """Without max_tokens the ranks have as many tokens."""

    def main():
        kernels.moe_plan(torch.zeros(4 + ditron.rank(), 1, dtype=torch.int32), num_experts=2)

    with pytest.raises(
        DitronError, match=r"moe_plan: the shape of topk_ids is \[[45], 1\] on rank . and \[[45], 1\] on rank"
    ):
        run(main, ranks=2)


@pytest.mark.parametrize("ranks", [1, 3])
def test_gradient_of_weights(ranks):
    """Every rank has all routes' weights, and makes something else of them."""
    ids, factors = drawn(ranks, 9, 2, 4), torch.randn(ranks, ranks * 9, 2)

    def main():
        rank = ditron.rank()
        weights = torch.rand(6, 2).bfloat16().requires_grad_()
        plan = kernels.moe_plan(ids[rank, :6].contiguous(), weights, num_experts=4, max_tokens=9)
        (plan.route_weight * factors[rank]).sum().backward()
        expected = factors.sum(0).view(ranks, 9, 2)[rank, :6]
        torch.testing.assert_close(weights.grad, expected.bfloat16(), rtol=1e-2, atol=1e-2)

    run(main, ranks=ranks)


def test_tables_on_host():
    """Two ranks of two tokens; rank 1 has experts 2 and 3, and its own tokens come first."""
    ids = torch.tensor([[[2, 0], [3, 2]], [[3, -1], [2, 3]]])
    plan = tables_on_host(ids, 1, 2, 2, 2, groups=2)
    assert plan.row_route.tolist() == [6, 0, 3, -1, 4, 7, 2, -1]
    assert plan.row_slot.tolist() == [1, 2, 3, -1, 0, 1, 3, -1]
    # In the first group the one tile that needs no other rank's tokens, of expert 1 of this rank's.
    assert plan.tiles.tolist() == [[1, 0, 2, 1, 0, 0], [0, 1, 0, 2, 0, 1], [0, 1, 0, 2, 0, 1], [1, 3, 3, 1, 1, 1]]
    # In order of experts the same as if there were one group.
    assert plan.tiles_by_expert.tolist() == [[0, 0, 0, 2, 0, 1]] * 2 + [[1, 2, 2, 2, 0, 1]] * 2
    assert plan.tiles_by_expert.tolist() == tables_on_host(ids, 1, 2, 2, 2, groups=1).tiles.tolist()
    assert plan.route_row.tolist() == [[1, -1], [6, 2], [4, -1], [0, 5]]


@pytest.mark.parametrize("tokens, top_k, experts, block_m", [(1, 1, 1, 16), (64, 2, 4, 16), (5, 8, 3, 128)])
def test_max_rows(tokens, top_k, experts, block_m):
    """No routes take more: as many experts as possible have one row in their last tile."""
    routes = tokens * min(top_k, experts)
    worst = max(
        sum(-(-n // block_m) for n in [1] * ones + ([routes - ones] if routes > ones else []))
        for ones in range(min(experts - 1, routes) + 1)
    )
    assert worst * block_m <= max_rows(tokens, top_k, experts, block_m) < (worst + experts + 1) * block_m
