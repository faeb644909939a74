"""Runs the operators of liger-kernel on one simulated rank.

As a script it prints the table of docs/results: every operator, forward and backward.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

# Some virtual machines advertise bf16 instructions that they do not have: torch's own products end the process there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import torch  # noqa: E402
from liger_cases import CASES, IMPOSSIBLE  # noqa: E402
from plain_torch import BOUND, errors  # noqa: E402

import ditron  # noqa: E402

PACKAGE = Path(__file__).resolve().parents[3] / ".venv-matrix" / "liger"


def load() -> Any:
    """``liger_kernel.ops``; ImportError when the package is not installed."""
    if PACKAGE.is_dir() and str(PACKAGE) not in sys.path:
        sys.path.append(str(PACKAGE))
    with ditron.sim.triton():
        import liger_kernel.ops

        return liger_kernel.ops


def measure(ops: Any, name: str, dtype: torch.dtype) -> tuple[float, float | None, float]:
    """The errors of the results and of the gradients, and their bound."""
    this = CASES[name]
    torch.manual_seed(0)
    with ditron.sim.triton(as_cuda=this.as_cuda):
        ours = lambda *inputs: this.liger(ops, *inputs)  # noqa: E731
        forward, backward = errors(this.inputs(dtype), ours, this.plain, fixed=this.fixed, more_results=True)
        return forward, backward, BOUND[dtype] * this.tolerance


def table() -> None:
    ops = load()
    print("| operator | type | inputs | forward | backward | bound |\n| --- | --- | --- | --- | --- | --- |")
    for name, this in CASES.items():
        for dtype in this.dtypes:
            shapes = " ".join("x".join(map(str, v.shape)) or "scalar" for v in this.inputs(dtype))
            forward, backward, bound = measure(ops, name, dtype)
            errors = f"{forward:.1e} | {backward:.1e} | {bound:.0e}"
            print(f"| {name} | {str(dtype)[6:]} | {shapes} | {errors} |", flush=True)
    print("\n| cannot run | reason |\n| --- | --- |")
    for name, reason in IMPOSSIBLE.items():
        print(f"| {name} | {reason} |")


if __name__ == "__main__":
    table()
