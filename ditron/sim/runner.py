"""Run a function or a script on simulated ranks."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    from ditron.machines import Machine
    from ditron.sim.prediction import Prediction

__all__ = ["predict", "run", "run_script"]


def run(
    function: Callable[..., Any],
    ranks: int = 4,
    ranks_per_node: int | None = None,
    seed: int | None = None,
    args: Sequence[Any] = (),
    *,
    trace: str | Path | None = None,
    timeline: str | Path | None = None,
    **machine: Any,
) -> list:
    """Call ``function(*args)`` on every one of ``ranks`` simulated ranks; return the results in rank order.

    Args:
        ranks_per_node: default: all ranks are on one node. seed: of the schedule (default 0); the same seed, the same
            run, and without one launches whose programs are independent may run in parallel.
        trace: file for the events of every rank and program, in order, which ui.perfetto.dev opens.
        timeline: file (.png, .svg or .pdf) for a picture of it, for up to 16 ranks; needs matplotlib (ditron[plot]).
        machine: ``heap_bytes``, ``resident``, ``stack_bytes``, ``races``, ``weak``, ``graphs``, ``machine``,
            ``timing_only``: as :class:`ditron.sim.World` takes them.

    Kernels of plain ``@triton.jit`` run on the simulator too, as under :func:`ditron.sim.triton`.
    The generators of ``torch``, ``random`` and ``numpy.random`` have a state per rank, copied from the caller's.
    The first exception on any rank ends all of them and is raised here, with the rank in a note. A kernel's mistake is
    a SimulationError, a hang a DeadlockError.
    """
    from ditron.sim.plain.launcher import simulated
    from ditron.sim.recorder import recording
    from ditron.sim.world import World

    world = World(ranks, ranks_per_node, seed, **machine)
    with simulated(), recording(world, getattr(function, "__name__", "a function"), trace, timeline):
        return world.run(function, args)


def predict(
    function: Callable[..., Any],
    machine: Machine | str | Path,
    ranks: int | None = None,
    args: Sequence[Any] = (),
    *,
    timing_only: bool = True,
    trace: str | Path | None = None,
    timeline: str | Path | None = None,
    **world: Any,
) -> Prediction:
    """How long ``function(*args)``, called on every rank, takes on a machine: calls, launches, the critical path.

    Args:
        machine: a name, a file, or one of :mod:`ditron.machines`. ranks: default, all that it has.
        timing_only: floating-point data is neither computed nor moved, so that shapes of full size take seconds.
        trace: file for what every program and stream did, in us, which ui.perfetto.dev opens.
        timeline: file (.png, .svg or .pdf) for a picture of the last call: SMs, streams, links, the critical path.
        world: as of :func:`run`; ``routing="zipf:1.2"``: how :func:`ditron.kernels.draw_routes` draws.

    Raises what :func:`run` raises; DitronError for a machine or a number of ranks that there is not, TypeError for what
    is no machine or no integer.
    """
    from ditron import machines
    from ditron.sim.plain.launcher import simulated
    from ditron.sim.recorder import recording
    from ditron.sim.world import World

    chosen = machine if isinstance(machine, machines.Machine) else machines.load(machine)
    ranks = chosen.size if ranks is None else ranks
    if type(ranks) is int and ranks < 1:
        raise DitronError(
            f"predict: expected at least 1 rank, or none for all {chosen.size} of {chosen.name}, got {ranks}"
        )
    simulation = World(ranks, machine=chosen, timing_only=timing_only, **world)
    with simulated(), recording(simulation, getattr(function, "__name__", "a function"), trace, timeline):
        simulation.run(function, args)
    return simulation.prediction


def run_script(
    path: str | Path,
    argv: Sequence[str] = (),
    ranks: int = 4,
    ranks_per_node: int | None = None,
    seed: int | None = None,
    *,
    trace: str | Path | None = None,
    timeline: str | Path | None = None,
    as_cuda: bool = False,
    **machine: Any,
) -> int:
    """Run a script as ``__main__`` on every simulated rank, each with globals of its own; return the exit code.

    Args:
        argv: the script's arguments. as_cuda: see :func:`ditron.sim.triton`. The others: see :func:`run`.

    Each rank draws random numbers like a new process: torch's generator begins alike on all, the others by the seed.
    The exit code is that of the first ``sys.exit`` with another than 0 on any rank; other exceptions are raised.
    """
    from ditron.sim.plain.launcher import simulated
    from ditron.sim.recorder import recording
    from ditron.sim.world import World

    path = str(path)
    code = compile(Path(path).read_bytes(), path, "exec")
    modules = [types.ModuleType("__main__") for _ in range(ranks)]
    for module in modules:
        module.__file__ = path
        module.__builtins__ = __builtins__

    def main() -> None:
        from ditron.sim.rank import current_world

        try:
            with simulated(as_cuda=as_cuda):
                exec(code, modules[current_world().rank].__dict__)
        except SystemExit as stop:
            if stop.code not in (None, 0):
                raise

    world = World(ranks, ranks_per_node, seed, **machine)
    old_argv, old_path = sys.argv, sys.path
    sys.argv = [path, *argv]
    sys.path = [str(Path(path).resolve().parent), *sys.path]
    try:
        with simulated(), recording(world, Path(path).name, trace, timeline):
            world.run(main, modules=modules)
        if world.timing is not None:
            print(world.prediction)
    except SystemExit as stop:
        if isinstance(stop.code, int):
            return stop.code
        print(stop.code, file=sys.stderr)
        return 1
    finally:
        sys.argv, sys.path = old_argv, old_path
    return 0
