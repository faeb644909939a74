"""Tensor-parallel operators with quantized operands, on the GPUs of one host, against cuBLAS, NCCL and torch's own.

    torchrun --nproc-per-node 2 benchmark/tp_scaled.py ag_gemm gemm_rs --kinds row,fast row block int8 --table out.md

Shapes as in tp.py. A kind is how fp8 (e4m3) operands are scaled, ``tensor``, ``row`` or ``block`` (1 x 128 of A,
128 x 128 of B), and ``row,fast`` or ``tensor,fast`` with ``use_fast_accum``, here and in torch's products; or ``int8``,
with scales of rows. Errors, in ``--json``, are against fp32 products of the dequantized operands.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import (  # noqa: E402
    Case,
    Run,
    arguments,
    copies_alone,
    floor,
    measure,
    mlp_shapes,
    parse_schedule,
    usable,
)
from measuring import random  # noqa: E402

from ditron import kernels  # noqa: E402

FP8 = torch.float8_e4m3fn


class Quantized:
    """A matrix as fp8 or int8 with scales, and the bf16 one that it was made of."""

    def __init__(self, plain: torch.Tensor, kind: str, block: tuple[int, int] = (1, 128)):
        dtype = torch.int8 if kind == "int8" else FP8
        largest = 127.0 if kind == "int8" else torch.finfo(FP8).max
        rows, cols = plain.shape
        span = {"block": block, "tensor": (rows, cols)}.get(kind, (1, cols))
        tiles = plain.float().view(rows // span[0], span[0], cols // span[1], span[1])
        scales = tiles.abs().amax((1, 3), keepdim=True) / largest
        scaled = tiles / scales
        self.plain, self.scale = plain, scales[:, 0, :, 0].contiguous()
        self.data = (scaled.round() if kind == "int8" else scaled).to(dtype).view(rows, cols)
        self.exact = (self.data.float().view(tiles.shape) * scales).view(rows, cols)
        if kind == "tensor":
            self.scale = self.scale.view(())


def product(kind: str, fast: bool, out: torch.Tensor) -> Callable[..., torch.Tensor]:
    """torch's A times the transpose of B, scaled, of this kind."""
    if kind == "int8":

        def of_int8(a: torch.Tensor, scale_a: torch.Tensor, b: Quantized) -> torch.Tensor:
            return out.copy_(torch._int_mm(a, b.data.T) * scale_a * b.scale.T)

        return of_int8

    def of_fp8(a: torch.Tensor, scale_a: torch.Tensor, b: Quantized) -> torch.Tensor:
        scale_b = b.scale if kind == "tensor" else b.scale.T
        return torch._scaled_mm(a, b.data.T, scale_a, scale_b, out_dtype=out.dtype, use_fast_accum=fast, out=out)

    return of_fp8


def for_torch(scale: torch.Tensor, kind: str) -> torch.Tensor:
    """Scales of A as ``torch._scaled_mm`` has them: those of blocks column by column."""
    return scale.T.contiguous().T if kind == "block" else scale


def of_kind(text: str) -> tuple[str, bool]:
    kind, _, fast = text.partition(",")
    return kind, fast == "fast"


