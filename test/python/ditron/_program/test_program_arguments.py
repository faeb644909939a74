"""What a program may be given: None for a tensor, floats, tuples and lists of tensors; and methods as programs."""

import gc
from pathlib import Path

import pytest
import torch
import triton.language as tl

import ditron
import ditron.host as dh
from ditron import CompileError
from ditron._program.arguments import flatten, leaf_names, unflatten
from ditron.protocol import api as checking

# ruff: noqa: F811 - tests take the fixture by its name

HERE = Path(__file__)


def on_ranks(body, ranks: int = 2) -> None:
    def main():
        ditron.init()
        body(ditron.rank(), ditron.num_ranks())

    ditron.sim.run(main, ranks=ranks)


@ditron.jit
def scaled_sum(x_ptr, y_ptr, bias_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = alpha * tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n)
    if bias_ptr is not None:
        value += tl.load(bias_ptr + i, mask=i < n)
    tl.store(out_ptr + i, value, mask=i < n)


@ditron.program(
    sample_args=lambda ranks: {"x": "f32[40]", "weights": ["f32[40]"] * 2, "out": "f32[2, 40]", "bias": "f32[40]"}
)
def sums(x, weights, out, bias=None, alpha=1.0, *, block=32):
    n = x.shape[0]
    for i, weight in enumerate(weights):
        scaled_sum[(dh.cdiv(n, block),)](x, weight, bias, out[i], n, alpha, BLOCK=block)


def expected(x, weights, bias=None, alpha=1.0):
    return alpha * x + torch.stack(list(weights)) + (0 if bias is None else bias)


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("with_bias", [False, True])
def test_optional_tensors_floats_and_tuples(kind, with_bias):
    def body(rank, num_ranks):
        for count in (1, 3):
            for alpha in (1.0, -2.5, 0.1):
                x, weights, out = torch.randn(50), kind(torch.randn(count, 50)), torch.zeros(count, 50)
                bias = torch.randn(50) if with_bias else None
                sums(x, weights, out, bias, alpha)
                torch.testing.assert_close(out, expected(x, weights, bias, alpha))
        x, weights, out = torch.randn(50), kind(torch.randn(2, 50)), torch.zeros(2, 50)
        sums(x, weights, out=out)  # the defaults
        torch.testing.assert_close(out, expected(x, weights))

    on_ranks(body)


def test_none_is_a_constant_of_the_trace():
    weights = ["f32[40]", "f32[40]"]
    without = str(sums.module("f32[40]", weights, "f32[2, 40]", None, 2.0))
    with_bias = str(sums.module("f32[40]", weights, "f32[2, 40]", "f32[40]", 2.0))
    assert "%bias" not in without and "%bias: !ditron.buffer<?xf32>" in with_bias
    assert "%weights.0: !ditron.buffer<?xf32>, %weights.1: !ditron.buffer<?xf32>, " in without
    assert "%alpha: f32" in without and "2.000000e+00" not in without, "a float is symbolic"


def test_checker_gives_nested_arguments():
    report = checking.check_program(sums, [(2, None)])
    assert not report.findings and not report.notes, str(report)


def test_overlap_of_a_tensor_in_a_tuple_is_told():
    def body(rank, num_ranks):
        out = torch.zeros(2, 50)
        with pytest.raises(ditron.DitronError, match=r"arguments 'weights.1' and 'out' overlap in memory"):
            sums(torch.randn(50), (torch.randn(50), out[0]), out)

    on_ranks(body, 1)


def test_another_float_is_no_new_trace_and_no_new_plan(machine, monkeypatch):
    from ditron._program.execute import cuda

    plans, traces = [], []
    plan, trace = cuda.CudaRunner._plan, type(sums)._trace
    monkeypatch.setattr(cuda.CudaRunner, "_plan", lambda *args: plans.append(1) or plan(*args))
    monkeypatch.setattr(type(sums), "_trace", lambda *args: traces.append(1) or trace(*args))
    x, weights, out = torch.randn(50), [torch.randn(50)], torch.zeros(1, 50)
    fresh = ditron.program(sums.fn)
    for alpha in (0.5, 2.5, -1.0):
        fresh(x, weights, out, None, alpha)
    assert [arguments[4] for _, _, arguments in machine.triton.launches] == [0.5, 2.5, -1.0]
    assert (len(plans), len(traces)) == (1, 1)


