"""Plain Triton on the simulator: ``@triton.jit`` kernels of any package, as they are, launched on CPU tensors.

Triton's own launch path is used, hooks, autotuners and all. Four things are exchanged while :func:`simulated` is
active: the active driver, the steps that compile and that time configurations, and ``torch.compile``. All come back
at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from ditron import _sim
from ditron.sim import rank as view
from ditron.sim import report
from ditron.sim.plain import eager
from ditron.sim.plain.driver import SimDriver, compiles_for_races, try_once
from ditron.sim.world import MAX_SWITCHES, World
from ditron_compiler.errors import DitronError

__all__ = ["run_programs", "simulated"]

_active = 0
_lock = threading.RLock()


@contextmanager
def simulated() -> Iterator[None]:
    """Within it, kernels of ``@triton.jit`` run on the simulator.

    Launched by a simulated rank they run there; else on a machine of one rank. They may be used inside of each other.
    """
    global _active
    with _lock:
        previous = driver._active  # driver.active would look for a GPU
        driver.set_active(SimDriver())
        _active += 1
        if _active == 1:
            _enter()
    try:
        yield
    finally:
        with _lock:
            driver.set_active(previous)
            _active -= 1
            if _active == 0:
                _leave()


_do_compile = JITFunction._do_compile
_bench = Autotuner._bench
_do_bench = Autotuner.do_bench  # a cached property


def _enter() -> None:
    JITFunction._do_compile = _do_compile_simulated
    Autotuner._bench = _bench_simulated
    Autotuner.do_bench = property(lambda self: self._do_bench if _has_own_benchmark(self) else try_once, _set_benchmark)
    for name in _PER_RANK:
        setattr(Autotuner, name, _OfRank(name))
    eager.enter()


def _leave() -> None:
    JITFunction._do_compile = _do_compile
    Autotuner._bench = _bench
    Autotuner.do_bench = _do_bench
    for name in _PER_RANK:
        delattr(Autotuner, name)
    eager.leave()


def _do_compile_simulated(self: JITFunction, *args: Any, **kwargs: Any) -> Any:
    """Triton's compilation, with its hooks and caches, but by our compiler; not in another thread."""
    from ditron.sim.launch import compile_plain

    keep, self.compile = self.compile, compile_plain
    mode = _async_mode()
    token = mode.set(None) if mode is not None else None
    try:
        return _do_compile(self, *args, **kwargs)
    finally:
        self.compile = keep
        if token is not None:
            mode.reset(token)


def _async_mode() -> Any:
    try:
        from triton.runtime._async_compile import active_mode
    except ImportError:
        return None
    return active_mode


def _has_own_benchmark(self: Autotuner) -> bool:
    """Whether the kernel's author has written how to measure; times for Triton's way do not count."""
    timed = self.num_warmups is not None or self.num_reps is not None or self.use_cuda_graph
    return self._do_bench is not None and not timed


def _set_benchmark(self: Autotuner, benchmark: Any) -> None:
    """``autotuner.do_bench = benchmark``, which stays when the simulator is left."""
    self._do_bench = self.__dict__["do_bench"] = benchmark


def _bench_simulated(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
    """Times of one configuration; where the author does not measure, only until one has worked."""
    if _has_own_benchmark(self):
        return _bench(self, *args, **kwargs)
    if self.tuned_for is self.nargs:
        return [float("inf")] * 3
    times = _bench(self, *args, **kwargs)
    if times[0] != float("inf"):
        self.tuned_for = self.nargs
    return times


# What an autotuner writes down while it runs. Ranks of a simulation share the autotuner, as processes would not.
_PER_RANK = ("nargs", "restore_copies", "best_config", "cache", "tuned_for")


class _OfRank:
    """An attribute of which each simulated rank has its own; elsewhere the object's, as ever."""

    def __init__(self, name: str):
        self.name = name

    def _home(self, obj: Any) -> dict:
        rank = view.current_world()
        if rank is None:
            return obj.__dict__
        homes = rank.__dict__.setdefault("_autotuners", {})
        if id(obj) not in homes:
            # The object is kept, so that its id stays its own.
            homes[id(obj)] = {"self": obj, "cache": dict(obj.__dict__.get("cache", ()))}
        return homes[id(obj)]

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        if obj is None:
            return self
        try:
            return self._home(obj)[self.name]
        except KeyError:
            if self.name == "tuned_for":
                return None
            raise AttributeError(self.name) from None

    def __set__(self, obj: Any, value: Any) -> None:
        self._home(obj)[self.name] = value


class _Machines(threading.local):
    """Of the calling thread, for a machine is one thread's: one that looks for races, and one that does not."""

    def __init__(self) -> None:
        self.by_races: dict[bool, _sim.Machine] = {}


_machines = _Machines()


def run_programs(kernel: Any, grid: tuple[int, ...], slots: list[int], tensors: list[tuple[str, Any]]) -> None:
    """Run a kernel of the simulator on the calling rank, or on a machine of one rank when no rank calls.

    ``tensors`` are names and values of arguments, for reports.

    Raises SimulationError for what a program does wrong, DeadlockError when none can go on.
    """
    rank = view.current_world()
    if rank is not None:
        rank.launch(kernel, grid, slots, tensors=tensors)
        return
    if not all(0 <= extent < 2**31 for extent in grid):
        raise DitronError(f"launch of {kernel.name}: expected extents from 0 to 2**31 - 1, got a grid of {grid}")
    races = compiles_for_races()
    machines = _machines.by_races
    with _lock:
        if races not in machines:
            machines[races] = World(1, heap_bytes=1 << 20, races=races).machine
        try:
            _run_alone(machines[races], kernel, grid, slots, tensors)
        except BaseException:
            del machines[races]  # programs that did not end are still in it
            raise


def _run_alone(
    machine: _sim.Machine, kernel: Any, grid: tuple[int, ...], slots: list[int], tensors: list[tuple[str, Any]]
) -> None:
    operands, bounded = view.operands(kernel, slots, tensors)
    machine.submit(
        0,
        [0],
        kernel.address,
        kernel.name,
        list(kernel.locations),
        list(grid),
        view.signed(slots),
        operands,
        kernel.independent,
        bounded,
        plain=True,
    )
    while True:
        status = machine.run(MAX_SWITCHES)
        if lines := machine.take_printed():
            print("\n".join(lines))
        for warning in machine.take_warnings():
            report.warn(warning)
        if machine.take_completed():
            machine.meet([0], True)  # of what was before nothing can race any more
            return
        if status == _sim.Status.FAILED:
            raise report.failure(machine.failure)
        if status in (_sim.Status.STUCK, _sim.Status.IDLE):
            raise report.deadlock(machine.waiters(), machine.starved(), ())
