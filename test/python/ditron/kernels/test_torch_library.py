"""The operators as operators of torch: what torch.library asks of them, compiled functions, traced graphs."""

import pytest
import torch
import torch._dynamo.testing
from simulated import run_numbered as run
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch_compiler import needs_compiler_in_threads

import ditron.sim
from ditron import kernels
from ditron.kernels.ag_moe import ag_moe_rows
from ditron.kernels.ep_exchange import ep_combine_rows, ep_dispatch_rows, ep_dispatch_rows_1x128
from ditron.kernels.expert_activation import swiglu_rows, swiglu_rows_backward
from ditron.kernels.grouped_mm import grouped_mm_rows
from ditron.kernels.moe_ar import moe_ar_rows
from ditron.kernels.moe_gradients import ag_moe_rows_backward, grouped_mm_rows_backward
from ditron.kernels.moe_rs import moe_rs_rows
from ditron.kernels.moe_rs_gradients import moe_rs_rows_backward
from ditron_compiler.errors import DitronError

ops = torch.ops.ditron
pytestmark = needs_compiler_in_threads


def data(*shape, seed=1, **options):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(**options)


def weight(N, K):
    return data(N, K, seed=2)


def halves(*shape):
    return data(*shape).detach().half().requires_grad_()


def one_expert():
    """Tables that are written to their end: all tokens go to one expert, in whole tiles."""
    return kernels.moe_plan(torch.zeros(16, 1, dtype=torch.int32), num_experts=1, parallel="tp").tables