def test_forms():
    assert flatten((1, "x")) == ((1, "x"), None)
    args = 1, (2, [3, None]), None, [], 4.0
    leaves, form = flatten(args)
    assert leaves == (1, 2, 3, 4.0) and tuple(unflatten(leaves, form)) == args
    assert leaf_names(["a", "b", "c", "d", "e"], form) == ["a", "b.0", "b.1.0", "e"]
    assert form != flatten((1, [2, [3, None]], None, [], 4.0))[1], "lists are not tuples"
    assert hash(form) == hash(flatten((5, (6, [7, None]), None, [], 8.0))[1])


class Scaled:
    """A layer whose forward is a program."""

    def __init__(self, alpha: float):
        self.alpha = alpha

    @ditron.program
    def forward(self, x, y, out, *, block=64):
        """What it reads of ``self`` is a constant of the trace."""
        scaled_sum[(1,)](x, y, None, out, x.shape[0], self.alpha, BLOCK=block)

    @staticmethod
    @ditron.program
    def alone(x, y, out):
        scaled_sum[(1,)](x, y, None, out, x.shape[0], 3.0, BLOCK=64)


def test_methods():
    def body(rank, num_ranks):
        x, y, out = torch.randn(50), torch.randn(50), torch.zeros(50)
        layers = Scaled(2.0), Scaled(4.0)
        for _ in range(2):
            for layer in layers:
                layer.forward(x, y, out)
                torch.testing.assert_close(out, layer.alpha * x + y)
        layers[0].alone(x, y, out)
        torch.testing.assert_close(out, 3 * x + y)
        layers[0].forward(x, y, out, block=128)
        layers[0].forward.free()

    on_ranks(body)
    layer = Scaled(2.0)
    assert layer.forward is layer.forward and layer.forward is not Scaled(2.0).forward
    assert layer.forward.names == ["x", "y", "out"] and layer.forward.__doc__ == Scaled.forward.__doc__
    known = len(Scaled.forward._methods)
    del layer
    gc.collect()
    assert len(Scaled.forward._methods) < known, "the object's program goes with it"


# Errors: what tensors have and buffers have not -------------------------------------------------------------------------


def wrong_product(x, out, alpha):
    dh.copy(x * 2, out)  # <- wrong_product: '*' of a buffer: a program does not compute with elements


def wrong_sum(x, out, alpha):
    return 1 + x  # <- wrong_sum: let a kernel compute (kernel[grid](x, ...)), or do it with the tensors


def wrong_matmul(x, out, alpha):
    return x @ x  # <- wrong_matmul: '@' of a buffer


def wrong_inplace(x, out, alpha):
    x += 1  # <- wrong_inplace: '+' of a buffer


def wrong_item(x, out, alpha):
    return x[0].item()  # <- wrong_item: a buffer has no .item: a program does not compute


def wrong_if(x, out, alpha):
    if x:  # <- wrong_if: the truth of a buffer
        pass


def wrong_comparison(x, out, alpha):
    return x == out  # <- wrong_comparison: a comparison of buffers


def wrong_less(x, out, alpha):
    return x < 3  # <- wrong_less: '<' of a buffer


def wrong_loop(x, out, alpha):
    for row in x:  # <- wrong_loop: in 'for i in dh.range(x.shape[0])'
        dh.copy(row, out)


def wrong_assignment(x, out, alpha):
    out[0] = 1.0  # <- wrong_assignment: dh.copy and dh.fill write parts


def wrong_torch(x, out, alpha):
    torch.add(out, x)  # <- wrong_torch: torch.add of a buffer


def wrong_torch_of_list(x, out, alpha):
    torch.cat([torch.zeros(3), x])  # <- wrong_torch_of_list: torch.cat of a buffer


def wrong_method(x, out, alpha):
    x.t()  # <- wrong_method: a buffer has no .t


