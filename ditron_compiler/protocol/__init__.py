"""The protocol checker: what can go wrong between ranks, found without running anything. See docs/checker.md."""

from __future__ import annotations

from ditron_compiler.protocol.checker import check_scenario, check_scenarios
from ditron_compiler.protocol.finding import KINDS, CheckReport, Finding
from ditron_compiler.protocol.scenario import Scenario
from ditron_compiler.protocol.translate import Kernel, translate

__all__ = ["KINDS", "Finding", "Kernel", "CheckReport", "Scenario", "check_scenario", "check_scenarios", "translate"]
