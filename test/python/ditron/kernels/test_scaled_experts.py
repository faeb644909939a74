"""Products of experts in fp8 with scales of blocks, on simulated ranks, against what the operands stand for in fp64."""

import importlib

import numerics
import pytest
import torch
from test_moe import corpus, drawn, run
from test_scaled_operators import exact
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

import ditron
from ditron import kernels
from ditron.kernels.expert_activation import swiglu_rows_1x128
from ditron_compiler.errors import DitronError

FP8 = torch.float8_e4m3fn
BF16_ROUNDING = torch.finfo(torch.bfloat16).eps / 2


def quantized(x, block_rows=1):
    """fp8 and the scales of blocks, by torch: the largest element of a block becomes 448."""
    *lead, rows, K = x.shape
    blocks = torch.nn.functional.pad(x, (0, 0, 0, -rows % block_rows)).float()
    blocks = blocks.view(*lead, -1, block_rows, K // 128, 128)
    largest = blocks.abs().amax((-3, -1), keepdim=True)
    scale = torch.where(largest > 0, largest / 448, 1.0)
    values = (blocks / scale).view(*lead, -1, K)[..., :rows, :].to(FP8)
    return values, scale.view(*lead, -1, K // 128)


class Problem:
    """Every rank's tokens and experts, quantized, and what they stand for in fp64."""

    def __init__(self, ranks, tokens, top_k, experts, parallel, K=256, N=136, seed=0):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
        self.ranks, self.tokens, self.top_k, self.experts, self.parallel = ranks, tokens, top_k, experts, parallel
        self.own, self.K, self.N = (experts if parallel == "tp" else experts // ranks), K, N
        self.x, self.scale_x = quantized(
            draw(ranks, tokens, K) * torch.arange(1.0, 1 + K // 128).repeat_interleave(128)
        )
        self.w, self.scale_w = quantized(draw(ranks, self.own, N, K) * 4.0 ** (draw(K) > 0), 128)
        self.exact_x = torch.stack([exact(*pair) for pair in zip(self.x, self.scale_x, strict=True)])
        pairs = zip(self.w.flatten(0, 1), self.scale_w.flatten(0, 1), strict=True)
        self.exact_w = torch.stack([exact(*pair, 128) for pair in pairs]).view(ranks, self.own, N, K)
        self.weights = torch.rand(ranks, tokens, top_k, generator=generator)

    def plan(self, ids, **options):
        rank = ditron.rank()
        shape = {"num_experts": self.experts, "parallel": self.parallel}
        return kernels.moe_plan(ids[rank], self.weights[rank], **shape, **options)

    def expert(self, ids, rank):
        """Of all ranks' routes the number of the expert on a rank, and whether it is there."""
        expert = ids.reshape(-1).long() - (rank * self.own if self.parallel == "ep" else 0)
        here = (expert >= 0) & (expert < self.own)
        return expert.where(here, 0), here

    def first(self, ids, rank):
        """Of all ranks' routes the product on a rank, and the bound of its error: it is scaled and added in fp32."""
        expert, here = self.expert(ids, rank)
        a = self.exact_x.view(-1, self.K).repeat_interleave(self.top_k, 0)[here]
        w = self.exact_w[rank][expert[here]]
        product, size = torch.einsum("rk,rnk->rn", a, w), torch.einsum("rk,rnk->rn", a.abs(), w.abs())
        return product, numerics.gamma(self.K + 6) * size, here

    def check_first(self, rows, plan, ids):
        product, bound, here = self.first(ids, ditron.rank())
        row = plan.route_row.view(-1).long()
        assert rows.dtype == torch.bfloat16 and torch.equal(row >= 0, here)
        if here.any():
            numerics.assert_error_within(rows[row[here]], product, bound)

    def check_sums(self, got, plan, ids, of_route, scale_of_route, to_all=False):
        """Of rows [ranks, routes, K] of each rank: sums of rounded products by weight, rounded once on each rank."""
        u = BF16_ROUNDING
        total, bound = (torch.zeros(self.ranks * self.tokens, self.N, dtype=torch.float64) for _ in range(2))
        for rank in range(self.ranks):
            expert, here = self.expert(ids, rank)
            a = exact(of_route[rank], scale_of_route[rank])
            w = self.exact_w[rank][expert]
            y, size = (torch.einsum("rk,rnk->rn", *pair) * here[:, None] for pair in ((a, w), (a.abs(), w.abs())))
            error = numerics.gamma(self.K + 6) * size
            error = error + u * (y.abs() + error)
            by_route = lambda t: (t * self.weights.double().view(-1, 1)).view(-1, self.top_k, self.N).sum(1)  # noqa: E731
            mine, off = by_route(y), by_route(error) + numerics.gamma(self.top_k + 1) * by_route(y.abs())
            total += mine
            bound += off + u * (mine.abs() + off)
        bound += numerics.gamma(self.ranks) * total.abs()
        own = slice(None) if to_all else slice(ditron.rank() * self.tokens, (ditron.rank() + 1) * self.tokens)
        assert got.dtype == torch.bfloat16
        numerics.assert_error_within(got, total[own], bound[own])


@pytest.mark.parametrize("algorithm", ["copied", "stored"])
@pytest.mark.parametrize("block_m", [16, 64])
@pytest.mark.parametrize("ranks, tokens, top_k, parallel", [(1, 24, 2, "ep"), (2, 24, 2, "tp"), (4, 24, 3, "ep")])
def test_ag_moe(ranks, tokens, top_k, parallel, block_m, algorithm):
    problem = Problem(ranks, tokens, top_k, 4, parallel)

    def main():
        rank = ditron.rank()
        for ids in corpus(ranks, tokens, top_k, 4).values():
            plan = problem.plan(ids, block_m=block_m)
            scales = {"scale_x": problem.scale_x[rank], "scale_w": problem.scale_w[rank]}
            rows = kernels.ag_moe(problem.x[rank], problem.w[rank], plan, algorithm=algorithm, **scales)
            problem.check_first(rows, plan, ids)

    run(main, ranks=ranks, races=True)


@pytest.mark.parametrize("block_m", [16, 64])
def test_grouped_mm(block_m):
    """Of tokens and scales that are dispatched."""
    problem = Problem(2, 24, 2, 4, "ep")

    def main():
        rank = ditron.rank()
        for ids in corpus(2, 24, 2, 4).values():
            plan = problem.plan(ids, block_m=block_m)
            rows, scale = (kernels.ep_dispatch(each[rank], plan) for each in (problem.x, problem.scale_x))
            rows = kernels.grouped_mm(rows, problem.w[rank], plan, scale_rows=scale, scale_w=problem.scale_w[rank])
            problem.check_first(rows, plan, ids)

    run(main, ranks=2)


@pytest.mark.parametrize("what, options", [("moe_rs", {}), ("moe_rs", {"algorithm": "after"}), ("moe_ar", {})])
@pytest.mark.parametrize("ranks, top_k, parallel, block_m", [(1, 2, "ep", 16), (2, 2, "tp", 64), (4, 3, "ep", 16)])
def test_sums(ranks, top_k, parallel, block_m, what, options):
    tokens = 16
    problem = Problem(ranks, tokens, top_k, 4, parallel)
    generator = torch.Generator().manual_seed(5)
    of_route, of_scale = quantized(torch.randn(ranks, ranks * tokens * top_k, problem.K, generator=generator))

    def main():
        rank = ditron.rank()
        for ids in corpus(ranks, tokens, top_k, 4).values():
            plan = problem.plan(ids, block_m=block_m)
            row = plan.route_row.view(-1).long()
            rows = torch.full((plan.max_rows, problem.K), float("nan")).to(FP8)  # between and behind the experts' rows
            scale = torch.full((plan.max_rows, problem.K // 128), float("nan"))
            rows[row[row >= 0]], scale[row[row >= 0]] = of_route[rank][row >= 0], of_scale[rank][row >= 0]
            scales = {"scale_rows": scale, "scale_w": problem.scale_w[rank]}
            got = getattr(kernels, what)(rows, problem.w[rank], plan, **scales, **options)
            problem.check_sums(got, plan, ids, of_route, of_scale, what == "moe_ar")

    run(main, ranks=ranks)


@pytest.mark.parametrize("K", [256, 384])
def test_tiles_of_many_rows(K):
    """As on GPUs, where an iteration multiplies two parts of K, of which the last one may have but one."""
    tokens, block = 40, (128, 128, 128)
    problem, ids = Problem(2, tokens, 2, 4, "ep", K=K), drawn(2, tokens, 2, 4, seed=1)
    generator = torch.Generator().manual_seed(5)
    of_route, of_scale = quantized(torch.randn(2, 2 * tokens * 2, K, generator=generator))

    def main():
        rank = ditron.rank()
        plan, w, scale_w = problem.plan(ids, block_m=128), problem.w[rank], problem.scale_w[rank]
        scales = {"scale_x": problem.scale_x[rank], "scale_w": scale_w}
        problem.check_first(kernels.ag_moe(problem.x[rank], w, plan, block=block, **scales), plan, ids)
        row = plan.route_row.view(-1).long()
        rows = torch.full((plan.max_rows, K), float("nan")).to(FP8)
        scale = torch.full((plan.max_rows, K // 128), float("nan"))
        rows[row[row >= 0]], scale[row[row >= 0]] = of_route[rank][row >= 0], of_scale[rank][row >= 0]
        got = kernels.moe_rs(rows, w, plan, scale_rows=scale, scale_w=scale_w, block=block)
        problem.check_sums(got, plan, ids, of_route, of_scale)

    run(main, ranks=2)


@pytest.mark.parametrize("algorithm", ["copied", "stored"])
def test_scales_of_each_call(algorithm):
    """However ranks and programs take turns, a call's tokens meet their own scales, which another rank has sent."""
    problems = [Problem(3, 12, 2, 6, "ep", N=40, seed=seed) for seed in range(3)]
    routes = [drawn(3, 12, 2, 6, seed=1), torch.full((3, 12, 2), -1, dtype=torch.int32), drawn(3, 12, 2, 6, seed=2)]

    def main():
        rank = ditron.rank()
        for problem, ids in zip(problems, routes, strict=True):
            plan = problem.plan(ids)
            scales = {"scale_x": problem.scale_x[rank], "scale_w": problem.scale_w[rank]}
            problem.check_first(
                kernels.ag_moe(problem.x[rank], problem.w[rank], plan, algorithm=algorithm, **scales), plan, ids
            )

    for seed in range(6):
        run(main, ranks=3, seed=seed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_quantize(dtype):
    """As torch does it, bit by bit; blocks of zeros have scale 1."""
    x = (torch.randn(5, 384, generator=torch.Generator().manual_seed(1)) * 30).to(dtype)
    x[3, 128:256] = 0
    w = torch.randn(2, 200, 256, generator=torch.Generator().manual_seed(2)).to(dtype)
    w[1, 128:, 128:] = 0

    def main():
        values, scale = kernels.quantize_1x128(x)
        expected, of_blocks = quantized(x)
        assert torch.equal(values.view(torch.uint8), expected.view(torch.uint8)) and torch.equal(scale, of_blocks)
        assert scale[3, 1] == 1 and (values.float().abs().amax(1) == 448).all()
        values, scale = kernels.quantize_128x128(w)
        expected, of_blocks = quantized(w, 128)
        assert torch.equal(values.view(torch.uint8), expected.view(torch.uint8)) and torch.equal(scale, of_blocks)
        assert scale.shape == (2, 2, 2) and scale[1, 1, 1] == 1

    run(main, ranks=1)


def test_blocks_too_small_for_a_scale():
    """Their largest element divided by 448 is 0 in fp32."""
    x = torch.zeros(2, 128)
    x[0, 0] = 1e-44

    def main():
        for quantize in (kernels.quantize_1x128, kernels.quantize_128x128):
            values, scale = quantize(x)
            assert not values.float().any() and scale.eq(1).all()

    run(main, ranks=1)


class Layer:
    """Quantized weights of all experts, tokens, and the layer in fp64 with how far it may be off."""

    H, inner, experts, top_k = 256, 128, 4, 2

    def __init__(self, ranks, tokens):
        generator = torch.Generator().manual_seed(ranks)
        draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
        self.ranks, self.x = ranks, draw(ranks, tokens, self.H).bfloat16()
        self.weights = torch.rand(ranks, tokens, self.top_k, generator=generator)
        self.w13, self.scale_w13 = quantized(draw(self.experts, 2 * self.inner, self.H) / 16, 128)
        self.w2, self.scale_w2 = quantized(draw(self.experts, self.H, self.inner) / 8, 128)

    def call(self, ids, **options):
        rank, own = ditron.rank(), self.experts // self.ranks
        mine = slice(rank * own, (rank + 1) * own)
        options |= {"scale_w13": self.scale_w13[mine], "scale_w2": self.scale_w2[mine], "num_experts": self.experts}
        return kernels.ep_moe(self.x[rank], ids[rank], self.weights[rank], self.w13[mine], self.w2[mine], **options)

    def check(self, got, ids):
        """Tokens are quantized alike; rows of the first product are rounded, and what SwiGLU makes of them is to
        e4m3's three bits, or to 2^-10 of its scale.
        """
        rank, u = ditron.rank(), BF16_ROUNDING
        x = exact(*quantized(self.x[rank]))
        w13, w2 = (
            [exact(*pair, 128) for pair in zip(*of, strict=True)]
            for of in ((self.w13, self.scale_w13), (self.w2, self.scale_w2))
        )
        expected, bound = (torch.zeros(len(x), self.H, dtype=torch.float64) for _ in range(2))
        for token, k in torch.nonzero(ids[rank] >= 0).tolist():
            e, weight = int(ids[rank, token, k]), self.weights[rank, token, k].double()
            gate, up = (w13[e] @ x[token]).chunk(2)
            off = numerics.gamma(self.H + 6) * (w13[e].abs() @ x[token].abs())
            off_gate, off_up = (off + u * ((w13[e] @ x[token]).abs() + off)).chunk(2)
            silu = torch.nn.functional.silu(gate)
            hidden = silu * up
            off = 1.1 * up.abs() * off_gate + (silu.abs() + 1.1 * off_gate) * off_up + 1e-5 * hidden.abs()
            off = off + torch.maximum((hidden.abs() + off) / 16, (hidden.abs() + off).max() / 448 / 1024)
            y, of_y = w2[e] @ hidden, w2[e].abs() @ (off + numerics.gamma(self.inner + 6) * (hidden.abs() + off))
            expected[token] += weight * y
            bound[token] += weight * (of_y + 2 * u * (y.abs() + of_y)) * (1 + numerics.gamma(8))
        numerics.assert_error_within(got, expected, bound + u * (expected.abs() + bound))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_layer(ranks):
    """Both ways of tokens, twice the same bits, and the same as of its parts."""
    layer = Layer(ranks, 20)

    def main():
        for ids in corpus(ranks, 20, 2, 4).values():
            y = layer.call(ids)
            layer.check(y, ids)
            layer.check(layer.call(ids, algorithm="dispatched"), ids)
            assert y.dtype == torch.bfloat16 and torch.equal(y, layer.call(ids))

    run(main, ranks=ranks)


@pytest.mark.parametrize(
    "ranks, tokens, wide, dispatched",
    [(1, 20, 8192, False), (2, 20, 8192, True), (4, 20, 8192, True), (4, 513, 8192, False), (4, 513, 128, True)],
)
def test_few_tokens_and_wide_experts_are_dispatched(ranks, tokens, wide, dispatched, monkeypatch):
    """As in bf16, with tiles of GPUs: the products themselves are not run."""
    module, seen = importlib.import_module("ditron.kernels.ep_moe"), []

    def products(x, *operands, dispatched, group):
        seen.append(dispatched)
        return x

    monkeypatch.setattr(module, "_quantized_products", products)
    monkeypatch.setattr(module, "WIDE_EXPERTS", wide)
    layer = Layer(ranks, tokens)

    def main():
        ditron.init().small_shapes = False
        layer.call(drawn(ranks, tokens, 2, 4))

    run(main, ranks=ranks)
    assert seen == [dispatched] * ranks


def test_over_nodes():
    layer = Layer(4, 20)
    run(lambda: layer.check(layer.call(drawn(4, 20, 2, 4)), drawn(4, 20, 2, 4)), ranks=4, ranks_per_node=2)


def test_tokens_of_some_ranks():
    """Fewer than the plan is for: their scales too."""
    layer, ids = Layer(2, 20), drawn(2, 20, 2, 4)

    def main():
        rank, given = ditron.rank(), 20 - 7 * ditron.rank()
        own = slice(2 * rank, 2 * rank + 2)
        scales = {"scale_w13": layer.scale_w13[own], "scale_w2": layer.scale_w2[own]}
        operands = layer.x[rank, :given], ids[rank, :given], layer.weights[rank, :given], layer.w13[own], layer.w2[own]
        for algorithm in ("gathered", "dispatched"):
            y = kernels.ep_moe(*operands, **scales, num_experts=4, max_tokens=20, algorithm=algorithm)
            torch.testing.assert_close(y, layer.call(ids)[:given], rtol=2e-2, atol=2e-2)

    run(main, ranks=2)


def ag(x=(4, 256), w=(2, 48, 256), scale_x=(4, 2), scale_w=(2, 1, 2), dtype=FP8, of_scales=torch.float32, **options):
    plan = kernels.moe_plan(torch.arange(2).expand(4, 2), num_experts=4, block_m=16)
    scales = {"scale_x": scale_x, "scale_w": scale_w}
    scales = {name: shape and torch.zeros(shape, dtype=of_scales) for name, shape in scales.items()}
    return kernels.ag_moe(torch.zeros(x).to(dtype), torch.zeros(w).to(dtype), plan, **scales, **options)


def grouped(**options):
    plan = kernels.moe_plan(torch.arange(2).expand(4, 2), num_experts=4, block_m=16)
    rows, w = torch.zeros(plan.max_rows, 256).to(FP8), torch.zeros(2, 48, 256).to(FP8)
    scales = {"scale_rows": torch.ones(plan.max_rows, 2), "scale_w": torch.ones(2, 1, 2)}
    return kernels.grouped_mm(rows, w, plan, **scales, **options)


def layer(**options):
    ids, w13, w2 = torch.arange(2).expand(4, 2), torch.zeros(2, 256, 128).to(FP8), torch.zeros(2, 128, 128).to(FP8)
    given = {"x": torch.zeros(4, 128).bfloat16(), "topk_weights": None, "w13": w13, "w2": w2}
    given |= {"scale_w13": torch.ones(2, 2, 1), "scale_w2": torch.ones(2, 1, 1)} | options
    return kernels.ep_moe(topk_ids=ids, num_experts=4, **given)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ag(scale_x=None), "tensors of float8_e4m3fn need scale_x=, .4, 2. of float32"),
        (lambda: ag(scale_w=None), "tensors of float8_e4m3fn need scale_w=, .2, 1, 2. of float32"),
        (lambda: ag(scale_x=(4, 1)), "scale_x must be .4, 2. of float32 .*got .4, 1. of torch.float32"),
        (lambda: ag(scale_w=(2, 48, 2)), "scale_w must be .2, 1, 2. of float32 .*got .2, 48, 2."),
        (lambda: ag(of_scales=torch.float64), "scale_x must be .4, 2. of float32 .* of torch.float64"),
        (lambda: ag(x=(4, 64), w=(2, 48, 64), scale_x=(4, 1), scale_w=(2, 1, 1)), "K .* a multiple of 128, got 64"),
        (lambda: ag(dtype=torch.bfloat16), "scale_x= is for tensors of float8_e4m3fn, got torch.bfloat16"),
        (lambda: ag(dtype=torch.float8_e5m2), "bfloat16 or float16, or float8_e4m3fn with scales, got .*e5m2"),
        (lambda: ag(block=(16, 256, 32)), "with scales, block must divide 128 along N and K, got .16, 256, 32."),
        (lambda: ag(activation="swiglu"), "ag_moe: activation= is for bfloat16 or float16"),
        (lambda: grouped(activation="swiglu"), "grouped_mm: activation= is for bfloat16 or float16"),
        (lambda: layer(scale_w13=None), "scale_w13= is missing: w13 is of float8_e4m3fn, .* .quantize_128x128 returns"),
        (lambda: layer(scale_w2=None), "scale_w2= is missing: w2 is of float8_e4m3fn"),
        (
            lambda: layer(w2=torch.zeros(2, 128, 128).bfloat16()),
            "w13 is torch.float8_e4m3fn and w2 torch.bfloat16: expected both of float8_e4m3fn, or neither",
        ),
        (
            lambda: layer(x=torch.zeros(4, 128).half()),
            "x must be bfloat16 beside weights of float8_e4m3fn, got .*float16",
        ),
        (lambda: layer(scale_w13=torch.ones(2, 1, 1)), "scale_w must be .2, 2, 1. of float32"),
        (lambda: layer(topk_weights=torch.ones(4, 2, requires_grad=True)), "no gradients, .* under torch.no_grad"),
        (
            lambda: layer(w13=torch.zeros(2, 256, 128).half(), w2=torch.zeros(2, 128, 128).half()),
            "scale_w13= and scale_w2= are for weights of float8_e4m3fn, got torch.float16",
        ),
        (
            lambda: layer(x=torch.zeros(3, 128).bfloat16()),
            r"x is \(3, 128\) and topk_ids \(4, 2\): expected .tokens, H.",
        ),
        (lambda: kernels.quantize_1x128(torch.zeros(4, 128, requires_grad=True)), "1x128: .* have no gradients"),
        (lambda: kernels.quantize_1x128(torch.zeros(4, 64)), "x has 64 columns: expected a multiple of 128"),
        (lambda: kernels.quantize_128x128(torch.zeros(4, 64)), "K a multiple of 128, got .4, 64. of torch.float32"),
    ],
)
def test_errors(call, message):
    def main():
        with pytest.raises(DitronError, match=message):
            call()

    run(main, ranks=2)


def test_products_have_no_gradients():
    """Neither of weights, nor of a plan's."""

    def main():
        weights = torch.ones(4, 2, requires_grad=True)
        plan = kernels.moe_plan(torch.arange(2).expand(4, 2), weights, num_experts=2, block_m=16)
        rows, w = torch.zeros(plan.max_rows, 128).to(FP8), torch.zeros(2, 48, 128).to(FP8)
        scales = {"scale_rows": torch.ones(plan.max_rows, 1), "scale_w": torch.ones(2, 1, 1)}
        with pytest.raises(DitronError, match="moe_rs: products of quantized operands have no gradients"):
            kernels.moe_rs(rows, w, plan, **scales)
        with torch.no_grad():
            kernels.moe_rs(rows, w, plan, **scales)

    run(main, ranks=1)


def test_operators_of_torch():
    """The same bits as of the functions, and for tracing the same shapes and dtypes."""
    problem, ids = Problem(2, 16, 2, 4, "ep", N=256), drawn(2, 16, 2, 4)

    def main():
        rank, ops, name = ditron.rank(), torch.ops.ditron, ditron.world().name
        plan = problem.plan(ids)
        x, scale_x, w, scale_w = (of[rank] for of in (problem.x, problem.scale_x, problem.w, problem.scale_w))
        rows, scale_rows = (kernels.ep_dispatch(each, plan) for each in (x, scale_x))
        product = kernels.grouped_mm(rows, w, plan, scale_rows=scale_rows, scale_w=scale_w)
        row = plan.route_row.view(-1)
        row = row[row >= 0].long()
        of_rows = {"scale_rows": scale_rows, "scale_w": scale_w}
        calls = {
            "ag_moe_rows_scaled": ((x, w, plan.tables), {"scale_x": scale_x, "scale_w": scale_w}, product),
            "grouped_mm_rows_scaled": ((rows, w, plan.tables), of_rows, product),
            "moe_rs_rows_scaled": ((rows, w, plan.tables), of_rows, kernels.moe_rs(rows, w, plan, **of_rows)),
            "moe_ar_rows_scaled": ((rows, w, plan.tables), of_rows, kernels.moe_ar(rows, w, plan, **of_rows)),
            "quantize_1x128": ((product,), {}, kernels.quantize_1x128(product)),
            "swiglu_rows_1x128": ((product, plan.tables), {}, swiglu_rows_1x128(product, plan.tables)),
        }
        for what, (args, options, expected) in calls.items():
            got = getattr(ops, what)(*args, **options, group=name)
            with FakeTensorMode() as mode:
                fakes, of_fakes = tree_map_only(torch.Tensor, mode.from_tensor, (args, options))
                fake = getattr(ops, what)(*fakes, **of_fakes, group=name)
            several = (each if isinstance(each, tuple | list) else [each] for each in (got, fake, expected))
            for real, traced, wanted in zip(*several, strict=True):
                assert (traced.shape, traced.dtype) == (real.shape, real.dtype) == (wanted.shape, wanted.dtype), what
                written = row if len(real) == plan.max_rows else slice(None)
                assert torch.equal(real[written].float(), wanted[written].float()), what

    run(main, ranks=2)
