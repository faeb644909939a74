"""What an order of tiles costs and gains on GPUs: AG+GEMM in one kernel in plain order, reordered, and as written.

    torchrun --nproc-per-node 4 benchmark/swizzle_time.py --table out.md

The three are timed in turn, by CUDA events, every call after a meeting of all ranks; a row has the slowest rank's
median. On one GPU no tile waits for another rank, and the difference is what the arithmetic costs.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import tempfile
from pathlib import Path

import plain_examples
import torch
import triton

import ditron

# M of all ranks, N of each, K: a small product, one of the paper's sizes, and one whose tiles straddle ranks.
SHAPES = [(2048, 2048, 2048), (8192, 28672 // 8, 8192), (8 * 997, 28672 // 8, 8192)]


def sides(folder: Path) -> dict:
    """Each variant as a module of its own, with its own compiled kernels."""
    written = plain_examples.load(plain_examples.EXAMPLES / "ag_gemm_in_kernel.py")
    plain = plain_examples.plain("ag_gemm_in_kernel", folder)
    (folder / "again").mkdir()
    reordered = plain_examples.plain("ag_gemm_in_kernel", folder / "again")
    reordered.ag_gemm_kernel.pipeline = "swizzled"
    return {"plain order": plain, "insert-swizzle": reordered, "as written": written}


def median_ms(calls: dict, rounds: int) -> dict[str, float]:
    """Milliseconds of each side's calls, taken in turn, on this rank; the first rounds warm up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 3):
        for name, call in calls.items():
            ditron.all_gather_object(None)  # ranks begin together
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end))
    return {name: statistics.median(values[3:]) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--table", type=Path, help="append the table to this file")
    args = parser.parse_args()
    ditron.init(transport="p2p", heap_bytes=4 << 30)
    rank, ranks, device = ditron.rank(), ditron.num_ranks(), ditron.device()
    names = ["plain order", "insert-swizzle", "as written"]
    lines = [
        f"| M, N, K on {ranks} rank{'s' * (ranks > 1)} | " + " | ".join(f"{name}, ms" for name in names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    with tempfile.TemporaryDirectory() as folder:
        modules = sides(Path(folder))
        for m, n, k in SHAPES:
            rows = m // ranks
            a = torch.randn(rows, k, device=device).bfloat16()
            b = torch.randn(k, n, device=device).bfloat16()
            ops = {name: module.AllGatherGemm(rows, k, num_warps=8, num_stages=3) for name, module in modules.items()}
            results = [op(a, b) for op in ops.values()]
            assert all(torch.equal(result, results[0]) for result in results), f"rank {rank}: results differ"
            mine = median_ms({name: (lambda op=op, a=a, b=b: op(a, b)) for name, op in ops.items()}, args.rounds)
            slowest = {name: max(t[name] for t in ditron.all_gather_object(mine)) for name in names}
            lines.append(f"| {rows * ranks}, {n}, {k} | " + " | ".join(f"{slowest[name]:.3f}" for name in names) + " |")
            if rank == 0:
                print(lines[-1], flush=True)
    if rank == 0 and args.table:
        with args.table.open("a") as file:
            file.write(
                f"\n{ranks} x {torch.cuda.get_device_name()}, torch {torch.__version__}, triton "
                f"{triton.__version__}, {datetime.date.today()}\n\n" + "\n".join(lines) + "\n"
            )
    ditron.finalize()


if __name__ == "__main__":
    main()
