"""Modules that gather their input, whatever they do with it, and modules that see a part of the sequence."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ditron.nn
import ditron.sim
from ditron import DitronError

RANKS = 2
PLAN = {"": "gather", "gate": "colwise", "up": "colwise", "down": "rowwise"}


def run(main):
    def rank():
        ditron.init()
        return main(ditron.rank())

    return ditron.sim.run(rank, ranks=RANKS)


class MLP(nn.Module):
    """``inputs`` gives those of gate and up from x."""

    def __init__(self, inputs=lambda x: (x, x), size=16, inner=24):
        super().__init__()
        torch.manual_seed(1)
        self.norm = nn.LayerNorm(size)
        self.gate, self.up, self.down = nn.Linear(size, inner), nn.Linear(size, inner), nn.Linear(inner, size)
        self.inputs = inputs

    def forward(self, x):
        gate, up = self.inputs(x)
        return self.down(self.gate(gate) * self.up(up))


class Twice(MLP):
    def forward(self, x):
        return self.down(self.gate(x).relu_() * self.up(x) + self.gate(x))


class Normed(MLP):
    def forward(self, x):
        return super().forward(self.norm(x))


class Checkpointed(MLP):
    def forward(self, x):
        return self.down(checkpoint(lambda x: self.gate(x) * self.up(x), x, use_reentrant=False))


def first_changed(x):
    return x * 2, x


def both_changed(x):
    return x * 2, x + 1


def overwritten(x):
    x += 1
    return x, x


def unchanged(x):
    return x, x


def data(seed):
    return torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(seed))


def part(tensor, rank, dim=1):
    return tensor.chunk(RANKS, dim)[rank].clone()


def results(module, x, grad):
    """The output, and gradients of the input and the parameters."""
    module.zero_grad()
    x = x.clone().requires_grad_()
    y = module(x * 1)  # not a leaf, which could not be written in place
    y.backward(grad)
    return y.detach(), x.grad, {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def assert_same(got, whole, rank):
    """What a rank got is its part of what the module on one rank gives."""
    for mine, of_all in zip(got[:2], whole[:2], strict=True):
        torch.testing.assert_close(mine, part(of_all, rank), rtol=1e-4, atol=1e-4)
    assert got[2].keys() == whole[2].keys()
    for name, gradient in got[2].items():
        of_all = whole[2][name]
        dim = next((i for i in range(of_all.ndim) if of_all.shape[i] != gradient.shape[i]), None)
        expected = of_all if dim is None else part(of_all, rank, dim)
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("inputs", [unchanged, first_changed, both_changed, overwritten])
def test_layers_with_other_inputs(inputs):
    check(MLP(inputs), PLAN)


def test_layer_called_twice():
    """Its first output has been written in place."""
    module = Twice()
    expected = module(data(1)).detach()

    def main(rank):
        mine = ditron.nn.parallelize(copy.deepcopy(module), PLAN)
        with torch.no_grad():
            torch.testing.assert_close(mine(part(data(1), rank)), part(expected, rank), rtol=1e-4, atol=1e-4)

    run(main)


def check(module, plan, made=lambda module: module):
    whole = results(copy.deepcopy(module), data(1), data(2))

    def main(rank):
        mine = made(ditron.nn.parallelize(copy.deepcopy(module), plan))
        for _ in range(2):
            assert_same(results(mine, part(data(1), rank), part(data(2), rank)), whole, rank)

    run(main)


@pytest.mark.parametrize("made", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies(made):
    """They have layers of their own, and gradients of norms are still added over ranks."""
    check(Normed(unchanged), {**PLAN, "": "sequence"}, made)
    check(MLP(unchanged), PLAN, made)


def test_a_copy_computes_with_its_own_weights():
    def main(rank):
        module = ditron.nn.parallelize(MLP(), PLAN)
        other = copy.deepcopy(module)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
            x = part(data(1), rank)
            assert other(x).shape == x.shape and not other(x).any() and module(x).any()

    run(main)


def test_sequence_around_parallel_layers():
    """Gradients of divided weights are of this rank's part already."""
    plan = {name: style for name, style in PLAN.items() if name}
    check(Normed(unchanged), {"": "sequence", **plan})


def test_checkpoint():
    whole = results(MLP(), data(1), data(2))

    def main(rank):
        module = ditron.nn.parallelize(MLP(), PLAN)
        around = nn.Module()
        around.zero_grad, around.named_parameters = module.zero_grad, module.named_parameters
        around.forward = lambda x: checkpoint(module, x, use_reentrant=False)
        assert_same(results(around, part(data(1), rank), part(data(2), rank)), whole, rank)
        inside = ditron.nn.parallelize(Checkpointed(), PLAN)
        with pytest.raises(DitronError, match="checkpoint that module as a whole"):
            results(inside, part(data(1), rank), part(data(2), rank))

    run(main)


def test_called_without_a_tensor():
    def main(rank):
        with pytest.raises(DitronError, match="MLP is to gather its input, and was called without a tensor"):
            ditron.nn.parallelize(MLP(), PLAN)(None)

    run(main)


def tied_embedding():
    module = nn.ModuleDict({"embedding": nn.Embedding(24, 16), "head": nn.Linear(16, 24, bias=False)})
    module["head"].weight = module["embedding"].weight
    return module


def tied_linear():
    module = nn.ModuleDict({"head": nn.Linear(16, 24)})
    module["other"] = module["head"]
    return module


@pytest.mark.parametrize("tied", [tied_embedding, tied_linear])
def test_tied_weights(tied):
    def main(rank):
        module = tied()
        with pytest.raises(DitronError, match="'head' is colwise, and shares a parameter with others .*tied"):
            ditron.nn.parallelize(module, {"head": "colwise"})
        assert type(module["head"]) is nn.Linear

    run(main)


def test_a_linear_itself():
    def main(rank):
        with pytest.raises(DitronError, match=r"call ditron.nn.RowParallelLinear.from_linear\(module\) instead"):
            ditron.nn.parallelize(nn.Linear(4, 4), {"": "rowwise"})

    run(main)
