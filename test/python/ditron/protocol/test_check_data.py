"""The checker on protocols whose control, addresses or counts are data: no false alarm, and each mistake by its lines."""

from __future__ import annotations

import data_patterns
import exchange_patterns
import pytest
import reset_patterns

import ditron
from ditron.protocol.api import check_function

PATTERNS = data_patterns.PATTERNS | exchange_patterns.PATTERNS | reset_patterns.PATTERNS
GROUPS = ((2, None), (3, None), (4, None))
MISTAKES = [(name, mistake) for name, pattern in PATTERNS.items() for mistake in pattern.mistakes]
SEEN_BY_NO_SEED = {("combine_by_counts", "relaxed")}  # the simulator's stores to peers land at once


@pytest.mark.parametrize("name", PATTERNS)
def test_right_one_is_clean(name):
    report = check_function(lambda: PATTERNS[name].run(""), GROUPS)
    assert not report.findings and report.is_complete, str(report)
    for seed in range(4):
        ditron.sim.run(PATTERNS[name].run, 3, seed=seed, args=("",))


@pytest.mark.parametrize(("name", "mistake"), MISTAKES)
def test_mistake_is_found_at_its_lines(name, mistake):
    pattern = PATTERNS[name]
    report = check_function(lambda: pattern.run(mistake), [(3, None)])
    assert report.findings, str(report)
    finding = report.findings[0]
    assert finding.kind == pattern.mistakes[mistake], str(report)
    lines = {int(loc.split(":")[1]) for loc in (finding.loc, *(loc for _, loc in finding.others))}
    assert pattern.lines(mistake) and pattern.lines(mistake) == lines, (sorted(pattern.lines(mistake)), str(report))


@pytest.mark.parametrize(("name", "mistake"), [case for case in MISTAKES if case not in SEEN_BY_NO_SEED])
def test_the_simulator_agrees(name, mistake):
    with pytest.raises((ditron.SimulationError, AssertionError)):
        for seed in range(60):
            ditron.sim.run(PATTERNS[name].run, 3, seed=seed, args=(mistake,))
