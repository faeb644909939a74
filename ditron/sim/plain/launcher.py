"""Plain Triton on the simulator: ``@triton.jit`` kernels of any package, as they are, launched on CPU tensors.

Triton's own launch path is used, hooks and autotuners included. Four things are patched while :func:`simulated` is
active: the active driver, ``JITFunction``'s compilation, the autotuner's benchmark, and ``torch.compile``. All are
restored at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from ditron.sim import cuda_hook
from ditron.sim.plain import eager
from ditron.sim.plain.compile import compile_plain
from ditron.sim.plain.driver import SimDriver, run_once
from ditron.sim.rank import current_world

__all__ = ["simulated"]

_active = 0
_lock = threading.RLock()


@contextmanager
def simulated(*, as_cuda: bool = False) -> Iterator[None]:
    """Within it, kernels of ``@triton.jit`` run on the simulator; ``as_cuda``: see :func:`ditron.sim.triton`.

    Launched by a simulated rank they run there; else on a machine of one rank. It may be nested.
    """
    with _patched(), cuda_hook.patched() if as_cuda else nullcontext():
        yield


@contextmanager
def _patched() -> Iterator[None]:
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
    Autotuner.do_bench = property(lambda self: self._do_bench if _has_own_benchmark(self) else run_once, _set_benchmark)
    for name in _PER_RANK:
        setattr(Autotuner, name, _PerRank(name))
    eager.enter()


def _leave() -> None:
    JITFunction._do_compile = _do_compile
    Autotuner._bench = _bench
    Autotuner.do_bench = _do_bench
    for name in _PER_RANK:
        delattr(Autotuner, name)
    eager.leave()


def _do_compile_simulated(self: JITFunction, *args: Any, **kwargs: Any) -> Any:
    """Triton's compilation, with its hooks and caches, by our compiler, and in this thread."""
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
    """Whether the kernel's author gave a benchmark; options of Triton's own do not count."""
    timed = self.num_warmups is not None or self.num_reps is not None or self.use_cuda_graph
    return self._do_bench is not None and not timed


def _set_benchmark(self: Autotuner, benchmark: Any) -> None:
    """``autotuner.do_bench = benchmark``, which is kept when the simulator is left."""
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


# State of an autotuner. Simulated ranks share the object, where processes would have their own.
_PER_RANK = ("nargs", "restore_copies", "best_config", "cache", "tuned_for")


class _PerRank:
    """An attribute of which each simulated rank has its own; outside of ranks it is the object's."""

    def __init__(self, name: str):
        self.name = name

    def _attributes(self, obj: Any) -> dict:
        rank = current_world()
        if rank is None:
            return obj.__dict__
        per_object = rank.__dict__.setdefault("_autotuners", {})
        if id(obj) not in per_object:
            # Keeps the object, so that its id is not used again.
            per_object[id(obj)] = {"self": obj, "cache": dict(obj.__dict__.get("cache", ()))}
        return per_object[id(obj)]

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        if obj is None:
            return self
        try:
            return self._attributes(obj)[self.name]
        except KeyError:
            if self.name == "tuned_for":
                return None
            raise AttributeError(self.name) from None

    def __set__(self, obj: Any, value: Any) -> None:
        self._attributes(obj)[self.name] = value
