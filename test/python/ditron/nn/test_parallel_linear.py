"""Parallel linear layers on simulated ranks, against nn.Linear in fp64."""

import copy
import io
import pickle

import numerics
import pytest
import torch
from torch import nn

import ditron.sim
from ditron import DitronError, kernels
from ditron.nn import ColumnParallelLinear, RowParallelLinear

RANKS = 2


def run(main, **options):
    def rank():
        ditron.init()
        return main(ditron.rank())

    return ditron.sim.run(rank, ranks=RANKS, **options)


def linear(dtype, bias=True):
    torch.manual_seed(1)
    return nn.Linear(16, 24, bias=bias).to(dtype)


def exact(layer, x, grad):
    """Output and gradients of x, weight and bias in fp64, with sums of magnitudes to bound errors by."""
    layer, x = copy.deepcopy(layer).double(), x.double().requires_grad_()
    y = layer(x)
    y.backward(grad.double())
    sizes = [
        x.detach().abs() @ layer.weight.detach().abs().t() + (0 if layer.bias is None else layer.bias.detach().abs()),
        grad.double().abs() @ layer.weight.detach().abs(),
        grad.double().abs().flatten(0, -2).t() @ x.detach().abs().flatten(0, -2),
        grad.double().abs().flatten(0, -2).sum(0),
    ]
    found = [y.detach(), x.grad, layer.weight.grad, None if layer.bias is None else layer.bias.grad]
    return list(zip(found, sizes, strict=True))


def assert_near(got, expected, part):
    """Each addend of the sum over ranks may have been rounded to the dtype once."""
    value, size = (part(t) for t in expected)
    eps = torch.finfo(got.dtype).eps
    numerics.assert_error_within(got.detach(), value, (numerics.gamma(64) + (eps if eps > 1e-5 else 0)) * size)


def chunk(rank, dim):
    return lambda t: t.chunk(RANKS, dim)[rank]


def whole(t):
    return t


@pytest.mark.parametrize("shape, sequence_dim", [((12,), -2), ((3, 8), -2), ((8, 3), 0), ((1, 8), -2)])
@pytest.mark.parametrize(
    "options", [{}, {"keep_gathered": True}, {"gather_output": True}, {"sequence_parallel": False}]
)
def test_column_parallel(shape, sequence_dim, options):
    check_column(torch.float32, shape, sequence_dim, options)


@pytest.mark.parametrize("bias", [False, True])
def test_column_parallel_bfloat16(bias):
    check_column(torch.bfloat16, (3, 8), -2, {}, bias)


def check_column(dtype, shape, sequence_dim, options, bias=True):
    layer, x, grad = linear(dtype, bias), torch.randn(*shape, 16, dtype=dtype), torch.randn(*shape, 24, dtype=dtype)
    expected = exact(layer, x, grad)

    def main(rank):
        rows = chunk(rank, sequence_dim) if options.get("sequence_parallel", True) else whole
        columns = whole if options.get("gather_output") else chunk(rank, -1)
        mine = rows(x).clone().requires_grad_()
        module = ColumnParallelLinear.from_linear(layer, sequence_dim=sequence_dim, **options)
        y = module(mine)
        y.backward(columns(grad))
        assert_near(y, expected[0], columns)
        assert_near(mine.grad, expected[1], rows)
        assert_near(module.weight.grad, expected[2], chunk(rank, 0))
        if bias:
            assert_near(module.bias.grad, expected[3], chunk(rank, 0))

    run(main)


@pytest.mark.parametrize("shape, sequence_dim", [((12,), -2), ((3, 8), -2), ((8, 3), 0)])
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_row_parallel(shape, sequence_dim, sequence_parallel):
    check_row(torch.float32, shape, sequence_dim, sequence_parallel)


@pytest.mark.parametrize("bias", [False, True])
def test_row_parallel_bfloat16(bias):
    check_row(torch.bfloat16, (3, 8), -2, True, bias)


def check_row(dtype, shape, sequence_dim, sequence_parallel, bias=True):
    layer, x, grad = linear(dtype, bias), torch.randn(*shape, 16, dtype=dtype), torch.randn(*shape, 24, dtype=dtype)
    expected = exact(layer, x, grad)

    def main(rank):
        rows = chunk(rank, sequence_dim) if sequence_parallel else whole
        mine = chunk(rank, -1)(x).clone().requires_grad_()
        module = RowParallelLinear.from_linear(layer, sequence_dim=sequence_dim, sequence_parallel=sequence_parallel)
        y = module(mine)
        y.backward(rows(grad))
        assert_near(y, expected[0], rows)
        assert_near(mine.grad, expected[1], chunk(rank, -1))
        assert_near(module.weight.grad, expected[2], chunk(rank, 1))
        if bias:
            assert_near(module.bias.grad, expected[3], whole)

    run(main)


