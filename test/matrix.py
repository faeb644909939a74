"""Compile every example for both vendors with the Triton at hand; what ``make test-matrix`` runs per version."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import triton

import ditron

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))
import ag_gemm  # noqa: E402
import all_gather  # noqa: E402
import gemm_rs  # noqa: E402
import put_signal  # noqa: E402
import ring  # noqa: E402

KERNELS = [
    (ring, "ring_kernel"),
    (put_signal, "shift_kernel"),
    (all_gather, "all_gather_kernel"),
    (ag_gemm, "ag_gemm_kernel"),
    (gemm_rs, "gemm_rs_kernel"),
]
TARGETS = {"cuda:90": "cubin", "hip:gfx942": "hsaco"}


def explore() -> None:
    """The simulator over two seeds, with nothing to say at the end of the process: Triton 3.9 lists what leaks."""
    words = ["-m", "ditron.cli", "run", "--sim", "2", "--seeds", "2", str(EXAMPLES / "ring.py")]
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0 and "leaked" not in run.stderr, run.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--expect", required=True, help="the Triton version that must be at work")
    args = parser.parse_args()
    assert triton.__version__ == args.expect, f"expected triton {args.expect}, got {triton.__version__}"
    passed = 0
    for module, name in KERNELS:
        for target, binary in TARGETS.items():
            start = time.perf_counter()
            program = ditron.compile(getattr(module, name), target=target, transport="p2p", **module.EXAMPLE)
            size = len(program.asm[binary])
            assert size > 0
            passed += 1
            print(
                f"triton {triton.__version__}  {name:<18} {target:<11} {binary} {size:>7} bytes  "
                f"{time.perf_counter() - start:.2f} s",
                flush=True,
            )
    explore()
    print(f"{passed} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
