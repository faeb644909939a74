"""The product of ``ag_gemm`` on one GPU, with nothing to wait for, against cuBLAS: tiles, stages, warps.

    torchrun --nproc-per-node 1 benchmark/product_alone.py --rows 512 1024 2048
    torchrun --nproc-per-node 1 benchmark/product_alone.py --rows 8192 --shapes 2752x4096 --schedules group_m=4 stages=3

Contenders take turns as CUDA graphs of ``--calls`` products, the order rotates, the L2 cache holds other data before
each; medians, us of one product and the ratio to cuBLAS. Results are compared with fp32 torch. A shape has ``--limit``
seconds.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import parse_schedule  # noqa: E402
from grouped_gemm import graph_of, medians  # noqa: E402
from measuring import extend, random, relative_error, start  # noqa: E402

import ditron  # noqa: E402
from ditron.kernels.ag_gemm import ag_gemm_program  # noqa: E402

# N x K of a rank: AG+GEMM of LLaMA 70B, 8B and 7B *tp8slice*, then GEMM+RS of the first two.
SHAPES = ["3584x8192", "1792x4096", "1376x4096", "8192x3584", "4096x1792"]

# Of ag_gemm_program: tiles of some rows, columns and depth.
SCHEDULES = [
    "block=128x256x64,stages=4,num_warps=8",
    "block=128x128x64,stages=5,num_warps=8",
    "block=128x128x64,stages=5,num_warps=4",
    "block=128x128x64,stages=6,num_warps=4",
    "block=128x128x128,stages=3,num_warps=4",
    "block=64x128x128,stages=4,num_warps=4",
    "block=64x256x64,stages=4,num_warps=4",
    "block=64x256x64,stages=4,num_warps=8",
]


def contenders(M: int, N: int, K: int, schedules: list[tuple[str, dict]], device: torch.device) -> dict:
    """Calls of cuBLAS and by each schedule, whose results agree."""
    a, b = random(M, K, 0, device), random(N, K, 1, device)
    out, unused = torch.empty(M, N, dtype=a.dtype, device=device), torch.empty(N, dtype=a.dtype, device=device)
    expected = a.float() @ b.float().T
    runs = {"cuBLAS": lambda: torch.mm(a, b.T, out=out)}
    runs["cuBLAS"]()  # what it allocates is not captured
    for name, schedule in schedules:
        c = torch.empty_like(out)
        run = partial(ag_gemm_program, a, b, unused, c, a, None, None, M, **({"pieces": 1} | schedule))
        run()
        assert (error := relative_error(c, expected)) < 5e-3, (name, error)
        runs[name] = run
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", type=int, default=[512, 1024, 2048])
    parser.add_argument("--shapes", nargs="*", default=SHAPES, help="N x K")
    parser.add_argument("--schedules", nargs="*", type=parse_schedule, default=[*map(parse_schedule, SCHEDULES)])
    parser.add_argument("--calls", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--limit", type=int, default=120)
    args = parser.parse_args()
    device = start(args.limit)
    ditron.init(transport="p2p")
    cache = torch.zeros(48 << 20, dtype=torch.int32, device=device)
    for shape in args.shapes:
        N, K = map(int, shape.split("x"))
        for M in args.rows:
            extend(args.limit)
            runs = contenders(M, N, K, args.schedules, device)
            torch.cuda.synchronize()
            graphs = {name: graph_of(lambda run=run: [run() for _ in range(args.calls)]) for name, run in runs.items()}
            times = medians(graphs, args.rounds, cache, args.calls)
            for name, time in sorted(times.items(), key=lambda item: item[1]):
                print(
                    f"{M} x {shape}: {1000 * time:7.1f} us, {time / times['cuBLAS']:.3f} of cuBLAS: {name}", flush=True
                )
    ditron.finalize()


if __name__ == "__main__":
    main()
