"""The operators on simulated ranks, against torch in fp64; shapes from the smallest to ones with ragged tiles."""

import gc
import re
import weakref

import numerics
import pytest
import torch
from simulated import data, run, weight

import ditron.sim
from ditron import kernels
from ditron_compiler.errors import DitronError

SHAPES = [(40, 48, 32), (1, 8, 8), (70, 72, 40), (3, 5, 7), (100, 96, 64)]  # rows of a rank, N, K


def exact_sum(parts):
    return parts.double().sum(0)


def assert_sum_of_products(got, a, b):
    """The sum over ranks of a[r] @ b[r].T, where each rank's part may have been rounded to the dtype once."""
    ranks, _, K = a.shape
    parts = torch.einsum("wmk,wnk->wmn", a.double(), b.double())
    size = torch.einsum("wmk,wnk->wmn", a.double().abs(), b.double().abs()).sum(0)
    rounding = torch.finfo(got.dtype).eps / 2 * parts.abs().sum(0) * (1 + numerics.gamma(K))
    numerics.assert_error_within(got, parts.sum(0), numerics.gamma(K + ranks + 1) * size + rounding)


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("rows, N, K", SHAPES)
@pytest.mark.parametrize("ranks", [1, 3])
def test_ag_gemm(ranks, rows, N, K, layout):
    a, b, bias = data(ranks, rows, K, seed=1), data(ranks, N, K, seed=2), data(N, seed=3)

    def main():
        rank = ditron.rank()
        for call in range(3):
            mine, gathered = a[rank].roll(call, 0).contiguous(), torch.empty(ranks * rows, K, dtype=a.dtype)
            got = kernels.ag_gemm(mine, weight(b[rank], layout), bias, gathered=gathered)
            whole = a.roll(call, 1).reshape(-1, K)
            assert torch.equal(gathered, whole)
            if K % 8 == 0 and N % 8 == 0:
                numerics.assert_product(got, whole, b[rank].T, bias)
            else:  # torch rounds the product before it adds the bias
                torch.testing.assert_close(got, torch.matmul(whole, b[rank].t()) + bias)

    run(main, ranks=ranks)


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("columns, programs", [(32, 10), (32, 40), (256, 4), (256, 16), (256, 40)])
@pytest.mark.parametrize("ranks, rows, N", [(1, 70, 72), (3, 40, 280)])
def test_ag_gemm_whose_last_round_is_of_narrower_tiles(ranks, rows, N, columns, programs, layout):
    """Halves or quarters, as a round has place for them: the same bits as by one program, which has full rounds only."""
    a, b, bias = data(ranks, rows, 40, seed=1), data(ranks, N, 40, seed=2), data(N, seed=3)

    def main():
        rank = ditron.rank()
        for call in range(3):
            mine = a[rank].roll(call, 0).contiguous()
            how = {"algorithm": "overlapped", "block": (16, columns, 16), "pieces": 2}
            got, whole = (
                kernels.ag_gemm(mine, weight(b[rank], layout), bias, programs=count, **how) for count in (programs, 1)
            )
            numerics.assert_product(got, a.roll(call, 1).reshape(-1, 40), b[rank].T, bias)
            assert torch.equal(got, whole)

    run(main, ranks=ranks)


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("columns, programs", [(32, 10), (32, 40), (256, 4), (256, 16), (256, 40)])
@pytest.mark.parametrize("ranks, rows, N", [(1, 70, 72), (3, 40, 280), (3, 70, 560)])
def test_gemm_rs_whose_last_round_is_of_narrower_tiles(ranks, rows, N, columns, programs, layout):
    """As of ``ag_gemm``, where own tiles fill a round before."""
    a, b = data(ranks, ranks * rows, 40, seed=1), data(ranks, N, 40, seed=2)

    def main():
        rank = ditron.rank()
        for call in range(3):
            mine = a[rank].roll(call, 0).contiguous()
            how = {"algorithm": "overlapped", "block": (16, columns, 16), "pieces": 2}
            got, whole = (kernels.gemm_rs(mine, weight(b[rank], layout), programs=p, **how) for p in (programs, 1))
            assert_sum_of_products(got, a.roll(call, 1).view(ranks, ranks, rows, 40)[:, rank], b)
            assert torch.equal(got, whole)

    run(main, ranks=ranks)