CALLS = {
    "ag_gemm": lambda: (data(4, 8), weight(6, 8), data(6)),
    "ag_gemm_gathered": lambda: (data(4, 8), weight(6, 8)),
    "ag_gemm_backward": lambda: (data(4 * ditron.num_ranks(), 6, seed=3), data(4, 8), weight(6, 8)),
    "ag_gemm_multi": lambda: (data(4, 8), [weight(6, 8), data(3, 8, seed=4)], [data(6), data(3)]),
    "ag_gemm_multi_backward": lambda: (
        [data(4 * ditron.num_ranks(), 6, seed=3), data(4 * ditron.num_ranks(), 3, seed=5)],
        data(4, 8),
        [weight(6, 8), data(3, 8, seed=4)],
        data(4 * ditron.num_ranks(), 8, seed=6),
    ),
    "gemm_rs_backward": lambda: (data(4, 6, seed=3), data(4 * ditron.num_ranks(), 8), weight(6, 8)),
    "gemm_rs": lambda: (data(4, 8), weight(6, 8)),
    "gemm_ar": lambda: (data(4, 8), weight(6, 8)),
    "all_gather": lambda: (data(3, 5),),
    "all_to_all": lambda: (data(4, 5),),
    "all_to_all_v": lambda: (data(4, 5), torch.full((ditron.num_ranks(),), 4 // ditron.num_ranks())),
    "gemm_a2a": lambda: (data(4, 8), weight(6, 8), data(6)),
    "a2a_gemm": lambda: (data(4, 8), weight(6, 8 * ditron.num_ranks()), data(6)),
    "reduce_scatter": lambda: (data(4, 5),),
    "own_part": lambda: (data(4, 5),),
    "all_reduce": lambda: (data(3, 5),),
    "moe_plan_tables": lambda: (torch.zeros(16, 1, dtype=torch.int32), data(16, 1)),
    "ag_moe_rows": lambda: (halves(16, 16), halves(1, 24, 16), one_expert()),
    "ep_dispatch_rows": lambda: (halves(16, 16), one_expert()),
    "ep_dispatch_rows_1x128": lambda: (halves(16, 16).detach(), data(16, 2).detach(), one_expert()),
    "ep_combine_rows": lambda: (halves(16 * ditron.num_ranks(), 16), one_expert()),
    "ag_moe_rows_backward": lambda: (
        halves(16 * ditron.num_ranks(), 24).detach(),
        halves(16, 16).detach(),
        halves(1, 24, 16).detach(),
        one_expert(),
    ),
    "grouped_mm_rows": lambda: (halves(16 * ditron.num_ranks(), 16), halves(1, 24, 16), one_expert()),
    "grouped_mm_rows_backward": lambda: (
        halves(16 * ditron.num_ranks(), 24).detach(),
        halves(16 * ditron.num_ranks(), 16).detach(),
        halves(1, 24, 16).detach(),
        one_expert(),
    ),
    "limit_routes": lambda: (torch.zeros(16, 1, dtype=torch.int32),),
    "quantize_1x128": lambda: (data(3, 128).detach(),),
    "swiglu_rows": lambda: (halves(16 * ditron.num_ranks(), 24), one_expert()),
    "swiglu_rows_backward": lambda: (
        halves(16 * ditron.num_ranks(), 12).detach(),
        halves(16 * ditron.num_ranks(), 24).detach(),
        one_expert(),
    ),
    "moe_rs_rows": lambda: (halves(16 * ditron.num_ranks(), 16), halves(1, 24, 16), one_expert()),
    "moe_ar_rows": lambda: (halves(16 * ditron.num_ranks(), 16), halves(1, 24, 16), one_expert()),
    "moe_rs_rows_backward": lambda: (
        halves(16, 24).detach(),
        halves(16 * ditron.num_ranks(), 16).detach(),
        halves(1, 24, 16).detach(),
        one_expert(),
    ),
    "all_reduce_rms_norm": lambda: (data(3, 8), data(3, 8, seed=2), data(8, seed=3)),
}

OPTIONS = {
    "all_to_all_v": {"max_rows": 4},
    "moe_plan_tables": {"num_experts": 1, "parallel": "tp", "stage_groups": 2},
    "limit_routes": {"num_experts": 1, "parallel": "tp", "capacity": 5, "raises": False},
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name, ranks):
    """Schema, shapes for tracing, gradients, and the same from AOTAutograd; on several ranks in step."""

    def main(rank):
        options = OPTIONS.get(name, {}) | {"group": ditron.world().name}
        torch.library.opcheck(getattr(ops, name).default, CALLS[name](), options)

    run(main, ranks, races=False)


#: What calls an operator of tables, with them.
OF_TABLES = {
    "ag_moe_rows": ag_moe_rows,
    "ag_moe_rows_backward": ag_moe_rows_backward,
    "ep_combine_rows": ep_combine_rows,
    "ep_dispatch_rows": ep_dispatch_rows,
    "ep_dispatch_rows_1x128": ep_dispatch_rows_1x128,
    "grouped_mm_rows": grouped_mm_rows,
    "grouped_mm_rows_backward": grouped_mm_rows_backward,
    "swiglu_rows": swiglu_rows,
    "swiglu_rows_backward": swiglu_rows_backward,
    "moe_ar_rows": moe_ar_rows,
    "moe_rs_rows": moe_rs_rows,
    "moe_rs_rows_backward": moe_rs_rows_backward,
}


def test_every_operator_is_checked():
    of_tables = {"moe_plan": "moe_plan_tables"}
    of_tables |= {name: name.replace("moe", "moe_rows", 1) for name in ("ag_moe", "ag_moe_backward")}
    of_tables |= {"moe_rs": "moe_rs_rows", "moe_rs_backward": "moe_rs_rows_backward", "moe_ar": "moe_ar_rows"}
    of_tables |= {name: f"{name}_rows" for name in ("ep_combine", "ep_dispatch", "grouped_mm")}
    # Not in torch.ops: no gradients, not for torch.compile.
    called_directly = {"Plan", "draw_routes", "ep_moe", "expert_tile", "quantize_128x128"}
    within = {"swiglu_rows", "swiglu_rows_backward", "grouped_mm_rows_backward", "limit_routes"}  # of ep_moe, moe_plan
    within.add("ep_dispatch_rows_1x128")  # of ep_dispatch
    assert set(CALLS) - within == {of_tables.get(name, name) for name in set(kernels.__all__) - called_directly}
    assert not any(hasattr(torch.ops.ditron, name) for name in called_directly)


def mlp(x, up, down, bias):
    """A column-parallel layer and a row-parallel one, the sum of a loss, and its gradients' operators."""
    hidden = torch.relu(kernels.ag_gemm(x, up, bias))
    return kernels.gemm_rs(hidden, down) + kernels.all_reduce(x.sum(0, keepdim=True), gradient="partial")


def operands(rank):
    return [data(*shape, seed=rank + i) for i, shape in enumerate([(4, 8), (6, 8), (8, 6), (6,)])]


def gradients(function, tensors):
    tensors = [t.detach().clone().requires_grad_() for t in tensors]
    y = function(*tensors)
    (y**2).sum().backward()
    return [y.detach(), *(t.grad for t in tensors)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_compiled(ranks):
    """Without a break of the graph, and with the results of eager calls, gradients included."""
    graphs = []

    def backend(module, example):
        graphs.append(module)
        return torch._dynamo.lookup_backend("aot_eager")(module, example)

    torch._dynamo.reset()
    compiled = torch.compile(mlp, fullgraph=True, backend=backend)

    def main(rank):
        tensors = operands(rank)
        expected = gradients(mlp, tensors)
        with torch.compiler.set_stance("default"):  # the simulator leaves functions as they are
            for _ in range(2):
                torch.testing.assert_close(gradients(compiled, tensors), expected)

    run(main, ranks, races=False)
    assert 1 <= len(graphs) <= ranks
    called = {node.target for node in graphs[0].graph.nodes if node.op == "call_function"}
    assert {ops.ag_gemm, ops.gemm_rs, ops.all_reduce} <= called | {getattr(t, "overloadpacket", t) for t in called}


def experts(x, w, ids, weights):
    """The first product of a mixture of experts, each row times its route's weight."""
    plan = kernels.moe_plan(ids, weights, num_experts=1, parallel="tp")
    of_rows = plan.route_weight.flatten()[plan.row_route.long()]
    return kernels.ag_moe(x, w, plan).float() * of_rows[:, None]


def test_compiled_mixture_of_experts():
    """A plan is made and used in the graph, and its weights have gradients."""
    torch._dynamo.reset()
    compiled = torch.compile(experts, fullgraph=True, backend="aot_eager")

    def gradients_of(function, rank):
        x, w = data(16, 16, seed=rank).detach().half(), data(1, 24, 16, seed=5).detach().half()
        weights = data(16, 1, seed=rank).detach()
        tensors = [x.requires_grad_(), w.requires_grad_(), weights.requires_grad_()]
        y = function(tensors[0], tensors[1], torch.zeros(16, 1, dtype=torch.int64), tensors[2])
        (y**2).sum().backward()
        return [y.detach(), *(t.grad for t in tensors)]

    def main(rank):
        expected = gradients_of(experts, rank)
        assert all(t.abs().max() > 0 for t in expected)
        with torch.compiler.set_stance("default"):
            for _ in range(2):
                torch.testing.assert_close(gradients_of(compiled, rank), expected)

    run(main, 2, races=False)


def layer(x, w13, w2, ids, weights):
    return kernels.ep_moe(x, ids, weights, w13, w2, num_experts=4, parallel="tp")


def test_compiled_layer():
    """A layer of experts is one graph, with gradients of all operands but the numbers of experts."""
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")

    def gradients_of(function, rank):
        shapes = (16, 16), (4, 48, 16), (4, 16, 24)
        tensors = [(data(*shape, seed=rank + i).detach() / 4).half() for i, shape in enumerate(shapes)]
        tensors = [tensor.requires_grad_() for tensor in tensors]
        weights = data(16, 2, seed=rank).detach().requires_grad_()
        ids = torch.stack([torch.arange(16) % 4, (torch.arange(16) + 1) % 4], 1)
        y = function(*tensors, ids, weights)
        (y.float() ** 2).sum().backward()
        return [y.detach(), weights.grad, *(t.grad for t in tensors)]

    def main(rank):
        expected = gradients_of(layer, rank)
        assert all(t.abs().max() > 0 for t in expected)
        with torch.compiler.set_stance("default"):
            for _ in range(2):
                torch.testing.assert_close(gradients_of(compiled, rank), expected)

    run(main, 2, races=False)


def test_compiled_anew_for_another_group():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: kernels.all_gather(x), fullgraph=True, backend="aot_eager")

    def rank_main():
        ditron.init()
        rank = ditron.rank()
        groups = [ditron.new_group([0]), ditron.new_group([1])]
        x = torch.full((2, 2), float(rank))
        with torch.compiler.set_stance("default"):
            assert compiled(x).shape == (4, 2)
            with groups[rank]:
                assert torch.equal(compiled(x), x)
            assert compiled(x).shape == (4, 2)

    ditron.sim.run(rank_main, ranks=2, races=False)


def test_symbolic_sizes():
    """One graph for every number of rows."""
    torch._dynamo.reset()
    frames = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(lambda x, w: kernels.gemm_rs(kernels.ag_gemm(x, w), w.t()), backend=frames, dynamic=True)

    def main(rank):
        w = data(6, 8)
        with torch.compiler.set_stance("default"):
            for rows in (4, 5, 7, 64):
                x = data(rows, 8, seed=rows)
                torch.testing.assert_close(compiled(x, w), x @ w.t() @ w)

    run(main, 1, races=False)
    assert frames.frame_count == 1


def test_traced():
    """By make_fx, on tensors without memory; the graph names the group."""

    def main(rank):
        with FakeTensorMode():
            x, w = torch.empty(4, 8), torch.empty(6, 8)
            assert kernels.ag_gemm(x, w).shape == (8, 6) and kernels.gemm_rs(x, w).shape == (2, 6)
        graph = make_fx(mlp, tracing_mode="symbolic")(*operands(rank))
        names = [node.kwargs["group"] for node in graph.graph.nodes if node.target == ops.ag_gemm.default]
        assert names == ["0,1"]
        torch.testing.assert_close(graph(*operands(rank)), mlp(*operands(rank)))

    run(main, races=False)


def test_exported():
    class Block(torch.nn.Module):
        def forward(self, x, w):
            return kernels.all_reduce(kernels.ag_gemm(x, w))

    def main(rank):
        with torch.compiler.set_stance("default"):
            program = torch.export.export(Block(), (data(4, 8), weight(6, 8)), strict=False)
        x, w = data(4, 8, seed=5), weight(6, 8)
        torch.testing.assert_close(program.module()(x, w), x @ w.t())

    run(main, 1, races=False)


FORWARD = "no forward-mode derivative: only backward"


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("moe_plan_tables", "limit_routes")])
def test_forward_mode_is_refused(name):
    """Not dropped: dual tensors, torch.func.jvp and jacfwd, compiled too. Operands without tangents are taken."""
    torch._dynamo.reset()
    function = getattr(kernels, name, None) or OF_TABLES[name]

    def main(_):
        first, *others = CALLS[name]()
        is_list = isinstance(first, list)
        x = (first[0] if is_list else first).detach()

        def call(x):
            return function([x, *first[1:]] if is_list else x, *others, **OPTIONS.get(name, {}))

        with forward_ad.dual_level():
            call(x)
            with pytest.raises(DitronError, match=FORWARD):
                call(forward_ad.make_dual(x, x))
        for transform in (lambda: torch.func.jvp(call, (x,), (x,)), lambda: torch.func.jacfwd(call)(x)):
            with pytest.raises(DitronError, match=FORWARD):
                transform()
        with torch.compiler.set_stance("default"), pytest.raises(Exception, match=FORWARD):
            torch.compile(lambda x: torch.func.jvp(call, (x,), (x,)), fullgraph=True, backend="aot_eager")(x)

    run(main, 1, races=False)


def test_forward_mode_of_weights_is_refused():
    ids, weights = CALLS["moe_plan_tables"]()

    def main(_):
        with forward_ad.dual_level(), pytest.raises(DitronError, match=FORWARD):
            kernels.moe_plan(ids, forward_ad.make_dual(weights, weights), num_experts=1, parallel="tp")

    run(main, 1, races=False)


def test_gradient_transforms_are_refused():
    def main(_):
        a, b = CALLS["gemm_ar"]()
        with pytest.raises(DitronError, match=r"torch.func.grad, .* use torch.autograd.grad or .backward\(\)"):
            torch.func.grad(lambda x: kernels.gemm_ar(x, b).sum())(a)

    run(main, 1, races=False)
