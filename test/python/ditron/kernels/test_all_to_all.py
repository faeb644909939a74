"""All-to-alls and Ulysses' products on simulated ranks: elements against torch's, gradients against fp64, bad input."""

import numerics
import pytest
import torch
from simulated import data, run

import ditron
import ditron.sim
from ditron import kernels
from ditron_compiler.errors import DitronError


def weight(b, layout):
    """``b``, or a tensor like it whose memory is its transpose."""
    return b if layout == "nk" else b.t().contiguous().t()


def exchanged(x, splits, rank):
    """What all ranks' ``x`` have for one, by ``splits`` [senders, owners]."""
    begins = splits.cumsum(1) - splits
    return torch.cat([x[s, begins[s, rank] : begins[s, rank] + splits[s, rank]] for s in range(len(x))])


def corpus(ranks, rows):
    """Splits by name, ``[senders, owners]``."""
    generator = torch.Generator().manual_seed(ranks)
    none = torch.zeros(ranks, ranks, dtype=torch.int64)
    to_one, of_one, one_row, holes = none.clone(), none.clone(), none.clone(), none.clone()
    to_one[:, ranks - 1] = rows
    of_one[0] = rows // ranks
    one_row[-1, 0] = 1
    holes[::2, ::2] = rows // ranks
    return {
        "drawn": torch.randint(0, rows // ranks + 1, (ranks, ranks), generator=generator),
        "equal": none + rows // ranks,
        "none": none,
        "all to one": to_one,
        "all of one": of_one,
        "one row": one_row,
        "some with none": holes,
    }


@pytest.mark.parametrize("algorithm", ["stored", "ll", "ll128"])
@pytest.mark.parametrize("width", [1, 24, 300])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_to_all_v(ranks, width, algorithm):
    rows = 12
    x = torch.arange(ranks * rows * width).view(ranks, rows, width).float()

    def main():
        rank = ditron.rank()
        for dtype in (torch.int64, torch.int32):
            for max_rows in (ranks * rows, 5):
                dropped, lost = torch.zeros(1, dtype=torch.int64), 0
                for name, splits in corpus(ranks, rows).items():
                    out = torch.full((max_rows, width), -1.0)
                    got, counts, offsets = kernels.all_to_all_v(
                        x[rank],
                        splits[rank].to(dtype),
                        max_rows=max_rows,
                        out=out,
                        dropped=dropped,
                        algorithm=algorithm,
                    )
                    expected = exchanged(x, splits, rank)
                    kept = min(len(expected), max_rows)
                    assert got is out and torch.equal(got[:kept], expected[:kept]), name
                    assert (got[kept:] == -1).all(), name  # never written
                    assert counts.dtype == offsets.dtype == dtype
                    assert counts.tolist() == splits[:, rank].tolist(), name
                    begins = [min(int(counts[:sender].sum()), max_rows) for sender in range(ranks + 1)]
                    assert offsets.tolist() == begins, name
                    lost += len(expected) - kept
                assert dropped.item() == lost

    run(main, ranks=ranks)


@pytest.mark.parametrize("algorithm", ["stored", "ll"])
def test_all_to_all_v_in_any_order(algorithm):
    ranks, rows, width = 3, 12, 40
    x = data(ranks, rows, width, seed=1)

    def main():
        rank = ditron.rank()
        for splits in corpus(ranks, rows).values():
            got, _, offsets = kernels.all_to_all_v(
                x[rank], splits[rank], max_rows=ranks * rows, algorithm=algorithm, block=32, programs=3
            )
            assert torch.equal(got[: offsets[-1]], exchanged(x, splits, rank))

    for seed in range(12):
        run(main, ranks=ranks, seed=seed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn, torch.int8])
def test_all_to_all_v_of_other_dtypes(dtype):
    x = torch.arange(2 * 8 * 6).view(2, 8, 3, 2).to(dtype)
    splits = torch.tensor([[3, 5], [0, 2]])

    def main():
        got, *_ = kernels.all_to_all_v(x[ditron.rank()], splits[ditron.rank()], max_rows=7)
        expected = exchanged(x, splits, ditron.rank())
        assert torch.equal(got[: len(expected)].float(), expected.float())

    run(main, ranks=2)


