"""Blocks of experts on simulated ranks against plain modules, with the routers of models that are in use."""

import pytest
import torch
from torch import nn

import ditron.sim
from ditron import DitronError, kernels
from ditron.nn import MoE

HIDDEN, INNER, EXPERTS = 32, 48, 8


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(HIDDEN, INNER, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """As the models' own: a loop over experts."""

    def __init__(self, choose, top_k, experts=EXPERTS):
        super().__init__()
        torch.manual_seed(3)
        self.gate = nn.Linear(HIDDEN, experts, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(experts))
        self.choose, self.top_k = choose, top_k

    def forward(self, x):
        ids, weights = self.choose(self.gate(x), self.top_k)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, k = torch.nonzero(ids == number, as_tuple=True)
            y.index_add_(0, token, expert(x[token]) * weights[token, k, None])
        return y


def mixtral(logits, top_k):
    weights, ids = logits.softmax(1).topk(top_k, 1)
    return ids, weights / weights.sum(1, keepdim=True)


def without_norm(logits, top_k):
    weights, ids = logits.softmax(1).topk(top_k, 1)
    return ids, weights


BIAS = torch.linspace(-1, 1, EXPERTS).double()


def deepseek(logits, top_k):
    """Four groups of two experts, of which two are considered."""
    scores = logits.sigmoid()
    choice = (scores + BIAS).view(-1, 4, 2)
    groups = choice.topk(2, 2).values.sum(2).topk(2, 1).indices
    considered = torch.zeros(len(logits), 4, dtype=torch.bool).scatter_(1, groups, True)
    ids = choice.masked_fill(~considered[:, :, None], -torch.inf).flatten(1).topk(top_k, 1).indices
    weights = scores.gather(1, ids)
    return ids, weights / weights.sum(1, keepdim=True) * 2.5


ROUTERS = {
    "mixtral": (mixtral, 2, {}),
    "without norm": (without_norm, 3, dict(normalize=False)),
    "deepseek": (deepseek, 2, dict(scoring="sigmoid", groups=(4, 2), correction_bias=True, scaling=2.5)),
}


def run(main, ranks=2):
    def rank():
        ditron.init()
        with torch.no_grad():
            main(ditron.rank())

    ditron.sim.run(rank, ranks=ranks)


def made(block, **options):
    """Of its bfloat16 copy, the router in float32."""
    half = [tuple(linear.bfloat16() for linear in expert.children()) for expert in block.experts]
    moe = MoE.from_experts(block.gate, half, block.top_k, **options)
    if moe.correction_bias is not None:
        moe.correction_bias.copy_(BIAS)
    return moe


def rounded(block):
    """In fp64, with the weights that are used."""
    for name, parameter in block.named_parameters():
        parameter.data = parameter.data if "gate.weight" == name else parameter.data.bfloat16().float()
    return block.double()


@pytest.mark.parametrize("parallel", ["ep", "tp"])
@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_block(router, parallel, sequence_parallel):
    choose, top_k, options = ROUTERS[router]
    x = torch.randn(2, 7, HIDDEN, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = rounded(Block(choose, top_k))(x.view(-1, HIDDEN).double()).detach().view(x.shape)

    def main(rank):
        moe = made(Block(choose, top_k), parallel=parallel, sequence_parallel=sequence_parallel, **options)
        y, exact = (moe(x[rank]), expected[rank]) if sequence_parallel else (moe(x), expected)
        assert y.shape == exact.shape
        assert (y.double() - exact).norm() <= 8e-3 * exact.norm()

    run(main)


def test_unequal_parts_of_the_experts():
    choose, top_k, options = ROUTERS["mixtral"]
    x = torch.randn(3, 5, HIDDEN).bfloat16()
    expected = rounded(Block(choose, top_k, 7))(x.view(-1, HIDDEN).double()).detach().view(x.shape)

    def main(rank):
        moe = made(Block(choose, top_k, 7), **options)
        assert len(moe.w2) == 3 and len(moe.own_experts) == (2, 2, 3)[rank]
        assert (moe(x[rank]).double() - expected[rank]).norm() <= 8e-3 * expected[rank].norm()

    run(main, ranks=3)


def test_state():
    def main(rank):
        moe = MoE(HIDDEN, INNER, EXPERTS, 2, correction_bias=True)
        assert {name: tuple(value.shape) for name, value in moe.state_dict().items()} == {
            "router.weight": (EXPERTS, HIDDEN),
            "w13": (EXPERTS // 2, 2 * INNER, HIDDEN),
            "w2": (EXPERTS // 2, HIDDEN, INNER),
            "correction_bias": (EXPERTS,),
        }
        assert "num_experts=8" in repr(moe)

    run(main)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(scoring="relu"), "unknown scoring 'relu'"),
        (dict(parallel="dp"), "unknown parallel 'dp'"),
        (dict(intermediate_size=47, parallel="tp"), "an intermediate size of 47 cannot be divided among 2 ranks"),
        (dict(groups=(3, 1)), "8 experts cannot be divided into 3 groups, 1 chosen"),
        (dict(top_k=9), "top_k=9 of 8 experts that are considered"),
        (dict(groups=(8, 1)), "top_k=2 of 1 experts that are considered"),
    ],
)
def test_errors(options, message):
    def main(rank):
        with pytest.raises(DitronError, match=message):
            MoE(**dict(hidden_size=HIDDEN, intermediate_size=INNER, num_experts=EXPERTS, top_k=2) | options)

    run(main)


@pytest.mark.parametrize("parallel", ["ep", "tp"])
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_gradients(parallel, sequence_parallel):
    """Of a part of the tokens on each rank, or of all of them on every rank, as from a loss that all compute."""
    choose, top_k, options = ROUTERS["mixtral"]
    x, grad = torch.randn(2, 2, 6, HIDDEN, generator=torch.Generator().manual_seed(1)).bfloat16()
    block = rounded(Block(choose, top_k))
    whole = x.double().requires_grad_()
    block(whole.view(-1, HIDDEN)).backward(grad.view(-1, HIDDEN).double())

    def main(rank):
        moe = made(Block(choose, top_k), parallel=parallel, sequence_parallel=sequence_parallel, **options)
        part = (lambda t: t[rank]) if sequence_parallel else (lambda t: t)
        mine = part(x).clone().requires_grad_()
        with torch.enable_grad():
            moe(mine).backward(part(grad))
        found = {"x": (mine.grad, part(whole.grad)), "router": (moe.router.weight.grad, block.gate.weight.grad)}
        inner = slice(None) if parallel == "ep" else slice(rank * INNER // 2, (rank + 1) * INNER // 2)
        for index, number in enumerate(moe.own_experts):
            gate, up, down = (linear.weight.grad for linear in block.experts[number].children())
            found[f"w13 of {number}"] = moe.w13.grad[index], torch.cat([gate[inner], up[inner]])
            found[f"w2 of {number}"] = moe.w2.grad[index], down[:, inner]
        for name, (got, exact) in found.items():
            assert (got.double() - exact).norm() <= 1e-2 * exact.norm(), name

    run(main)


@pytest.mark.parametrize("parallel", ["ep", "tp"])
def test_quantized_experts(parallel):
    """The layer of the same quantized weights, for inference; another block loads them."""
    torch.manual_seed(5)
    router = nn.Linear(128, 4, bias=False).bfloat16()
    experts = [[nn.Linear(*sizes, bias=False).bfloat16() for sizes in ((128, 256), (128, 256), (256, 128))]] * 4
    x = torch.randn(2, 20, 128).bfloat16()

    def main():
        ditron.init()
        rank = ditron.rank()
        moe = MoE.from_experts(router, experts, 2, parallel=parallel, expert_dtype=torch.float8_e4m3fn)
        gate, up, down = (linear.weight.detach() for linear in experts[0])
        part = slice(128 * rank, 128 * rank + 128) if parallel == "tp" else slice(None)
        w13, scale_w13 = kernels.quantize_128x128(torch.cat([gate[part], up[part]])[None].repeat(len(moe.w13), 1, 1))
        w2, scale_w2 = kernels.quantize_128x128(down[:, part][None].repeat(len(moe.w2), 1, 1))
        scales = {"scale_w13": scale_w13, "scale_w2": scale_w2, "num_experts": 4, "parallel": parallel}
        loaded = MoE(128, 256, 4, 2, parallel=parallel, expert_dtype=torch.float8_e4m3fn, dtype=torch.bfloat16)
        loaded.load_state_dict(moe.state_dict())
        with torch.no_grad():
            y = moe(x[rank])
            assert torch.equal(y, kernels.ep_moe(x[rank], *moe.route(x[rank]), w13, w2, **scales)) and y.any()
            assert torch.equal(y, loaded(x[rank]))
        with pytest.raises(DitronError, match="ep_moe: with quantized weights there are no gradients"):
            moe(x[rank])
        nn.Sequential(loaded.double()).to("cpu", torch.bfloat16)  # of which experts know nothing
        assert loaded.router.weight.dtype == torch.bfloat16
        for name, tensor in moe.state_dict().items():
            kept = loaded.state_dict()[name]
            assert kept.dtype == tensor.dtype and torch.equal(kept.float(), tensor.float()), name
        assert loaded.to("meta", torch.bfloat16).w13.device.type == "meta" and loaded.w13.dtype == moe.w13.dtype
        halves = MoE.from_experts(router, experts, 2, parallel=parallel, expert_dtype=torch.float16)
        assert halves.w13.dtype == halves.w2.dtype == torch.float16 and halves.w13.any()
        with pytest.raises(DitronError, match="expert_dtype must be float8_e4m3fn, .* got torch.float8_e5m2"):
            MoE.from_experts(router, experts, 2, parallel=parallel, expert_dtype=torch.float8_e5m2)
        with pytest.raises(DitronError, match="multiples of 128, got hidden_size=64 and 256"):
            MoE(64, 512 if parallel == "tp" else 256, 4, 2, parallel=parallel, expert_dtype=torch.float8_e4m3fn)

    ditron.sim.run(main, ranks=2)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda block: setattr(block.gate, "bias", nn.Parameter(torch.ones(EXPERTS))), "the router has a bias"),
        (
            lambda block: setattr(block.experts[3].down_proj, "bias", nn.Parameter(torch.ones(HIDDEN))),
            "the down projection of expert 3 has a bias",
        ),
        (lambda block: setattr(block, "gate", nn.Linear(HIDDEN, 9, bias=False)), "9 outputs, and there are 8 experts"),
        (lambda block: setattr(block, "gate", nn.Linear(8, EXPERTS, bias=False)), "takes 8 features, and experts 32"),
        (
            lambda block: setattr(block.experts[1], "up_proj", nn.Linear(HIDDEN, 16, bias=False)),
            r"the up projection of expert 1 has a weight of \[16, 32\]: expected \[48, 32\]",
        ),
    ],
)
def test_blocks_of_another_kind(change, message):
    block = Block(mixtral, 2)
    change(block)
    experts = [(e.gate_proj, e.up_proj, e.down_proj) for e in block.experts]

    def main(rank):
        with pytest.raises(DitronError, match=message):
            MoE.from_experts(block.gate, experts, top_k=2)

    run(main)


def test_tokens_of_another_size():
    def main(rank):
        with pytest.raises(DitronError, match=r"x is \[3, 64\]: expected a last dimension of hidden_size=32"):
            MoE(HIDDEN, INNER, EXPERTS, 2)(torch.zeros(3, 64))

    run(main)
