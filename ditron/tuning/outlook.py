"""Schedules of an operator on a machine, with predicted times, what bounds them, and what would change them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ditron.machines import Machine
from ditron.tuning.floors import Floor, floor_of
from ditron.tuning.moves import what_moves
from ditron.tuning.predict_beside import Asked, Predictions
from ditron.tuning.prediction import Predicted, waves_of, without_communication
from ditron.tuning.problem import Options, Problem, options_text
from ditron.tuning.registry import space_of
from ditron.tuning.tables import Entry

__all__ = ["Outlook", "Schedule", "WhatIf", "outlook"]

_FAR_BEHIND = 1.3  # times the fastest: of those nobody asks what is exposed
_MOST_CHANGES = 3
_WORTH = 0.02  # a change of less than this part of the time is none

#: What bounds a call, by the kinds of activity on its critical path.
_RESOURCES = {
    "compute": "tensor cores", "arithmetic": "arithmetic", "library": "library", "memory": "memory", "load": "link",
    "store": "link", "copy": "link", "copy setup": "copy engine",
}  # fmt: skip

#: Numbers that are asked what if they were twice as good, by what they are called; of times: half as long.
_CHANGES = {
    "tensor cores": ("sm.dot16", "sm.dot16_sustained", "sm.dot8", "sm.dot32", "sm.shared"),
    "arithmetic": ("sm.vector", "sm.special"),
    "memory": ("hbm.rate", "hbm.per_sm", "l2.size"),
    "link": ("link.rate", "link.pair"),
    "loads and stores of an SM": ("link.store_per_sm", "link.load_per_sm"),
    "copy engine": ("copy_engine.setup", "copy_engine.least"),
    "NIC": ("nic.rate", "nic.latency", "nic.post"),
    "latency": ("latency.launch", "latency.peer", "latency.local", "latency.load", "latency.fence", "latency.barrier"),
}


@dataclass(frozen=True)
class Schedule:
    """A candidate.

    Attributes:
        us: predicted; None: ``why`` says why not. raises: that is what a call with this schedule raises.
        is_floor: less is predicted, and ``us`` is the problem's floor.
        measured: us. exposed: what is predicted less where communication takes no time. waves: of tiles, or of
            programs. bound, share: the resource that most of the critical path is of, and how much of it.
    """

    options: Options
    us: float | None
    why: str = ""
    measured: float | None = None
    exposed: float | None = None
    waves: float | None = None
    bound: str = ""
    share: float = 0.0
    is_floor: bool = False
    raises: bool = False


@dataclass(frozen=True)
class WhatIf:
    """What the fastest schedule would take with a resource that is twice as good, or with another value of its own."""

    what: str
    us: float
    is_schedule: bool = False


@dataclass(frozen=True)
class Outlook:
    """Schedules, the least time first, and what the fastest would take on better machines, the best first.

    ``moves``: what ranks should gather or reduce, by volumes.
    """

    machine: str
    state: str
    uncalibrated: str
    floor: float
    schedules: Sequence[Schedule]
    changes: Sequence[WhatIf] = field(default_factory=tuple)
    measured_for: str = ""  # what the measured times are of, if that is another problem
    moves: str = ""

    def find(self, options: Options) -> Schedule | None:
        return next((schedule for schedule in self.schedules if schedule.options == options), None)

    def lines(self) -> list[str]:
        """For people."""
        has_measured = any(schedule.measured is not None for schedule in self.schedules)
        note = f"; uncalibrated: {self.uncalibrated}" if self.uncalibrated else ""
        heads = [f"{'us':>10}", "/floor", f"{'measured':>9}" if has_measured else "", f"{'exposed':>8}", "waves"]
        lines = [f"  predicted for {self.machine}, {self.state}{note}"]
        if self.measured_for:
            lines.append(f"  measured for {self.measured_for}")
        reasons = {schedule.why for schedule in self.schedules if schedule.us is None}
        if len(reasons) == 1 and all(schedule.us is None for schedule in self.schedules):
            return [*lines, f"  no schedule can be: {reasons.pop()}"]
        lines.append(f"  {' '.join(head for head in heads if head)}  {'bounded by':<18} schedule")
        lines += [f"  {self._line(schedule, has_measured)}" for schedule in self.schedules]
        if self.changes:
            lines.append(f"  next    {self._next()}")
        if self.moves:
            lines.append(f"  moves   {self.moves}")
        return lines

    def _line(self, schedule: Schedule, has_measured: bool) -> str:
        measured = f" {_number(schedule.measured, 9)}" if has_measured else ""
        if schedule.us is None:
            return f"{'-':>10}       {measured}{'':15}  {'':18} {options_text(schedule.options)}: {schedule.why}"
        over = f"{schedule.us / self.floor:6.2f}" if self.floor >= 0.05 else " " * 6
        bound = schedule.bound if schedule.is_floor else f"{schedule.bound} {100 * schedule.share:.0f} %"
        rest = f"{_number(schedule.exposed, 8)} {_number(schedule.waves, 5)}  {bound:<18}"
        us = f">= {schedule.us:.1f}" if schedule.is_floor else f"{schedule.us:.1f}"
        return f"{us:>10} {over}{measured} {rest} {options_text(schedule.options)}"

    def _next(self) -> str:
        best = next(schedule for schedule in self.schedules if schedule.us is not None)
        assert best.us is not None
        said = []
        for change in self.changes:
            if change.us < (1 - _WORTH) * best.us:
                what = change.what if change.is_schedule else f"{change.what} twice as good"
                said.append(f"{what}: {change.us:.1f} us ({100 * (change.us / best.us - 1):+.0f} %)")
        if not said:
            return f"no resource that is twice as good makes it {100 * _WORTH:.0f} % faster: fewer launches and signals"
        return "; ".join(said[:_MOST_CHANGES])


def _number(value: float | None, width: int) -> str:
    return f"{'' if value is None else format(value, '.1f'):>{width}}"


def outlook(
    problem: Problem,
    candidates: Iterable[Options],
    machine: Machine,
    state: str,
    measured: Entry | None = None,
    show: Callable[[str], None] = lambda text: None,
) -> Outlook:
    """Predict the candidates of a problem on a machine, whose ``state`` is a word for people."""
    predict, floor = Predictions(problem, show), floor_of(problem, machine)
    listed, times = list(candidates), measured.candidates if measured is not None else []
    predicted = predict(
        [Asked(machine, options, f"schedule {n} of {len(listed)}") for n, options in enumerate(listed, 1)]
    )
    found = list(zip(listed, predicted, strict=True))
    found.sort(key=lambda item: (item[1].us is None, max(item[1].us or 0.0, floor.us), item[1].us))
    least = next((max(one.us, floor.us) for _, one in found if one.us), 0.0)
    ideal = without_communication(machine)
    near = [n for n, (_, one) in enumerate(found) if one.us is not None and floor.us <= one.us <= _FAR_BEHIND * least]
    hidden = [Asked(ideal, found[n][0], f"communication of schedule {n + 1} of {len(found)}") for n in near]
    best = next((options for options, one in found if one.us is not None), None)
    changes = _changes(problem, best, machine) if best is not None else []
    answers = predict([*hidden, *(asked for _, asked in changes)])
    without = dict(zip(near, answers[: len(near)], strict=True))
    schedules = []
    for number, (options, one) in enumerate(found):
        exposed = None
        if number in without and one.us is not None and (least_us := without[number].us) is not None:
            exposed = max(0.0, one.us - least_us)
        us = next((each.us for each in times if each.options == options), None)
        schedules.append(_schedule(problem, options, one, machine, floor, us, exposed))
    what_if = [
        WhatIf(what, max(one.us, floor_of(problem, asked.machine).us), is_schedule=asked.machine is machine)
        for (what, asked), one in zip(changes, answers[len(near) :], strict=True)
        if one.us is not None
    ]
    return Outlook(
        str(replace(machine, changed=(), uncalibrated="")),
        state,
        machine.uncalibrated,
        floor.us,
        schedules,
        sorted(what_if, key=lambda change: change.us),
        moves=what_moves(problem, machine),
        measured_for=str(measured.problem) if measured is not None and measured.problem != problem else "",
    )


def _schedule(
    problem: Problem,
    options: Options,
    predicted: Predicted,
    machine: Machine,
    floor: Floor,
    measured: float | None,
    exposed: float | None,
) -> Schedule:
    if predicted.us is None:
        return Schedule(options, None, predicted.why, measured=measured, raises=predicted.raises)
    waves = waves_of(problem, options, predicted, machine)
    if predicted.us < floor.us:
        return Schedule(options, floor.us, "", measured, exposed, waves, floor.bound, is_floor=True)
    sums: dict[str, float] = defaultdict(float)
    for kind, us in predicted.path.items():
        between = "NIC" if kind in ("put", "get") and machine.nodes > 1 else "latency"
        sums[_RESOURCES.get(kind, between)] += us
    bound = max(sums, key=lambda resource: sums[resource], default="")
    share = sums[bound] / max(sum(sums.values()), 1e-9) if bound else 0.0
    return Schedule(options, predicted.us, "", measured, exposed, waves, bound, share)


def _changes(problem: Problem, best: Options, machine: Machine) -> list[tuple[str, Asked]]:
    """What is asked of the fastest schedule: better machines, and schedules beside it."""
    found = []
    for resource, names in _CHANGES.items():
        known = [name for name in names if name in machine.numbers]
        if known:
            found.append((resource, Asked(_twice_as_good(machine, known), best, f"what if: {resource}")))
    space = space_of(problem, int(machine["sm.count"]))
    start = space.complete(best) if space is not None else best
    for neighbour in space.neighbours(start) if space is not None else ():
        what = options_text({name: value for name, value in neighbour.items() if value != start[name]})
        found.append((what, Asked(machine, neighbour, f"what if: {what}")))
    return found


def _twice_as_good(machine: Machine, names: Sequence[str]) -> Machine:
    from ditron.machines import FIELDS

    numbers = dict(machine.numbers)
    for name in names:
        factor = 0.5 if FIELDS[name].unit == "us" else 2.0
        numbers[name] = replace(numbers[name], value=numbers[name].value * factor)
    return replace(machine, numbers=numbers)
