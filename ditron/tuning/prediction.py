"""How long a schedule of an operator takes on a machine: a call as users write it, on the simulator with its clock."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ditron.tuning.problem import Options, Problem

if TYPE_CHECKING:
    from ditron.machines import Machine
    from ditron.sim.prediction import Prediction

__all__ = ["Predicted", "Predictor", "last_call_us", "waves_of", "without_communication"]

_LIBRARIES = ("product of ", "NCCL ")  # as ditron.sim calls the steps of cuBLAS and NCCL
_MOST_PUTS = 8192  # of a call of all ranks that is predicted: twice as many take a minute
_CALLS = 2  # the second one finds the ranks as calls that follow each other do


@dataclass(frozen=True)
class Predicted:
    """A call's time on the slowest rank.

    Attributes:
        us: None: ``why`` says why not. raises: that is what a call with this schedule raises.
        library: the part of it that cuBLAS and NCCL take.
        path: us of the critical path by kind of activity, those of libraries as ``"library"``.
        programs: of the largest kernel; 0: there is none.
    """

    us: float | None
    why: str = ""
    library: float = 0.0
    path: dict[str, float] = field(default_factory=dict)
    programs: int = 0
    raises: bool = False


class Predictor:
    """Predictions for one machine, each made once. The first of a kernel compiles it, which takes a second."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self._known: dict[tuple, Predicted] = {}

    def __call__(self, problem: Problem, options: Options) -> Predicted:
        key = (problem, tuple(sorted(options.items())))
        if key not in self._known:
            self._known[key] = _predicted(problem, options, self.machine)
        return self._known[key]


def _predicted(problem: Problem, options: Options, machine: Machine) -> Predicted:
    from ditron import sim

    if (puts := _puts(problem, options, machine)) > _MOST_PUTS:
        return Predicted(None, f"not predicted: it has {puts} puts, and those of more than {_MOST_PUTS} take minutes")
    try:
        prediction = sim.predict(
            lambda: _calls(problem, options), machine, problem.ranks, heap_bytes=_heap_bytes(problem)
        )
    except Exception as error:  # as of a call that is wrong: what is raised says what is wrong with it
        return Predicted(None, f"{type(error).__name__}: {error}".splitlines()[0], raises=True)
    path: dict[str, float] = defaultdict(float)
    programs = len(prediction.calls) // _CALLS
    for call in range(-programs, 0):
        steps = prediction.critical_path(call)
        for step in steps:
            path[step.kind] += step.us
        slowest = max(prediction.calls[call], key=lambda one: one.us)
        if slowest.name.startswith(_LIBRARIES):  # which is no launch, so that no critical path ends with it
            path["library"] += max(0.0, slowest.us - sum(step.us for step in steps))
    largest = max((launch.programs for launch in prediction.launches), default=0)
    return Predicted(last_call_us(prediction, _CALLS), "", path.get("library", 0.0), dict(path), largest)


def _puts(problem: Problem, options: Options, machine: Machine) -> int:
    """Of a collective by puts, alone or behind a product, on several nodes."""
    algorithm, ranks = options.get("algorithm"), problem.ranks
    is_behind = problem.operator == "gemm_ar" and algorithm == "overlapped" and ranks > machine.ranks
    if algorithm != "put" and not is_behind:
        return 0
    elements = problem.rows * problem.N // ranks if is_behind else problem.rows
    return -(-elements // options.get("block", 4096)) * ranks * (ranks - 1)


def last_call_us(prediction: Prediction, calls: int) -> float:
    """Of the last of so many calls, each of as many programs, on its slowest rank."""
    programs = len(prediction.calls) // calls
    if not programs:
        return 0.0
    first, last = prediction.calls[-programs], prediction.calls[-1]
    began = {call.rank: call.start for call in first}
    return max(call.end - began[call.rank] for call in last) / 1e3


def _calls(problem: Problem, options: Options) -> None:
    """What a rank does."""
    import ditron
    from ditron.tuning.bench import call_of, operands

    group = ditron.init()
    given, _ = operands(problem, group.rank, group.device, values=False)
    call = call_of(problem, given)
    for _ in range(_CALLS):
        call(**options)


def _heap_bytes(problem: Problem) -> int:
    """Enough for what any schedule keeps: several times the operands of all ranks. None of it is touched."""
    M, N, K = problem.M, max(problem.N, 1), problem.K
    if problem.experts:  # every rank's tokens
        M = max(M, problem.ranks * problem.rows)
    return (1 << 30) + 8 * problem.ranks * problem.itemsize * max(problem.rows, M * (K + N) // problem.ranks)


def waves_of(problem: Problem, options: Options, predicted: Predicted, machine: Machine) -> float | None:
    """Tiles for each program of the persistent kernel; of others, programs for each SM; None with a library's."""
    if predicted.library:
        return None
    block = options.get("block")
    if isinstance(block, tuple) and len(block) == 3:
        parts = problem.own_experts if problem.experts else problem.ranks
        tiles = parts * math.ceil(problem.M // parts / block[0]) * math.ceil(problem.N / block[1])
        return tiles / min(machine["sm.count"], options.get("programs", machine["sm.count"]))
    return predicted.programs / machine["sm.count"]


def without_communication(machine: Machine) -> Machine:
    """The machine with communication that takes no time: what then is predicted less was exposed."""
    from ditron.machines import FIELDS

    numbers = dict(machine.numbers)
    for name in numbers:
        section, _, key = name.partition(".")
        if section in ("link", "copy_engine", "nic", "nccl") or key in ("peer", "fence", "stream", "barrier"):
            is_rate = FIELDS[name].unit in ("GB/s", "")
            numbers[name] = replace(numbers[name], value=FIELDS[name].most if is_rate else FIELDS[name].least)
    return replace(machine, numbers=numbers, changed=(*machine.changed, "without communication"))
