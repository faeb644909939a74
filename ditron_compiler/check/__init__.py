"""The protocol checker: what can go wrong between ranks, found without running anything. See docs/checker.md."""

from __future__ import annotations

from ditron_compiler.check.checker import check_scenario, check_scenarios
from ditron_compiler.check.finding import KINDS, Finding, Report
from ditron_compiler.check.scenario import Scenario
from ditron_compiler.check.translate import Kernel, translate

__all__ = ["KINDS", "Finding", "Kernel", "Report", "Scenario", "check_scenario", "check_scenarios", "translate"]
