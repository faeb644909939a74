"""Operators with quantized operands on simulated ranks, against the exact products of what the operands stand for."""

import numerics
import pytest
import torch
import torch._dynamo.testing
from simulated import run_numbered as run
from torch_compiler import needs_compiler_in_threads

import ditron.sim
from ditron import kernels
from ditron.kernels import scales as scales_module
from ditron_compiler.errors import DitronError

ops = torch.ops.ditron
FP8, E5M2, INT8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
KINDS = [("tensor", "tensor"), ("row", "row"), ("row", "tensor"), ("tensor", "row"), ("block", "block")]
# Rows of a rank, N, K: ragged tiles and a ragged last block, one row, what TMA cannot address.
SHAPES = [(37, 152, 272), (1, 8, 16), (5, 7, 131)]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def matrices(*shape, seed, dtype):
    x = torch.randn(*shape, generator=seeded(seed))
    return (40 * x).clamp(-127, 127).to(dtype) if dtype == INT8 else x.to(dtype)


def scales(ranks, rows, K, kind, seed, block_rows=1):
    """Of every rank's matrix."""
    blocks = -(-rows // block_rows), -(-K // 128)
    shape = {"tensor": (1,), "row": (rows, 1), "block": blocks}[kind]
    return torch.rand(ranks, *shape, generator=seeded(seed)) + 0.5


def exact(x, scale, block_rows=1):
    """A matrix's elements times their scales, in fp64."""
    rows, K = x.shape
    if scale.numel() == 1:
        return x.double() * scale.double().view(1, 1)
    whole = scale.double().repeat_interleave(-(-rows // len(scale)) if len(scale) < rows else 1, 0)
    if scale.ndim == 2 and scale.shape[1] > 1:
        whole = scale.double().repeat_interleave(block_rows, 0)[:rows].repeat_interleave(128, 1)[:, :K]
    return x.double() * whole.reshape(rows, -1)


class Problem:
    """Every rank's operands, and the product of each rank's in fp64."""

    def __init__(self, ranks, M, N, K, dtype=FP8, kinds=("row", "row")):
        self.ranks = ranks
        self.a, self.b = matrices(ranks, M, K, seed=1, dtype=dtype), matrices(ranks, N, K, seed=2, dtype=dtype)
        self.scale_a = scales(ranks, M, K, kinds[0], 3)
        self.scale_b = scales(ranks, N, K, kinds[1], 4, 128)
        self.exact_a = torch.stack([exact(*pair) for pair in zip(self.a, self.scale_a, strict=True)])
        self.exact_b = torch.stack([exact(*pair, 128) for pair in zip(self.b, self.scale_b, strict=True)])

    def call(self, function, rank, **options):
        return function(self.a[rank], self.b[rank], scale_a=self.scale_a[rank], scale_b=self.scale_b[rank], **options)

    def assert_gathered(self, got, rank, bias=0.0):
        """Products of all ranks' rows: scaled in fp32 at most three times, and added in fp32."""
        a, b = self.exact_a.reshape(-1, self.exact_a.shape[-1]), self.exact_b[rank].t()
        numerics.assert_error_within(
            got, a @ b + bias, numerics.gamma(a.shape[1] + 6) * (a.abs() @ b.abs() + abs(bias))
        )

    def assert_summed(self, got, rows):
        """The sum over ranks, of parts that may have been rounded to the result's dtype."""
        a, b = self.exact_a[:, rows], self.exact_b
        parts, K = torch.einsum("wmk,wnk->wmn", a, b), a.shape[-1]
        size = torch.einsum("wmk,wnk->wmn", a.abs(), b.abs()).sum(0)
        rounding = torch.finfo(got.dtype).eps / 2 * parts.abs().sum(0) * (1 + numerics.gamma(K))
        numerics.assert_error_within(got, parts.sum(0), numerics.gamma(K + self.ranks + 6) * size + rounding)


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype, ranks", [(FP8, 3), (INT8, 2), (E5M2, 1), (FP8, 4)])
def test_results(dtype, ranks, shape, kinds):
    rows, N, K = shape
    gather, scatter = Problem(ranks, rows, N, K, dtype, kinds), Problem(ranks, ranks * rows, N, K, dtype, kinds)

    def main(rank):
        for algorithm in ("overlapped", "by_rank", "sequential") if K % 16 == 0 else (None, "by_rank"):
            gather.assert_gathered(gather.call(kernels.ag_gemm, rank, algorithm=algorithm), rank)
            got = scatter.call(kernels.gemm_rs, rank, algorithm=algorithm)
            scatter.assert_summed(got, slice(rank * rows, (rank + 1) * rows))
        got = scatter.call(kernels.gemm_ar, rank)
        assert got.dtype == torch.bfloat16
        scatter.assert_summed(got, slice(None))

    run(main, ranks=ranks)


@pytest.mark.parametrize("algorithm", [None, "by_rank"])
@pytest.mark.parametrize("kind", ["tensor", "row", "block"])
def test_each_call_gathers_its_own_scales(kind, algorithm):
    """In the same memory, with fewer rows each time; the scales of A differ between ranks."""
    ranks = 2

    def main(rank):
        for rows in (64, 40, 33):
            problem = Problem(ranks, rows, 32, 256, kinds=(kind, kind))
            problem.scale_a *= rows
            problem.exact_a *= rows
            problem.assert_gathered(problem.call(kernels.ag_gemm, rank, algorithm=algorithm), rank)

    run(main, ranks=ranks)


def test_block_scales_column_by_column():
    problem, rows = Problem(3, 39, 32, 256, kinds=("block", "block")), 13

    def main(rank):
        operands = {"scale_a": problem.scale_a[rank].t().contiguous().t(), "scale_b": problem.scale_b[rank]}
        got = kernels.ag_gemm(problem.a[rank], problem.b[rank], algorithm="by_rank", **operands)
        problem.assert_gathered(got, rank)
        got = kernels.gemm_rs(problem.a[rank], problem.b[rank], algorithm="by_rank", **operands)
        problem.assert_summed(got, slice(rank * rows, (rank + 1) * rows))

    run(main, ranks=3)


def test_scales_of_products_are_aligned():
    """Ranks whose scales begin elsewhere would have memory apart from the others', and wait for them."""
    whole = torch.ones(8, 1)
    for begin in range(4):
        scales = scales_module.Scales(whole[begin : begin + 4], whole[begin : begin + 1], "row", "tensor", False, FP8)
        assert all(scale.data_ptr() % 16 == 0 for scale in scales.for_products())


@pytest.mark.parametrize("algorithm", ["overlapped", "by_rank", "sequential"])
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_bias_gathered_and_out(out_dtype, algorithm):
    if out_dtype == torch.float32:
        algorithm = None  # TMA stores of fp32 tiles need more shared memory than there is
    problem = Problem(2, 40, 48, 64)
    bias = torch.randn(48, generator=seeded(5)).to(out_dtype)

    def main(rank):
        out, gathered = torch.empty(80, 48, dtype=out_dtype), torch.empty(80, 64, dtype=FP8)
        options = dict(bias=bias, out_dtype=out_dtype, out=out, gathered=gathered, algorithm=algorithm)
        assert problem.call(kernels.ag_gemm, rank, **options) is out
        assert torch.equal(gathered.view(INT8), problem.a.view(INT8).reshape(80, 64))
        plain = problem.call(kernels.ag_gemm, rank, out_dtype=torch.float32)
        problem.assert_gathered(plain, rank)
        torch.testing.assert_close(out.float(), plain + bias.float(), rtol=2e-2, atol=2e-2)

    run(main, ranks=2)


@pytest.mark.parametrize("promoted_products", [32, 64, 128])
def test_sums_leave_the_tensor_cores(promoted_products):
    """After every step of 32, every second one, and with a last one that has fewer."""
    gather, scatter = Problem(2, 40, 144, 208), Problem(2, 80, 144, 208)

    def main(rank):
        options = dict(promoted_products=promoted_products, algorithm="overlapped")
        gather.assert_gathered(gather.call(kernels.ag_gemm, rank, **options), rank)
        scatter.assert_summed(scatter.call(kernels.gemm_rs, rank, **options), slice(rank * 40, (rank + 1) * 40))
        for function in (kernels.ag_gemm, kernels.gemm_rs):
            problem = gather if function is kernels.ag_gemm else scatter
            fast = problem.call(function, rank, use_fast_accum=True, algorithm="overlapped")
            torch.testing.assert_close(fast, problem.call(function, rank, **options))  # the simulator adds in fp32

    run(main, ranks=2)


def test_shapes_of_scales():
    """A vector, a column, and torch's row for the columns of the transpose, mean the same."""
    problem = Problem(1, 4, 32, 32)
    a, b, of_a, of_b = problem.a[0], problem.b[0], problem.scale_a[0], problem.scale_b[0]

    def main(rank):
        first = kernels.ag_gemm(a, b, scale_a=of_a, scale_b=of_b)
        for scale_b in (of_b.view(-1), of_b.t()):
            assert torch.equal(kernels.ag_gemm(a, b, scale_a=of_a.view(-1), scale_b=scale_b), first)
        one = torch.tensor(0.5)  # of whole matrices of one block along K, and of blocks of 128 x 128 of B
        for scale in (one, one.view(1), one.view(1, 1)):
            got = kernels.ag_gemm(a, b, scale_a=of_a, scale_b=scale)
            torch.testing.assert_close(got, kernels.ag_gemm(a, b, scale_a=of_a, scale_b=one.expand(32)))
        two = torch.tensor([[0.5], [2.0]])
        wide = matrices(130, 32, seed=6, dtype=FP8)
        rows = two.repeat_interleave(128, 0)[:130]
        torch.testing.assert_close(
            kernels.ag_gemm(a, wide, scale_a=of_a, scale_b=two), kernels.ag_gemm(a, wide, scale_a=of_a, scale_b=rows)
        )

    run(main, ranks=1)


@pytest.mark.parametrize("shape", [(1,), (7, 3), (130, 5)])
@pytest.mark.parametrize("dtype", [FP8, E5M2, INT8])
def test_all_gather(dtype, shape):
    x = matrices(3, *shape, seed=1, dtype=dtype)

    def main(rank):
        for algorithm in ("copied", "stored", "ll"):
            got = kernels.all_gather(x[rank], algorithm=algorithm)
            assert torch.equal(got.view(INT8), x.view(INT8).reshape(-1, *shape[1:]))

    run(main, ranks=3)


X = matrices(8, 16, seed=1, dtype=FP8)
W = matrices(8, 256, seed=1, dtype=FP8)
ONE, ROWS = torch.ones(1), torch.ones(8)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: kernels.ag_gemm(X, X), "quantized ones with scale_a= and scale_b= .* got torch.float8_e4m3fn without"),
        (
            lambda: kernels.ag_gemm(X, X, scale_a=ONE),
            "quantized ones with scale_a= and scale_b= .* got torch.float8_e4m3fn without",
        ),
        (
            lambda: kernels.gemm_rs(X, X, scale_a=ONE, scale_b=ONE, algorithm="by_rank", block=100),
            "block must be a power of two, got 100",
        ),
        (lambda: kernels.ag_gemm(X, X.to(E5M2), scale_a=ONE, scale_b=ONE), "of one dtype"),
        (lambda: kernels.ag_gemm(X.bfloat16(), X.bfloat16(), scale_a=ONE, scale_b=ONE), "are for matrices of float8"),
        (lambda: kernels.gemm_rs(X.bfloat16(), X.bfloat16(), out_dtype=torch.float16), "are for matrices of float8"),
        (lambda: kernels.ag_gemm(X, X, scale_a=ONE.double(), scale_b=ONE), "scale_a must be float32"),
        (lambda: kernels.ag_gemm(X, X, scale_a=ROWS[:7], scale_b=ONE), r"\[8\] or \[8, 1\] for rows of a, or \[8, 1\]"),
        (
            lambda: kernels.gemm_rs(X, X, scale_a=ONE, scale_b=ROWS[:7]),
            r"scale_b must have one element, or shape \[8\]",
        ),
        (
            lambda: kernels.gemm_ar(W, W, scale_a=torch.ones(8, 2), scale_b=ONE),
            "per block and scale_b per tensor: blocks need blocks of both",
        ),
        (
            lambda: kernels.ag_gemm(X, matrices(16, 8, seed=1, dtype=FP8).t(), scale_a=ONE, scale_b=ONE),
            r"must be \[N, K\] with K contiguous, .* give b.contiguous\(\)",
        ),
        (lambda: kernels.ag_gemm(X, X, scale_a=ONE, scale_b=ONE, out_dtype=torch.int32), "out_dtype must be bfloat16"),
        (lambda: kernels.ag_gemm(X, X, ROWS, scale_a=ONE, scale_b=ONE), "bias must be .* of torch.bfloat16"),
        (
            lambda: kernels.ag_gemm(X, X, scale_a=ONE, scale_b=ONE, out_dtype=torch.float32, algorithm="overlapped"),
            "or quantized ones with such a result: out_dtype must be bfloat16 or float16",
        ),
        (
            lambda: kernels.gemm_rs(X.bfloat16(), X.bfloat16(), use_fast_accum=True),
            "use_fast_accum= is for fp8 matrices with scale_a= and scale_b=, got torch.bfloat16",
        ),
        (lambda: kernels.ag_gemm(X, X, scale_a=1.0, scale_b=ONE), "scale_a must be a tensor, got float"),
        (
            lambda: kernels.gemm_ar(X, X, scale_a=ONE, scale_b=ONE, gradient="foo"),
            "unknown gradient 'foo': expected 'replicate' or 'partial'",
        ),
        (
            lambda: kernels.ag_gemm(
                W, W, scale_a=torch.ones(8, 2), scale_b=torch.ones(1, 2), block=(16, 32, 256), algorithm="overlapped"
            ),
            "block must divide 128 along N and K",
        ),
        (lambda: kernels.ag_gemm(X, X, scale_a=ONE.clone().requires_grad_(), scale_b=ONE), "have no gradients"),
        (lambda: kernels.reduce_scatter(X), "expected bfloat16, float16 or float32, got torch.float8_e4m3fn"),
    ],
)
def test_bad_operands(call, message):
    def main(_):
        with pytest.raises(DitronError, match=message):
            call()

    run(main, ranks=2)


