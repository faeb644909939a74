"""A LLaMA block that knows nothing of ranks, divided among simulated ones, forward and backward."""

import copy

import llama
import pytest
import torch
from simulated import run_numbered as run
from torch import nn
from torch_compiler import needs_compiler_in_threads

import ditron.nn
import ditron.sim
from ditron import DitronError, kernels
from ditron.nn import ColumnParallelLinear

BATCH, LENGTH, SIZE, HEADS = 2, 12, 32, 8


def results(block, x, grad):
    """Output, gradient of the input, and of each parameter by name."""
    x = x.clone().requires_grad_()
    positions = llama.position_embeddings(LENGTH, SIZE // HEADS, x.dtype)
    y = block(x, positions)
    y.backward(grad)
    return {"": y.detach(), "input": x.grad} | {name: p.grad for name, p in block.named_parameters()}


def problem(bias=False):
    torch.manual_seed(1)
    block = llama.Block(bias=bias)
    x, grad = torch.randn(BATCH, LENGTH, SIZE), torch.randn(BATCH, LENGTH, SIZE)
    exact = results(copy.deepcopy(block).double(), x.double(), grad.double())
    plain = results(copy.deepcopy(block), x, grad)
    return block, x, grad, exact, plain


def assert_as_good(got, exact, plain, part):
    """No further from fp64 than a few times the error of the block on one rank in fp32."""
    assert got.keys() == exact.keys()
    for name in got:
        worst = (plain[name].double() - exact[name]).abs().max()
        error = (got[name].double() - part(name, exact[name])).abs().max()
        assert error <= 4 * worst + 1e-6 * exact[name].abs().max(), (name, error, worst)


def part_of(rank, ranks, sequence_parallel):
    def part(name, tensor):
        if name in ("", "input"):
            return tensor.chunk(ranks, 1)[rank] if sequence_parallel else tensor
        layer, _, kind = name.rpartition(".")
        if "norm" in layer or (kind == "bias" and layer.endswith(("o_proj", "down_proj"))):
            return tensor
        dim = 1 if layer.endswith(("o_proj", "down_proj")) else 0
        return tensor.chunk(ranks, dim)[rank]

    return part


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sequence_parallel", [True, False])
@pytest.mark.parametrize("ranks", [2, 4])
def test_llama_block(ranks, sequence_parallel, bias):
    block, x, grad, exact, plain = problem(bias)

    def main(rank):
        part = part_of(rank, ranks, sequence_parallel)
        mine = ditron.nn.parallelize(copy.deepcopy(block), llama.PLAN, sequence_parallel=sequence_parallel)
        assert isinstance(mine.mlp.up_proj, ColumnParallelLinear) and type(mine.self_attn) is llama.Attention
        for _ in range(2):
            mine.zero_grad()
            got = results(mine, part("", x).contiguous(), part("", grad).contiguous())
            assert_as_good(got, exact, plain, part)

    run(main, ranks)


def test_inputs_are_gathered_once(monkeypatch):
    """For q, k and v, and for gate and up: one operator each, on weights that are not copied."""
    block, x, grad, *_ = problem()
    calls = []
    kernel = kernels.ag_gemm_gathered

    def counted(a, b, *args, **options):
        calls.append(b.data_ptr())
        return kernel(a, b, *args, **options)

    monkeypatch.setattr(kernels, "ag_gemm_gathered", counted)

    def main(rank):
        mine = ditron.nn.parallelize(copy.deepcopy(block), llama.PLAN)
        with torch.no_grad():
            mine(x.chunk(2, 1)[rank], llama.position_embeddings(LENGTH, SIZE // HEADS, x.dtype))
        return mine.self_attn.q_proj.weight.data_ptr(), mine.mlp.gate_proj.weight.data_ptr()

    weights = run(main)
    assert sorted(calls) == sorted(pointer for pair in weights for pointer in pair)


def test_after_a_change_of_dtype_and_a_load():
    """Weights that no longer lie side by side give the same."""
    block, x, grad, exact, plain = problem()

    def main(rank):
        part = part_of(rank, 2, True)
        mine = ditron.nn.parallelize(copy.deepcopy(block), llama.PLAN)
        state = mine.state_dict()
        assert state.keys() == block.state_dict().keys()
        mine.load_state_dict({name: value.clone() for name, value in state.items()}, assign=True)
        mine = mine.double().float()
        assert_as_good(results(mine, part("", x).contiguous(), part("", grad).contiguous()), exact, plain, part)

    run(main)


@needs_compiler_in_threads
@pytest.mark.parametrize("ranks", [1, 2])
def test_compiled(ranks):
    block, x, grad, exact, plain = problem()
    torch._dynamo.reset()

    def main(rank):
        part = part_of(rank, ranks, True)
        mine = ditron.nn.parallelize(copy.deepcopy(block), llama.PLAN)
        compiled = torch.compile(mine, fullgraph=True, backend="aot_eager")
        with torch.compiler.set_stance("default"):
            got = results(compiled, part("", x).contiguous(), part("", grad).contiguous())
        got = {name.removeprefix("_orig_mod."): value for name, value in got.items()}
        assert_as_good(got, exact, plain, part)

    run(main, ranks, races=False)


@pytest.mark.parametrize(
    "plan, message",
    [
        ({"mlp.up": "colwise"}, "no submodule is named 'mlp.up'"),
        ({"mlp.up_proj": "columns"}, "unknown style 'columns' of 'mlp.up_proj'"),
        ({"mlp": "rowwise"}, "'mlp' is rowwise and must be an nn.Linear"),
        ({"mlp": "gather"}, "none of its children is colwise"),
        ({"mlp.gate_proj": "colwise", "mlp.*": "rowwise"}, "'mlp.gate_proj' is both colwise and rowwise"),
        ({"mlp": "gather", "mlp.gate_proj": "colwise", "mlp.down_proj": "colwise"}, "inputs of several sizes"),
        ({"mlp.up_proj": "colwise"}, "'mlp.up_proj': ColumnParallelLinear: out_features cannot be divided"),
    ],
)
def test_bad_plans(plan, message):
    def main(rank):
        block = llama.Block()
        block.mlp.up_proj = nn.Linear(32, 47)
        before = str(block), [parameter.data_ptr() for parameter in block.parameters()]
        with pytest.raises(DitronError, match=message):
            ditron.nn.parallelize(block, {"self_attn.q_proj": "colwise"} | plan)
        assert before == (str(block), [parameter.data_ptr() for parameter in block.parameters()])

    run(main)
