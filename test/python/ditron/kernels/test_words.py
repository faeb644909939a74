"""Words: elements of any width, sent from registers, beside a flag or alone (ditron/kernels/words.py)."""

import importlib
import re

import pytest
import torch
import triton.language as tl
from fake_cuda import gpu_group
from simulated import data, run

import ditron
from ditron import kernels
from ditron.kernels.all_gather import ll_gather_program
from ditron.kernels.all_reduce import ll_program, two_shot_ll_program
from ditron.kernels.all_reduce_rms_norm import ll_rms_norm_program, two_shot_ll_rms_norm_program
from ditron.kernels.all_to_all import ll_all_to_all_program
from ditron.kernels.gemm_ar_small import fused_schedule, gemm_ar_row_program, gemm_ar_small_program
from ditron.kernels.reduce_scatter import ll_scatter_program
from ditron.kernels.words import elements_of, load_words, places_of
from ditron.protocol.api import check_program
from ditron_compiler.errors import DitronError

WORDS = 32


@ditron.jit
def there_and_back(x_ptr, words_ptr, out_ptr, n, WORDS: tl.constexpr):
    word = tl.arange(0, WORDS)
    BITS: tl.constexpr = words_ptr.dtype.element_ty.primitive_bitwidth
    words = load_words(x_ptr, word, n, BITS)
    tl.store(words_ptr + word, words)
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    tl.store(out_ptr + places_of(word, dtype, BITS), elements_of(words, dtype))


@pytest.mark.parametrize(
    "dtype, word",
    [(dtype, torch.int32) for dtype in (torch.int8, torch.bfloat16, torch.float16, torch.float32)]
    + [(dtype, torch.int64) for dtype in (torch.bfloat16, torch.float16, torch.float32)],
)
@pytest.mark.parametrize("missing", [0, 1, 3])
def test_words_are_memory_as_it_is(dtype, word, missing):
    """All bits, of negative elements too; behind the last one are zeros."""
    per_word = word.itemsize // dtype.itemsize
    x = torch.randint(
        -128, 128, (WORDS * word.itemsize,), generator=torch.Generator().manual_seed(1), dtype=torch.int8
    ).view(dtype)
    if dtype.is_floating_point:
        x = torch.where(x.isfinite(), x, -x.new_ones(()))
    whole, n = x.clone(), WORDS * per_word - missing
    whole[n:] = 0

    def main():
        ditron.init()
        words, out = torch.empty(WORDS, dtype=word), torch.empty_like(x)
        there_and_back[(1,)](x, words, out, n, WORDS=WORDS)
        assert torch.equal(words, whole.view(word))
        assert torch.equal(out.view(torch.int8), whole.view(torch.int8))

    ditron.sim.run(main, ranks=1)


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("what", ["all_gather", "all_to_all"])
def test_bytes_are_moved_as_they_are(what, ranks):
    """Whose number is no multiple of a word's, in calls of other sizes behind each other."""

    def main():
        rank = ditron.rank()
        for call, n in enumerate((3, 1030, 5, 600)):
            x = data(ranks, ranks, n, seed=call, dtype=torch.float32).mul(50).to(torch.int8)
            mine = x[rank] if what == "all_to_all" else x[rank, 0]
            got = getattr(kernels, what)(mine.clone(), algorithm="ll")
            assert torch.equal(got, x[:, rank] if what == "all_to_all" else x[:, 0].reshape(-1)), (call, n)

    run(main, ranks=ranks)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda x: kernels.all_reduce(x, algorithm="ll", block=300), "all_reduce: block must be a power of two"),
        (lambda x: kernels.all_reduce(x, algorithm="ll", block=128), "of 256 or more elements of bfloat16, got 128"),
        (
            lambda x: kernels.all_reduce(x, algorithm="two_shot_ll", block=300),
            "all_reduce: block must be a power of two",
        ),
        (
            lambda x: kernels.all_gather(x.float(), algorithm="ll", block=64),
            "of 128 or more elements of float32, got 64",
        ),
        (lambda x: kernels.reduce_scatter(x, algorithm="ll", block=1), "reduce_scatter: block must be a power of two"),
        (lambda x: kernels.all_to_all(x, algorithm="ll", block=96), "all_to_all: block must be a power of two"),
        (lambda x: kernels.all_reduce(x, algorithm="ll", num_ranks=2), "all_reduce: unknown argument 'num_ranks'"),
        (
            lambda x: kernels.ag_gemm(x, x, algorithm="split_k", protocol="LL"),
            "protocol must be 'll' or 'll128', got 'LL'",
        ),
        (
            lambda x: kernels.ag_gemm(x, x, algorithm="split_k", gather_block=100),
            "ag_gemm: gather_block must be a power of two, of 256 or more elements of bfloat16, got 100",
        ),
    ],
)
def test_blocks_that_cannot_be(call, says):
    def main():
        ditron.init()
        call(torch.ones(8, 32).bfloat16())

    with pytest.raises(DitronError, match=re.escape(says)):
        ditron.sim.run(main, ranks=2)


