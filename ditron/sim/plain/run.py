"""Programs of plain Triton: on the calling rank, or on a machine of one rank when no rank calls."""

from __future__ import annotations

import threading
from typing import Any

from ditron import _sim
from ditron.sim import report
from ditron.sim.operands import LaunchArguments
from ditron.sim.rank import current_world
from ditron.sim.world import MAX_SWITCHES, World
from ditron_compiler import knobs
from ditron_compiler.errors import DitronError

__all__ = ["compile_mode", "records_accesses", "run_programs"]

_lock = threading.RLock()


def records_accesses() -> bool:
    """Whether kernels report every access: as the calling rank has it; without one as ``DITRON_SIM_RACES`` has it."""
    rank = current_world()
    return rank.records_accesses if rank is not None else knobs.sim_races.get() is True


def compile_mode() -> str:
    """What kernels are compiled to, as a part of the keys of caches."""
    rank = current_world()
    return rank.compile_mode if rank is not None else "records accesses" if records_accesses() else ""


class _Machines(threading.local):
    """Of the calling thread, for a machine is one thread's: one that detects races, and one that does not."""

    def __init__(self) -> None:
        self.by_races: dict[bool, _sim.Machine] = {}


_machines = _Machines()


def run_programs(kernel: Any, grid: tuple[int, ...], slots: list[int], tensors: list[tuple[str, Any]]) -> None:
    """Run a kernel of the simulator on the calling rank, or on a machine of one rank when no rank calls.

    ``tensors`` are names and values of arguments, for reports.

    Raises SimulationError for what a program does wrong, DeadlockError when none can make progress.
    """
    rank = current_world()
    if rank is not None:
        rank.launch(kernel, grid, slots, tensors=tensors)
        return
    if not all(0 <= extent < 2**31 for extent in grid):
        raise DitronError(f"launch of {kernel.name}: expected extents from 0 to 2**31 - 1, got a grid of {grid}")
    races = records_accesses()
    machines = _machines.by_races
    with _lock:
        if races not in machines:
            machines[races] = World(1, heap_bytes=1 << 20, races=races).machine
        try:
            _run_alone(machines[races], kernel, grid, slots, tensors)
        except BaseException:
            del machines[races]  # it holds programs that have not ended
            raise


def _run_alone(
    machine: _sim.Machine, kernel: Any, grid: tuple[int, ...], slots: list[int], tensors: list[tuple[str, Any]]
) -> None:
    machine.submit(0, [0], *LaunchArguments.of(kernel, grid, slots, tensors))
    while True:
        status = machine.run(MAX_SWITCHES)
        if lines := machine.take_printed():
            print("\n".join(lines))
        for warning in machine.take_warnings():
            report.warn(warning)
        if machine.take_completed():
            machine.host_barrier([0], True)  # orders this launch before the next one
            return
        if status == _sim.Status.FAILED:
            raise report.failure(machine.failure)
        if status in (_sim.Status.BLOCKED, _sim.Status.IDLE):
            raise report.deadlock(machine.waiting_programs(), machine.starved_launches(), ())
