"""What kernels print on a real GPU and on the simulator, line by line.

    python test/gpu/check_prints.py

The kernels are those of ``test/python/support/printing_kernels.py``. A GPU prints in any order, and an element once for each
thread that holds it, so sets of lines are compared; addresses are left out. Of floats in hexadecimal a GPU shows what
happens to be there, so these are shown and not compared. Exits with 1 when other lines differ.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "support"))
import printing_kernels  # noqa: E402

import ditron  # noqa: E402

KERNELS = ("types", "in_hex", "shapes", "texts")
ADDRESS = re.compile(r"(?<=ptr: |d 1\) )0x[0-9a-f]+$", re.MULTILINE)
UNLIKE = re.compile(r"pid .* (f8|f16|bf16|f32|f64): 0x\w+$")


def launch(name: str, device: str) -> None:
    x = torch.arange(16, dtype=torch.int32, device=device) * 40 - 1
    f = torch.arange(16, dtype=torch.float32, device=device) / 4 - 1
    f[5:9] = torch.tensor([float("inf"), float("-inf"), 1e-9, float("nan")], device=device)
    getattr(printing_kernels, name)[(1, 2)](x, f)


def lines(text: str) -> set[str]:
    return set(ADDRESS.sub("0x...", text).splitlines())


def main() -> int:
    differ = 0
    for name in KERNELS:
        with ditron.sim.triton(), contextlib.redirect_stdout(io.StringIO()) as out:
            launch(name, "cpu")
        here = lines(out.getvalue())
        there = lines(
            subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True).stdout
        )
        unlike = {line for line in here ^ there if UNLIKE.match(line)}
        wrong = (here ^ there) - unlike
        differ += len(wrong)
        print(f"{name}: {len(here & there)} lines alike, {len(wrong)} differ, {len(unlike)} floats in hexadecimal do")
        for line in [*sorted(wrong)[:20], *sorted(unlike)[:8]]:
            print(f"  {'simulator' if line in here else 'GPU'}: {line}")
    return int(differ > 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        launch(sys.argv[1], "cuda")
        torch.cuda.synchronize()
    else:
        sys.exit(main())