def wrong_number(x, out, alpha):
    float(x[0])  # <- wrong_number: 'float' of a buffer


def wrong_float_product(x, out, alpha):
    return alpha * 2  # <- wrong_float_product: a float argument of a program is passed on to kernels


def wrong_float_test(x, out, alpha):
    if alpha > 1:  # <- wrong_float_test: a keyword-only parameter is a constant of the trace
        pass


def wrong_float_grid(x, out, alpha):
    scaled_sum[(1,)](x, x, None, out, alpha, 1.0, BLOCK=64, num_warps=alpha)  # <- wrong_float_grid: 'num_warps' is an


WRONG = {name: value for name, value in list(globals().items()) if name.startswith("wrong_")}


@pytest.mark.parametrize("name", WRONG)
def test_a_program_that_computes_is_told_what_a_program_is(name):
    line, text = next((i, text) for i, text in enumerate(HERE.read_text().splitlines(), 1) if f"# <- {name}: " in text)
    with pytest.raises(CompileError) as caught:
        ditron.program(WRONG[name]).module("f32[64]", "f32[64]", 1.5)
    assert (caught.value.file, caught.value.line) == (str(HERE), line), caught.value
    assert text.split(f"# <- {name}: ")[1] in caught.value.message, caught.value


def test_a_name_that_no_tensor_has():
    def misspelled(x, out, alpha):
        return x.shapes

    with pytest.raises(AttributeError, match="a buffer of a program has no 'shapes'"):
        ditron.program(misspelled).module("f32[64]", "f32[64]", 1.5)


def test_a_float_for_a_parameter_of_another_type():
    @ditron.jit
    def doubles(x_ptr, alpha: tl.float64):
        tl.store(x_ptr, alpha.to(tl.float32))

    def given(x, out, alpha):
        doubles[(1,)](out, alpha)

    with pytest.raises(CompileError, match="is fp64, and is given a float argument of the program, which is fp32"):
        ditron.program(given).module("f32[64]", "f32[64]", 1.5)


@ditron.jit
def sum_of_all(tensors, factors, bias, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for number in tl.static_range(len(tensors)):
        total += factors[number] * tl.load(tensors[number] + i, mask=i < n)
    if bias[1] is not None:
        total += tl.load(bias[1] + i, mask=i < n) * bias[0]
    tl.store(out_ptr + i, total, mask=i < n)


@ditron.program
def weighted(tensors, out, bias=None, alpha=2.0):
    n = out.shape[0]
    factors = [alpha, *range(1, len(tensors))]
    sum_of_all[(dh.cdiv(n, 32),)](tensors, factors, (n, bias), out, n, BLOCK=32)


@pytest.mark.parametrize("with_bias", [False, True])
def test_a_tuple_is_an_argument_of_a_kernel(with_bias):
    """Of buffers, numbers and None, symbolic or not."""

    def body(rank, num_ranks):
        tensors, out = torch.randn(3, 40), torch.zeros(40)
        bias = torch.randn(40) if with_bias else None
        weighted(list(tensors), out, bias, 0.5)
        expected = 0.5 * tensors[0] + tensors[1] + 2 * tensors[2]
        torch.testing.assert_close(out, expected + 40 * bias if with_bias else expected)

    on_ranks(body, 1)


@ditron.jit
def tell_constant(out_ptr, value: tl.constexpr):
    if value is True:
        tl.store(out_ptr, 100.0)
    else:
        tl.store(out_ptr, value * 3 / 2)


@ditron.program
def tells_constant(out, *, value=1, pair=(1, 1)):
    tell_constant[(1,)](out, value)
    tell_constant[(1,)](out[1:], pair[1])


def test_constants_that_are_equal_and_of_other_types_are_different_ones():
    def body(rank, ranks):
        for value, told in ((1, 1.5), (True, 100.0), (1.0, 1.5), (1, 1.5), (0, 0.0), (False, 0.0)):
            out = torch.zeros(2)
            tells_constant(out, value=value, pair=(2, value))
            assert out.tolist() == [told, told]

    on_ranks(body, 1)