@pytest.mark.parametrize("algorithm", [None, "stored", "ll", "ll128"])
@pytest.mark.parametrize("shape", [(1,), (7, 3), (130, 5)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_to_all(ranks, shape, algorithm):
    x = data(ranks, ranks * shape[0], *shape[1:], seed=1)

    def main():
        for call in range(3):
            turned = x.roll(call, 1)
            mine = turned[ditron.rank()].contiguous()
            expected = torch.cat([each.chunk(ranks)[ditron.rank()] for each in turned])
            assert torch.equal(kernels.all_to_all(mine, algorithm=algorithm), expected)

    run(main, ranks=ranks)


SHAPES = [(40, 48, 32), (1, 8, 8), (70, 72, 40), (3, 5, 7), (150, 40, 96)]  # rows of a rank, N, K


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("rows, N, K", SHAPES)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_gemm_a2a(ranks, rows, N, K, layout):
    x, w, bias = data(ranks, rows, K, seed=1), data(ranks * N, K, seed=2), data(ranks * N, seed=3)

    def main():
        mine = slice(ditron.rank() * N, (ditron.rank() + 1) * N)
        for call in range(3):
            turned = x.roll(call, 1)
            got = kernels.gemm_a2a(turned[ditron.rank()].contiguous(), weight(w, layout), bias)
            if K % 8 == 0 and N % 8 == 0:
                numerics.assert_product(got, turned.flatten(0, 1), w[mine].T, bias[mine])
            else:  # torch rounds the product before it adds the bias
                torch.testing.assert_close(got, turned.flatten(0, 1) @ w[mine].T + bias[mine])

    run(main, ranks=ranks)


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("rows, N, K", SHAPES)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a2a_gemm(ranks, rows, N, K, layout):
    x, w, bias = data(ranks, ranks * rows, K, seed=1), data(N, ranks * K, seed=2), data(N, seed=3)

    def main():
        for call in range(3):
            turned = x.roll(call, 1)
            got = kernels.a2a_gemm(turned[ditron.rank()].contiguous(), weight(w, layout), bias)
            mine = torch.cat([each.chunk(ranks)[ditron.rank()] for each in turned], 1)
            if K % 8 == 0 and N % 8 == 0:
                numerics.assert_product(got, mine, w.T, bias)
            else:
                torch.testing.assert_close(got, mine @ w.T + bias)

    run(main, ranks=ranks)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("algorithm", ["overlapped", "sequential"])
def test_any_dimension_of_the_sequence(algorithm, dim):
    """Both products, one behind the other, of [sequence, batch, K] or [batch, sequence, K]."""
    ranks, N, K = 2, 16, 8
    x, w, back = data(4, 6, K, seed=1), data(N, K, seed=2), data(K, N, seed=3)

    def main():
        rank = ditron.rank()
        heads = kernels.gemm_a2a(x.chunk(ranks, dim)[rank], w, gather_dim=dim, algorithm=algorithm)
        torch.testing.assert_close(heads, x @ w.chunk(ranks)[rank].T)
        got = kernels.a2a_gemm(heads, back, scatter_dim=dim - 3, gather_dim=2, algorithm=algorithm)
        torch.testing.assert_close(got, (x @ w.T).chunk(ranks, dim)[rank] @ back.T)

    run(main, ranks=ranks)


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("ranks, rows, pushers", [(1, 40, 2), (2, 5, 1), (3, 40, 1), (3, 150, 5), (4, 40, 7)])
def test_a2a_gemm_of_stored_rows(ranks, rows, pushers, layout):
    """By as many programs for each rank as there can be, one at least."""
    x, w, bias = data(ranks, ranks * rows, 40, seed=1), data(72, ranks * 40, seed=2), data(72, seed=3)
    how = {"algorithm": "overlapped", "pushers": pushers, "push_block": 256, "push_warps": 4, "pieces": 3}

    def main():
        for call in range(3):
            turned = x.roll(call, 1)
            got = kernels.a2a_gemm(turned[ditron.rank()].contiguous(), weight(w, layout), bias, **how)
            mine = torch.cat([each.chunk(ranks)[ditron.rank()] for each in turned], 1)
            numerics.assert_product(got, mine, w.T, bias)

    run(main, ranks=ranks)


@pytest.mark.parametrize(
    "before, behind",
    [({}, {"copy_streams": 2}), ({"copy_streams": 2}, {"pushers": 4, "push_block": 128, "push_warps": 4}), ({}, {})],
    ids=["copied, by two streams", "by two streams, stored", "copied"],
)
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("pieces", [1, 3])
def test_products_in_any_order(pieces, graphs, before, behind):
    ranks, rows, N, K = 3, 150, 40, 40
    x, w = data(ranks, rows, K, seed=1), data(ranks * N, K, seed=2)
    heads, back = data(ranks, ranks * rows, K, seed=3), data(N, ranks * K, seed=4)

    def main():
        rank = ditron.rank()
        for call in range(3):
            turned, of_heads = x.roll(call, 1), heads.roll(call, 1)
            got = kernels.gemm_a2a(turned[rank].contiguous(), w, algorithm="overlapped", pieces=pieces, **before)
            numerics.assert_product(got, turned.flatten(0, 1), w.chunk(ranks)[rank].T)
            got = kernels.a2a_gemm(of_heads[rank].contiguous(), back, algorithm="overlapped", pieces=pieces, **behind)
            mine = torch.cat([each.chunk(ranks)[rank] for each in of_heads], 1)
            numerics.assert_product(got, mine, back.T)

    for seed in range(5):
        run(main, ranks=ranks, seed=seed, graphs=graphs)


def leaf(tensor):
    return tensor.clone().requires_grad_()


@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_products(dim):
    """Of attention without attention: every rank's leaves against those of the whole sequence in fp64."""
    ranks, N, K = 2, 8, 6
    x, grad = (data(4, 6, K, seed=i, dtype=torch.float32) for i in (1, 2))
    w, bias, back, offset = (data(*s, seed=4, dtype=torch.float32) for s in [(N, K), (N,), (K, N), (K,)])
    whole = [leaf(t.double()) for t in (x, w, bias, back, offset)]
    torch.nn.functional.linear(torch.tanh(torch.nn.functional.linear(*whole[:3])), *whole[3:]).backward(grad.double())

    def main():
        rank = ditron.rank()
        mine = [leaf(x.chunk(ranks, dim)[rank]), *map(leaf, (w, bias, back, offset))]
        heads = torch.tanh(kernels.gemm_a2a(*mine[:3], gather_dim=dim))
        kernels.a2a_gemm(heads, *mine[3:], scatter_dim=dim).backward(grad.chunk(ranks, dim)[rank])
        within = {"rtol": 1e-5, "atol": 1e-5}  # of sums of some tens of products in fp32
        torch.testing.assert_close(mine[0].grad.double(), whole[0].grad.chunk(ranks, dim)[rank], **within)
        for got, expected in zip(mine[1:], whole[1:], strict=True):  # each rank's tokens: added, the whole gradient
            everybody = torch.stack(ditron.all_gather_object(got.grad.double()))
            torch.testing.assert_close(everybody.sum(0), expected.grad, **within)

    run(main, ranks=ranks)


@pytest.mark.parametrize("max_rows", [16, 5])
def test_gradients_of_all_to_all_v(max_rows):
    """Rows that were sent have the gradient of their place; the others, and dropped ones, have none."""
    ranks, rows, width = 2, 8, 3
    splits = torch.tensor([[2, 3], [4, 1]])
    x, grads = data(ranks, rows, width, seed=1), data(ranks, max_rows, width, seed=2)
    expected = torch.zeros(ranks, rows, width)
    for owner in range(ranks):
        places = [(s, int(splits[s, :owner].sum()) + i) for s in range(ranks) for i in range(int(splits[s, owner]))]
        for place, (sender, row) in zip(range(max_rows), places, strict=False):
            expected[sender, row] = grads[owner, place].float()

    def main():
        rank = ditron.rank()
        mine = leaf(x[rank])
        got, counts, _ = kernels.all_to_all_v(mine, splits[rank], max_rows=max_rows)
        got.backward(grads[rank])
        assert torch.equal(mine.grad.float(), expected[rank])
        assert not counts.requires_grad

    run(main, ranks=ranks)


def test_gradient_of_all_to_all():
    x, grads = data(2, 6, 3, seed=1), data(2, 6, 3, seed=2)

    def main():
        mine = leaf(x[ditron.rank()])
        kernels.all_to_all(mine).backward(grads[ditron.rank()])
        assert torch.equal(mine.grad, torch.cat([g.chunk(2)[ditron.rank()] for g in grads]))

    run(main, ranks=2)


def splits_of(*values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: kernels.all_to_all(torch.zeros(3, 2)), "3 rows cannot be shared evenly by 2 ranks"),
        (lambda: kernels.all_to_all(torch.zeros(2, 2), algorithm="copied"), "unknown algorithm 'copied'"),
        (
            lambda: kernels.all_to_all_v(torch.zeros(4, 2), splits_of(1, 1, 1), max_rows=4),
            r"splits must be \[2\] of int64 or int32 on cpu, got \[3\]",
        ),
        (
            lambda: kernels.all_to_all_v(torch.zeros(4, 2), splits_of(1, 1, dtype=torch.int16), max_rows=4),
            r"got \[2\] of torch.int16",
        ),
        (
            lambda: kernels.all_to_all_v(torch.zeros(4, 2), splits_of(3, 2), max_rows=4),
            r"x has 4 rows, and splits are \[3, 2\]",
        ),
        (
            lambda: kernels.all_to_all_v(torch.zeros(4, 2), splits_of(-1, 2), max_rows=4),
            r"x has 4 rows, and splits are \[-1, 2\]",
        ),
        (
            lambda: kernels.all_to_all_v(torch.zeros(4, 2), splits_of(1, 2), max_rows=0),
            "max_rows must be a number from 1, got 0",
        ),
        (
            lambda: kernels.all_to_all_v(torch.zeros(4, 2), splits_of(1, 2), max_rows=4, dropped=torch.zeros(1)),
            r"dropped must be \[1\] of int64",
        ),
        (
            lambda: kernels.all_to_all_v(torch.zeros(4, 2), splits_of(1, 2), max_rows=4, algorithm="nccl"),
            "unknown algorithm 'nccl': expected 'stored', 'll' or 'll128'",
        ),
        (
            lambda: kernels.all_to_all_v(torch.zeros(4, 2), splits_of(1, 2), max_rows=4, blocks=3),
            "unknown argument 'blocks': a schedule has",
        ),
        (
            lambda: kernels.gemm_a2a(torch.zeros(4, 8), torch.zeros(6, 4)),
            r"x is \[4, 8\] and w is \[6, 4\]: expected w to be \[N, 8\]",
        ),
        (lambda: kernels.gemm_a2a(torch.zeros(4, 8), torch.zeros(5, 8)), "w has 5 rows, which 2 ranks cannot share"),
        (lambda: kernels.gemm_a2a(torch.zeros(8), torch.zeros(5, 8)), "x must have two dimensions or more"),
        (
            lambda: kernels.gemm_a2a(torch.zeros(4, 8), torch.zeros(6, 8), scatter_dim=0, gather_dim=1),
            "scatter_dim must be the last dimension and gather_dim another one of 2, got 0 and 1",
        ),
        (
            lambda: kernels.a2a_gemm(torch.zeros(4, 8), torch.zeros(6, 16), scatter_dim=2),
            r"scatter_dim must be a dimension of \[4, 8\], got 2",
        ),
        (
            lambda: kernels.a2a_gemm(torch.zeros(3, 8), torch.zeros(6, 16)),
            r"x is \[3, 8\], and 2 ranks cannot share dimension 0 evenly",
        ),
        (lambda: kernels.a2a_gemm(torch.zeros(4, 8), torch.zeros(6, 8)), r"expected w to be \[N, 16\]"),
        (
            lambda: kernels.a2a_gemm(torch.zeros(4, 8), torch.zeros(6, 16), algorithm="overlapped"),
            "algorithm='overlapped' takes bfloat16 or float16",
        ),
        (
            lambda: kernels.a2a_gemm(torch.zeros(4, 8), torch.zeros(6, 16), pushers=2, copy_streams=2),
            "pushers= store what copy_streams= would copy: give one of both",
        ),
        (
            lambda: kernels.gemm_a2a(torch.zeros(4, 8).bfloat16(), torch.zeros(16, 8).bfloat16(), pieces=2),
            "pieces must be from 1 to 1",
        ),
    ],
)
def test_errors(call, message):
    def main():
        with pytest.raises(DitronError, match=message):
            call()

    run(main, ranks=2)
