"""Gradients of mixture-of-experts layers on simulated ranks, against torch's in fp64."""

import pytest
import torch
from test_moe import corpus, drawn, run

import ditron
from ditron import kernels
from ditron.kernels.expert_schedules import tiles_for
from ditron_compiler.errors import DitronError

TOKENS, TOP_K, EXPERTS, INNER, H = 20, 2, 4, 64, 48


def swiglu(gate, up):
    return torch.nn.functional.silu(gate) * up


class Layer:
    """Operands of all ranks, the exact result, and exact gradients."""

    def __init__(self, ranks, seed=0):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=generator).bfloat16()  # noqa: E731
        self.ranks, self.x, self.grad = ranks, draw(ranks, TOKENS, H), draw(ranks, TOKENS, H)
        self.weights = torch.rand(ranks, TOKENS, TOP_K, generator=generator)
        self.gate, self.up = draw(EXPERTS, INNER, H) / 4, draw(EXPERTS, INNER, H) / 4
        self.down = draw(EXPERTS, H, INNER) / 4

    def exact(self, ids):
        operands = [self.x, self.weights, self.gate, self.up, self.down]
        x, weights, gate, up, down = operands = [each.double().requires_grad_() for each in operands]
        hidden = swiglu(torch.einsum("rth,eih->rtei", x, gate), torch.einsum("rth,eih->rtei", x, up))
        chosen = torch.nn.functional.one_hot(ids.long().clamp(min=0), EXPERTS).double() * (ids >= 0)[..., None]
        y = torch.einsum("rtei,ehi,rtke,rtk->rth", hidden, down, chosen, weights)
        y.backward(self.grad.double())
        return y.detach(), *(each.grad for each in operands)

    def mine(self, parallel):
        """Which experts, and which of their inner features, this rank has."""
        rank = ditron.rank()
        part = lambda n: slice(rank * n // self.ranks, (rank + 1) * n // self.ranks)  # noqa: E731
        return (part(EXPERTS), slice(None)) if parallel == "ep" else (slice(None), part(INNER))

    def of_rank(self, gate, up, down, parallel):
        e, i = self.mine(parallel)
        return torch.cat([gate[e, i], up[e, i]], 1), down[e, :, i].contiguous()


def assert_near(got, exact, what):
    assert (got.double() - exact).norm() <= 8e-3 * exact.norm() + 1e-9, what


@pytest.mark.parametrize("parallel", ["ep", "tp"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_layer(ranks, parallel):
    layer = Layer(ranks)

    def main():
        rank = ditron.rank()
        for name, ids in corpus(ranks, TOKENS, TOP_K, EXPERTS).items():
            y, *gradients = layer.exact(ids)
            w13, w2 = (w.requires_grad_() for w in layer.of_rank(layer.gate, layer.up, layer.down, parallel))
            x, weights = layer.x[rank].clone().requires_grad_(), layer.weights[rank].clone().requires_grad_()
            got = kernels.ep_moe(x, ids[rank], weights, w13, w2, num_experts=EXPERTS, parallel=parallel)
            got.backward(layer.grad[rank])
            assert_near(got.detach(), y[rank], name)
            assert_near(x.grad, gradients[0][rank], (name, "x"))
            assert_near(weights.grad, gradients[1][rank], (name, "weights"))
            expected = layer.of_rank(*gradients[2:], parallel)
            for what, w, exact in (("w13", w13, expected[0]), ("w2", w2, expected[1])):
                assert_near(w.grad, exact, (name, what))

    run(main, ranks=ranks)


def test_some_operands_and_fewer_tokens():
    """Weights that are not given; a rank with fewer tokens than the plan is for; only the matrices have gradients."""
    layer, ids = Layer(2, seed=1), drawn(2, TOKENS, TOP_K, EXPERTS)
    ids[1, 13:] = -1
    layer.weights.fill_(1.0)
    y, *gradients = layer.exact(ids)

    def main():
        rank = ditron.rank()
        given = (TOKENS, 13)[rank]
        w13, w2 = (w.requires_grad_() for w in layer.of_rank(layer.gate, layer.up, layer.down, "ep"))
        options = {"num_experts": EXPERTS, "max_tokens": TOKENS}
        got = kernels.ep_moe(layer.x[rank, :given], ids[rank, :given], None, w13, w2, **options)
        got.backward(layer.grad[rank, :given])
        assert_near(got.detach(), y[rank, :given], "y")
        expected = layer.of_rank(*gradients[2:], "ep")
        assert_near(w13.grad, expected[0], "w13")
        assert_near(w2.grad, expected[1], "w2")

    run(main, ranks=2)


@pytest.mark.parametrize("wide", [False, True])
def test_moe_rs_backward(monkeypatch, wide):
    """Of rows as they are, without an activation; by the small tiles of simulated groups, and by those of GPUs."""
    if wide:

        def tiles(block_m, small, scaled=False, gathered=0):
            chosen = tiles_for(block_m, False, scaled, gathered)
            assert chosen["block"] == (64, 256, 64)  # as rows are gathered once for each column of tiles
            return chosen | {"programs": 3}

        monkeypatch.setattr("ditron.kernels.moe_rs_gradients.tiles_for", tiles)
    generator = torch.Generator().manual_seed(5)
    ids, weights = drawn(2, TOKENS, TOP_K, EXPERTS), torch.rand(2, TOKENS, TOP_K, generator=generator)
    of_route = torch.randn(2 * TOKENS * TOP_K, INNER, generator=generator).bfloat16()
    w = torch.randn(EXPERTS, H, INNER, generator=generator).bfloat16()
    grad = torch.randn(2, TOKENS, H, generator=generator).bfloat16()
    operands = of_route, w, weights
    exact_rows, exact_w, exact_weights = (each.double().requires_grad_() for each in operands)
    y = torch.einsum("rk,rhk->rh", exact_rows, exact_w[ids.view(-1).long()]) * exact_weights.view(-1, 1)
    y.view(-1, TOP_K, H).sum(1).backward(grad.view(-1, H).double())

    def main():
        rank = ditron.rank()
        plan = kernels.moe_plan(ids[rank], weights[rank], num_experts=EXPERTS, block_m=64 if wide else None)
        row = plan.route_row.view(-1).long()
        rows = torch.full((plan.max_rows, INNER), float("nan"), dtype=torch.bfloat16)
        rows[row[row >= 0]] = of_route[row >= 0]
        mine = slice(2 * rank, 2 * rank + 2)
        got = kernels.moe_rs_backward(grad[rank], rows, w[mine].contiguous(), plan)
        assert_near(got[0][row[row >= 0]], exact_rows.grad[row >= 0], "rows")
        assert_near(got[1], exact_w.grad[mine], "w")
        of_here = (ids >= 2 * rank) & (ids < 2 * rank + 2)
        assert_near(got[2], (exact_weights.grad * of_here).view(-1, TOP_K), "weights")
        with pytest.raises(DitronError, match="expected grad, rows and w of one dtype"):
            kernels.moe_rs_backward(grad[rank].float(), rows, w[mine].contiguous(), plan)
        with pytest.raises(DitronError, match="expected rows .*, 64., got .*, 32."):
            kernels.moe_rs_backward(grad[rank], rows[:, :32], w[mine].contiguous(), plan)

    run(main, ranks=2)