@pytest.mark.parametrize(
    "schedule",
    [{}, {"by_peer": True, "in_flight": 1}, {"slice_k": (64, 64), "in_flight": 3, "programs": 2}],
    ids=["default", "by peer", "in flight"],
)
@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("rows, N, K", [(1, 8, 8), (70, 72, 40), (40, 48, 264)])
@pytest.mark.parametrize("ranks", [1, 3])
def test_ag_gemm_by_slices_of_k(ranks, rows, N, K, layout, schedule):
    a, b, bias = data(ranks, rows, K, seed=1), data(ranks, N, K, seed=2), data(N, seed=3)

    def main():
        rank = ditron.rank()
        for call in range(3):
            turned, offset = a.roll(call, 0), bias if call else None
            gathered = torch.empty(ranks * rows, K, dtype=a.dtype) if call else None
            how = {"algorithm": "k_slices"} | schedule
            got = kernels.ag_gemm(turned[rank], weight(b[rank], layout), offset, gathered=gathered, **how)
            numerics.assert_product(got, turned.reshape(-1, K), b[rank].T, *([bias] if call else []))
            assert gathered is None or torch.equal(gathered, turned.reshape(-1, K))

    run(main, ranks=ranks)


def test_calls_by_slices_of_other_rows_share_memory():
    """Each rank's shard has its place, and signals theirs, whatever the calls before had."""

    def main():
        rank = ditron.rank()
        for call, rows in enumerate((40, 3, 57, 33, 40, 1)):
            a, b = data(3, rows, 264, seed=call), data(3, 48, 264, seed=10 + call)
            gathered = torch.empty(3 * rows, 264, dtype=a.dtype) if call % 2 else None
            got = kernels.ag_gemm(a[rank], b[rank], gathered=gathered, algorithm="k_slices")
            numerics.assert_product(got, a.reshape(-1, 264), b[rank].T)
            assert gathered is None or torch.equal(gathered, a.reshape(-1, 264))

    for seed in range(3):
        run(main, ranks=3, seed=seed)


def test_as_many_slices_as_columns_need():
    a, b = data(2, 8, 2120, seed=1), data(2, 16, 2120, seed=2)

    def main():
        got = kernels.ag_gemm(a[ditron.rank()], b[ditron.rank()], algorithm="k_slices", slice_k=(32, 32))
        numerics.assert_product(got, a.reshape(-1, 2120), b[ditron.rank()].T)

    run(main, ranks=2)


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("rows, N, K", SHAPES)
@pytest.mark.parametrize("ranks", [1, 3])
def test_gemm_rs(ranks, rows, N, K, layout):
    a, b = data(ranks, ranks * rows, K, seed=1), data(ranks, N, K, seed=2)

    def main():
        rank = ditron.rank()
        own = slice(rank * rows, (rank + 1) * rows)
        for call in range(3):
            turned = a.roll(call, 1)
            got = kernels.gemm_rs(turned[rank].contiguous(), weight(b[rank], layout))
            assert_sum_of_products(got, turned[:, own], b)

    run(main, ranks=ranks)


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("rows, N, K", SHAPES[:3])
@pytest.mark.parametrize("ranks", [1, 3])
def test_products_by_rank(ranks, rows, N, K, layout):
    a, b, bias = data(ranks, rows, K, seed=1), data(ranks, N, K, seed=2), data(N, seed=3)
    x = data(ranks, ranks * rows, K, seed=4)

    def main():
        rank = ditron.rank()
        own = slice(rank * rows, (rank + 1) * rows)
        for call in range(3):
            turned, offset = a.roll(call, 0), bias if call else None
            gathered = torch.empty(ranks * rows, K, dtype=a.dtype) if call else None
            how = {"algorithm": "by_rank"}
            got = kernels.ag_gemm(turned[rank], weight(b[rank], layout), offset, gathered=gathered, **how)
            numerics.assert_product(got, turned.reshape(-1, K), b[rank].T, *([bias] if call else []))
            assert gathered is None or torch.equal(gathered, turned.reshape(-1, K))
            moved = x.roll(call, 1)
            assert_sum_of_products(
                kernels.gemm_rs(moved[rank].contiguous(), weight(b[rank], layout), **how), moved[:, own], b
            )

    run(main, ranks=ranks)


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize(
    "algorithm, rows",
    [(None, 1), (None, 6), (None, 90), ("fused", 1), ("fused", 64), ("overlapped", 64), ("sequential", 6)],
)
def test_gemm_ar(algorithm, rows, layout):
    ranks, N, K = 2, 40, 24
    a, b = data(ranks, rows, K, seed=1), data(ranks, N, K, seed=2)

    def main():
        rank = ditron.rank()
        for call in range(3):
            turned = a.roll(call, 1)
            got = kernels.gemm_ar(turned[rank].contiguous(), weight(b[rank], layout), algorithm=algorithm)
            assert_sum_of_products(got, turned, b)
        return got

    results = run(main, ranks=ranks)
    assert torch.equal(results[0], results[1])


