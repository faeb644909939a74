"""The native machine's reports as exceptions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ditron_compiler import knobs
from ditron_compiler.errors import DeadlockError, RaceError, SimulationError

if TYPE_CHECKING:
    from ditron._sim import ProgramReport
    from ditron.sim.host_threads import HostThread

__all__ = ["deadlock", "failure", "host_error", "warn"]

_MAX_LINES = 40


def host_error(message: str, line: str, rank: int | None = None, kind: str = "") -> SimulationError:
    """What to raise for a mistake of host code at ``line``."""
    error = SimulationError(f"{line}: {message}")
    error.kind, error.location = kind, line
    if rank is not None:
        error.rank = rank
    return error


def _who(report: ProgramReport) -> str:
    if not report.kernel:
        return f"rank {report.rank}'s {report.stream}" if report.stream else f"the host code of rank {report.rank}"
    on = f" on {report.stream}" if report.stream else ""
    return f"kernel {report.kernel}{on}, rank {report.rank}, program {tuple(report.program)}"


def failure(report: ProgramReport) -> SimulationError:
    """What the program of a report did wrong, as the exception to raise."""
    where = f"{report.location}: " if report.location else ""
    hint = f"\n  {report.hint}" if report.hint else ""
    others = "".join(
        f"\n  {other.what}: {other.location or 'an unknown line'}, in {_who(other)}" for other in report.others
    )
    kind = RaceError if report.kind == "race" else SimulationError
    device = "device-side " if report.what.startswith("assertion failed") else ""  # as CUDA says it
    error = kind(f"{where}{device}{report.what}\n  in {_who(report)}{others}{hint}")
    error.kind = report.kind
    error.others = tuple(other.location for other in report.others)
    error.kernel, error.location = report.kernel, report.location
    error.rank, error.program = report.rank, tuple(report.program)
    return error


def _cause(programs: list[ProgramReport], starved: list[str], hosts: list[HostThread], cycle: str) -> str:
    """The cycle, as far as it is known."""
    if (wait := next((line for line in starved if "in a CUDA graph it is a kernel" in line), None)) is not None:
        return wait
    if cycle:
        return f"a cycle: {cycle}"
    if any("it is a kernel" in line for line in starved):
        return (
            "a copy or a fill within a GPU needs an SM, and the programs there wait: make it before they are "
            "launched, leave an SM free, or read the data where they are"
        )
    if starved:
        return (
            "programs wait for what a program must send that has no place to start: give the producers the lowest "
            "program ids, or launch no more programs than are resident"
        )
    waiting = sorted({report.rank for report in programs})
    spinning = [report for report in programs if report.what.startswith(("waits for", "spins"))]
    if len(waiting) > 1 and spinning and not any(host.done for host in hosts) and len(waiting) == len(hosts):
        ranks = " and ".join((", ".join(map(str, waiting[:-1])), str(waiting[-1])))
        return (
            f"ranks {ranks} wait for each other: no program is left that could send what they wait for; a notify "
            "behind these waits is never reached, or one is missing"
        )
    return "look for the notify (or the collective call) that the first of these waits for"


def warn(report: ProgramReport) -> None:
    """Warn of what a program did, at its line."""
    file, _, line = (report.location or f"{report.kernel}:1:1").rsplit(":", 1)[0].rpartition(":")
    warnings.warn_explicit(f"{report.what}\n  in kernel {report.kernel}\n  {report.hint}", UserWarning, file, int(line))


def deadlock(
    programs: Iterable[ProgramReport], starved: Iterable[str], hosts: Iterable[HostThread], cycle: str = ""
) -> DeadlockError:
    """Who waits for what, when nothing can make progress; ``cycle``: streams that wait for each other, as text."""
    lines = []
    programs, starved, hosts = list(programs), list(starved), list(hosts)
    for report in programs:
        at = f" at {report.location}" if report.location else ""
        known = f"; {report.hint}" if report.hint else ""
        if report.stream and not report.kernel:
            verb, _, rest = report.what.partition(" ")
            lines.append(f"{_who(report)} {verb}{at} {rest}{known}")
        else:
            lines.append(f"{_who(report)}{at}: {report.what}{known}")
    lines.extend(starved)
    for host in hosts:
        if host.done:
            lines.append(f"rank {host.rank}'s host code has ended")
        elif host.blocked_in and not host.blocked_in.startswith("launch"):
            lines.append(f"rank {host.rank}'s host code waits in {host.blocked_in}")
    shown = lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        shown.append(f"... and {len(lines) - _MAX_LINES} more (all in the exception's `waiters`)")
    advice = [_cause(programs, starved, hosts, cycle)]
    if any(report.what.startswith("spins") for report in programs):
        advice.append(f"(a loop that counts and gives up may need a higher limit: {knobs.sim_looks.name})")
    error = DeadlockError("\n  ".join(["deadlock: nothing can go on", *shown, *advice]))
    if programs:
        first = programs[0]
        error.kernel, error.location, error.rank = first.kernel, first.location, first.rank
        error.program = tuple(first.program)
        error.others = tuple(dict.fromkeys(r.location for r in programs if r.location and r.location != first.location))
    error.waiters = tuple(lines)
    return error
