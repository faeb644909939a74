"""Run a distributed program on simulated ranks, on the CPU, one step at a time and the same way for the same seed.

    from ditron import sim

    def main():
        ditron.init()
        ...                              # what a rank does

    results = sim.run(main, ranks=4)     # one result per rank

Each rank's script is a thread of this process, and only one runs at a time; kernels are run by a native machine
(``runtime/sim``). Nothing is copied between them: a rank's tensors are CPU tensors.
"""
from __future__ import annotations

from ditron.sim.runner import run, run_script
from ditron.sim.view import RankView, SimGroup, current_world
from ditron.sim.world import World

__all__ = ["RankView", "SimGroup", "World", "current_world", "run", "run_script", "symbols"]


def symbols() -> dict[str, int]:
    """Address of each function that code compiled for the simulator may call, by name."""
    from ditron import _sim
    return _sim.symbols()
