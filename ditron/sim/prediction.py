"""What a run on a simulated machine with a clock says: how long each call and launch took, and its critical path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    from ditron._sim import Activity, LaunchTime, Usage
    from ditron.machines import Machine

__all__ = ["Prediction", "ProgramCall", "Step", "require_ranks"]

_US = 1e-3  # of a ns
_MOST_LINES = 20


@dataclass(frozen=True)
class ProgramCall:
    """A rank's call of a host program: when it began and ended, in ns."""

    rank: int
    name: str
    start: float
    end: float

    @property
    def us(self) -> float:
        return (self.end - self.start) * _US


@dataclass(frozen=True)
class Step:
    """A part of a critical path, in us: what rank ``rank`` did, and to which peer (-1: none)."""

    kind: str
    rank: int
    peer: int
    us: float
    times: int = 1

    def __str__(self) -> str:
        where = f"rank {self.rank}" + (f" -> {self.peer}" if self.peer not in (-1, self.rank) else "")
        return f"{self.us:9.1f} us  {self.kind}, {where}" + (f", {self.times} in a row" if self.times > 1 else "")


@dataclass(frozen=True)
class Prediction:
    """Calls of programs by name and number, the launches and stream operations within, and critical paths.

    Times are the GPUs': the host takes none, nor do torch's operations but products. Functions that programs call take
    the time of the products in them; ``unpriced`` are those without any.
    """

    machine: Machine
    ranks: int
    calls: Sequence[Sequence[ProgramCall]]
    launches: Sequence[LaunchTime]
    timing_only: bool = False
    unpriced: Sequence[str] = ()
    _native: Any = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        machine: Machine,
        ranks: int,
        native: Any,
        calls: Iterable[ProgramCall],
        timing_only: bool,
        unpriced: Iterable[str] = (),
    ) -> Prediction:
        by_rank: dict[int, int] = defaultdict(int)
        grouped: list[list[ProgramCall]] = []
        for call in calls:
            number = by_rank[call.rank]
            by_rank[call.rank] += 1
            if number == len(grouped):
                grouped.append([])
            grouped[number].append(call)
        return cls(machine, ranks, grouped, native.launch_times(), timing_only, tuple(unpriced), native)

    @property
    def us(self) -> float:
        """From the first to the last thing that any rank did."""
        return max((launch.ended for launch in self.launches), default=0.0) * _US

    def window(self, call: int = -1) -> tuple[float, float]:
        """When a call (by its number) began on its first rank and ended on its last, in ns; or the whole run."""
        if not self.calls:
            return 0.0, max((launch.ended for launch in self.launches), default=0.0)
        return min(one.start for one in self.calls[call]), max(one.end for one in self.calls[call])

    def usages(self) -> list[Usage]:
        """What transfers take of links, memories and NICs, where it changes; of a run with a trace or a timeline."""
        return self._native.usages()

    def critical_path(self, call: int = -1) -> list[Step]:
        """What the slowest rank's last launch of a call (by its number) waited for, from the call's beginning on.

        Without calls of programs: what the last launch of all waited for.
        """
        start, _ = self._last_launch(call)
        steps: list[Step] = []
        for activity in self.critical_activities(call):
            us = (activity.end - max(activity.start, start)) * _US
            last = steps[-1] if steps else None
            if last and (last.kind, last.rank, last.peer) == (activity.kind, activity.rank, activity.peer):
                steps[-1] = Step(last.kind, last.rank, last.peer, last.us + us, last.times + 1)
            else:
                steps.append(Step(activity.kind, activity.rank, activity.peer, us))
        return steps

    def critical_activities(self, call: int = -1) -> list[Activity]:
        """The same with times, in ns."""
        start, number = self._last_launch(call)
        if number is None:
            return []
        path = self._native.critical_path(number)
        return [activity for activity in path if activity.end > max(activity.start, start)]

    def _last_launch(self, call: int) -> tuple[float, int | None]:
        """When a call began, and the number of the launch that ended last on its slowest rank."""
        start, end, ranks = 0.0, float("inf"), range(self.ranks)
        if self.calls:
            slowest = max(self.calls[call], key=lambda one: one.end)
            start, end, ranks = slowest.start, slowest.end, (slowest.rank,)
        numbers = [
            number
            for number, launch in enumerate(self.launches)
            if launch.rank in ranks and launch.programs and start <= launch.queued and launch.ended <= end
        ]
        return start, max(numbers, key=lambda number: self.launches[number].ended, default=None)

    def __str__(self) -> str:
        mode = "timing only, " if self.timing_only else ""
        lines = [f"predicted for {self.machine}: {mode}{self.ranks} rank{'s' * (self.ranks > 1)}"]
        for number, call in enumerate(self.calls):
            slowest = max(call, key=lambda one: one.us)
            first = min(call, key=lambda one: one.us)
            spread = f" ({first.us:.1f} on rank {first.rank})" if len(call) > 1 else ""
            lines.append(
                f"program {slowest.name}, call {number + 1}: {slowest.us:.1f} us on rank {slowest.rank}{spread}"
            )
        lines += self._between_calls()
        shown = self.shown_call
        lines += _shortened(self._operations(max(self.calls[shown], key=lambda one: one.us) if self.calls else None))
        steps = self.critical_path(shown)
        if steps:
            is_last = shown in (-1, len(self.calls) - 1)
            of = "" if len(self.calls) <= 1 else " of the last call" if is_last else f" of call {shown + 1}"
            lines.append(f"critical path{of}, first to last:")
            lines += _shortened([str(step) for step in steps])
            lines.append("  in all: " + ", ".join(f"{kind} {us:.1f} us" for kind, us in _by_kind(steps)))
        lines += [f"priced at zero, since its time is not known: {name}" for name in self.unpriced]
        return "\n".join(lines)

    @property
    def shown_call(self) -> int:
        """The last call with a critical path, which a product of torch has not; the last of all if none has."""
        with_path = (number for number in reversed(range(len(self.calls))) if self.critical_activities(number))
        return next(with_path, -1)

    def _between_calls(self) -> list[str]:
        """What the kernels took that were launched outside of programs, on the rank where they took longest."""
        if not self.calls:
            return []
        spans = defaultdict(list)
        for call in self.calls:
            for one in call:
                spans[one.rank].append((one.start, one.end))
        took: dict[int, list[float]] = defaultdict(list)
        for launch in self.launches:
            is_inside = any(start <= launch.queued < end for start, end in spans[launch.rank])
            if launch.programs and launch.ended > launch.queued and not is_inside:
                took[launch.rank].append(launch.ended - launch.queued)
        if not took:
            return []
        rank = max(took, key=lambda rank: sum(took[rank]))
        count = len(took[rank])
        return [
            f"{count} kernel{'s' * (count > 1)} outside of programs: {sum(took[rank]) * _US:.1f} us on rank {rank}",
            f"the whole run: {self.us:.1f} us",
        ]

    def _operations(self, call: ProgramCall | None) -> list[str]:
        """A line for each launch, and each operation of a stream that took time, of a call; None: of all ranks."""
        lines = []
        for launch in self.launches:
            inside = call is None or (launch.rank == call.rank and call.start <= launch.queued < call.end)
            if not inside or not launch.programs and launch.ended <= launch.queued:
                continue
            base = call.start if call else 0.0
            where = f"rank {launch.rank}" + (f", {launch.stream}" if launch.stream else "")
            what = launch.name + (f" ({launch.programs} programs)" if launch.programs else "")
            busy = ""
            if launch.programs and launch.ended > launch.started:
                slots = min(launch.programs, int(self.machine["sm.count"])) * (launch.ended - launch.started)
                busy = f"; {100 * launch.compute / slots:.0f} % products, {100 * launch.waited / slots:.0f} % waiting"
            lines.append(
                f"  {(launch.queued - base) * _US:8.1f} to {(launch.ended - base) * _US:8.1f} us  {where}: {what}{busy}"
            )
        return lines


