"""What ranks should gather, of the products of operators."""

from __future__ import annotations

import pytest

from ditron import machines
from ditron.tuning.moves import chain_of, what_moves
from ditron.tuning.problem import Problem

H800 = machines.load("h800x8")


def test_chains_are_of_all_ranks():
    product, stored = chain_of(Problem("ag_gemm", "bf16", 8, 1024, 1376, 4096))
    assert product.extents == {"m": 8192, "k": 4096, "n": 11008} and stored == {"A": "m", "B": "n", "C": "n"}
    product, stored = chain_of(Problem("gemm_rs", "fp8", 8, 1024, 4096, 1376))
    assert product.extents == {"m": 8192, "k": 11008, "n": 4096} and stored == {"A": "k", "B": "k", "C": "m"}
    assert product.itemsize == {"A": 1, "B": 1, "C": 2}
    assert chain_of(Problem("gemm_ar", "bf16", 8, 1024, 4096, 1376))[1]["C"] is None


@pytest.mark.parametrize(
    "problem, expected",
    [
        (Problem("ag_gemm", "bf16", 8, 1024, 1376, 4096), "gather A: 56 MB, at least 355.9 us by link (gather B, all-to-a"),
        (Problem("gemm_rs", "bf16", 8, 1024, 4096, 1376), "reduce-scatter C: 56 MB, at least 355.9 us by link (all-to-al"),
        (Problem("gemm_ar", "bf16", 8, 1024, 4096, 1376), "all-reduce C: 14 MB, at least 89.0 us by link (gather A, all-to-all B, all-ga"),
        (Problem("ag_gemm", "bf16", 8, 65536, 16, 4096), "gather B, all-to-all C: "),  # many rows, few columns
        (Problem("all_reduce", "bf16", 8, 1024), ""),
        (Problem("ag_gemm", "bf16", 16, 1024, 1376, 4096), ""),  # of more ranks than the machine has
    ],
)  # fmt: skip
def test_what_moves(problem, expected):
    line = what_moves(problem, H800)
    assert line.startswith(expected) and bool(line) == bool(expected)
