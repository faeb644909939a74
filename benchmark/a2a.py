"""All-to-all operators of ``ditron.kernels`` on the GPUs of one host, against NCCL and cuBLAS.

    torchrun --nproc-per-node 2 benchmark/a2a.py all_to_all gemm_a2a a2a_gemm --table out.md

``gemm_a2a`` and ``a2a_gemm`` have the shapes of the paper's Table 6, Ulysses' projections: 64, 32 and 16 heads of 128,
8192 or 15360 tokens a rank (as its weak scaling has on 8 GPUs); q, k and v are one product. NCCL's contender is given
the layout that it needs: products by owner of the columns. As tp.py measures and compares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import Case, Run, arguments, copies_alone, floor, measure, parse_schedule  # noqa: E402
from measuring import random  # noqa: E402

from ditron import kernels  # noqa: E402


def all_to_all(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    """``bytes`` of a rank's operand, its own part included."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for nbytes in args.bytes:
        x = random(ranks, nbytes // 2 // ranks, rank, device)
        out, exchanged = torch.empty_like(x), torch.empty_like(x)
        dist.all_to_all_single(exchanged, x)

        def nccl(x=x, exchanged=exchanged) -> torch.Tensor:
            dist.all_to_all_single(exchanged, x)
            return exchanged

        runs: dict[str, Run] = {
            "copies alone": copies_alone(nbytes // ranks, device),
            "torch + NCCL": nccl,
            "ditron": lambda x=x, out=out: kernels.all_to_all(x, out=out),
        }
        for how, schedule in args.move_schedules:
            runs[f"ditron, {how}"] = lambda x=x, out=out, s=schedule: kernels.all_to_all(x, out=out, **s)
        calls = 20 if nbytes <= 1 << 22 else 4
        yield Case("all_to_all", f"{nbytes} bytes", runs, exchanged.clone().float(), 1e-9, calls)


def all_to_all_v(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    """Equal splits, and ones that grow with sender and receiver; NCCL is told them by the host."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for nbytes in args.bytes:
        for width in (4096,) if nbytes > 1 << 16 else (256,):
            rows = nbytes // 2 // width
            for name, share in (("equal", lambda s, d: 1), ("unequal", lambda s, d: 1 + (s + 2 * d) % ranks)):
                most = max(sum(share(s, d) for d in range(ranks)) for s in range(ranks))
                counts = [[rows * share(s, d) // most for d in range(ranks)] for s in range(ranks)]
                mine, theirs = counts[rank], [counts[s][rank] for s in range(ranks)]
                max_rows = max(sum(counts[s][d] for s in range(ranks)) for d in range(ranks))
                x, splits = random(rows, width, rank, device), torch.tensor(mine, device=device)
                out, exchanged = (torch.empty(max_rows, width, dtype=x.dtype, device=device) for _ in range(2))
                dropped, total = torch.zeros(1, dtype=torch.int64, device=device), sum(theirs)

                def nccl(x=x, exchanged=exchanged, mine=mine, theirs=theirs, total=total) -> torch.Tensor:
                    dist.all_to_all_single(exchanged[:total], x[: sum(mine)], theirs, mine)
                    return exchanged[:total]

                def ours(
                    x=x, splits=splits, out=out, max_rows=max_rows, total=total, dropped=dropped, **schedule
                ) -> torch.Tensor:
                    kernels.all_to_all_v(x, splits, max_rows=max_rows, out=out, dropped=dropped, **schedule)
                    return out[:total]

                runs: dict[str, Run] = {
                    "copies alone": copies_alone([n * width * 2 for n in mine], device),
                    "torch + NCCL": nccl,
                    "ditron": ours,
                }
                for how, schedule in args.v_schedules:
                    runs[f"ditron, {how}"] = lambda ours=ours, s=schedule: ours(**s)
                calls = 20 if nbytes <= 1 << 22 else 4
                yield Case("all_to_all_v", f"{name}, {nbytes} bytes", runs, nccl().clone().float(), 1e-9, calls)


def shapes(args: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """Rows of a rank, and heads times their size."""
    for heads in args.heads:
        for rows in args.rows:
            yield rows, heads * 128


def gemm_a2a(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for rows, K in shapes(args):
        N = 3 * K // ranks
        x, w = random(rows, K, rank, device), random(3 * K, K, 100, device)
        product = torch.empty(ranks, rows, N, dtype=x.dtype, device=device)
        whole = product.view(rows, -1)
        exchanged, out = (torch.empty(ranks * rows, N, dtype=x.dtype, device=device) for _ in range(2))
        everybody = torch.empty(ranks * rows, K, dtype=x.dtype, device=device)
        dist.all_gather_into_tensor(everybody, x)
        expected = everybody.float() @ w.chunk(ranks)[rank].float().T
        del everybody

        def nccl(x=x, w=w, product=product, exchanged=exchanged) -> torch.Tensor:
            for owner, part in enumerate(w.chunk(ranks)):
                torch.mm(x, part.T, out=product[owner])
            dist.all_to_all_single(exchanged, product.view_as(exchanged))
            return exchanged

        runs: dict[str, Run] = {
            "cuBLAS alone": floor(lambda x=x, w=w, whole=whole: torch.mm(x, w.T, out=whole)),
            "copies alone": copies_alone(exchanged.nbytes // ranks, device),
            "torch + NCCL": nccl,
            "ditron": lambda x=x, w=w, out=out: kernels.gemm_a2a(x, w, out=out),
        }
        for how, schedule in args.ga_schedules:
            runs[f"ditron, {how}"] = lambda x=x, w=w, out=out, s=schedule: kernels.gemm_a2a(x, w, out=out, **s)
        yield Case("gemm_a2a", f"{rows} x {3 * K} x {K}", runs, expected, 4e-3, 2)


def a2a_gemm(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for rows, N in shapes(args):
        K = N // ranks
        x, w = random(ranks * rows, K, rank, device), random(N, N, 100, device)
        parts = torch.empty(ranks, rows, K, dtype=x.dtype, device=device)
        whole, out = (torch.empty(rows, N, dtype=x.dtype, device=device) for _ in range(2))
        product = torch.empty_like(out)
        dist.all_to_all_single(parts.view_as(x), x)
        expected = parts.transpose(0, 1).reshape(rows, N).float() @ w.float().T

        def nccl(x=x, w=w, parts=parts, whole=whole, product=product) -> torch.Tensor:
            dist.all_to_all_single(parts.view_as(x), x)
            whole.view(parts.shape[1], ranks, -1).copy_(parts.transpose(0, 1))
            return torch.mm(whole, w.T, out=product)

        def nccl_parts(x=x, w=w, parts=parts, product=product) -> torch.Tensor:
            dist.all_to_all_single(parts.view_as(x), x)
            for sender, columns in enumerate(w.chunk(ranks, 1)):
                torch.addmm(product, parts[sender], columns.T, beta=float(sender > 0), out=product)
            return product

        runs: dict[str, Run] = {
            "cuBLAS alone": floor(lambda w=w, whole=whole, product=product: torch.mm(whole, w.T, out=product)),
            "copies alone": copies_alone(parts[0].nbytes, device),
            "torch + NCCL": nccl,
            "torch + NCCL, by part of K": nccl_parts,
            "ditron": lambda x=x, w=w, out=out: kernels.a2a_gemm(x, w, out=out),
        }
        for how, schedule in args.ag_schedules:
            runs[f"ditron, {how}"] = lambda x=x, w=w, out=out, s=schedule: kernels.a2a_gemm(x, w, out=out, **s)
        yield Case("a2a_gemm", f"{rows} x {N} x {N}", runs, expected, 6e-3, 2)


OPERATORS = {"all_to_all": all_to_all, "all_to_all_v": all_to_all_v, "gemm_a2a": gemm_a2a, "a2a_gemm": a2a_gemm}


def main() -> None:
    parser = arguments(__doc__, OPERATORS)
    parser.add_argument("--heads", nargs="*", type=int, default=[64, 32, 16])
    parser.add_argument("--rows", nargs="*", type=int, default=[8192, 15360], help="tokens of a rank")
    parser.add_argument("--bytes", nargs="*", type=int, default=[1 << k for k in (13, 16, 18, 20, 23, 26)])
    for operator in ("ga", "ag", "move", "v"):
        parser.add_argument(
            f"--{operator}-schedules", nargs="*", type=parse_schedule, default=[], metavar="pieces=1,group_m=4"
        )
    measure(OPERATORS, parser.parse_args())


if __name__ == "__main__":
    main()
