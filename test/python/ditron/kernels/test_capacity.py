"""Limits of what experts and ranks take: which routes are dropped, that they are counted, and where errors are raised."""

import itertools
from types import SimpleNamespace

import pytest
import test_layer_gradients as layers
import torch
from test_moe import corpus, drawn, run

import ditron
from ditron import kernels
from ditron.kernels import capacity as limits
from ditron_compiler.errors import DitronError


def limited(ids, experts, capacity, rank_capacity, parallel):
    """By plain loops: -1 where a route of ``ids`` [ranks, tokens, top_k] is dropped."""
    ranks, kept = len(ids), ids.clone()
    of_expert, of_rank = [0] * experts, [0] * ranks
    owner = [next(r for r in range(ranks) if e < (r + 1) * experts // ranks) for e in range(experts)]
    taken = []
    for at in itertools.product(*map(range, ids.shape)):
        expert = int(ids[at])
        if expert < 0:
            continue
        of_expert[expert] += 1
        if capacity is not None and of_expert[expert] > capacity:
            kept[at] = -1
        else:
            taken.append(at)
    for at in taken:
        rank = 0 if parallel == "tp" else owner[int(ids[at])]
        of_rank[rank] += 1
        if rank_capacity is not None and of_rank[rank] > rank_capacity:
            kept[at] = -1
    return kept


@pytest.mark.parametrize("ranks, per_node, experts", [(1, None, 4), (3, None, 7), (4, 2, 5)])
@pytest.mark.parametrize("capacity, rank_capacity", [(5, None), (None, 11), (7, 12), (1000, 1000)])
@pytest.mark.parametrize("parallel", ["ep", "tp"])
def test_what_is_dropped(ranks, per_node, experts, capacity, rank_capacity, parallel):
    options = {"num_experts": experts, "parallel": parallel, "capacity": capacity, "rank_capacity": rank_capacity}

    def main():
        rank, counted = ditron.rank(), torch.zeros(1, dtype=torch.int64)
        total = 0
        for name, ids in corpus(ranks, 14, 2, experts).items():
            kept = limited(ids, experts, capacity, rank_capacity, parallel)
            got = kernels.moe_plan(ids[rank], on_overflow="drop", dropped=counted, **options)
            same = kernels.moe_plan(kept[rank], num_experts=experts, parallel=parallel)
            assert torch.equal(got.route_row, same.route_row), name
            assert got.dropped.tolist() == (ids[rank] != kept[rank]).sum(1).tolist(), name
            assert int(got.num_tiles) * got.block_m <= got.max_rows <= same.max_rows, name
            total += int(got.dropped.sum())
            assert int(counted) == total

    run(main, ranks=ranks, ranks_per_node=per_node)


def test_routes_that_go_nowhere_take_no_place():
    """Those to experts that do not exist, and a token's second to one, are counted as without a limit."""
    ids = torch.tensor([[0, 0], [9, 1], [0, 1], [1, 0]])

    def main(monkeypatch):
        monkeypatch.setattr("ditron.kernels.routing.Plan.check", lambda self: None)
        plan = kernels.moe_plan(ids, num_experts=2, capacity=2, on_overflow="drop")
        assert plan.errors.tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]
        assert plan.dropped.tolist() == [0, 0, 0, 2]

    with pytest.MonkeyPatch.context() as monkeypatch:
        run(lambda: main(monkeypatch), ranks=1)


def test_memory_is_for_what_is_taken():
    def main():
        ids = drawn(2, 64, 4, 8)[ditron.rank()]
        whole = kernels.moe_plan(ids, num_experts=8)
        some = kernels.moe_plan(ids, num_experts=8, capacity=40, rank_capacity=100, on_overflow="drop")
        assert (whole.max_rows, some.max_rows) == (512, 160)

    run(main, ranks=2)


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("per_node", [None, 1])
def test_layer(per_node, renormalize):
    """Sums without the dropped routes, weights renormalized only when asked; with gradients."""
    layer, ids = layers.Layer(2), drawn(2, layers.TOKENS, layers.TOP_K, layers.EXPERTS)
    kept = limited(ids, layers.EXPERTS, 14, None, "ep")
    assert ((kept >= 0).sum(2) == 1).any() and ((kept >= 0).sum(2) == 0).any()
    given = layer.weights.clone()
    if renormalize:
        of_kept = (given * (kept >= 0)).sum(2, keepdim=True)
        layer.weights = torch.where(of_kept > 0, given * given.sum(2, keepdim=True) / of_kept, given)
    y, *gradients = layer.exact(kept)

    def main():
        rank, counted = ditron.rank(), torch.zeros(1, dtype=torch.int64)
        weights = given[rank].clone().requires_grad_()
        w13, w2 = (w.requires_grad_() for w in layer.of_rank(layer.gate, layer.up, layer.down, "ep"))
        options = {"capacity": 14, "on_overflow": "drop", "renormalize": renormalize, "dropped": counted}
        got = kernels.ep_moe(layer.x[rank], ids[rank], weights, w13, w2, num_experts=layers.EXPERTS, **options)
        got.backward(layer.grad[rank])
        assert int(counted) == (ids[rank] != kept[rank]).sum()
        layers.assert_near(got.detach(), y[rank], "y")
        layers.assert_near(w2.grad, layer.of_rank(*gradients[2:], "ep")[1], "w2")
        if not renormalize:
            layers.assert_near(weights.grad, gradients[1][rank], "weights")

    run(main, ranks=2, ranks_per_node=per_node)


def test_gradient_of_renormalized_weights():
    given, kept = torch.tensor([[0, 1, 2], [1, -1, 0], [2, 0, 1]]), torch.tensor([[0, -1, 2], [1, -1, 0], [-1, -1, -1]])
    weights = torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    whole = limits.renormalized(weights, given, kept)
    assert torch.allclose((whole * (kept >= 0)).sum(1)[:2], (weights * (given >= 0)).sum(1)[:2], atol=1e-6)
    assert torch.autograd.gradcheck(lambda w: limits.renormalized(w, given, kept), weights)


def test_error_is_the_default():
    """At the line of the call."""

    def main():
        ids = torch.zeros(6, 1, dtype=torch.int64)
        kernels.moe_plan(ids, num_experts=2, capacity=12)
        kernels.moe_plan(ids, num_experts=2, capacity=9)

    with pytest.raises(DitronError, match=r"test_capacity.py:129: moe_plan: 3 routes of this rank's tokens are beyond"):
        run(main, ranks=2)


def test_on_a_gpu_the_next_call_raises(monkeypatch):
    """Numbers that have not come to the host are not waited for; the error names the call that they are of."""
    group = SimpleNamespace(name="g")
    arrived = {"a": False, "b": False}
    events = {name: SimpleNamespace(query=lambda name=name: arrived[name]) for name in arrived}
    pending = [
        limits._Overflow(torch.tensor(0), events["a"], "model.py:3"),
        limits._Overflow(torch.tensor(2), events["b"], "model.py:7"),
    ]
    monkeypatch.setitem(limits._pending, "g", limits.deque(pending))
    limits.look(group)
    arrived["a"] = True
    limits.look(group)
    assert len(limits._pending["g"]) == 1
    arrived["b"] = True
    with pytest.raises(DitronError, match="model.py:7: moe_plan: 2 routes"):
        limits.look(group)
    limits.look(group)  # said once


@pytest.mark.parametrize(
    "options, message",
    [
        ({"capacity": 0}, "capacity must be a number of routes from 1, got 0"),
        ({"capacity": 1.25}, "capacity must be a number of routes from 1, got 1.25"),
        ({"rank_capacity": -1}, "rank_capacity must be a number of routes from 1, got -1"),
        ({"capacity": 4, "on_overflow": "ignore"}, "unknown on_overflow 'ignore': expected 'error' or 'drop'"),
        ({"capacity": 4, "max_tokens": 3}, "topk_ids has 4 tokens, and max_tokens is 3"),
    ],
)
def test_what_is_wrong(options, message):
    def main():
        with pytest.raises(DitronError, match=message):
            kernels.moe_plan(torch.zeros(4, 1, dtype=torch.int64), num_experts=2, **options)

    run(main, ranks=2)
