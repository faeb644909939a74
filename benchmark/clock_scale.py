"""How long a timing-only prediction takes, and its memory, by the number of ranks: AG+GEMM on nodes of 8 x H800.

    python benchmark/clock_scale.py                 # 8 to 128 ranks, a process each; half a minute for the largest
    python benchmark/clock_scale.py h800x8x16 1024  # one, with so many rows on each rank

LLaMA-3.1-405B's weight, divided by the ranks: [53248, 16384]. Seconds are of the prediction, without Python's imports.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import time

MACHINES = ("h800x8", "h800x8x2", "h800x8x4", "h800x8x8", "h800x8x16")


def predict(name: str, rows: int) -> None:
    """Print a line of the table."""
    import torch

    import ditron
    from ditron import machines, sim

    machine = machines.load(name)
    N, K = 53248 // machine.size, 16384

    def main() -> None:
        ditron.init()
        a, b = (torch.empty(*shape, dtype=torch.bfloat16) for shape in ((rows, K), (N, K)))
        ditron.kernels.ag_gemm(a, b, algorithm="overlapped")

    start, cpu = time.perf_counter(), time.process_time()
    world = sim.World(machine.size, machine=machine, timing_only=True, heap_bytes=64 << 30)
    world.run(main)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    us = max(call.us for call in world.prediction.calls[-1])
    tiles = machine.size * math.ceil(rows / 128) * math.ceil(N / 256)
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    cells = machine.size, rows, tiles, machine.size * tiles, f"{us / 1e3:.1f}", f"{seconds:.1f}", f"{cpu:.1f}"
    print("|", " | ".join(map(str, (*cells, f"{gigabytes:.2f}"))), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("machine", nargs="?", help=f"default: each of {', '.join(MACHINES)}")
    parser.add_argument("rows", nargs="?", type=int, default=512, help="on each rank")
    given = parser.parse_args()
    if given.machine:
        return predict(given.machine, given.rows)
    print("| ranks | rows of each | tiles of each | tiles of all | predicted, ms | s | CPU s | GB |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in MACHINES:
        subprocess.run([sys.executable, __file__, name, str(given.rows)], check=True)


if __name__ == "__main__":
    main()
