"""Functions written with torch's functional collectives: the pass finds them, and the graph runs on simulated ranks.

They are traced on a process group that sends nothing.
"""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch_compiler import needs_compiler_in_threads

import ditron.sim
from ditron.nn.collective_fusion import FuseCollectives

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning"),
    needs_compiler_in_threads,
]
RANKS = 2


@pytest.fixture(autouse=True)
def process_group():
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    dist.destroy_process_group()


def gather(x, dim=0):
    return collectives.all_gather_tensor(x, dim, dist.group.WORLD)


def scatter(x, dim=0, op="sum"):
    return collectives.reduce_scatter_tensor(x, op, dim, dist.group.WORLD)


def reduce(x, op="sum"):
    return collectives.all_reduce(x, op, dist.group.WORLD)


def data(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ranks_of(*shape):
    return [data(*shape, seed=rank) for rank in range(RANKS)]


def compiled(function, inputs, backward=False):
    """The graphs of a function after the pass, forward and backward, and the pass."""
    fuse = FuseCollectives({dist.group.WORLD.group_name: "0,1"})
    graphs = []

    def after_pass(module, example):
        fuse(module.graph)
        module.recompile()
        graphs.append(module)
        return make_boxed_func(module.forward)

    def backend(module, example):
        return aot_module_simplified(module, example, fw_compiler=after_pass)

    torch._dynamo.reset()
    inputs = [x.detach().clone().requires_grad_(backward) for x in inputs]
    return torch.compile(function, backend=backend, fullgraph=True), inputs, fuse, graphs


def run(function, inputs_of):
    """What the compiled function gives on simulated ranks, and the pass and its graphs; each with its own inputs."""
    function, _, fuse, graphs = compiled(function, inputs_of(0))

    def main():
        ditron.init()
        with torch.compiler.set_stance("default"), torch.no_grad():
            return function(*inputs_of(ditron.rank()))

    return ditron.sim.run(main, ranks=RANKS, races=False), fuse, graphs[0]


def targets(module):
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def assert_no_collective_is_left(module):
    assert not [target for target in targets(module) if "c10d" in target]


A, B, BIAS = ranks_of(4, 8), ranks_of(6, 8), ranks_of(6)
A1, A3 = ranks_of(1, 4, 8), ranks_of(3, 4, 8)


def linear(x, w, bias=None):
    return torch.nn.functional.linear(x, w, bias)


def test_exported_as_a_function_however_often_it_is_asked_for():
    assert callable(ditron.nn.fuse_collectives)
    assert ditron.nn.fuse_collectives is ditron.nn.fuse_collectives


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("x, dim", [(A, 0), (A3, 0), (A3, 1), (A1, 1)])
def test_gather_and_product(x, dim, bias):
    got, fuse, module = run(
        lambda x, w, b: linear(gather(x, dim), w, b if bias else None), lambda rank: (x[rank], B[rank], BIAS[rank])
    )
    assert fuse.replaced == {"ag_gemm": 1}
    assert_no_collective_is_left(module)
    assert "ditron.ag_gemm.default" in targets(module)
    for rank in range(RANKS):
        torch.testing.assert_close(got[rank], linear(torch.cat(x, dim), B[rank], BIAS[rank] if bias else None))


@pytest.mark.parametrize("dim", [0, 1])
def test_one_gather_and_several_products(dim):
    """The widest is fused; the others, and what else reads the rows, take what it has gathered."""

    def function(x, narrow, wide):
        whole = gather(x, dim)
        return whole.sum(), linear(whole, narrow), linear(whole, wide), whole * 2

    got, fuse, module = run(function, lambda rank: (A3[rank], B[rank], torch.cat([B[rank], B[rank]])))
    assert fuse.replaced == {"ag_gemm": 1}
    assert_no_collective_is_left(module)
    assert "ditron.ag_gemm_gathered.default" in targets(module)
    whole = torch.cat(A3, dim)
    for rank in range(RANKS):
        expected = (whole.sum(), linear(whole, B[rank]), linear(whole, torch.cat([B[rank], B[rank]])), whole * 2)
        torch.testing.assert_close(got[rank], expected)


@pytest.mark.parametrize("op", ["sum", "avg"])
@pytest.mark.parametrize("x, dim", [(A, 0), (ranks_of(4, 3, 8), 0), (A3, 1), (A1, 1)])
def test_product_and_scatter(x, dim, op):
    got, fuse, module = run(lambda x, w: scatter(linear(x, w), dim, op), lambda rank: (x[rank], B[rank]))
    assert fuse.replaced == {"gemm_rs": 1}
    assert_no_collective_is_left(module)
    total = sum(linear(x[rank], B[rank]) for rank in range(RANKS)) / (RANKS if op == "avg" else 1)
    for rank in range(RANKS):
        torch.testing.assert_close(got[rank], total.chunk(RANKS, dim)[rank])


@pytest.mark.parametrize("x", [A, A3])
def test_product_and_reduction(x):
    got, fuse, module = run(lambda x, w: reduce(linear(x, w)), lambda rank: (x[rank], B[rank]))
    assert fuse.replaced == {"gemm_ar": 1}
    assert_no_collective_is_left(module)
    for rank in range(RANKS):
        torch.testing.assert_close(got[rank], sum(linear(x[r], B[r]) for r in range(RANKS)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: linear(gather(x, 1).reshape(4, 16), w.repeat(1, 2)),  # along the columns
        lambda x, w, b: gather(x) * 2,
        lambda x, w, b: linear(b.expand(6, 6), gather(x)[:6, :6]),  # on the right
        lambda x, w, b: (lambda y: linear(y, y[:6]))(gather(x)),  # by itself
        lambda x, w, b: scatter(linear(x, w, b)),  # the bias would be added once per rank
        lambda x, w, b: scatter(linear(x, w), op="max"),
        lambda x, w, b: (lambda y: (scatter(y), y))(linear(x, w)),  # the product is needed
        lambda x, w, b: (lambda y: (reduce(y), y))(linear(x, w)),
        lambda x, w, b: reduce(linear(x, w), "max"),
        lambda x, w, b: linear(gather(x.double()), w.double()),
    ],
)
def test_what_is_left_alone(function):
    function, inputs, fuse, graphs = compiled(function, (A[0], B[0], BIAS[0]))
    with torch.no_grad():
        function(*inputs)
    assert not fuse.replaced and not any("ditron" in target for target in targets(graphs[0]))


def test_another_group():
    function, inputs, fuse, graphs = compiled(lambda x, w: linear(gather(x), w), (A[0], B[0]))
    fuse.names.clear()
    function(*inputs)
    assert not fuse.replaced


@pytest.mark.parametrize("autograd", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_backward(dim, autograd):
    """A column-parallel layer and a row-parallel one: both graphs hide their collectives."""
    world = dist.group.WORLD

    def mlp(x, up, down):
        if autograd:  # what has gradients without a compiler too
            hidden = torch.relu(linear(collectives.all_gather_tensor_autograd(x, dim, world), up))
            return collectives.reduce_scatter_tensor_autograd(linear(hidden, down), "sum", dim, world)
        return scatter(linear(torch.relu(linear(gather(x, dim), up)), down), dim)

    def inputs_of(rank):
        return A3[rank] if dim else ranks_of(4, 3, 8)[rank], B[rank], data(8, 6, seed=rank + 5)

    shape = inputs_of(0)[0].shape
    function, _, fuse, graphs = compiled(mlp, inputs_of(0))

    def main():
        ditron.init()
        inputs = [x.clone().requires_grad_() for x in inputs_of(ditron.rank())]
        with torch.compiler.set_stance("default"):
            y = function(*inputs)
            y.backward(data(*shape, seed=ditron.rank() + 9))
        return [y.detach(), *(x.grad for x in inputs)]

    got = ditron.sim.run(main, ranks=RANKS, races=False)
    assert fuse.replaced == {"ag_gemm": 2, "gemm_rs": 2} and len(graphs) == 2
    for module in graphs:
        assert_no_collective_is_left(module)
    leaves = [[x.clone().requires_grad_() for x in inputs_of(rank)] for rank in range(RANKS)]
    whole = torch.cat([x for x, *_ in leaves], dim)
    y = sum(linear(torch.relu(linear(whole, up)), down) for _, up, down in leaves)
    y.backward(torch.cat([data(*shape, seed=rank + 9) for rank in range(RANKS)], dim))
    for rank in range(RANKS):
        expected = [y.detach().chunk(RANKS, dim)[rank], *(x.grad for x in leaves[rank])]
        torch.testing.assert_close(got[rank], expected, rtol=1e-4, atol=1e-4)


def test_in_inductor(monkeypatch, tmp_path):
    """As a pass of torch.compile's default backend, which caches graphs with what it depends on."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    fuse = FuseCollectives({dist.group.WORLD.group_name: "0,1"})
    other = FuseCollectives({dist.group.WORLD.group_name: "1,0"})
    assert fuse.uuid() == FuseCollectives(fuse.names).uuid() != other.uuid()
    torch._dynamo.reset()
    function = torch.compile(
        lambda x, w: scatter(linear(gather(x), w) @ w),
        fullgraph=True,
        options={"post_grad_custom_pre_pass": fuse},
    )

    def main():
        ditron.init()
        with torch.compiler.set_stance("default"):
            return function(A[ditron.rank()], B[ditron.rank()])

    got = ditron.sim.run(main, ranks=RANKS, races=False)
    assert fuse.replaced == {"ag_gemm": 1, "gemm_rs": 1}
    total = sum(linear(torch.cat(A), w) @ w for w in B)
    for rank in range(RANKS):
        torch.testing.assert_close(got[rank], total.chunk(RANKS)[rank])