@pytest.mark.parametrize("shape", [(1,), (7, 3), (130, 5)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_collectives(ranks, shape):
    x = data(ranks, ranks * shape[0], *shape[1:], seed=1, dtype=torch.float16)

    def main():
        rank = ditron.rank()
        for call in range(3):
            turned = x.roll(call, 1)
            mine = turned[rank].contiguous()
            for algorithm in ("copied", "stored", "ll", "ll128"):
                assert torch.equal(kernels.all_gather(mine, algorithm=algorithm), turned.reshape(-1, *shape[1:]))
            total = exact_sum(turned)
            size = numerics.gamma(ranks) * turned.double().abs().sum(0)
            for algorithm in ("copied", "stored", "ll"):
                part = kernels.reduce_scatter(mine, algorithm=algorithm)
                numerics.assert_error_within(part, total.chunk(ranks)[rank], size.chunk(ranks)[rank])
            for algorithm in ("ll", "one_shot", "two_shot", "two_shot_ll"):
                numerics.assert_error_within(kernels.all_reduce(mine, algorithm=algorithm), total, size)

    run(main, ranks=ranks)


@pytest.mark.parametrize("seed", range(3))
def test_calls_of_many_sizes_share_memory(seed):
    """33 to 64 rows are one allocation, and its counters serve them all, in any order."""
    ranks, N, K = 2, 32, 16
    b = data(ranks, N, K, seed=2)

    def main():
        rank = ditron.rank()
        for rows in (64, 33, 50, 64, 40):
            a = data(ranks, ranks * rows, K, seed=rows)
            own = slice(rank * rows, (rank + 1) * rows)
            assert_sum_of_products(kernels.gemm_rs(a[rank], b[rank]), a[:, own], b)
            numerics.assert_product(
                kernels.ag_gemm(a[rank, own].contiguous(), b[rank]),
                torch.cat([a[r, r * rows : (r + 1) * rows] for r in range(ranks)]),
                b[rank].T,
            )

    run(main, ranks=ranks, seed=seed)


def test_ranks_may_align_tensors_differently():
    """Views that begin at 16 bytes on one rank and not on the other: the same calls, in the same memory."""
    ranks, rows, N, K = 2, 4, 8, 8
    a, b, bias = data(rows + 1, K + 1, seed=1), data(N, K, seed=2), data(N + 1, seed=3)

    def main():
        rank = ditron.rank()
        for shift in (0, rank, 1 - rank, 1):
            flat = a.flatten()[shift : shift + rows * K].view(rows, K)
            offset = bias[shift : shift + N]
            parts = [a.flatten()[s : s + rows * K].view(rows, K) for s in ditron.all_gather_object(shift)]
            got = kernels.ag_gemm(flat, b, offset)
            numerics.assert_product(got, torch.cat(parts), b.T, offset)
            assert torch.equal(kernels.all_gather(flat), torch.cat(parts))
            assert_sum_of_products(
                kernels.gemm_rs(flat, b), torch.stack(parts)[:, 2 * rank : 2 * rank + 2], b.expand(2, N, K)
            )
            for algorithm in (None, "overlapped"):
                got = kernels.gemm_ar(flat, b, algorithm=algorithm)
                assert_sum_of_products(got, torch.stack(parts), b.expand(2, N, K))
            for algorithm in ("ll", "one_shot", "two_shot", "two_shot_ll"):
                total = kernels.all_reduce(flat, algorithm=algorithm)
                numerics.assert_error_within(
                    total, exact_sum(torch.stack(parts)), numerics.gamma(2) * torch.stack(parts).double().abs().sum(0)
                )
            torch.testing.assert_close(kernels.reduce_scatter(flat), total[2 * rank : 2 * rank + 2])

    run(main, ranks=ranks)


@pytest.mark.parametrize("shape", [(1, 40), (2, 3, 64), (5, 7)])
def test_all_reduce_rms_norm(shape):
    ranks, eps = 3, 1e-3
    x, residual, weight = data(ranks, *shape, seed=1), data(*shape, seed=2), data(shape[-1], seed=3)

    def main():
        for call in range(3):
            turned = x.roll(call, 1)
            out, total = kernels.all_reduce_rms_norm(turned[ditron.rank()].contiguous(), residual, weight, eps)
            exact, size = exact_sum(turned) + residual.double(), turned.double().abs().sum(0) + residual.double().abs()
            numerics.assert_error_within(total, exact, numerics.gamma(ranks + 1) * size)
            norm = torch.nn.functional.rms_norm(total.double(), shape[-1:], weight.double(), eps)
            numerics.assert_error_within(out, norm, numerics.gamma(shape[-1] + 8) * norm.abs())

    run(main, ranks=ranks)


def test_a_subgroup():
    x = data(4, 6, 8, seed=1)

    def main():
        group = ditron.new_group([3, 1])
        if group:
            assert torch.equal(kernels.all_gather(x[ditron.rank()], group=group), torch.cat([x[3], x[1]]))

    run(main, ranks=4)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: kernels.ag_gemm(x, x[:, :4]), "expected b to be"),
        (lambda x: kernels.ag_gemm(x, x.float()), "of one dtype"),
        (
            lambda x: kernels.ag_gemm(x.double(), x.double()),
            "float32, or float8_.* with scales, got a of torch.float64$",
        ),
        (lambda x: kernels.ag_gemm(None, x), "ag_gemm: a must be a tensor, got NoneType"),
        (lambda x: kernels.gemm_rs(x, [x]), "gemm_rs: b must be a tensor, got list"),
        (lambda x: kernels.gemm_ar(None, x.clone().requires_grad_()), "gemm_ar: a must be a tensor, got NoneType"),
        (lambda x: kernels.ag_gemm(x, x, 1.0), "bias must be a tensor, got float"),
        (lambda x: kernels.all_reduce(None), "must be a tensor, got NoneType"),
        (lambda x: kernels.ag_gemm(x[0], x), "must be a matrix"),
        (lambda x: kernels.ag_gemm(x, x, out=x), "out must be contiguous, of shape"),
        (lambda x: kernels.all_reduce(x, out=torch.empty(65).bfloat16()[1:].view(8, 8)), "multiple of 16 bytes"),
        (lambda x: kernels.ag_gemm(x, x, x[0, :4]), r"bias must be \[8\] of torch.bfloat16"),
        (lambda x: kernels.ag_gemm(x, x, x[0].float()), "bias must be"),
        (lambda x: kernels.all_reduce(x, out=x), "out overlaps x"),
        (lambda x: kernels.gemm_ar(x, x.clone(), out=x), "out overlaps a"),
        (lambda x: kernels.gemm_ar(x, x, algorithm="ring"), "unknown algorithm 'ring'"),
        (lambda x: kernels.gemm_ar(x.float(), x.float(), algorithm="fused"), "'fused' takes bfloat16 or float16"),
        (
            lambda x: kernels.ag_gemm(x, x, algorithm="splitk"),
            "expected 'overlapped', 'split_k', 'k_slices', 'by_rank', 'sequential' or",
        ),
        (lambda x: kernels.gemm_rs(x, x, pieces=2), "pieces must be from 1 to 1"),
        (lambda x: kernels.gemm_rs(x[:3], x), "pad it to 4 rows"),
        (lambda x: kernels.gemm_rs(x, x, algorithm="fast"), "unknown algorithm 'fast'"),
        (lambda x: kernels.ag_gemm(x.float(), x.float(), algorithm="overlapped"), "takes bfloat16 or float16"),
        (lambda x: kernels.reduce_scatter(x[:3]), "cannot be shared evenly"),
        (lambda x: kernels.all_reduce(x.long()), "expected bfloat16"),
        (lambda x: kernels.all_reduce(x[:0]), "with elements"),
        (lambda x: kernels.all_reduce(x, algorithm="ring"), "unknown algorithm 'ring'"),
        (lambda x: kernels.all_gather(x, algorithm="ring"), "unknown algorithm 'ring'"),
        (lambda x: kernels.all_reduce_rms_norm(x, x[:4], x[0]), "expected a residual like it"),
        (lambda x: kernels.all_reduce_rms_norm(x, x, x[0].float()), "expected one dtype"),
        (lambda x: kernels.all_reduce_rms_norm(x, x, x[0], eps=None), "eps must be a number, got None"),
        (
            lambda x: kernels.all_reduce_rms_norm(x.clone().requires_grad_(), x, x[0], out=x.clone()),
            "out= cannot be given where gradients are recorded",
        ),
        (lambda x: kernels.reduce_scatter(x, algorithm="ring"), "unknown algorithm 'ring'"),
    ],
)
def test_bad_operands(call, message):
    x = data(8, 8, seed=1)

    def main():
        with pytest.raises(DitronError, match=message):
            call(x)

    run(main, ranks=2)