@pytest.mark.parametrize(
    "ranks, M, given, expected",
    [
        (4, 16, {}, ("ll", (64, 256))),
        (4, 32, {}, ("two_shot_ll", (64, 256))),
        (4, 33, {}, ("two_shot_ll", (64, 128))),
        (2, 128, {}, ("ll", (64, 128))),
        (3, 64, {}, ("ll", (64, 128))),
        (8, 32, {}, ("ll", (64, 256))),
        (8, 64, {}, ("two_shot_ll", (64, 128))),
        (4, 16, {"rows": 64, "protocol": "ll"}, ("ll", (64, 128))),
        (4, 32, {"block": (32, 128)}, ("ll", (32, 128))),
        (4, 32, {"num_warps": 8}, ("ll", (64, 256))),
        (8, 64, {"num_warps": 8, "protocol": "ll"}, ("ll", (64, 128))),
    ],
)
def test_schedules_of_few_rows_and_their_sum(ranks, M, given, expected):
    _, chosen = fused_schedule(M, False, gpu_group(ranks), given)
    assert (chosen["protocol"], chosen["block"]) == expected


@pytest.mark.parametrize(
    "ranks, M, given, says",
    [
        (2, 16, {"block": (16, 256), "num_warps": 16}, "512 threads cannot exchange a tile of 16 rows and 16 columns"),
        (
            1,
            16,
            {"num_warps": 8, "protocol": "ll"},
            "of 16 rows and 64 columns is too small for 256 threads to exchange",
        ),
        (
            4,
            16,
            {"protocol": "two_shot_ll"},
            "too small for 128 threads to exchange by protocol='two_shot_ll': give more",
        ),
        (3, 64, {"protocol": "two_shot_ll"}, "protocol='two_shot_ll' is of 1, 2, 4 or 8 ranks, got 3: give 'll'"),
        (
            3,
            128,
            {},
            "128 threads cannot exchange a tile of 128 rows and 64 columns with 2 others: name another block=",
        ),
        (3, 16, {"rows": 128}, "cannot exchange a tile of 128 rows"),
        (4, 16, {"block": 256}, "gemm_ar: block must have 2 extents"),
    ],
)
def test_tiles_that_cannot_be_exchanged(ranks, M, given, says):
    with pytest.raises(DitronError, match=re.escape(says)):
        fused_schedule(M, False, gpu_group(ranks), given)


