"""What ``make demo`` shows: AG+GEMM compiled for three targets, stage by stage, then run on 4 ranks and checked.

    python examples/demo.py

The kernel is ``ag_gemm.py``'s. It runs on the simulator, and on the GPUs of this machine when it has two or more.
"""

import subprocess
import sys
import time
from pathlib import Path

import ag_gemm

import ditron

HERE = Path(__file__).resolve().parent
TARGETS = ("sim", "cuda:90", "hip:gfx942")
RANKS = 4
# M = 4 x 75 divides by no tile.
SHAPE = ("--rows-per-rank", "75", "--n", "96", "--k", "80")


def compile_for(target: str) -> None:
    """Compile and print a table: each stage, what it took, how large it is."""
    start = time.perf_counter()
    program = ditron.compile(ag_gemm.ag_gemm_kernel, target=target, **ag_gemm.EXAMPLE)
    total = time.perf_counter() - start
    print(f"\n{program.name} for {target}: {1e3 * total:.0f} ms")
    for stage, code in program.asm.items():
        size = f"{len(code)} bytes" if isinstance(code, bytes) else f"{code.count(chr(10))} lines"
        print(f"  {stage:<9} {1e3 * program.seconds.get(stage, 0):8.1f} ms  {size:>12}")
    for stage, reason in program.missing.items():
        print(f"  {stage:<9} not made: {reason}")


def run(command: list[str]) -> None:
    print("\n$", " ".join(Path(word).name if word.startswith("/") else word for word in command), flush=True)
    subprocess.run(command, check=True)


def main() -> int:
    print("AllGather + GEMM, one kernel: compiled for", ", ".join(TARGETS))
    for target in TARGETS:
        compile_for(target)
    script = str(HERE / "ag_gemm.py")
    run([str(Path(sys.executable).parent / "ditron"), "run", "--sim", str(RANKS), script, *SHAPE])

    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus >= 2:
        run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(min(gpus, RANKS)), script, *SHAPE])
    else:
        print(f"\nnot run on GPUs: {gpus} here, and a run needs two")
    print("\nPASS")
    return 0


if __name__ == "__main__":
    sys.exit(main())
