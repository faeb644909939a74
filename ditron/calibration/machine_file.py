"""The file of a machine that was calibrated: every number with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from ditron.machines import FIELDS, Number

if TYPE_CHECKING:
    from ditron.calibration.probes import Probe
    from ditron.machines import Machine

__all__ = ["numbers_of", "text_of"]

_NO_PROBE = "no probe measures it"


def numbers_of(
    base: Machine,
    machine: Machine,
    measured: Mapping[Probe, float],
    left_out: Mapping[str, str],
    unexplained: Mapping[str, str],
    measured_by: str,
) -> dict[str, Number]:
    """The base's numbers with those of ``machine`` that a probe was ``measured`` for.

    ``left_out`` says by number why another one was not; ``unexplained`` where the value only comes closest.
    """
    sources = {"sm.count": f"measured: {measured_by}"}
    for probe, us in measured.items():
        why = unexplained.get(probe.number)
        sources[probe.number] = f"measured: {measured_by}: {probe.what}, {us:.1f} us" + (f"; {why}" if why else "")
    numbers = {}
    for name in FIELDS:
        if name in base.numbers:
            kept = f"assumed: as of {base.name} ({left_out.get(name) or _NO_PROBE}); {base.numbers[name].source}"
            numbers[name] = Number(_rounded(name, machine[name]), sources.get(name, kept), "")
    return numbers


def text_of(title: str, ranks: int, comment: str, base: Machine, numbers: Mapping[str, Number]) -> str:
    """A machine's file; ``numbers`` by ``section.name`` in the order of ``FIELDS``.

    It has all that machines have today. Of a later version's machines the base says what is missing.
    """
    name = str(Path(base.file).resolve()) if base.file.endswith(".toml") else base.file
    lines = [f"# {comment}", f"base = {_quoted(name)}", f"title = {_quoted(title)}", f"ranks = {ranks}"]
    lines += ['uncalibrated = ""'] if base.uncalibrated else []
    for section, names in groupby(numbers, lambda name: name.partition(".")[0]):
        lines += ["", f"[{section}]"]
        for name in names:
            unit = f", unit = {_quoted(FIELDS[name].unit)}" if FIELDS[name].unit else ""
            value, source = numbers[name].value, _quoted(numbers[name].source)
            lines.append(f"{name.partition('.')[2]} = {{value = {value:.10g}{unit}, source = {source}}}")
    return "\n".join(lines) + "\n"


def _rounded(name: str, value: float) -> float:
    """To the four digits that are written."""
    return round(value) if FIELDS[name].is_whole else float(f"{value:.4g}")


def _quoted(text: str) -> str:
    return json.dumps(text)  # a string of JSON is one of TOML