@pytest.mark.parametrize(
    "protocol, ranks", [*(("ll", r) for r in (1, 2, 3, 4)), *(("two_shot_ll", r) for r in (1, 2, 4))]
)
def test_products_of_any_number_of_rows(protocol, ranks):
    """In the same memory, of which a call with fewer rows leaves nothing to the next one with more."""

    def main():
        for call, M in enumerate((16, 3, 9, 16, 1, 2, 13)):
            a, b = data(ranks, M, 32, seed=call).bfloat16(), data(ranks, 72, 32, seed=call + 9).bfloat16()
            out = torch.empty(M, 72, dtype=torch.bfloat16)
            how = {"num_ranks": ranks, "rows": 16, "block": (32, 32), "num_warps": 1, "protocol": protocol}
            gemm_ar_small_program(a[ditron.rank()].clone(), b[ditron.rank()].clone(), out, **how)
            exact = torch.einsum("rmk,rnk->mn", a.double(), b.double())
            assert (out.double() - exact).abs().max() < 0.05 * exact.abs().max(), (call, M)

    run(main, ranks=ranks)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_sums_of_what_floats_can_be(dtype):
    """0.0, -0.0, infinities, and NaNs, those too of which all bits are ones, which a word must not be."""
    inf, nan = float("inf"), float("nan")
    values = torch.tensor([0.0, -0.0, 1.0, inf, -inf, nan, -1.0, 2.0], dtype=dtype)
    integer = torch.int16 if dtype.itemsize == 2 else torch.int32
    ones = torch.full((1032,), -1, dtype=integer).view(dtype)

    def main():
        for algorithm in ("ll", "two_shot_ll"):
            got = kernels.all_reduce(ones.clone(), algorithm=algorithm)
            assert got.isnan().all(), algorithm
            x = values.repeat(129) if ditron.rank() == 0 else torch.zeros(1032, dtype=dtype)
            got = kernels.all_reduce(x, algorithm=algorithm)
            assert torch.equal(got.nan_to_num(nan=7.0), values.repeat(129).nan_to_num(nan=7.0)), algorithm

    run(main, ranks=2)


@pytest.mark.parametrize(
    "ranks, M, schedule",
    [
        (4, 100, {"block": 256}),  # of the all-reduce
        (4, 100, {"stages": 3}),
        (3, 40, {"block": (32, 32)}),
        (3, 40, {"protocol": "ll"}),
        (2, 20, {"block": 256}),
    ],
)
def test_a_schedule_without_an_algorithm(ranks, M, schedule):
    """It is of the fused kernel, or of the all-reduce behind the product."""
    a, b = data(ranks, M, 32, seed=1).bfloat16(), data(ranks, 64, 32, seed=2).bfloat16()

    def main():
        rank = ditron.rank()
        got = kernels.gemm_ar(a[rank].clone(), b[rank].clone(), **schedule)
        exact = torch.einsum("rmk,rnk->mn", a.double(), b.double())
        assert (got.double() - exact).abs().max() < 0.05 * exact.abs().max()

    run(main, ranks=ranks)


def test_what_is_overlapped_has_no_schedule():
    a, b = data(4, 32, seed=1).bfloat16(), data(64, 32, seed=2).bfloat16()
    with pytest.raises(
        DitronError, match="algorithm='overlapped' has no schedule: leave block= out, or name 'sequential'"
    ):
        run(lambda: kernels.gemm_ar(a, b, algorithm="overlapped", block=256), ranks=2)


def test_one_row_takes_no_schedule_of_a_table(monkeypatch):
    """A table's is of 2 to 8 rows, by another kernel."""
    module = importlib.import_module("ditron.kernels.gemm_ar")  # the package's attribute is the function
    entry = "fused", {"block": (64, 128), "stages": 6, "protocol": "ll"}
    monkeypatch.setattr(module, "tuned", lambda *_: entry)
    a, b = data(3, 1, 48, seed=1).bfloat16(), data(3, 40, 48, seed=2).bfloat16()

    def main():
        rank = ditron.rank()
        got = kernels.gemm_ar(a[rank].clone(), b[rank].clone())
        exact = torch.einsum("rmk,rnk->mn", a.double(), b.double())
        assert (got.double() - exact).abs().max() < 0.05 * exact.abs().max()

    run(main, ranks=3)


@pytest.mark.parametrize(
    "program",
    [
        ll_program,
        two_shot_ll_program,
        ll_gather_program,
        ll_scatter_program,
        ll_all_to_all_program,
        ll_rms_norm_program,
        two_shot_ll_rms_norm_program,
        gemm_ar_small_program,
        gemm_ar_row_program,
    ],
    ids=lambda program: program.fn.__name__,
)
def test_the_checker_follows_words_to_the_end(program):
    """Those that two elements share, and those that are made of words that came: nothing is left to data."""
    report = check_program(program, [(1, None), (2, None), (3, None)])
    assert not report.findings and report.is_complete, str(report)
