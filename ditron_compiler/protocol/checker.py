"""Check scenarios: run each on the abstract machine, and say what is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ditron_compiler.protocol.explain import findings
from ditron_compiler.protocol.finding import Finding, Report
from ditron_compiler.protocol.hangs import starvation
from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.scenario import Launch, Scenario

__all__ = ["check_scenario", "check_scenarios"]


def check_scenario(scenario: Scenario, tight: bool = True) -> tuple[list[Finding], list[str]]:
    """What is wrong with a scenario, and notes. ``tight``: also look for programs that keep producers off the GPU."""
    found, notes, _ = _look(scenario, tight)
    return found, notes


def _look(scenario: Scenario, tight: bool = True) -> tuple[list[Finding], list[str], bool]:
    """Findings, notes, and whether all was looked at: what has too many operations is given up."""
    machine = Machine(scenario).run()
    found = {finding.key: finding for finding in findings(machine)}
    for turns in range(1, 1 + _ORDERS if _has_atomics(scenario) else 1):
        if not found:
            found = {finding.key: finding for finding in findings(Machine(scenario, turns=turns).run())}
    notes = list(machine.notes)
    if tight and not machine.stuck:
        more, advice = starvation(Machine(scenario, tight=True).run())
        found |= {finding.key: finding for finding in more}
        notes += advice
    return list(found.values()), notes, machine.complete


def _has_atomics(scenario: Scenario) -> bool:
    """Whether some kernel orders things by atomics of its own, which are seen in the order of one run."""
    kernels = {id(step.kernel): step.kernel for steps in scenario.steps for step in steps if isinstance(step, Launch)}
    return any(site.name in _ATOMICS for kernel in kernels.values() for site in kernel.sites)


_ORDERS = 6
_ATOMICS = (
    "ditron.ld",
    "ditron.st",
    "ditron.red",
    "ditron.atomic_add",
    "ditron.atomic_cas",
    "tt.atomic_rmw",
    "tt.atomic_cas",
)


def check_scenarios(subject: str, scenarios: Iterable[Scenario]) -> Report:
    """Check one subject in several groups."""
    report, start = Report(subject), time.perf_counter()
    for scenario in scenarios:
        found, notes, complete = _look(scenario)
        report.add(found, notes)
        (report.checked if complete else report.given_up).append(scenario.title)
    report.seconds = time.perf_counter() - start
    return report
