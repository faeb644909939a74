"""Gradients of the operators on simulated ranks, against those of the whole computation in fp64."""

import numerics
import pytest
import torch

import ditron.sim
from ditron import kernels
from ditron_compiler.errors import DitronError

RANKS = 3


def run(main, ranks=RANKS):
    def rank():
        ditron.init()
        return main(ditron.rank())

    return ditron.sim.run(rank, ranks=ranks)


def data(*shape, seed, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def leaf(tensor):
    return tensor.clone().requires_grad_()


def assert_products(got, terms):
    """`got` is the sum of x @ y, each of which may have been rounded to the dtype once before they were added."""
    exact = sum(x.double() @ y.double() for x, y in terms)
    size = sum(x.double().abs() @ y.double().abs() for x, y in terms)
    products = sum((x.double() @ y.double()).abs() for x, y in terms)
    inner = sum(x.shape[1] for x, _ in terms)
    rounding = torch.finfo(got.dtype).eps / 2 * products * (1 + numerics.gamma(inner))
    numerics.assert_error_within(got, exact, numerics.gamma(inner + len(terms)) * size + rounding)


@pytest.mark.parametrize("gathered", [None, {}, {"keep": False}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ag_gemm(dtype, gathered):
    rows, N, K = 6, 16, 24
    a, b, bias = (data(RANKS, *shape, seed=i, dtype=dtype) for i, shape in enumerate([(rows, K), (N, K), (N,)]))
    grads = data(RANKS, RANKS * rows, N, seed=7, dtype=dtype)

    def main(rank):
        mine, weight, offset = leaf(a[rank]), leaf(b[rank]), leaf(bias[rank])
        if gathered is not None:
            y, whole = kernels.ag_gemm_gathered(mine, weight, offset, **gathered)
            assert torch.equal(whole, a.flatten(0, 1))
        else:
            y = kernels.ag_gemm(mine, weight, offset)
        y.backward(grads[rank])
        part = slice(rank * rows, (rank + 1) * rows)
        assert_products(mine.grad, [(grads[r, part], b[r]) for r in range(RANKS)])
        assert_products(weight.grad, [(grads[rank].t(), a.flatten(0, 1))])
        ones = torch.ones(1, RANKS * rows)
        assert_products(offset.grad[None], [(ones, grads[rank])])

    run(main)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("algorithm", ["overlapped", "sequential"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ag_gemm_backward(dtype, algorithm, transposed):
    rows, N, K = 5, 16, 24
    a, b = data(RANKS, rows, K, seed=1, dtype=dtype), data(RANKS, N, K, seed=2, dtype=dtype)
    grads = data(RANKS, RANKS * rows, N, seed=3, dtype=dtype)

    def main(rank):
        weight = b[rank].t().contiguous().t() if transposed else b[rank]
        part = slice(rank * rows, (rank + 1) * rows)
        for _ in range(3):
            of_a, of_b = kernels.ag_gemm_backward(grads[rank], a[rank], weight, algorithm=algorithm)
            assert_products(of_a, [(grads[r, part], b[r]) for r in range(RANKS)])
            assert_products(of_b, [(grads[rank].t(), a.flatten(0, 1))])

    run(main)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("algorithm", ["overlapped", "sequential"])
def test_gemm_rs_backward(algorithm, transposed):
    rows, N, K = 5, 16, 24
    a, b = data(RANKS, RANKS * rows, K, seed=1).bfloat16(), data(RANKS, N, K, seed=2).bfloat16()
    grads = data(RANKS, rows, N, seed=3).bfloat16()

    def main(rank):
        weight = b[rank].t().contiguous().t() if transposed else b[rank]
        for _ in range(3):
            of_a, of_b = kernels.gemm_rs_backward(grads[rank], a[rank], weight, algorithm=algorithm)
            assert_products(of_a, [(grads.flatten(0, 1), b[rank])])
            assert_products(of_b, [(grads.flatten(0, 1).t(), a[rank])])

    run(main)


def test_gemm_rs_backward_of_what_does_not_fit():
    def main(rank):
        with pytest.raises(DitronError, match=r"expected a to be \[12, K\], and b \[6, K\]"):
            kernels.gemm_rs_backward(data(4, 6, seed=1), data(8, 8, seed=2), data(6, 8, seed=3))

    run(main)


def test_gradients_of_the_gradients_of_gemm_rs():
    a, b = data(2, 6, 5, seed=1), data(2, 4, 5, seed=2)

    def main(rank):
        ours = [leaf(a[rank]), leaf(b[rank])]
        first = torch.autograd.grad((kernels.gemm_rs(*ours) ** 2).sum(), ours, create_graph=True)
        sum((g**2).sum() for g in first).backward()
        xs, ws = leaf(a.double()), leaf(b.double())
        loss = (sum(x @ w.t() for x, w in zip(xs, ws, strict=True)) ** 2).sum()
        first = torch.autograd.grad(loss, (xs, ws), create_graph=True)
        sum((g**2).sum() for g in first).backward()
        for mine, all_of_them in zip(ours, (xs, ws), strict=True):
            torch.testing.assert_close(mine.grad, all_of_them.grad[rank].float(), rtol=1e-4, atol=1e-4)

    run(main, ranks=2)


def test_ag_gemm_backward_of_what_does_not_fit():
    def main(rank):
        a, b = data(4, 8, seed=1), data(6, 8, seed=2)
        with pytest.raises(DitronError, match=r"expected b to be \[N, 8\], and grad \[12, N\]"):
            kernels.ag_gemm_backward(data(8, 6, seed=3), a, b)
        with pytest.raises(DitronError, match="unknown algorithm 'fast': expected 'overlapped' or 'sequential'"):
            kernels.ag_gemm_backward(data(12, 6, seed=3), a, b, algorithm="fast")

    run(main)


@pytest.mark.parametrize("needed", ["ab", "a", "b"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ag_gemm_multi(dtype, needed):
    """Of two products, biases, and the gathered rows, which are used as well."""
    rows, Ns, K = 6, (16, 8), 24
    a = data(RANKS, rows, K, seed=1, dtype=dtype)
    bs = [data(RANKS, N, K, seed=2 + i, dtype=dtype) for i, N in enumerate(Ns)]
    offsets = [data(RANKS, N, seed=4 + i, dtype=dtype) for i, N in enumerate(Ns)]
    grads = [data(RANKS, RANKS * rows, N, seed=6 + i, dtype=dtype) for i, N in enumerate([*Ns, K])]

    def main(rank):
        mine = a[rank].clone().requires_grad_("a" in needed)
        weights = [b[rank].clone().requires_grad_("b" in needed) for b in bs]
        biases = [leaf(offset[rank]) for offset in offsets]
        products, whole = kernels.ag_gemm_multi(mine, weights, biases)
        assert torch.equal(whole, a.flatten(0, 1))
        for product, b, offset in zip(products, bs, offsets, strict=True):
            ones = torch.ones(RANKS * rows, 1)
            assert_products(product, [(a.flatten(0, 1), b[rank].t()), (ones, offset[rank][None])])
        roots = [*products, whole] if "a" in needed else products
        torch.autograd.backward(roots, [grad[rank] for grad in grads[: len(roots)]])
        part = slice(rank * rows, (rank + 1) * rows)
        if "a" in needed:
            terms = [(grad[r, part], b[r]) for grad, b in zip(grads, bs, strict=False) for r in range(RANKS)]
            assert_products(mine.grad, terms + [(grads[2][r, part], torch.eye(K)) for r in range(RANKS)])
        for grad, weight, bias in zip(grads, weights, biases, strict=False):
            if "b" in needed:
                assert_products(weight.grad, [(grad[rank].t(), a.flatten(0, 1))])
            assert_products(bias.grad[None], [(torch.ones(1, RANKS * rows), grad[rank])])

    run(main)


def test_ag_gemm_multi_of_which_one_product_is_used():
    a, bs, grads = data(2, 4, 8, seed=1), data(2, 2, 6, 8, seed=2), data(2, 8, 6, seed=3)

    def main(rank):
        mine, weights = leaf(a[rank]), [leaf(b) for b in bs[rank]]
        (_, second), _ = kernels.ag_gemm_multi(mine, weights)
        second.backward(grads[rank])
        assert_products(mine.grad, [(grads[r, rank * 4 : rank * 4 + 4], bs[r, 1]) for r in range(2)])
        assert_products(weights[1].grad, [(grads[rank].t(), a.flatten(0, 1))])
        assert weights[0].grad is None or not weights[0].grad.any()

    run(main, ranks=2)


def test_ag_gemm_multi_of_what_does_not_fit():
    def main(rank):
        a, b = data(4, 8, seed=1), data(6, 8, seed=2)
        with pytest.raises(DitronError, match=r"expected each to be \[N, 8\], and a bias for each or none"):
            kernels.ag_gemm_multi(a, [b, b], [b[0]])
        with pytest.raises(DitronError, match=r"expected each to be \[N, 8\]"):
            kernels.ag_gemm_multi(a, [b, b[:, :4].contiguous()])
        with pytest.raises(DitronError, match="1 matrices have 2 gradients"):
            kernels.ag_gemm_multi_backward([a, a], a, [b])

    run(main)


@pytest.mark.parametrize("layer", [kernels.ag_gemm, lambda a, b: kernels.ag_gemm_multi(a, [b])[0][0]])
def test_gradients_of_gradients(layer):
    rows, N, K = 3, 4, 5
    a, b = data(2, rows, K, seed=1).double(), data(2, N, K, seed=2).double()

    def penalty(x, w, whole):  # of a gradient's size, which is differentiated again
        (first,) = torch.autograd.grad((whole(x, w) ** 2).sum(), x, create_graph=True)
        return (first**2).sum()

    def main(rank):
        ours = [leaf(a[rank].float()), leaf(b[rank].float())]
        penalty(*ours, layer).backward()
        xs, ws = leaf(a), leaf(b)
        total = sum(((xs.flatten(0, 1) @ w.t()) ** 2).sum() for w in ws)
        (first,) = torch.autograd.grad(total, xs, create_graph=True)
        (first**2).sum().backward()
        torch.testing.assert_close(ours[0].grad, xs.grad[rank].float(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours[1].grad, ws.grad[rank].float(), rtol=1e-4, atol=1e-4)

    run(main, ranks=2)


def test_gradient_of_the_gathered_rows():
    rows, N, K = 4, 8, 16
    a, b, grads, others = data(2, rows, K, seed=1), data(2, N, K, seed=2), data(2, 8, N, seed=3), data(2, 8, K, seed=4)

    def main(rank):
        mine = leaf(a[rank])
        y, whole = kernels.ag_gemm_gathered(mine, b[rank])
        torch.autograd.backward([y, whole], [grads[rank], others[rank]])
        part = slice(rank * rows, (rank + 1) * rows)
        eye = torch.eye(K)
        assert_products(mine.grad, [pair for r in (0, 1) for pair in [(grads[r, part], b[r]), (others[r, part], eye)]])

    run(main, ranks=2)


@pytest.mark.parametrize("needed", ["ab", "a", "b"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gemm_rs(dtype, needed):
    rows, N, K = 6, 16, 24
    a, b = data(RANKS, RANKS * rows, K, seed=1, dtype=dtype), data(RANKS, N, K, seed=2, dtype=dtype)
    grads = data(RANKS, rows, N, seed=3, dtype=dtype)

    def main(rank):
        mine, weight = a[rank].clone(), b[rank].t().contiguous().t()
        mine.requires_grad_("a" in needed), weight.requires_grad_("b" in needed)
        kernels.gemm_rs(mine, weight).backward(grads[rank])
        if "a" in needed:
            assert_products(mine.grad, [(grads.flatten(0, 1), b[rank])])
        if "b" in needed:
            assert_products(weight.grad, [(grads.flatten(0, 1).t(), a[rank])])

    run(main)


@pytest.mark.parametrize("gradient", ["replicate", "partial"])
def test_gemm_ar(gradient):
    """Alike on all ranks, the gradient is taken as it is; else its parts are added."""
    M, N, K = 5, 8, 16
    a, b, grads = data(2, M, K, seed=1), data(2, N, K, seed=2), data(2, M, N, seed=3)

    def main(rank):
        mine, weight = leaf(a[rank]), leaf(b[rank])
        kernels.gemm_ar(mine, weight, gradient=gradient).backward(grads[rank])
        total = grads[rank] if gradient == "replicate" else grads.sum(0)
        assert_products(mine.grad, [(total, b[rank])])
        assert_products(weight.grad, [(total.t(), a[rank])])

    run(main, ranks=2)


def test_collectives():
    x, wide, tall = data(2, 4, 3, seed=1), data(2, 8, 3, seed=2), data(2, 2, 3, seed=3)

    def main(rank):
        def gradient(operator, grad, **options):
            mine = leaf(x[rank])
            operator(mine, **options).backward(grad)
            return mine.grad

        own = slice(4 * rank, 4 * (rank + 1))
        torch.testing.assert_close(gradient(kernels.all_gather, wide[rank]), wide.sum(0)[own])
        assert torch.equal(gradient(kernels.all_gather, wide[rank], gradient="replicate"), wide[rank, own])
        assert torch.equal(gradient(kernels.reduce_scatter, tall[rank]), tall.flatten(0, 1))
        assert torch.equal(gradient(kernels.own_part, tall[rank]), tall.flatten(0, 1))
        assert torch.equal(gradient(kernels.all_reduce, x[rank]), x[rank])
        torch.testing.assert_close(gradient(kernels.all_reduce, x[rank], gradient="partial"), x.sum(0))

    run(main, ranks=2)


def test_all_reduce_rms_norm():
    """Against autograd through the same in fp64; every rank has the whole gradient."""
    x, residual, weight = data(2, 3, 8, seed=1), data(3, 8, seed=2), data(8, seed=3)
    grads = data(2, 3, 8, seed=4)

    def exact():
        tensors = [leaf(t.double()) for t in (x.sum(0), residual, weight)]
        total = tensors[0] + tensors[1]
        out = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-3) * tensors[2]
        torch.autograd.backward([out, total], [g.double() for g in grads])
        return [t.grad for t in tensors]

    def main(rank):
        tensors = [leaf(x[rank]), leaf(residual), leaf(weight)]
        torch.autograd.backward(kernels.all_reduce_rms_norm(*tensors, 1e-3), [*grads])
        for tensor, expected in zip(tensors, exact(), strict=True):
            torch.testing.assert_close(tensor.grad.double(), expected, rtol=1e-5, atol=1e-5)

    run(main, ranks=2)


def test_second_derivatives():
    """d/da of |d(sum y**2)/da|**2 of a column- and a row-parallel product, against one rank's."""
    rows, N, K = 2, 4, 8
    a, up, down = data(2, rows, K, seed=1), data(2, N, K, seed=2), data(2, K, N, seed=3)

    def second(x, layers):
        (first,) = torch.autograd.grad((layers(x) ** 2).sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    def main(rank):
        got = second(leaf(a[rank]), lambda x: kernels.gemm_rs(torch.sin(kernels.ag_gemm(x, up[rank])), down[rank]))
        whole = leaf(a.flatten(0, 1).double())
        up_all, down_all = up.flatten(0, 1).double(), torch.cat([*down], 1).double()
        exact = second(whole, lambda x: torch.sin(x @ up_all.T) @ down_all.T)
        torch.testing.assert_close(got.double(), exact[rank * rows : (rank + 1) * rows], rtol=1e-4, atol=1e-4)

    run(main, ranks=2)


def test_a_subgroup_is_found_again():
    """Backward, by its name: the group is no longer the current one."""
    x, grads = data(4, 2, 8, seed=1), data(4, 4, 8, seed=2)

    def main(rank):
        group = ditron.new_group([3, 1])
        if group:
            mine, eye = leaf(x[rank]), torch.eye(8)
            with group:
                y = kernels.ag_gemm(mine, eye)
            assert torch.equal(y, torch.cat([x[3], x[1]]))
            y.backward(grads[rank])
            part = slice(2 * group.rank, 2 * group.rank + 2)
            assert_products(mine.grad, [(grads[r, part], eye) for r in (3, 1)])

    run(main, ranks=4)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: kernels.ag_gemm(x, x, out=torch.empty(16, 8)), "out= cannot be given where gradients are recorded"),
        (lambda x: kernels.ag_gemm(x, x, gathered=x), "gathered= cannot be given"),
        (lambda x: kernels.gemm_rs(x, x, pieces=2), "pieces= cannot be given"),
        (lambda x: kernels.all_reduce(x, gradient="sum"), "unknown gradient 'sum'"),
        (lambda x: kernels.all_reduce(x, group="7,8"), "there is no group named '7,8'"),
        (lambda x: kernels.all_reduce(x, group=3), "expected a ditron.Group, a ProcessGroup or a DeviceMesh"),
        (lambda x: torch.ops.ditron.gemm_rs(x, x, group="7,8"), "there is no group named '7,8'"),
    ],
)
def test_errors(call, message):
    def main(rank):
        with pytest.raises(DitronError, match=message):
            call(leaf(data(8, 8, seed=1)))

    run(main, ranks=2)


def test_out_without_gradients():
    def main(rank):
        out, x = torch.empty(4, 2), leaf(torch.ones(2, 2))
        with torch.no_grad():
            assert kernels.ag_gemm(x, x, out=out) is out
        assert (out == 2).all()

    run(main, ranks=2)
