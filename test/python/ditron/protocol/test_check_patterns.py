"""The checker on protocols written by hand: no false alarm, and one mistake at a time by its kind and lines."""

from __future__ import annotations

import pytest
from check_patterns import PATTERNS

import ditron
from ditron.protocol.api import check_function

GROUPS = ((2, None), (3, None), (4, None))
MISTAKES = [(name, mistake) for name, pattern in PATTERNS.items() for mistake in pattern.mistakes]
SEEN_BY_NO_SEED = {("master_barrier", "token")}  # the simulator's programs do nothing ahead of time


@pytest.mark.parametrize("name", PATTERNS)
def test_right_one_is_clean(name):
    report = check_function(lambda: PATTERNS[name].run(""), GROUPS)
    assert not report.findings and not report.notes, str(report)
    for seed in range(4):
        ditron.sim.run(PATTERNS[name].run, 3, seed=seed, args=("",))


@pytest.mark.parametrize(("name", "mistake"), MISTAKES)
def test_mistake_is_found_at_its_lines(name, mistake):
    pattern = PATTERNS[name]
    report = check_function(lambda: pattern.run(mistake), [(3, None)])
    finding = report.findings[0]
    assert finding.kind == pattern.mistakes[mistake], str(report)
    lines = {int(loc.split(":")[1]) for loc in (finding.loc, *(loc for _, loc in finding.others))}
    assert pattern.lines(mistake) and pattern.lines(mistake) == lines, str(report)


@pytest.mark.parametrize(("name", "mistake"), [case for case in MISTAKES if case not in SEEN_BY_NO_SEED])
def test_the_simulator_agrees(name, mistake):
    with pytest.raises((ditron.SimulationError, AssertionError)):
        for seed in range(60):
            ditron.sim.run(PATTERNS[name].run, 3, seed=seed, args=(mistake,))
