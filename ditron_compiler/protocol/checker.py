"""Run scenarios on the abstract machine and report what is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterable
from math import prod

from ditron_compiler.ir.dialects import ditron, tt
from ditron_compiler.protocol.budget import BudgetExceeded
from ditron_compiler.protocol.explain import findings, unordered_stores
from ditron_compiler.protocol.finding import CheckReport, Finding
from ditron_compiler.protocol.hangs import graph_notes, hangs, starvation
from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.scenario import HostLaunch, HostSignalWait, Scenario
from ditron_compiler.protocol.sites import Site
from ditron_compiler.protocol.streams import execute

__all__ = ["check_scenario", "check_scenarios"]


def check_scenario(scenario: Scenario, one_sm: bool = True) -> tuple[list[Finding], list[str]]:
    """Findings and notes of a scenario. ``one_sm``: also look for programs that spin while producers have no SM."""
    found, machine, advice = _check(scenario, one_sm)
    return found, [*machine.notes, *advice]


def _check(scenario: Scenario, one_sm: bool = True) -> tuple[list[Finding], Machine, list[str]]:
    """Findings, the machine after its first run, and advice."""
    machine = execute(scenario)
    found = {finding.key: finding for finding in findings(machine)}
    if not machine.complete:  # other runs would not end either
        return list(found.values()), machine, list(machine.given_up)
    for order_seed in range(1, 1 + _ORDERS if _has_atomics(scenario) else 1):
        if not found:
            found = {finding.key: finding for finding in findings(execute(scenario, order_seed=order_seed))}
    if not found and machine.lets_others_run:
        found = {finding.key: finding for finding in findings(execute(scenario, impatient=True))}
    if not found and machine.unfenced_stores:
        found = {finding.key: finding for finding in unordered_stores(execute(scenario, put_orders=False))}
    if not found and not machine.stuck and _has_captured_waits(scenario) and _exceeds_residency(scenario):
        found = {finding.key: finding for finding in hangs(execute(scenario, graphs=True))}
    advice = list(machine.given_up)
    if one_sm and not machine.stuck and not machine.doubts:
        alone = execute(scenario, places=1)
        crowded = execute(scenario, places=scenario.resident) if alone.queued and scenario.resident > 1 else alone
        more, said = starvation(alone, crowded)
        advice += said
        found |= {finding.key: finding for finding in more}
        if not alone.stuck and _has_captured_waits(scenario):
            advice += graph_notes(execute(scenario, places=1, graphs=True))
    return list(found.values()), machine, advice


def _has_captured_waits(scenario: Scenario) -> bool:
    """Whether streams wait by kernels in a CUDA graph."""
    return any(isinstance(step, HostSignalWait) and step.captured_kernel for steps in scenario.steps for step in steps)


def _exceeds_residency(scenario: Scenario) -> bool:
    """Whether a launch has more programs than run at a time."""
    return any(
        isinstance(step, HostLaunch) and prod(step.grid) > scenario.resident
        for steps in scenario.steps
        for step in steps
    )


def _has_atomics(scenario: Scenario) -> bool:
    """Whether some kernel orders things by atomics of its own, whose order is that of one run."""
    kernels = {
        id(step.kernel): step.kernel for steps in scenario.steps for step in steps if isinstance(step, HostLaunch)
    }
    return any(_is_atomic(site) for kernel in kernels.values() for site in kernel.sites)


def _is_atomic(site: Site) -> bool:
    """An atomic, or a read of a signal that does not wait for it."""
    if site.isa(ditron.SignalReadOpInterface):
        return not site.isa(ditron.SignalWaitOpInterface)
    return site.isa(ditron.AtomicOpInterface, tt.AtomicRMWOp, tt.AtomicCASOp)


_ORDERS = 6


def check_scenarios(subject: str, scenarios: Iterable[Scenario]) -> CheckReport:
    """Check one subject in several groups, each with one sample of its data or more."""
    report, start, title = CheckReport(subject), time.perf_counter(), ""
    try:
        for scenario in scenarios:
            title = scenario.title
            found, machine, advice = _check(scenario)
            report.add(found, list(machine.notes), advice)
            report.unknown = list(dict.fromkeys([*report.unknown, *machine.unknown_sources]))
            report.floats = list(dict.fromkeys([*report.floats, *machine.float_sources]))
            titles = report.checked if machine.complete else report.given_up
            if title not in titles:
                titles.append(title)
            title = ""
    except BudgetExceeded as error:
        if title in report.checked:
            report.checked.remove(title)
        report.given_up.append(f"{error}, {f'at {title}' if title else 'before the next group was captured'}")
    report.seconds = time.perf_counter() - start
    return report
