"""AG+GEMM of few rows in graphs: the product whose programs divide K, beside cuBLAS behind an all-gather by packets.

    torchrun --nproc-per-node 2 benchmark/few_rows.py --table table.md
    torchrun --nproc-per-node 1 benchmark/few_rows.py --table table.md     # the same kernels, nothing travels

Copies of the weight take turns, so that none is in the L2 cache. *not early*: the product begins when the gather has
ended.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import Case, Run, arguments, floor, measure, parse_schedule  # noqa: E402
from measuring import random  # noqa: E402

from ditron import kernels  # noqa: E402

COLD_BYTES = 256 << 20


def in_turns(run: Callable[[torch.Tensor], object], weights: list[torch.Tensor]) -> Run:
    turns = itertools.cycle(weights)
    return lambda: run(next(turns))


def ag_gemm(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for N, K in args.shapes:
        b = random(N, K, 100 + rank, device)
        weights = [b.clone() for _ in range(max(2, COLD_BYTES // b.nbytes))]
        for M in args.rows:
            a, whole = random(M // ranks, K, rank, device), torch.empty(M, K, dtype=b.dtype, device=device)
            out = torch.empty(M, N, dtype=b.dtype, device=device)
            dist.all_gather_into_tensor(whole, a)
            expected = whole.float() @ b.float().T

            def ours(w: torch.Tensor, a=a, out=out, **given) -> torch.Tensor:
                return kernels.ag_gemm(a, w, out=out, **given)

            def nccl(w: torch.Tensor, a=a, out=out, whole=whole) -> torch.Tensor:
                dist.all_gather_into_tensor(whole, a)
                return torch.mm(whole, w.T, out=out)

            alone = in_turns(lambda w, whole=whole, out=out: torch.mm(whole, w.T, out=out), weights)
            runs = {"cuBLAS alone": floor(alone)} | ({"torch + NCCL": in_turns(nccl, weights)} if ranks > 1 else {})
            schedules: dict[str, dict] = {"sequential": {"algorithm": "sequential"}, "ditron": {}}
            schedules["split_k, not early"] = {"algorithm": "split_k", "is_early": False}
            for text in args.schedules:
                name, given = parse_schedule(text)
                schedules[name] = given | {"algorithm": "split_k"}
            for name, given in schedules.items():
                runs[name] = in_turns(lambda w, ours=ours, given=given: ours(w, **given), weights)
            yield Case("ag_gemm", f"M={M} {N}x{K}", runs, expected, 6e-3, calls=args.calls)


def main() -> None:
    operators = {"ag_gemm": ag_gemm}
    parser = arguments(__doc__, operators)
    shapes = [(3584, 8192), (1792, 4096), (7168, 4096), (1280, 8192)]
    parser.add_argument("--rows", nargs="*", type=int, default=[2, 16, 32, 64], help="of all ranks")
    parser.add_argument("--shapes", nargs="*", type=lambda t: tuple(map(int, t.split("x"))), default=shapes)
    parser.add_argument("--schedules", nargs="*", default=[], help="such as split=4,stages=4")
    parser.add_argument("--calls", type=int, default=20, help="in a graph")
    measure(operators, parser.parse_args())


if __name__ == "__main__":
    main()
