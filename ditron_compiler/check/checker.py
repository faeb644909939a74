"""Check scenarios: run each on the abstract machine, and say what is wrong."""
from __future__ import annotations

import time
from collections.abc import Iterable

from ditron_compiler.check.explain import findings
from ditron_compiler.check.finding import Finding, Report
from ditron_compiler.check.hangs import starvation
from ditron_compiler.check.machine import Machine
from ditron_compiler.check.scenario import Scenario

__all__ = ["check_scenario", "check_scenarios"]


def check_scenario(scenario: Scenario, tight: bool = True) -> tuple[list[Finding], list[str]]:
    """What is wrong with a scenario, and notes. ``tight``: also look for programs that keep their producers off the GPU."""
    machine = Machine(scenario).run()
    found = list({finding.key: finding for finding in findings(machine)}.values())
    notes = list(machine.notes)
    if tight and not machine.stuck:
        more, advice = starvation(Machine(scenario, tight=True).run())
        found += more
        notes += advice
    return found, notes


def check_scenarios(subject: str, scenarios: Iterable[Scenario]) -> Report:
    """Check one subject in several groups."""
    report, start = Report(subject), time.perf_counter()
    for scenario in scenarios:
        found, notes = check_scenario(scenario)
        report.add(found, notes)
        report.checked.append(scenario.title)
    report.seconds = time.perf_counter() - start
    return report
