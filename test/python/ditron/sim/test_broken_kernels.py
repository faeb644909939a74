"""The simulator finds every mistake of the catalogue, says which it is, and names the lines.

Compiled as written, that is: by default the compiler mends some of them.
"""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from broken_kernels import CASES

import ditron

SEEDS = 100
# What insert-fences and infer-scope put right.
MENDED = {
    "gpu_scope_on_a_peers_flag",
    "no_fence_between_put_and_signal",
    "sync_all_is_no_quiet",
    "counting_without_quiet",
    "signal_goes_backwards",
    "source_used_again_too_soon",
    "source_used_again_by_the_next_launch",
    "get_used_before_quiet",
    "relaxed_flag",
}


@pytest.fixture(autouse=True)
def as_written(monkeypatch):
    monkeypatch.setenv("DITRON_PIPELINE", "as-written")


def find(case, **world) -> tuple[ditron.SimulationError, int]:
    """The first finding, and its seed."""
    for seed in range(SEEDS):
        try:
            nodes = {"ranks_per_node": case.ranks_per_node} | world
            ditron.sim.run(case.main, ranks=case.ranks, seed=seed, resident=case.resident, **nodes)
        except ditron.SimulationError as error:
            return error, seed
    pytest.fail(f"{case.name}: nothing found in {SEEDS} seeds")


def uses(case, operation: str) -> bool:
    return f"dl.{operation}" in case.kernel.src


# By the NIC, which keeps other orders than memory does.
BETWEEN_NODES = [name for name, case in CASES.items() if uses(case, "putmem") and not uses(case, "symm_at")]


@pytest.mark.parametrize(
    "name,world", [*((name, {}) for name in CASES), *((name, {"ranks_per_node": 1}) for name in BETWEEN_NODES)]
)
def test_mistake_is_found(name, world):
    case = CASES[name]
    error, seed = find(case, **world)
    assert error.kind == case.kind, error
    assert case.says in str(error), error
    assert error.seed == seed
    if case.kind == "deadlock":
        assert any(f"{case.file.name}:{line}" in str(error) for line in case.lines), error
    else:
        lines = case.lines_in(error)
        assert len(lines) == (2 if case.kind == "race" else len(lines)) and lines, error
        assert set(lines) <= case.lines, f"expected lines {sorted(case.lines)}: {error}"


def test_there_are_enough():
    assert len(CASES) >= 30


def test_without_the_search_nothing_is_said():
    """It can be switched off: the race is there, and the run goes on."""
    assert ditron.sim.run(CASES["missing_wait"].main, ranks=2, races=False) == [None, None]


def test_a_race_is_a_race_error_with_both_places():
    with pytest.raises(ditron.RaceError) as caught:
        ditron.sim.run(CASES["missing_wait"].main, ranks=2)
    error = caught.value
    assert "nothing orders" in str(error) and "of rank" in str(error)
    assert error.kernel == "missing_wait" and error.rank in (0, 1) and error.program == (0, 0, 0)
    assert len(error.others) == 1 and error.others[0].startswith(error.location.split(":")[0])


@pytest.mark.parametrize("name", CASES)
def test_what_the_compiler_mends(name, monkeypatch):
    """No schedule shows what it has put right, and it has put right no more than we think."""
    monkeypatch.setenv("DITRON_PIPELINE", "default")
    case = CASES[name]
    if name in MENDED:
        for seed in range(20):
            ditron.sim.run(case.main, ranks=case.ranks, seed=seed, resident=case.resident)
    else:
        find(case)


@triton.jit
def _all_write_one_place(out):
    tl.store(out, tl.program_id(0))


def test_the_search_is_switched_by_a_knob(monkeypatch):
    monkeypatch.setenv("DITRON_SIM_RACES", "0")
    assert ditron.sim.run(CASES["missing_wait"].main, ranks=2) == [None, None]
    with pytest.raises(ditron.RaceError):
        ditron.sim.run(CASES["missing_wait"].main, ranks=2, races=True)
    out = torch.zeros(1, dtype=torch.int32)
    with ditron.sim.triton():
        _all_write_one_place[(4,)](out)
        monkeypatch.setenv("DITRON_SIM_RACES", "1")
        with pytest.raises(ditron.RaceError, match=r"out\[0\] of rank 0"):
            _all_write_one_place[(4,)](out)
        monkeypatch.delenv("DITRON_SIM_RACES")
        _all_write_one_place[(4,)](out)
    monkeypatch.setenv("DITRON_SIM_RACES", "maybe")
    with pytest.raises(ValueError, match="DITRON_SIM_RACES='maybe'"):
        ditron.sim.run(CASES["missing_wait"].main, ranks=2)
