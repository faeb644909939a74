"""What ranks should gather, of the products of operators."""

from __future__ import annotations

import importlib

import paths
import pytest

from ditron import machines
from ditron.cost_model import placements
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
        (Problem("ag_gemm", "bf16", 8, 1024, 1376, 4096), "gather A: 56 MB, at least 339.4 us by link (gather B, all-to-a"),
        (Problem("gemm_rs", "bf16", 8, 1024, 4096, 1376), "reduce-scatter C: 56 MB, at least 339.4 us by link (all-to-al"),
        (Problem("gemm_ar", "bf16", 8, 1024, 4096, 1376), "all-reduce C: 14 MB, at least 84.9 us by link (gather A, all-to-all B, all-ga"),
        (Problem("ag_gemm", "bf16", 8, 65536, 16, 4096), "gather B, all-to-all C: "),  # many rows, few columns
        (Problem("all_reduce", "bf16", 8, 1024), ""),
        (Problem("ag_gemm", "bf16", 16, 1024, 1376, 4096), ""),  # of more ranks than the machine has
    ],
)  # fmt: skip
def test_what_moves(problem, expected):
    line = what_moves(problem, H800)
    assert line.startswith(expected) and bool(line) == bool(expected)


def test_floors_are_below_what_was_measured(monkeypatch):
    """Of AG+GEMM and GEMM+RS on two H200s, of the fastest placement and of the operator's own: .6 to .99 of the time."""
    monkeypatch.syspath_prepend(paths.ROOT / "benchmark")
    predicted, measuring = importlib.import_module("predicted"), importlib.import_module("measuring")
    machine = machines.load("h200x2")
    rows = [*predicted.measured_on_two(), *predicted.larger_on_two()]
    assert len(rows) >= 60
    for operator, shape, _, ms in rows:
        name, mode = shape.split()
        divided, other = measuring.MLPS[name]
        divided //= 2 if mode == "strong" else 8
        gathers = operator == "AG+GEMM"
        problem = (
            Problem("ag_gemm", "bf16", 2, 4096, divided, other)
            if gathers
            else Problem("gemm_rs", "bf16", 2, 4096, other, divided)
        )
        product, stored = chain_of(problem)
        found = placements(product, machine, 2, stored)
        own = next(one for one in found if one.divided == ("n" if gathers else "k") and one.kept)
        assert own.moves == ({"A": "gather"} if gathers else {"C": "reduce-scatter"})
        assert 0.6 * ms < found[0].us / 1000 <= own.us / 1000 < 0.99 * ms, (operator, shape)
