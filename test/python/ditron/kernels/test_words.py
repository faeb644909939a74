"""Words: elements of any width, sent from registers beside a flag (ditron/kernels/words.py)."""

import importlib
import re
from types import SimpleNamespace

import pytest
import torch
import triton.language as tl
from simulated import data, run

import ditron
from ditron import kernels
from ditron.kernels.ag_gemm_small import split_k_schedule
from ditron.kernels.all_gather import ll_gather_program
from ditron.kernels.all_reduce import ll_program
from ditron.kernels.all_reduce_rms_norm import ll_rms_norm_program
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
    words = load_words(x_ptr, word, n)
    tl.store(words_ptr + word, words)
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    tl.store(out_ptr + places_of(word, dtype), elements_of(words, dtype))


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("missing", [0, 1, 3])
def test_words_are_memory_as_it_is(dtype, missing):
    """All bits, of negative elements too; behind the last one are zeros."""
    per_word = 4 // dtype.itemsize
    x = torch.randint(-128, 128, (WORDS * 4,), generator=torch.Generator().manual_seed(1), dtype=torch.int8).view(dtype)
    if dtype.is_floating_point:
        x = torch.where(x.isfinite(), x, -x.new_ones(()))
    whole, n = x.clone(), WORDS * per_word - missing
    whole[n:] = 0

    def main():
        ditron.init()
        words, out = torch.empty(WORDS, dtype=torch.int32), torch.empty_like(x)
        there_and_back[(1,)](x, words, out, n, WORDS=WORDS)
        assert torch.equal(words, whole.view(torch.int32))
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


def gpu_group(ranks, has_nvlink=True):
    return SimpleNamespace(
        num_ranks=ranks, has_nvlink=has_nvlink, small_shapes=False, is_sim=False, sms=132, rank=0, has_tma=True
    )


def test_few_rows_without_nvlink_are_words():
    """Packets of 128 bytes would arrive in pieces."""
    a = torch.empty(16, 8192, dtype=torch.bfloat16)
    found = split_k_schedule(gpu_group(2, has_nvlink=False), 32, 3584, a, {})
    assert (found["protocol"], found["gather_block"]) == ("ll", 256)
    found = split_k_schedule(gpu_group(2), 32, 3584, a, {})
    assert (found["protocol"], found["gather_block"]) == ("ll128", 960)
    found = split_k_schedule(gpu_group(2), 32, 3584, a, {"protocol": "ll"})
    assert (found["protocol"], found["gather_block"]) == ("ll", 256)


@pytest.mark.parametrize(
    "ranks, M, N, given, expected",
    [
        (4, 16, 8192, {}, ("ll", (64, 256))),
        (4, 32, 5120, {}, ("ll", (64, 256))),
        (4, 32, 8192, {}, ("ll128", (64, 128))),
        (8, 64, 1024, {}, ("ll128", (64, 128))),  # whose words would not fit registers
        (4, 32, 1024, {"rows": 64}, ("ll", (64, 128))),  # four stages of 256 columns would not fit shared memory
    ],
)
def test_schedules_of_few_rows_and_their_sum(ranks, M, N, given, expected):
    _, chosen = fused_schedule(M, N, False, gpu_group(ranks), given)
    assert (chosen["protocol"], chosen["block"]) == expected


@pytest.mark.parametrize("ranks, given", [(2, {"block": (16, 256), "num_warps": 16}), (1, {"num_warps": 8})])
def test_tiles_with_fewer_words_than_threads_poll(ranks, given):
    with pytest.raises(DitronError, match="is too small for .* threads, each of which polls four words or more"):
        fused_schedule(16, 8192, False, gpu_group(ranks), given)


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
        ll_gather_program,
        ll_scatter_program,
        ll_all_to_all_program,
        ll_rms_norm_program,
        gemm_ar_small_program,
        gemm_ar_row_program,
    ],
    ids=lambda program: program.fn.__name__,
)
def test_the_checker_follows_words_to_the_end(program):
    """Those that two elements share, and those that are made of words that came: nothing is left to data."""
    report = check_program(program)
    assert not report.findings and report.is_complete, str(report)