@pytest.mark.parametrize("algorithm", ["by_rank", "overlapped", "sequential"])
def test_inference_mode_first_and_then_without(algorithm):
    """What programs keep between calls is an inference tensor then."""
    a, b, x = data(2, 20, 16, seed=1), data(2, 24, 16, seed=2), data(2, 40, 16, seed=3)

    def main():
        rank = ditron.rank()
        own = slice(rank * 20, (rank + 1) * 20)
        for mode in (True, False, True):
            with torch.inference_mode(mode):
                got = kernels.ag_gemm(a[rank], b[rank], algorithm=algorithm)
                summed = kernels.gemm_rs(x[rank].clone(), b[rank], algorithm=algorithm)
            numerics.assert_product(got, a.reshape(-1, 16), b[rank].T)
            assert_sum_of_products(summed, x[:, own], b)

    run(main, ranks=2)


def test_without_a_group():
    with pytest.raises(DitronError, match=r"ditron.kernels.all_reduce\(\) before ditron.init"):
        kernels.all_reduce(data(8, seed=1))


def test_programs_keep_no_simulation_alive():
    groups = []

    def main():
        groups.append(weakref.ref(ditron.init()))
        kernels.all_reduce(data(8, seed=ditron.rank()))

    ditron.sim.run(main, ranks=2)
    gc.collect()
    assert [group() for group in groups] == [None, None]