def test_made_without_a_linear():
    def main(rank):
        up, down = ColumnParallelLinear(8, 6), RowParallelLinear(6, 8, bias=False)
        assert (up.weight.shape, up.bias.shape, down.weight.shape, down.bias) == ((3, 8), (3,), (8, 3), None)
        assert all(p.abs().max() <= 8**-0.5 for p in up.parameters())
        assert down(up(torch.ones(2, 8))).shape == (2, 8)
        assert "num_ranks=2" in repr(up)
        assert copy.deepcopy(up).group is up.group

    run(main)


@pytest.mark.parametrize("options", [{}, {"sequence_parallel": False}])
def test_autocast(options):
    """Products in bfloat16, gradients in the dtype of the parameters, as nn.Linear's."""
    layer, x = linear(torch.float32, bias=False), torch.randn(8, 16)

    def main(rank):
        up, down = ColumnParallelLinear.from_linear(layer, **options), RowParallelLinear(16, 8, **options)
        mine = chunk(rank, 0)(x) if not options else x
        with torch.autocast("cpu", torch.bfloat16):
            assert down(x[:, : 16 // ditron.num_ranks()]).dtype == torch.bfloat16
            with torch.no_grad():
                assert up(mine).dtype == torch.bfloat16
            y = up(mine)
        y.sum().backward()
        assert (y.dtype, up.weight.grad.dtype) == (torch.bfloat16, torch.float32)
        numerics.assert_product(y.detach(), x.bfloat16(), up.weight.detach().bfloat16().T)

    run(main)


def test_autocast_leaves_out_and_other_dtypes_alone():
    """The result cannot go to an ``out`` of another dtype, and float64 and integers are not converted."""

    def main(rank):
        x, w, bias = torch.ones(4, 8), torch.ones(6, 8), torch.ones(6)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            for option, shape in {"out": (8, 6), "gathered": (8, 8)}.items():
                right = torch.zeros(shape, dtype=torch.bfloat16)
                kernels.ag_gemm(x, w, **{option: right})
                assert right.count_nonzero() == right.numel()
                with pytest.raises(DitronError, match="bfloat16.*float32"):
                    kernels.ag_gemm(x, w, **{option: torch.zeros(shape)})
            assert kernels.ag_gemm(a=x, b=w, bias=bias).dtype == torch.bfloat16
            for dtype in (torch.float64, torch.int8):
                with pytest.raises(DitronError, match="expected matrices of one dtype, bfloat16, float16 or float32"):
                    kernels.ag_gemm(x.to(dtype), w.to(dtype))

    run(main)


@pytest.mark.parametrize("made", [ColumnParallelLinear, RowParallelLinear])
def test_saved_whole(made):
    """A module is saved with the name of its group, which must exist where it is loaded."""

    def main(rank):
        group = ditron.new_group([0, 1])
        module = made(16, 24, group=group)
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        assert loaded.group is group and torch.equal(loaded.weight, module.weight)
        return pickle.dumps(module)

    saved = run(main)[0]
    with pytest.raises(DitronError, match="saved with the group named '0,1#2'.*ditron.new_group"):
        pickle.loads(saved)


def test_inputs_without_a_sequence():
    def main(rank):
        for made in (ColumnParallelLinear, RowParallelLinear):
            with pytest.raises(DitronError, match=r"shape \(8,\), whose dimension -2 must be the sequence"):
                made(8, 8)(torch.ones(8))
            with pytest.raises(DitronError, match=r"shape \(4, 8\), whose dimension 2 must be the sequence"):
                made(8, 8, sequence_dim=2)(torch.ones(4, 8))
            with pytest.raises(DitronError, match="dimension 1 must be the sequence, and the last the features"):
                made(8, 8, sequence_dim=1)(torch.ones(4, 8))
        with pytest.raises(DitronError, match="a sequence of 5 cannot be divided among 2 ranks: pad it"):
            RowParallelLinear(8, 8)(torch.ones(2, 5, 4))

    run(main)


def test_what_cannot_be_divided():
    def main(rank):
        with pytest.raises(DitronError, match="out_features cannot be divided among 2 ranks: 7"):
            ColumnParallelLinear(8, 7)
        with pytest.raises(DitronError, match="in_features cannot be divided among 2 ranks: 7"):
            RowParallelLinear.from_linear(nn.Linear(7, 8))

    run(main)