def ag_gemm(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks, group = dist.get_rank(), dist.get_world_size(), dist.group.WORLD.group_name
    rows = args.rows // ranks
    for name, N, K in mlp_shapes(ranks, args.shapes):
        for text in args.kinds:
            kind, fast = of_kind(text)
            whole = Quantized(torch.cat([random(rows, K, r, device) for r in range(ranks)]), kind)
            mine = whole.data.chunk(ranks)[rank].contiguous()
            scale = whole.scale if kind == "tensor" else whole.scale.chunk(ranks)[rank].contiguous()
            b = Quantized(random(N, K, 100 + rank, device), kind, (128, 128))
            c = torch.empty(args.rows, N, dtype=torch.bfloat16, device=device)
            gathered, whole_scale = torch.empty_like(whole.data), for_torch(whole.scale, kind)
            multiply = product(kind, fast, c)
            shard = symm_mem.empty(*mine.shape, dtype=mine.dtype, device=device).copy_(mine)
            symm_mem.rendezvous(shard, group=dist.group.WORLD)
            plain = random(rows, K, rank, device)

            def nccl(
                mine=mine, gathered=gathered, scale=scale, whole=whole, kind=kind, b=b, multiply=multiply
            ) -> torch.Tensor:
                dist.all_gather_into_tensor(gathered.view(torch.uint8), mine.view(torch.uint8))
                scales = torch.empty_like(whole.scale)
                if kind == "tensor":
                    return multiply(gathered, scale, b)
                dist.all_gather_into_tensor(scales, scale)
                return multiply(gathered, for_torch(scales, kind), b)

            def fused(shard=shard, scale=scale, b=b, fast=fast, kind=kind) -> torch.Tensor:
                scale_b = b.scale if kind == "tensor" else b.scale.T
                return torch.ops.symm_mem.fused_all_gather_scaled_matmul(
                    shard, [b.data.T], scale, [scale_b], 0, group, [None], [None], [torch.bfloat16], [fast]
                )[1][0]

            def ours(mine=mine, scale=scale, b=b, c=c, fast=fast, **schedule: Any) -> torch.Tensor:
                return kernels.ag_gemm(
                    mine, b.data, scale_a=scale, scale_b=b.scale, use_fast_accum=fast, out=c, **schedule
                )

            runs: dict[str, Run] = {
                "cuBLAS alone": lambda w=whole, s=whole_scale, b=b, multiply=multiply: multiply(w.data, s, b),
                "copies alone": copies_alone(mine.nbytes, device),
                "torch + NCCL": nccl,
                "torch fused": fused,
                "ditron": ours,
                "ditron, bf16": floor(lambda p=plain, b=b, c=c: kernels.ag_gemm(p, b.plain, out=c)),
            }
            for how, schedule in args.schedules:
                runs[f"ditron, {how}"] = lambda ours=ours, s=schedule: ours(**s)
            yield Case(
                "ag_gemm", f"{name} {N}x{K} {text}", usable(runs), whole.exact @ b.exact.T, 5e-2 if fast else 4e-3
            )


def gemm_rs(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks, group, M = dist.get_rank(), dist.get_world_size(), dist.group.WORLD.group_name, args.rows
    for name, K, N in mlp_shapes(ranks, args.shapes):
        for text in args.kinds:
            kind, fast = of_kind(text)
            a = Quantized(random(M, K, rank, device), kind)
            b = Quantized(random(N, K, 100 + rank, device), kind, (128, 128))
            partial = torch.empty(M, N, dtype=torch.bfloat16, device=device)
            own = torch.empty(M // ranks, N, dtype=torch.bfloat16, device=device)
            expected = torch.empty(M // ranks, N, device=device)
            dist.reduce_scatter_tensor(expected, a.exact @ b.exact.T)
            scale, multiply = for_torch(a.scale, kind), product(kind, fast, partial)

            def nccl(a=a, scale=scale, b=b, partial=partial, own=own, multiply=multiply) -> torch.Tensor:
                multiply(a.data, scale, b)
                dist.reduce_scatter_tensor(own, partial)
                return own

            def fused(a=a, b=b, fast=fast, kind=kind, M=M, N=N) -> torch.Tensor:
                scale_b = b.scale if kind == "tensor" else b.scale.T
                return torch.ops.symm_mem.fused_scaled_matmul_reduce_scatter(
                    a.data, b.data.T, a.scale, scale_b, "sum", 0, 0, group, [M, N], None, None, torch.bfloat16, fast
                )

            def ours(a=a, b=b, own=own, fast=fast, **schedule: Any) -> torch.Tensor:
                return kernels.gemm_rs(
                    a.data, b.data, scale_a=a.scale, scale_b=b.scale, use_fast_accum=fast, out=own, **schedule
                )

            runs: dict[str, Run] = {
                "cuBLAS alone": floor(lambda a=a, s=scale, b=b, multiply=multiply: multiply(a.data, s, b)),
                "copies alone": copies_alone(own.nbytes, device),
                "torch + NCCL": nccl,
                "torch fused": fused,
                "ditron": ours,
                "ditron, bf16": floor(lambda a=a, b=b, own=own: kernels.gemm_rs(a.plain, b.plain, out=own)),
            }
            for how, schedule in args.schedules:
                runs[f"ditron, {how}"] = lambda ours=ours, s=schedule: ours(**s)
            yield Case("gemm_rs", f"{name} {N}x{K} {text}", usable(runs), expected, 5e-2 if fast else 6e-3)


OPERATORS = {"ag_gemm": ag_gemm, "gemm_rs": gemm_rs}


def main() -> None:
    parser = arguments(__doc__, OPERATORS)
    parser.add_argument("--rows", type=int, default=8192, help="M of all ranks together")
    parser.add_argument("--shapes", nargs="*", default=["70B strong", "70B tp8slice"], help="e.g. '7B strong'")
    parser.add_argument("--kinds", nargs="*", default=["row,fast", "row", "tensor,fast", "block", "int8"])
    parser.add_argument("--schedules", nargs="*", type=parse_schedule, default=[], metavar="pieces=1")
    args = parser.parse_args()
    measure(OPERATORS, args, f"M = {args.rows}, ")


if __name__ == "__main__":
    main()