def _shortened(lines: list[str]) -> list[str]:
    """The first and the last lines, when there are many."""
    if len(lines) <= _MOST_LINES:
        return lines
    half = _MOST_LINES // 2
    return [*lines[:half], f"  {'...':>11} {len(lines) - 2 * half} more", *lines[-half:]]


def _by_kind(steps: Iterable[Step]) -> list[tuple[str, float]]:
    sums: dict[str, float] = defaultdict(float)
    for step in steps:
        sums[step.kind] += step.us
    return sorted(sums.items(), key=lambda entry: -entry[1])


def require_ranks(machine: Machine, ranks: int, ranks_per_node: int) -> None:
    """Raise DitronError unless a machine has that many ranks, so many on a node."""
    if ranks > machine.size:
        more = f"; {machine.name}x{-(-ranks // machine.ranks)} has more nodes" if "nic.rate" in machine.numbers else ""
        raise DitronError(
            f"the machine {machine.name} has {machine.size} ranks, and {ranks} were asked for: ask for fewer, or name "
            f"a larger machine{more}"
        )
    if ranks_per_node > machine.ranks or ranks > ranks_per_node and ranks_per_node != machine.ranks:
        raise DitronError(
            f"a node of the machine {machine.name} has {machine.ranks} ranks, and {ranks_per_node} were asked for"
        )