@pytest.mark.parametrize(
    "call, says",
    [
        (
            lambda a, _: kernels.all_gather(a, block=[1024]),
            "all_gather: block must be of integers from 1 on, got [1024]",
        ),
        (lambda a, _: kernels.all_reduce(a, block=True), "all_reduce: block must be of integers from 1 on, got True"),
        (lambda a, _: kernels.reduce_scatter(a, block=0), "reduce_scatter: block must be of integers from 1 on, got 0"),
        (
            lambda a, _: kernels.all_to_all(a, algorithm="stored", num_warps=3),
            "all_to_all: num_warps must be a power of two, got 3",
        ),
        (lambda a, _: kernels.all_reduce(a, blocks=1), "all_reduce: unknown argument 'blocks': a schedule has block"),
        (lambda a, b: kernels.ag_gemm(a, b, programs=0), "ag_gemm: programs must be of integers from 1 on, got 0"),
        (lambda a, b: kernels.ag_gemm(a, b, group_m=True), "ag_gemm: group_m must be of integers from 1 on, got True"),
        (lambda a, b: kernels.ag_gemm(a, b, block=(48, 32, 32)), "ag_gemm: block must be of powers of two"),
        (lambda a, b: kernels.ag_gemm(a, b, block=(32, 32)), "ag_gemm: block must have 3 extents, as (128, 256, 64)"),
        (
            lambda a, b: kernels.ag_gemm(a, b, b_is_kn=True),
            "unknown argument 'b_is_kn': a schedule has pieces, programs",
        ),
        (lambda a, b: kernels.ag_gemm(a, b, algorithm="sequential", foo=3), "ag_gemm: unknown argument 'foo'"),
        (lambda a, b: kernels.ag_gemm(a, b, algorithm="by_rank", pieces=2), "'pieces': this algorithm has no schedule"),
        (lambda a, b: kernels.gemm_rs(a, b, algorithm="by_rank", pieces=2), "gemm_rs: unknown argument 'pieces'"),
        (
            lambda a, b: kernels.ag_gemm(a, b, algorithm="k_slices", slice_k=(16, 64)),
            "ag_gemm: slice_k must begin with a block's depth, 32, or more, and end with as much or more, up to",
        ),
        (
            lambda a, b: kernels.ag_gemm(a, b, algorithm="k_slices", slice_k=(32, 1 << 20)),
            "and end with as much or more, up to 65536, got (32, 1048576)",
        ),
        (
            lambda a, b: kernels.ag_gemm(a, b, algorithm="k_slices", push_block=16),
            "ag_gemm: push_block must be 32 or more, of which every slice of slice_k=(32, 64) is a multiple, got 16",
        ),
        (
            lambda a, b: kernels.ag_gemm(a, b, algorithm="k_slices", in_flight=1 << 20),
            "ag_gemm: in_flight must be from 1 to 16, got 1048576",
        ),
        (
            lambda a, b: kernels.ag_gemm(a.float(), b.float(), algorithm="k_slices"),
            "ag_gemm: algorithm='k_slices' takes bfloat16 or float16 matrices",
        ),
        (lambda a, b: kernels.ag_gemm(a, b, algorithm="k_slices", pieces=2), "unknown argument 'pieces'"),
        (lambda a, b: kernels.gemm_rs(a, b, programs=-1), "gemm_rs: programs must be of integers from 1 on, got -1"),
        (
            lambda a, b: kernels.gemm_ar(a, b, algorithm="fused", rows=4),
            "that holds all 8 rows, got 4",
        ),
        (
            lambda a, b: kernels.gemm_ar(a[:1], b, algorithm="fused", foo=1),
            "gemm_ar: unknown argument 'foo': a schedule",
        ),
        (lambda a, b: kernels.ag_gemm_multi(a, [b, b], [b[0, :1], b[0]]), "ag_gemm_multi: bias must be [16]"),
        (lambda a, b: kernels.ag_gemm_multi(a, [b], [None]), "ag_gemm_multi: biases must be tensors"),
        (lambda a, b: kernels.ag_gemm_multi(a, b), "bs and biases must be lists of tensors, got Tensor and tuple"),
    ],
)
def test_schedules_and_biases_that_do_not_fit(call, says):
    def main():
        ditron.init()
        call(torch.ones(8, 32).bfloat16(), torch.ones(16, 32).bfloat16())

    with pytest.raises(DitronError, match=re.escape(says)):
        ditron.sim.run(main, ranks=2)
