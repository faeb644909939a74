"""A simulated world: host code of its ranks, and the native machine that runs their kernels."""

from __future__ import annotations

import operator
import os
import random
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from ditron import _sim, machines
from ditron.machines import Machine
from ditron.sim import report
from ditron.sim.host_threads import Abandoned, HostThread
from ditron.sim.prediction import Prediction, require_ranks
from ditron.sim.random_states import RandomStates
from ditron.sim.rank import RankView, enter
from ditron.sim.state import WorldState
from ditron_compiler import knobs
from ditron_compiler.errors import DitronError, SimulationError

__all__ = ["MAX_SWITCHES", "World"]

# Switches between programs before Python can handle an interrupt.
MAX_SWITCHES = 1 << 18


def _threads() -> int:
    """How many cores a launch may run on: ``DITRON_SIM_THREADS``, or all that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return knobs.sim_threads.get() or (len(affinity(0)) if affinity else os.cpu_count() or 1)


class World(WorldState):
    """Ranks, and the machine they run kernels on. Use :func:`ditron.sim.run`, or this to inspect the machine after.

    Args:
        ranks: how many. ranks_per_node: of one node, a divisor of ``ranks``; default: all.
        seed: of every choice the machine makes: which program runs next, when a put arrives, which ranks are slow.
            None: 0, and the run need not be reproducible: without `races` and `weak`, launches whose programs are
            independent then run on all cores.
        heap_bytes: symmetric memory per rank; committed when touched. Default: ``DITRON_SYMMETRIC_SIZE``.
        resident: programs of one rank that run at the same time, as blocks do on SMs; the others are queued.
        stack_bytes: of one program; its tiles live there.
        races: detect data races and reads of uninitialised memory (see docs/simulator.md); costs about as much time
            again as running the kernels. Default: ``DITRON_SIM_RACES``, on.
        weak: the weak memory model of a GPU: stores that nothing orders may become visible late, and loads may return
            stale values. Default: as `races`. Without `races` it shows what a mistake leads to, and reports none.
        graphs: programs run as CUDA graphs would: a stream's wait is a kernel then, which fits beside other programs,
            but does not start before all programs of the launches before it have.
        machine: the name of a machine, or one (:mod:`ditron.machines`): time passes as there, instead of a schedule
            that the seed decides. ``prediction`` says what took how long. `resident` is then the machine's, `weak` off.
        timing_only: with a machine: floating-point data is neither computed nor moved, which takes seconds for shapes
            that would take hours. Tensors of it hold anything.
        routing: how :func:`ditron.kernels.draw_routes` draws where a call does not say it, as ``"zipf:1.2"``.

    Raises ValueError for numbers of ranks, nodes or programs that are not possible, DitronError for a machine that does
    not have the ranks, or is unknown.
    """

    def __init__(
        self,
        ranks: int,
        ranks_per_node: int | None = None,
        seed: int | None = None,
        *,
        heap_bytes: int | None = None,
        resident: int = 132,
        stack_bytes: int = 64 << 20,
        races: bool | None = None,
        weak: bool | None = None,
        graphs: bool = False,
        machine: Machine | str | Path | None = None,
        timing_only: bool = False,
        routing: str | None = None,
    ):
        try:
            ranks = operator.index(ranks)
        except TypeError:
            raise TypeError(f"expected ranks to be an integer, got {ranks!r}") from None
        timing = machine if machine is None or isinstance(machine, machines.Machine) else machines.load(machine)
        if timing_only and timing is None:
            raise ValueError("timing_only=True needs a machine: its numbers are what takes time")
        if timing is not None:
            ranks_per_node = ranks_per_node or min(ranks, timing.ranks)
            require_ranks(timing, ranks, ranks_per_node)
            graphs = graphs or timing.is_captured
            resident, weak, races = int(timing["sm.count"]), False, False if timing_only else races
        ranks_per_node = ranks_per_node or ranks
        if ranks < 1 or ranks % ranks_per_node:
            raise ValueError(
                f"expected at least one rank and a whole number of nodes, got {ranks} ranks on nodes of "
                f"{ranks_per_node}"
            )
        if resident < 1:
            raise ValueError(f"expected at least one resident program, got resident={resident}")
        races = knobs.sim_races.get() is not False if races is None else races
        super().__init__(
            ranks,
            ranks_per_node,
            seed or 0,
            heap_bytes=heap_bytes or knobs.symmetric_size.get(),
            resident=resident,
            stack_bytes=stack_bytes,
            races=races,
            weak=races if weak is None else weak,
            threads=_threads() if seed is None else 0,
            graphs=graphs,
            timing=timing,
            timing_only=timing_only,
            routing=routing,
        )
        self._random = random.Random(self.seed)
        self._modules: Sequence[types.ModuleType] = ()

    @property
    def trace_hash(self) -> int:
        """Equal for runs in which the machine took the same steps."""
        return self.machine.trace_hash

    @property
    def prediction(self) -> Prediction:
        """What took how long, of a world with a machine, once it has run."""
        if self.timing is None:
            raise ValueError("time passes only with a machine: pass machine=")
        return Prediction.of(self.timing, self.size, self.machine, self.program_calls, self.timing_only, self.unpriced)

    def run(
        self, function: Callable[..., Any], args: Sequence[Any] = (), modules: Sequence[types.ModuleType] = ()
    ) -> list:
        """Call ``function(*args)`` on every rank and return the results in rank order. Once per world.

        ``modules``, when given, has the module that is ``__main__`` while a rank runs, and generators of torch,
        ``random`` and numpy begin as in new processes; otherwise as copies of the caller's, which stay.
        The first exception of any rank, or of the machine, ends all ranks and is raised, with the rank in a note.
        Host code can be interrupted, and so can kernels, except in a loop that never calls the machine.
        """
        if self._hosts:
            raise RuntimeError("a world runs once: make another one")
        self._modules = modules
        self._random_states = RandomStates(self.size, self.seed, fresh=bool(modules))
        self._hosts = [HostThread(rank, self._rank_main(rank, function, args)) for rank in range(self.size)]
        main = sys.modules["__main__"]
        try:
            self._schedule()
            self._complete_transfers()
            for host in self._hosts:
                host.run_callbacks()
        except BaseException as error:
            self.failure = self.failure or error
            self._abandon()
        finally:
            sys.modules["__main__"] = main
            self._random_states.end()
        if isinstance(self.failure, SimulationError):
            self.failure.seed = self.seed
        if self.failure is not None:
            raise self.failure
        if self.routing is not None and not self.routes_drawn:
            raise DitronError(
                f"routing {self.routing!r} was not used: it is for ditron.kernels.draw_routes without a distribution "
                "of its own, and for the routers of ditron.nn.MoE in timing-only mode"
            )
        return [host.result for host in self._hosts]

    def _rank_main(self, rank: int, function: Callable[..., Any], args: Sequence[Any]) -> Callable[[], Any]:
        def main() -> Any:
            here = RankView(self, rank)
            enter(here)
            with ExitStack() as modes:
                if self.races:
                    from ditron.sim.host_accesses import HostAccessMode

                    modes.enter_context(HostAccessMode(here))
                if self.timing is not None:
                    from ditron.sim.library_time import LibraryMode

                    modes.enter_context(LibraryMode(here, here.library_step))
                return function(*args)

        return main

    def _schedule(self) -> None:
        """Resume host threads and run programs, in an order that the seed decides, until all host code has ended."""
        stuck = False
        while not all(host.done for host in self._hosts):
            ready = [host for host in self._hosts if not host.done and not host.blocked_in]
            busy = self.launches or self.machine.has_stream_work
            if ready and self.timing is not None:  # host code takes no time
                self._resume(ready[0])
            elif ready and (stuck or not busy or self._random.random() < 0.5):
                self._resume(self._random.choice(ready))
                stuck = False
            elif stuck or not busy:
                deadlock = self._deadlock()
                if not self._continues_after(deadlock):
                    raise deadlock
                stuck = False
            else:
                stuck = self._run_machine(self._random.choice((16, 256, 4096)) if ready else MAX_SWITCHES)
        while self.machine.has_stream_work:  # what host code has left on streams
            if self._run_machine(MAX_SWITCHES) and self.machine.has_stream_work:
                raise self._deadlock()

    def _deadlock(self) -> Exception:
        return report.deadlock(
            self.machine.waiting_programs(), self.machine.starved_launches(), self._hosts, self.machine.stream_cycle()
        )

    def _complete_transfers(self) -> None:
        """Let transfers in flight arrive: they may race too."""
        for rank in range(self.size):
            self.machine.quiet(rank)
        if self.races and self.machine.run(1) == _sim.Status.FAILED:
            raise report.failure(self.machine.failure)

    def _resume(self, host: HostThread) -> None:
        if self._modules:
            sys.modules["__main__"] = self._modules[host.rank]
        self._random_states.switch_to(host.rank)
        host.resume()
        if host.error is not None:
            if self.timing_only:
                from ditron.sim import missing_data

                host.error = missing_data.without_torch_testing(host.error)
            if self.size > 1 and not isinstance(host.error, SystemExit):
                host.error.add_note(f"raised on rank {host.rank} of {self.size}")
            raise host.error

    def call_host(self, rank: int, function: Callable[[], Any], name: str) -> float:
        """Call a function of a rank's host code, which a stream has come to; the us that it takes on the machine."""
        self._random_states.switch_to(rank)
        self.library_us = 0.0
        try:
            if self.timing is None:
                function()
                return 0.0
            from ditron.sim.library_time import LibraryMode

            with LibraryMode(RankView(self, rank), self.spend_on_library):
                function()
            if not self.library_us:
                self.unpriced[name] = None
            return self.library_us
        except Exception as error:
            if self.size > 1:
                error.add_note(f"raised on rank {rank} of {self.size}")
            raise

    def spend_on_library(self, what: str, us: float) -> None:
        """The function that a stream calls takes so long, too."""
        self.library_us += us

    def _run_machine(self, max_switches: int) -> bool:
        """Run programs; true when none can make progress."""
        status = self.machine.run(max_switches)
        if lines := self.machine.take_printed():
            print("\n".join(lines))
        for warning in self.machine.take_warnings():
            self._hosts[warning.rank].callbacks.append(partial(report.warn, warning))
        for launch in self.machine.take_completed():
            self.launches.pop(launch).unblock()
        if status == _sim.Status.FAILED:
            failed = report.failure(self.machine.failure)
            if self._continues_after(failed):
                return False
            host = self._hosts[failed.rank]
            self.failure = failed
            if not host.done:
                host.throw(failed)  # so that the traceback shows the launch
                host.resume()
            raise failed
        return status in (_sim.Status.BLOCKED, _sim.Status.IDLE)

    def _continues_after(self, error: SimulationError) -> bool:
        """Whether host code that catches ``error`` at its launch continues, on a new machine, as test suites do.

        A single rank does, when its machine holds nothing that it still needs.
        """
        if self.size > 1 or self._hosts[0].done or self.allocations or self.keeps_state:
            return False
        self.launches.clear()
        self.new_machine()
        self._hosts[0].throw(error, once=True)
        return True

    def _abandon(self) -> None:
        for host in self._hosts:
            if not host.done:
                host.throw(Abandoned())
                host.resume()
