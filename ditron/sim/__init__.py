"""Run a distributed program on simulated ranks, on the CPU, deterministically for a given seed.

    from ditron import sim

    def main():
        ditron.init()
        ...                              # what a rank does

    results = sim.run(main, ranks=4)     # one result per rank

The host code of each rank is a thread of this process, of which one runs at a time; kernels run on a native machine
(``runtime/sim``). A rank's tensors are CPU tensors.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from ditron.sim.rank import RankView, current_world
from ditron.sim.rendezvous import RankGroup
from ditron.sim.runner import predict, run, run_script
from ditron.sim.world import World

__all__ = ["RankGroup", "RankView", "World", "current_world", "predict", "run", "run_script", "symbols", "triton"]


def symbols() -> dict[str, int]:
    """Address of each function that code compiled for the simulator may call, by name."""
    from ditron import _sim

    return _sim.symbols()


def triton(*, as_cuda: bool = False) -> AbstractContextManager[None]:
    """Within it, kernels of plain ``@triton.jit``, of whatever package, run on the simulator.

        with ditron.sim.triton():
            kernel[grid](x, y, n, BLOCK=1024)     # x and y are CPU tensors

    An autotuner takes the first configuration that works, for time on the simulator says nothing about a GPU.
    :func:`run` and ``ditron run --sim`` are within it already; launches of ranks run on the calling rank, others on a
    machine of one rank. Raises what compiling raises, SimulationError for what a kernel does wrong.

    Args:
        as_cuda: for code that requires CUDA: in the calling thread torch reports that there is a CUDA device and that
            tensors are on it, and takes ``device="cuda"`` for the CPU (:mod:`ditron.sim.fake_cuda`).
            ``ditron run --as-cuda`` is the same.
    """
    from ditron.sim.plain.launcher import simulated

    return simulated(as_cuda=as_cuda)
