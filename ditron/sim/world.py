"""A simulated machine with the scripts of its ranks."""

from __future__ import annotations

import os
import random
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from ditron import _sim
from ditron.sim import rank as view
from ditron.sim import report
from ditron.sim.randomness import Randomness
from ditron.sim.turn_taking import Abandoned, HostThread
from ditron_compiler import knobs
from ditron_compiler.errors import SimulationError

__all__ = ["MAX_SWITCHES", "World"]

# Programs may be switched that often before Python looks for an interrupt.
MAX_SWITCHES = 1 << 18


def _cores() -> int:
    """How many cores launches may take: ``DITRON_SIM_THREADS``, or all that this process may run on."""
    may = getattr(os, "sched_getaffinity", None)
    return knobs.sim_threads.get() or (len(may(0)) if may else os.cpu_count() or 1)


class World:
    """Ranks, and the machine they run kernels on. Use :func:`ditron.sim.run`, or this to look at the machine after.

    Args:
        ranks: how many. ranks_per_node: of one node, a divisor of ``ranks``; default: all.
        seed: of every choice the machine makes: which program goes on, when a put arrives, which ranks are slow.
            None: 0, and nobody asks for the same run again: without `races` and `weak`, launches whose programs have
            nothing to do with each other then run on all cores.
        heap_bytes: symmetric memory per rank; committed when touched. Default: ``DITRON_SYMMETRIC_SIZE``.
        resident: programs of one rank that run at the same time, as blocks do on SMs; the others wait for a place.
        stack_bytes: of one program; its tiles live there.
        races: look for unordered accesses to the same memory and for reads of what nobody wrote (see
            docs/simulator.md); costs about as much time again as running the kernels. Default: ``DITRON_SIM_RACES``,
            on.
        weak: stores that nothing orders may be seen late by others, and what was read before may be read again as it
            was, as on a GPU. Default: as `races`. Without `races` it shows what a mistake leads to, and reports none.

    Raises ValueError for numbers that make no machine.
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
    ):
        ranks_per_node = ranks_per_node or ranks
        if ranks < 1 or ranks % ranks_per_node:
            raise ValueError(
                f"expected at least one rank and a whole number of nodes, got {ranks} ranks on nodes of "
                f"{ranks_per_node}"
            )
        if resident < 1:
            raise ValueError(f"expected at least one resident program, got resident={resident}")
        self.size = ranks
        self.seed = seed or 0
        self.ranks_per_node = ranks_per_node
        self.heap_bytes = heap_bytes or knobs.symmetric_size.get()
        self.races = knobs.sim_races.get() is not False if races is None else races
        self.weak = self.races if weak is None else weak
        self._parallel = seed is None
        self._limits = resident, stack_bytes
        self._make_machine()
        self.world_group = view.SimGroup(tuple(range(ranks)))
        self.groups = {self.world_group.ranks: self.world_group}
        self.allocations: dict[int, view.Allocation] = {}
        self.launches: dict[int, HostThread] = {}
        self._random = random.Random(self.seed)
        self._hosts: list[HostThread] = []
        self._failure: BaseException | None = None
        self._modules: Sequence[types.ModuleType] = ()

    def _make_machine(self) -> None:
        self.machine = _sim.Machine(self.size, self.ranks_per_node, self.heap_bytes, self.seed, *self._limits)
        self.heap_bases = [self.machine.address(rank, 0) for rank in range(self.size)]
        self.machine.give_up_after(knobs.sim_looks.get())
        if self.races:
            self.machine.find_races()
        if self.weak:
            self.machine.weaken()
        if self._parallel:
            self.machine.spread(_cores())
        self.has_more = False  # than programs: streams, or a record of what it did

    @property
    def trace_hash(self) -> int:
        """Equal for runs in which the machine took the same steps."""
        return self.machine.trace_hash

    def run(
        self, function: Callable[..., Any], args: Sequence[Any] = (), modules: Sequence[types.ModuleType] = ()
    ) -> list:
        """Call ``function(*args)`` on every rank and return the results in rank order. Once per world.

        ``modules``, when given, has the module that is ``__main__`` while a rank runs. What torch, ``random`` and numpy
        draw is then what new processes draw; otherwise each rank goes on from the caller's generators, which stay.
        The first exception of any rank, or of the machine, ends all ranks and is raised, with the rank in a note.
        Scripts can be interrupted, and so can kernels, except in a loop that never calls the machine.
        """
        if self._hosts:
            raise RuntimeError("a world runs once: make another one")
        self._modules = modules
        self._randomness = Randomness(self.size, self.seed, fresh=bool(modules))
        self._hosts = [HostThread(rank, self._rank_main(rank, function, args)) for rank in range(self.size)]
        main = sys.modules["__main__"]
        try:
            self._drive()
            self._settle()
            for host in self._hosts:
                host.tell()
        except BaseException as error:
            self._failure = self._failure or error
            self._abandon()
        finally:
            sys.modules["__main__"] = main
            self._randomness.end()
        if isinstance(self._failure, SimulationError):
            self._failure.seed = self.seed
        if self._failure is not None:
            raise self._failure
        return [host.result for host in self._hosts]

    def host(self, rank: int) -> HostThread:
        """The thread of a rank's script."""
        return self._hosts[rank]

    def _rank_main(self, rank: int, function: Callable[..., Any], args: Sequence[Any]) -> Callable[[], Any]:
        def main() -> Any:
            here = view.RankView(self, rank)
            view.enter(here)
            if self.races:
                from ditron.sim.host_accesses import watch_script
            with watch_script(here) if self.races else nullcontext():
                return function(*args)

        return main

    def _drive(self) -> None:
        """Let scripts and programs go on, in seeded turns, until all scripts have ended."""
        stuck = False
        while not all(host.done for host in self._hosts):
            ready = [host for host in self._hosts if not host.done and not host.waits_for]
            busy = self.launches or self.machine.busy
            if ready and (stuck or not busy or self._random.random() < 0.5):
                self._resume(self._random.choice(ready))
                stuck = False
            elif stuck or not busy:
                deadlock = self._deadlock()
                if not self._goes_on(deadlock):
                    raise deadlock
                stuck = False
            else:
                stuck = self._run_machine(self._random.choice((16, 256, 4096)) if ready else MAX_SWITCHES)
        while self.machine.busy:  # what scripts have left on streams
            if self._run_machine(MAX_SWITCHES) and self.machine.busy:
                raise self._deadlock()

    def _deadlock(self) -> Exception:
        return report.deadlock(self.machine.waiters(), self.machine.starved(), self._hosts, self.machine.circle())

    def _settle(self) -> None:
        """Let what is under way arrive: that may be wrong too."""
        for rank in range(self.size):
            self.machine.quiet(rank)
        if self.races and self.machine.run(1) == _sim.Status.FAILED:
            raise report.failure(self.machine.failure)

    def _resume(self, host: HostThread) -> None:
        if self._modules:
            sys.modules["__main__"] = self._modules[host.rank]
        self._randomness.switch_to(host.rank)
        host.resume()
        if host.error is not None:
            if self.size > 1 and not isinstance(host.error, SystemExit):
                host.error.add_note(f"raised on rank {host.rank} of {self.size}")
            raise host.error

    def _run_machine(self, max_switches: int) -> bool:
        """Run programs; true when none can go on."""
        status = self.machine.run(max_switches)
        if lines := self.machine.take_printed():
            print("\n".join(lines))
        for warning in self.machine.take_warnings():
            self._hosts[warning.rank].then.append(partial(report.warn, warning))
        for launch in self.machine.take_completed():
            self.launches.pop(launch).unblock()
        if status == _sim.Status.FAILED:
            failed = report.failure(self.machine.failure)
            if self._goes_on(failed):
                return False
            host = self._hosts[failed.rank]
            self._failure = failed
            if not host.done:
                host.throw(failed)  # so that the traceback shows the launch
                host.resume()
            raise failed
        return status in (_sim.Status.STUCK, _sim.Status.IDLE)

    def _goes_on(self, error: SimulationError) -> bool:
        """Whether a script that catches ``error`` at its launch goes on, with another machine, as suites of tests do.

        A rank that is alone does, when its machine holds nothing that it still needs.
        """
        if self.size > 1 or self._hosts[0].done or self.allocations or self.has_more:
            return False
        self.launches.clear()
        self._make_machine()
        self._hosts[0].throw(error, once=True)
        return True

    def _abandon(self) -> None:
        for host in self._hosts:
            if not host.done:
                host.throw(Abandoned())
                host.resume()

    def require_alive(self) -> None:
        """Raise when the machine has failed: a script caught the error and goes on."""
        if self._failure is not None:
            raise SimulationError(f"the simulation has ended: {self._failure}")
