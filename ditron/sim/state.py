"""What all ranks of a simulated world use: the native machine, groups, symmetric allocations, launches in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ditron import _sim
from ditron.machines import Machine
from ditron.sim.host_threads import HostThread
from ditron.sim.prediction import ProgramCall
from ditron.sim.rendezvous import RankGroup
from ditron_compiler import knobs
from ditron_compiler.errors import SimulationError
from ditron_compiler.lowering.sim import symbols

__all__ = ["Allocation", "WorldState"]

symbols.register(_sim.symbols)  # compiled kernels call the native machine


@dataclass
class Allocation:
    """A symmetric tensor, until every rank that holds it has freed it."""

    offset: int
    nbytes: int
    name: str
    group: RankGroup
    freed: set[int] = field(default_factory=set)


class WorldState:
    """The state that ranks share.

    Attributes:
        size, ranks_per_node, seed, heap_bytes, races, weak, timing, timing_only, routing: see
            :class:`ditron.sim.World`. routes_drawn: whether someone has asked for the routing.
        machine: the native machine. heap_bases: address of each rank's symmetric heap, of ``heap_capacity`` bytes.
        world_group, groups: groups by their world ranks. allocations: by offset in the heap.
        launches: the host thread that waits for a launch, by the machine's number of it.
        keeps_state: whether the machine holds what a new one would not: streams, or a trace.
        failure: what has ended the run.
        program_calls: with a clock, when each call of a program ran.
        calls_by_rank, compared: see :meth:`ditron.sim.RankView.compared_with_other_ranks`.
    """

    def __init__(
        self,
        size: int,
        ranks_per_node: int,
        seed: int,
        *,
        heap_bytes: int,
        resident: int,
        stack_bytes: int,
        races: bool,
        weak: bool,
        threads: int,
        graphs: bool = False,
        timing: Machine | None = None,
        timing_only: bool = False,
        routing: str | None = None,
    ):
        self.size, self.ranks_per_node, self.seed = size, ranks_per_node, seed
        self.heap_bytes, self.races, self.weak, self.graphs = heap_bytes, races, weak, graphs
        self.timing, self.timing_only = timing, timing_only
        self.routing, self.routes_drawn = routing, False
        self.program_calls: list[ProgramCall] = []
        self.library_us = 0.0  # of the function that a stream calls
        self.unpriced: dict[str, None] = {}  # functions whose time is not known
        self._limits, self._threads = (resident, stack_bytes), threads
        self.world_group = RankGroup(tuple(range(size)))
        self.groups = {self.world_group.ranks: self.world_group}
        self.allocations: dict[int, Allocation] = {}
        self.launches: dict[int, HostThread] = {}
        self.failure: BaseException | None = None
        self.calls_by_rank: Counter = Counter()
        self.compared: dict[Any, tuple[Any, int]] = {}
        self._hosts: Sequence[HostThread] = ()
        self.new_machine()

    def new_machine(self) -> None:
        """Begin with a native machine on which nothing has run."""
        self.machine = _sim.Machine(self.size, self.ranks_per_node, self.heap_bytes, self.seed, *self._limits)
        self.heap_capacity = self.machine.heap_capacity
        self.heap_bases = [self.machine.address(rank, 0) for rank in range(self.size)]
        self.machine.set_spin_limit(knobs.sim_looks.get())
        if self.races:
            self.machine.enable_race_detector()
        if self.weak:
            self.machine.enable_weak_memory()
        if self._threads:
            self.machine.enable_parallel(self._threads)
        if self.timing is not None:
            self.machine.enable_clock(self.timing.model())
        if self.timing_only:
            self.machine.set_timing_only()
        self.keeps_state = False

    def host(self, rank: int) -> HostThread:
        """The thread of a rank's host code."""
        return self._hosts[rank]

    def given_to_kernel(self, tensors: Iterable[tuple[str, Any]], line: str) -> None:
        """Timing-only: a launch at ``line`` has these arguments, by name; see :mod:`ditron.sim.missing_data`."""
        if self.timing_only:
            from ditron.sim import missing_data

            missing_data.given_to_kernel(tensors, line)

    def not_computed(self, *tensors: Any) -> None:
        """Timing-only: what would have been written to these tensors is missing."""
        if self.timing_only:
            from ditron.sim import missing_data

            missing_data.not_computed(tensors)

    def require_alive(self) -> None:
        """Raise when the run has failed: host code caught the error and continues."""
        if self.failure is not None:
            raise SimulationError(f"the simulation has ended: {self.failure}")