def test_autocast_leaves_quantized_operands():
    problem = Problem(1, 8, 16, 32)

    def main(rank):
        with torch.autocast("cpu", torch.bfloat16):
            problem.assert_gathered(problem.call(kernels.ag_gemm, rank, out_dtype=torch.float32), rank)

    run(main, ranks=1)


@pytest.mark.parametrize(
    "rows, N, K, columns, kind, fast, one_by_one, by_rank",
    [  # as measured on two H200s, and by rank on two H100s: rows of a rank, and what of the weight's N or K a rank has
        (4096, 14336, 8192, "N", "row", False, True, True),
        (4096, 3584, 8192, "N", "row", False, False, True),
        (4096, 1792, 4096, "N", "row", False, False, False),
        (4096, 4096, 1792, "K", "row", False, False, False),
        (4096, 14336, 8192, "N", "row", True, False, True),
        (4096, 3584, 8192, "N", "row", True, False, False),
        (4096, 3584, 8192, "N", "block", False, True, True),
        (4096, 8192, 14336, "K", "tensor", False, True, True),
        (4096, 8192, 3584, "K", "tensor", False, False, True),
        (4096, 8192, 14336, "K", "row", True, False, False),
    ],
)
def test_torch_is_taken_where_it_is_ahead(monkeypatch, rows, N, K, columns, kind, fast, one_by_one, by_rank):
    monkeypatch.setattr(scales_module, "has_product", lambda *_: True)
    scales = scales_module.Scales(ONE, ONE, kind, kind, fast, FP8)
    all_rows = torch.empty(2 * rows, K if columns == "K" else N, device="meta")
    own_rows = torch.empty(rows, N if columns == "K" else K, device="meta")
    a, out = (all_rows, own_rows) if columns == "K" else (own_rows, all_rows)
    nbytes = own_rows.numel() * (2 if columns == "K" else 1)
    weight = torch.empty(N, K, device="meta")
    assert scales_module.prefers_product(scales, nbytes, a, weight, out) is one_by_one
    assert scales_module.prefers_products_by_rank(scales, nbytes, a, weight, out) is by_rank


