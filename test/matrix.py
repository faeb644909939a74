"""Compile every example for both vendors with the Triton at hand; what ``make test-matrix`` runs per version."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import triton

import ditron

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
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
    print(f"{passed} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
