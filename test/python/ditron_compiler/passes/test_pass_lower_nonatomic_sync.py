"""lower-nonatomic-sync: no read-modify-write is left in the PTX, and the examples compute what they did."""

from __future__ import annotations

import re
import sys

import paths
import pytest
from pass_helpers import run

import ditron
from ditron.cli.kernels import load_kernel

EXAMPLES = paths.EXAMPLES
sys.path.insert(0, str(EXAMPLES))
import gemm_rs  # noqa: E402
import put_signal  # noqa: E402
import ring  # noqa: E402

CHECKS = {
    "ring": lambda: ring.check(301),
    "put_signal": lambda: put_signal.check(1501),
    "gemm_rs": lambda: gemm_rs.check(19, 21, 25, calls=2, block=(16, 16, 16)),
}


def _on_rank(check):
    ditron.init()
    return check()


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("ranks,ranks_per_node", [(3, 3), (4, 2)])
def test_the_same_result(name, ranks, ranks_per_node):
    world = dict(ranks=ranks, ranks_per_node=ranks_per_node)
    assert run("pcie", lambda: _on_rank(CHECKS[name]), **world) == run(
        "as-written", lambda: _on_rank(CHECKS[name]), **world
    )


@pytest.mark.parametrize(
    "name,kernel", [("ring", "ring_kernel"), ("put_signal", "shift_kernel"), ("gemm_rs", "gemm_rs_kernel")]
)
def test_no_read_modify_write_is_left(name, kernel):
    def atomics(pipeline):
        ptx = ditron.compile(
            load_kernel(f"{EXAMPLES / name}.py:{kernel}"), target="cuda:90", pipeline=pipeline, stop_after="ptx"
        ).asm["ptx"]
        return re.findall(r"\b(?:atom|red)\.\S+|\bld\.acquire\S*", ptx)

    assert atomics("default"), "nothing to find: the test would not see a failure"
    assert atomics("pcie") == []


def test_counting_is_an_error_at_its_line():
    with pytest.raises(ditron.CompileError, match="give each writer its own signal") as caught:
        ditron.compile(
            load_kernel(f"{EXAMPLES / 'all_gather'}.py:all_gather_kernel"), target="cuda:90", pipeline="pcie"
        )
    assert "putmem_signal" in (EXAMPLES / "all_gather.py").read_text().splitlines()[caught.value.line - 1]