@needs_compiler_in_threads
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "gemm_ar"])
def test_opcheck(name, ranks):
    problem = Problem(ranks, 4, 16, 32, INT8)  # opcheck multiplies what it is given, which torch cannot with fp8

    def main(rank):
        options = {"scale_a": problem.scale_a[rank], "scale_b": problem.scale_b[rank], "out_dtype": torch.float16}
        operator = getattr(ops, f"{name}_scaled").default
        torch.library.opcheck(operator, (problem.a[rank], problem.b[rank]), options | {"group": ditron.world().name})

    run(main, ranks=ranks, races=False)


@needs_compiler_in_threads
@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "gemm_ar"])
def test_options_of_quantized_matrices_without_scales(name):
    """The dtype of A is a result's, with autocast, gradients and compiled as eager; what is for fp8 is refused."""
    torch._dynamo.reset()
    function = getattr(kernels, name)

    def product(a, b, **options):
        with torch.autocast("cpu", torch.bfloat16, enabled=options.pop("autocast", False)):
            return function(a, b, **options)

    compiled = torch.compile(product, fullgraph=True, backend="aot_eager")
    a, b = torch.randn(4, 16, generator=seeded(1)), torch.randn(8, 16, generator=seeded(2))

    def results(function, **options):
        operands = a.clone().requires_grad_(), b.clone().requires_grad_()
        y = function(*operands, **options)
        y.sum().backward()
        with torch.no_grad():
            again = function(*operands, **options)
        return [y.detach(), again, *(operand.grad for operand in operands)]

    def main(_):
        with torch.compiler.set_stance("default"):
            for dtype, autocast in ((torch.float32, False), (torch.bfloat16, True)):
                expected = results(product, autocast=autocast)
                assert expected[0].dtype == dtype
                for call in (product, compiled):
                    for ours, theirs in zip(results(call, out_dtype=dtype, autocast=autocast), expected, strict=True):
                        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
            for call in (product, compiled):
                for operand in (a, a.clone().requires_grad_()):
                    with pytest.raises(Exception, match="use_fast_accum= is for fp8 matrices"):
                        call(operand, b, use_fast_accum=True)
                    with pytest.raises(Exception, match="out_dtype= are for matrices of float8"):
                        call(operand, b, out_dtype=torch.bfloat16)

    run(main, ranks=2, races=False)


@needs_compiler_in_threads
def test_compiled():
    """Without a break of the graph, and with the bits of eager calls."""
    torch._dynamo.reset()

    def layer(a, b, scale_a, scale_b):
        hidden = kernels.ag_gemm(a, b, scale_a=scale_a, scale_b=scale_b)
        again = kernels.gemm_rs(a, b, scale_a=scale_a, scale_b=scale_b, use_fast_accum=True, out_dtype=torch.float16)
        return hidden * 2, again, kernels.gemm_ar(a, b, scale_a=scale_a, scale_b=scale_b)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    problem = Problem(2, 8, 16, 32)

    def main(rank):
        operands = problem.a[rank], problem.b[rank], problem.scale_a[rank], problem.scale_b[rank]
        expected = layer(*operands)
        with torch.compiler.set_stance("default"):  # the simulator leaves functions as they are
            for ours, theirs in zip(compiled(*operands), expected, strict=True):
                assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)

    run(main, ranks=2, races=False)
