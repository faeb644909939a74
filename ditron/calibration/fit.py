"""Numbers of a machine from measurements, without a GPU: those with which the clock predicts what was measured.

Each number is found of its own probe, given all others; as most probes take time of several numbers, it is done again
until none changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ditron.machines import FIELDS, Number

if TYPE_CHECKING:
    from ditron.calibration.probes import Probe
    from ditron.machines import Machine

__all__ = ["Fit", "fit"]

_EXACT = 1e-3  # of what a probe takes: as close is equal
_SETTLED = 2e-3  # of a number, from one pass over the probes to the next
_PASSES = 6
_DOUBLINGS = 7  # of a number, in the search for a value that is too fast and one that is too slow
_HALVINGS = 20  # of what is between these two


@dataclass(frozen=True)
class Fit:
    """A machine with the numbers that were found.

    Attributes:
        unexplained: by number, why what was measured does not say which value it has; it is one that comes closest.
        passes: over all probes.
    """

    machine: Machine
    unexplained: Mapping[str, str]
    passes: int


def fit(
    base: Machine,
    probes: Sequence[Probe],
    measured: Mapping[Probe, float],
    predict: Callable[[Probe, Machine], float],
    say: Callable[[str], None] = lambda text: None,
) -> Fit:
    """The numbers of ``probes``, whose measured us are given, with which ``predict`` gives those."""
    machine, unexplained = base, {}
    for passes in range(1, _PASSES + 1):
        before, unexplained = machine, {}
        for probe in probes:
            say(f"fit, pass {passes}: {probe}")
            machine, why = _found(machine, probe, measured[probe], predict)
            if why:
                unexplained[probe.number] = why
        moved = {p.number: abs(machine[p.number] - before[p.number]) / (before[p.number] or 1.0) for p in probes}
        if max(moved.values(), default=0.0) < _SETTLED:
            break
    for probe in probes:
        if moved[probe.number] >= _SETTLED:
            unexplained[probe.number] = f"it did not settle: pass {passes} changed it by {moved[probe.number]:.1%}"
        elif probe.number not in unexplained and _is_any(machine, probe, predict):
            unexplained[probe.number] = "the probe takes as long with a tenth more of it, or less"
    return Fit(machine, unexplained, passes)


def _found(
    machine: Machine, probe: Probe, measured: float, predict: Callable[[Probe, Machine], float]
) -> tuple[Machine, str]:
    """The machine with the value that explains what was measured, or comes closest to it, and then why it does not."""
    name = probe.number
    tried: dict[float, float] = {}  # us by slowness: they grow together

    def us(slowness: float) -> float:
        if slowness not in tried:
            tried[slowness] = predict(probe, _with(machine, name, slowness))
        return tried[slowness]

    def is_equal(predicted: float) -> bool:
        return abs(predicted - target) <= _EXACT * target

    now, target, why = _slowness(machine, name), measured, ""
    if is_equal(us(now)):
        return machine, ""
    grows, end = us(now) < target, now
    for _ in range(_DOUBLINGS):
        end = _doubled(name, end, grows)
        if (us(end) < target) != grows or is_equal(us(end)):
            break
    else:
        if is_same := abs(us(end) - us(now)) <= _EXACT * measured:
            end = now
        least_or_most = "at most" if grows else "at least"
        why = f"the probe takes {measured:.1f} us, and {least_or_most} {us(end):.1f} are predicted whatever it is"
        if is_same:
            return machine, why
        target = us(end) * (1 - 2 * _EXACT if grows else 1 + 2 * _EXACT)  # where it begins to have no effect
    low, high = (now, end) if grows else (end, now)
    for step in range(_HALVINGS):
        if any(is_equal(predicted) for predicted in tried.values()) or high - low <= _EXACT * high:
            break
        share = (target - us(low)) / (us(high) - us(low)) if step % 2 == 0 and us(high) > us(low) else 0.5
        middle = low + min(max(share, 0.0), 1.0) * (high - low)
        low, high = (middle, high) if us(middle) < target else (low, middle)
    return _with(machine, name, min(tried, key=lambda slowness: abs(tried[slowness] - target))), why


def _is_any(machine: Machine, probe: Probe, predict: Callable[[Probe, Machine], float]) -> bool:
    """Whether what a probe takes does not depend on its number."""
    slowness = _slowness(machine, probe.number)
    fast, slow = (predict(probe, _with(machine, probe.number, factor * slowness)) for factor in (0.9, 1.1))
    return slowness > 0 and slow - fast <= _EXACT * slow


def _is_rate(name: str) -> bool:
    """Whether more of it takes less time."""
    return FIELDS[name].unit != "us" or name == "sm.burst"


def _slowness(machine: Machine, name: str) -> float:
    """A number so that what depends on it takes a time that grows with it, for the most part linearly."""
    return 1 / machine[name] if _is_rate(name) else machine[name]


def _doubled(name: str, slowness: float, grows: bool) -> float:
    """Twice as slow, or as fast, as far as that is possible."""
    field = FIELDS[name]
    if _is_rate(name):
        return 1 / min(max(1 / slowness * (0.5 if grows else 2.0), field.least, 1e-3), field.most)
    return min(max(2 * slowness, 0.1), field.most) if grows else slowness / 2 if slowness > 0.01 else field.least


def _with(machine: Machine, name: str, slowness: float) -> Machine:
    """The machine with another value of a number."""
    number = Number(1 / slowness if _is_rate(name) else slowness, "", "")
    return replace(machine, numbers=dict(machine.numbers) | {name: number})
