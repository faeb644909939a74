"""Floors of problems on machines that are measured, and what is made of them."""

import argparse
import sys

import paths
import pytest

from ditron.cli.shapes import bucket, problems
from ditron.tuning.floors import calls_in_a_graph
from ditron.tuning.problem import DTYPES, Problem


@pytest.fixture(scope="module")
def tune_shapes():
    """``benchmark/tune_shapes.py``, which imports from beside it."""
    sys.path.insert(0, str(paths.ROOT / "benchmark"))
    try:
        import tune_shapes
    finally:
        sys.path.pop(0)
    return tune_shapes


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_calls_in_a_graph_of_every_shape_that_is_shipped(tune_shapes, tmp_path, ranks):
    """Whatever the number of ranks is, and whichever machines have files."""
    (tmp_path / "shapes.txt").write_text("\n".join(tune_shapes.shapes(ranks)))
    args = argparse.Namespace(shapes=str(tmp_path / "shapes.txt"), operator=None, dtype="bf16", form="strong")
    found = {bucket(problem): calls_in_a_graph(bucket(problem)) for problem in problems(args, ranks)}
    assert {problem.operator for problem in found} >= {"ag_gemm", "gemm_rs", "gemm_ar", "all_reduce", "ep_moe"}
    assert set(found.values()) == {20, 10, 2}


@pytest.mark.parametrize("ranks", [1, 3, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_calls_in_a_graph_of_every_dtype(dtype, ranks):
    """Few rows take little time, and many calls; 16 ranks are on two nodes of what floors are of."""
    few, many = (Problem("ag_gemm", dtype, ranks, rows, 4096, 4096) for rows in (8, 1 << 16))
    assert (calls_in_a_graph(few), calls_in_a_graph(many)) == (20, 2)
