"""Time of the middle end: every pass between Triton's frontend and Triton's code generation (or LLVM), pass by pass;
and how long ditron-opt takes to start.

    python benchmark/middle_end.py                                  # AG+GEMM for cuda:90, all pipelines
    python benchmark/middle_end.py --example gemm_rs.py:gemm_rs_kernel --target sim --pipeline default

The best of several runs per pass, since what disturbs a run only adds to it. Exit code 1 when a total is above
``--limit`` milliseconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import ditron
from ditron.cli.kernels import load_kernel
from ditron_compiler.instrumentation import Instrumentation
from ditron_compiler.ir.passmanager import timing_table
from ditron_compiler.pipeline import PIPELINES

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
AG_GEMM = "ag_gemm_in_kernel.py:ag_gemm_kernel"


def measure(example: str, target: str, pipeline: str, runs: int = 10) -> list[tuple[str, float]]:
    """(pass, seconds) in the order they run, of the kernel ``example`` (FILE:KERNEL in examples/), best of ``runs``.

    Raises ditron.CompileError when the pipeline does not take the kernel.
    """
    kernel = load_kernel(str(EXAMPLES / example))
    best: list[tuple[str, float]] = []
    for _ in range(runs + 1):  # the first loads what the others have
        instrumentation = Instrumentation(measure=True)
        ditron.compile(kernel, target=target, pipeline=pipeline, stop_after="lowered", instrumentation=instrumentation)
        best = [
            (name, min(seconds, before))
            for (name, seconds), (_, before) in zip(
                instrumentation.timings, best or instrumentation.timings, strict=True
            )
        ]
    return best


def start_up(runs: int = 10) -> float:
    """Seconds that ditron-opt takes for an empty module and two passes, the best of ``runs``."""
    command = [
        sys.executable,
        "-m",
        "ditron_compiler.tools.opt",
        "--pass-pipeline=builtin.module(raise-primitives,canonicalize)",
    ]
    best = float("inf")
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run(command, input="module {}", text=True, capture_output=True, check=True)
        best = min(best, time.perf_counter() - begin)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--example", default=AG_GEMM, metavar="FILE:KERNEL", help=f"default: {AG_GEMM}")
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--pipeline", choices=PIPELINES, action="append", help="may be repeated (default: all)")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--limit", type=float, default=150, help="milliseconds that a pipeline may take (default 150)")
    args = parser.parse_args()
    print(f"ditron-opt starts and ends in {start_up(args.runs) * 1e3:.0f} ms\n")
    slow = False
    for pipeline in args.pipeline or PIPELINES:
        print(f"{args.example} for {args.target}, pipeline {pipeline}")
        try:
            timings = measure(args.example, args.target, pipeline, args.runs)
        except ditron.CompileError as error:
            print(f"not taken: {error.message}\n")
            continue
        print(timing_table(timings), end="\n\n")
        slow |= sum(seconds for _, seconds in timings) * 1e3 > args.limit
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
