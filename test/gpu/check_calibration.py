"""Every probe of ``ditron calibrate`` that several GPUs run, as its processes do: called, captured, sampled.

    torchrun --nproc-per-node 2 test/gpu/check_calibration.py
    torchrun --nproc-per-node 2 test/gpu/share_gpu.py test/gpu/check_calibration.py --skip nccl

Times are printed, and mean nothing where ranks share a GPU. Exits with 1 when a probe raises; ends itself when one hangs.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import tempfile
from pathlib import Path

from ditron.calibration.measuring import ProbeBench
from ditron.calibration.probes import HELD_OUT, PROBES
from ditron.tuning.bench import GpuBench
from ditron.tuning.problem import Problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip", default="", help="probes of numbers that begin so")
    parser.add_argument("--limit", type=int, default=60, help="seconds a probe may take")
    args = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = Path(tempfile.gettempdir()) / f"ditron-calibration-{os.getppid()}"  # of this torchrun
    folder.mkdir(exist_ok=True)
    faulthandler.dump_traceback_later(args.limit, exit=True)
    bench = ProbeBench(rank, ranks, str(folder), "graph")
    probes = [probe for probe in (*PROBES, *HELD_OUT) if 1 < probe.ranks <= ranks]
    for probe in probes:
        if args.skip and probe.number.startswith(args.skip):
            continue
        faulthandler.dump_traceback_later(args.limit, exit=True)
        call, options = bench.prepare(Problem("probe", "bf16", ranks, 1)), {"probe": str(probe)}
        for _ in range(2):
            bench.differs(call(options), None)
        us = GpuBench.sampler(bench, lambda call=call, options=options: call(options))()
        if rank == 0:
            print(f"{probe}: {us:.1f} us", flush=True)
    if rank == 0:
        print("every probe ran", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
