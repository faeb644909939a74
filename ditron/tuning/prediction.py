"""How long a schedule of an operator takes on a machine: a call as users write it, on the simulator with its clock."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ditron.tuning.floors import product_us
from ditron.tuning.problem import Options, Problem

if TYPE_CHECKING:
    from ditron.machines import Machine
    from ditron.sim.prediction import Prediction

__all__ = ["NOT_PREDICTED", "Predicted", "Predictor", "waves_of", "without_communication"]

_CALLS = 2  # the second one finds the ranks as calls that follow each other do
#: Why, by algorithm.
NOT_PREDICTED = {"nccl": "NCCL is a library, whose time is not predicted"}


@dataclass(frozen=True)
class Predicted:
    """A call's time on the slowest rank.

    Attributes:
        us: None: ``why`` says why not. library: the part of it that is the floor of products that cuBLAS computes, so
            that the call takes at least ``us``.
        path: us of the critical path by kind of activity, those of a library's product as ``"product"``.
        programs: of the largest kernel; 0: there is none.
    """

    us: float | None
    why: str = ""
    library: float = 0.0
    path: dict[str, float] = field(default_factory=dict)
    programs: int = 0


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
    why = NOT_PREDICTED.get(options.get("algorithm", ""))
    if why is not None:
        return Predicted(None, why)
    from ditron import sim

    products: list[tuple[int, int, int]] = []
    try:
        prediction = sim.predict(
            lambda: _calls(problem, options, products), machine, problem.ranks, heap_bytes=_heap_bytes(problem)
        )
    except Exception as error:  # as of a call that is wrong: what is raised says what is wrong with it
        return Predicted(None, f"{type(error).__name__}: {error}".splitlines()[0])
    library = sum(product_us(*sizes, problem, machine) for sizes in products) / _CALLS
    path: dict[str, float] = defaultdict(float)
    if library:
        path["product"] = library
    programs = len(prediction.calls) // _CALLS
    for call in range(-programs, 0):
        for step in prediction.critical_path(call):
            path[step.kind] += step.us
    largest = max((launch.programs for launch in prediction.launches), default=0)
    return Predicted(_us(prediction, programs) + library, "", library, dict(path), largest)


def _us(prediction: Prediction, programs: int) -> float:
    """Of the last call, which is of so many programs, on its slowest rank."""
    if not programs:
        return 0.0
    first, last = prediction.calls[-programs], prediction.calls[-1]
    began = {call.rank: call.start for call in first}
    return max(call.end - began[call.rank] for call in last) / 1e3


def _calls(problem: Problem, options: Options, products: list[tuple[int, int, int]]) -> None:
    """What a rank does; rank 0 says which products a library computes."""
    import torch

    import ditron
    from ditron import kernels
    from ditron.tuning.bench import operands

    group = ditron.init()
    meta, _ = operands(problem, group.rank, torch.device("meta"))
    given = [torch.empty(tensor.shape, dtype=tensor.dtype, device=group.device) for tensor in meta]
    with _library(products if group.rank == 0 else []):
        for _ in range(_CALLS):
            getattr(kernels, problem.operator)(*given, **options)


def _library(products: list[tuple[int, int, int]]) -> Any:
    """Within it, torch's products are not computed but listed, by their M, N and K."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Library(TorchDispatchMode):
        sees_into_operators = True

        def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            if function.overloadpacket is not torch.ops.aten.mm:
                return function(*args, **(kwargs or {}))
            (M, K), N = args[0].shape, args[1].shape[1]
            products.append((M, N, K))
            out = (kwargs or {}).get("out")
            return args[0].new_empty(M, N) if out is None else out

    return Library()


def _heap_bytes(problem: Problem) -> int:
    """Enough for what any schedule keeps: several times the operands of all ranks. None of it is touched."""
    M, N, K = problem.M, max(problem.N, 1), problem.K
    return (1 << 30) + 8 * problem.ranks * problem.itemsize * max(problem.rows, M * (K + N) // problem.ranks)


def waves_of(problem: Problem, options: Options, predicted: Predicted, machine: Machine) -> float:
    """Tiles for each program of the persistent kernel; of others, programs for each SM."""
    block = options.get("block")
    if isinstance(block, tuple) and len(block) == 3:
        tiles = problem.ranks * math.ceil(problem.M // problem.ranks / block[0]) * math.ceil(problem.N / block[1])
        return tiles / min(machine["sm.count"], options.get("programs", machine["sm.count"]))
    return predicted.programs / machine["sm.count"]


def without_communication(machine: Machine) -> Machine:
    """The machine with communication that takes no time: what then is predicted less was exposed."""
    from ditron.machines import FIELDS

    numbers = dict(machine.numbers)
    for name in numbers:
        section, _, key = name.partition(".")
        if section in ("link", "copy_engine", "nic") or key in ("peer", "fence", "stream", "barrier"):
            is_rate = FIELDS[name].unit in ("GB/s", "")
            numbers[name] = replace(numbers[name], value=FIELDS[name].most if is_rate else FIELDS[name].least)
    return replace(machine, numbers=numbers, changed=(*machine.changed, "without communication"))
