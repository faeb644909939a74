"""Words: elements of any width, sent from registers beside a flag (ditron/kernels/words.py)."""

import re

import pytest
import torch
import triton.language as tl
from simulated import data, run

import ditron
from ditron import kernels
from ditron.kernels.all_gather import ll_gather_program
from ditron.kernels.all_reduce import ll_program
from ditron.kernels.all_reduce_rms_norm import ll_rms_norm_program
from ditron.kernels.all_to_all import ll_all_to_all_program
from ditron.kernels.gemm_ar_small import gemm_ar_row_program, gemm_ar_small_program
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
