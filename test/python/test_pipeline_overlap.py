"""The pipeline `overlap` changes nothing about what the examples' programs compute."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

import ditron
from ditron_compiler import pipeline

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import ag_gemm  # noqa: E402
import ag_gemm_ring  # noqa: E402
import gemm_rs  # noqa: E402
import gemm_rs_chunks  # noqa: E402

TILE = dict(block=(16, 16, 16))
EXAMPLES = {
    "ag_gemm": (ag_gemm.ag_gemm, 8e-3, lambda: ag_gemm.check(19, 21, 25, calls=3, **TILE)),
    "ag_gemm_ring": (ag_gemm_ring.ag_gemm_ring, 8e-3,
                     lambda: ag_gemm.check(32, 32, 32, calls=3, multiply=ag_gemm_ring.ring_gemm, **TILE)),
    "gemm_rs_chunks": (gemm_rs_chunks.gemm_rs, 1.5e-2, lambda: gemm_rs.check(
        19, 21, 25, calls=3, make=gemm_rs_chunks.GemmReduceScatterChunks, **TILE)),
}


def run_rank(check):
    ditron.init()
    return check()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_right(name, monkeypatch):
    program, bound, check = EXAMPLES[name]
    monkeypatch.setattr(program, "passes", pipeline.OVERLAP)
    monkeypatch.setattr(program, "_executables", {})
    for seed in range(3):
        errors = ditron.sim.run(run_rank, ranks=4, seed=seed, args=(check,))
        assert max(errors) <= bound, f"seed {seed}: errors per rank {errors}"
