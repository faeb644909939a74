"""Tensor-parallel operators of ``ditron.kernels`` on the GPUs of one host, against cuBLAS, NCCL and torch's own.

    torchrun --nproc-per-node 2 benchmark/tp.py ag_gemm gemm_rs all_reduce gemm_ar --table out.md

AG+GEMM and GEMM+RS have the shapes of LLaMA and Qwen MLPs: *strong* divides the weight among the ranks, *tp8slice*
gives each rank the eighth that it would have among eight. Floors: cuBLAS alone, and the copies between ranks alone.
Peers: torch + NCCL, torch's fused operators (async tensor parallelism), torch's one-shot and two-shot all-reduce. A
sample is one call, enqueued while the GPU is still busy, or a CUDA graph of several. Every result is compared with
fp32 torch. Multicast is off. A shape has ``--limit`` seconds, after which a rank ends itself and torchrun the others.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

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
    gemm_ar_peers,
    measure,
    mlp_shapes,
    parse_schedule,
)
from measuring import random  # noqa: E402

from ditron import kernels  # noqa: E402
from ditron.kernels.all_reduce_rms_norm import (
    ll_rms_norm_program,
    two_shot_ll_rms_norm_program,
    two_shot_rms_norm_program,
)  # noqa: E402
from ditron.kernels.operands import capacity_for  # noqa: E402


def ag_gemm_case(
    operator: str, name: str, rows: int, N: int, K: int, schedules: list, device: torch.device, calls: int
) -> Case:
    """``rows`` rows of each rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    a, b = random(rows, K, rank, device), random(N, K, 100 + rank, device)
    gathered = torch.empty(ranks * rows, K, dtype=a.dtype, device=device)
    dist.all_gather_into_tensor(gathered, a)
    c = torch.empty(ranks * rows, N, dtype=a.dtype, device=device)
    shard = symm_mem.empty(*a.shape, dtype=a.dtype, device=device).copy_(a)
    symm_mem.rendezvous(shard, group=dist.group.WORLD)

    def nccl() -> torch.Tensor:
        dist.all_gather_into_tensor(gathered, a)
        return torch.mm(gathered, b.T, out=c)

    def async_tp() -> torch.Tensor:
        return torch.ops.symm_mem.fused_all_gather_matmul(
            shard, [b.T], gather_dim=0, group_name=dist.group.WORLD.group_name
        )[1][0]

    runs: dict[str, Run] = {
        "cuBLAS alone": floor(lambda: torch.mm(gathered, b.T, out=c)),
        "copies alone": copies_alone(a.nbytes, device),
        "torch + NCCL": nccl,
        "async-TP": async_tp,
        "ditron": lambda: kernels.ag_gemm(a, b, out=c),
    }
    for how, schedule in schedules:
        runs[f"ditron, {how}"] = lambda s=schedule: kernels.ag_gemm(a, b, out=c, **s)
    return Case(operator, name, runs, gathered.float() @ b.float().T, 4e-3, calls)


def gemm_rs_case(
    operator: str, name: str, rows: int, N: int, K: int, schedules: list, device: torch.device, calls: int
) -> Case:
    """``rows`` rows for each rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    a, b = random(ranks * rows, K, rank, device), random(N, K, 100 + rank, device)
    product = torch.empty(ranks * rows, N, dtype=a.dtype, device=device)
    own = torch.empty(rows, N, dtype=a.dtype, device=device)
    expected = torch.empty(rows, N, device=device)
    dist.reduce_scatter_tensor(expected, a.float() @ b.float().T)

    def nccl() -> torch.Tensor:
        torch.mm(a, b.T, out=product)
        dist.reduce_scatter_tensor(own, product)
        return own

    runs: dict[str, Run] = {
        "cuBLAS alone": floor(lambda: torch.mm(a, b.T, out=product)),
        "copies alone": copies_alone(own.nbytes, device),
        "torch + NCCL": nccl,
        "async-TP": lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(
            a, b.T, "sum", 0, dist.group.WORLD.group_name
        ),
        "ditron": lambda: kernels.gemm_rs(a, b, out=own),
    }
    for how, schedule in schedules:
        runs[f"ditron, {how}"] = lambda s=schedule: kernels.gemm_rs(a, b, out=own, **s)
    return Case(operator, name, runs, expected, 6e-3, calls)


def ag_gemm(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for name, N, K in mlp_shapes(dist.get_world_size(), args.shapes):
        rows = args.rows // dist.get_world_size()
        yield ag_gemm_case("ag_gemm", f"{name} {N}x{K}", rows, N, K, args.ag_schedules, device, 2)


def gemm_rs(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for name, K, N in mlp_shapes(dist.get_world_size(), args.shapes):
        rows = args.rows // dist.get_world_size()
        yield gemm_rs_case("gemm_rs", f"{name} {N}x{K}", rows, N, K, args.rs_schedules, device, 2)


def ag_small(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for N, K in ((3584, 8192), (1792, 4096)):
        for rows in args.small_rows:
            name = f"M={dist.get_world_size() * rows} {N}x{K}"
            yield ag_gemm_case("ag_small", name, rows, N, K, args.small_schedules, device, 10)


def rs_small(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for N, K in ((8192, 3584), (4096, 1792)):
        for rows in args.small_rows:
            name = f"M={dist.get_world_size() * rows} {N}x{K}"
            yield gemm_rs_case("rs_small", name, rows, N, K, args.small_schedules, device, 10)


def all_reduce(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, group = dist.get_rank(), dist.group.WORLD.group_name
    for nbytes in args.bytes:
        x = random(1, nbytes // 2, rank, device).view(-1)
        out, reduced = torch.empty_like(x), x.clone()
        shared = symm_mem.empty(x.shape, dtype=x.dtype, device=device).copy_(x)
        symm_mem.rendezvous(shared, group=dist.group.WORLD)
        expected = x.float()
        dist.all_reduce(expected)

        def nccl(x=x, reduced=reduced) -> torch.Tensor:
            dist.all_reduce(reduced.copy_(x))
            return reduced

        def two_shot(x=x, shared=shared) -> torch.Tensor:
            return torch.ops.symm_mem.two_shot_all_reduce_(shared.copy_(x), "sum", group)

        runs: dict[str, Run] = {
            "torch + NCCL": nccl,
            "torch two-shot": two_shot,
            "copy": floor(lambda x=x, out=out: out.copy_(x)),
            "ditron": lambda x=x, out=out: kernels.all_reduce(x, out=out),
        }
        if nbytes <= 1 << 21:
            runs["torch one-shot"] = lambda shared=shared, x=x: torch.ops.symm_mem.one_shot_all_reduce(
                shared.copy_(x), "sum", group
            )
        for how, schedule in args.ar_schedules:
            if schedule["algorithm"] != "one_shot" or nbytes <= 1 << 21:
                runs[f"ditron, {how}"] = lambda x=x, out=out, s=schedule: kernels.all_reduce(x, out=out, **s)
        yield Case("all_reduce", f"{nbytes} bytes", runs, expected, 6e-3, calls=20 if nbytes <= 1 << 22 else 4)


def norm_by(x, residual, weight, out, total, schedule: dict) -> torch.Tensor:
    """A program with another schedule: ``protocol`` is ``"ll"`` or, in two shots, ``"two_shot_ll"`` or ``"ll128"``."""
    protocol, ranks = schedule.get("protocol", "ll"), dist.get_world_size()
    columns = schedule["block"] * (ranks if protocol == "two_shot_ll" else 1)
    schedule = {"parts": -(-x.shape[1] // columns)} | {k: v for k, v in schedule.items() if k != "protocol"}
    if protocol != "ll128":
        schedule["num_ranks"] = ranks
    program = {
        "ll": ll_rms_norm_program,
        "two_shot_ll": two_shot_ll_rms_norm_program,
        "ll128": two_shot_rms_norm_program,
    }[protocol]
    program(x, residual, weight, out, total, capacity_for(len(x)), 1e-6, **schedule)
    return out


def all_reduce_norm(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, group, N = dist.get_rank(), dist.group.WORLD.group_name, 8192
    for rows in args.norm_rows:
        x, residual, weight = random(rows, N, rank, device), random(rows, N, 9, device), random(1, N, 8, device)[0]
        shared = symm_mem.empty(x.shape, dtype=x.dtype, device=device).copy_(x)
        symm_mem.rendezvous(shared, group=dist.group.WORLD)
        out, total, reduced = torch.empty_like(x), torch.empty_like(x), x.clone()
        exact = x.float()
        dist.all_reduce(exact)
        normalize = torch.compile(lambda s, r, w: torch.nn.functional.rms_norm(s + r, (s.shape[-1],), w, 1e-6))

        def nccl(x=x, reduced=reduced, residual=residual, weight=weight, normalize=normalize) -> torch.Tensor:
            dist.all_reduce(reduced.copy_(x))
            return normalize(reduced, residual, weight)

        def one_shot(x=x, shared=shared, residual=residual, weight=weight, normalize=normalize) -> torch.Tensor:
            shared.copy_(x)
            return normalize(torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", group), residual, weight)

        def ours(x=x, residual=residual, weight=weight, out=out, total=total) -> torch.Tensor:
            return kernels.all_reduce_rms_norm(x, residual, weight, out=out, total=total)[0]

        runs: dict[str, Run] = {
            "copy": floor(lambda x=x, out=out: out.copy_(x)),
            "torch + NCCL": nccl,
            "torch one-shot": one_shot,
            "ditron": ours,
            "ditron, all_reduce alone": floor(lambda x=x, out=out: kernels.all_reduce(x, out=out)),
        }
        for how, schedule in args.norm_schedules:
            runs[f"ditron, {how}"] = functools.partial(norm_by, x, residual, weight, out, total, schedule)
        expected = torch.nn.functional.rms_norm(exact + residual.float(), (N,), weight.float(), 1e-6)
        yield Case("all_reduce_norm", f"{rows} x {N}", runs, expected, 1e-2, calls=20)


def all_gather(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for nbytes in args.bytes:
        x = random(1, nbytes // 2, rank, device).view(-1)
        out, gathered = (torch.empty(ranks * x.numel(), dtype=x.dtype, device=device) for _ in range(2))
        dist.all_gather_into_tensor(gathered, x)

        def nccl(x=x, gathered=gathered) -> torch.Tensor:
            dist.all_gather_into_tensor(gathered, x)
            return gathered

        runs: dict[str, Run] = {
            "copies alone": copies_alone(nbytes, device),
            "torch + NCCL": nccl,
            "ditron": lambda x=x, out=out: kernels.all_gather(x, out=out),
        }
        for how, schedule in args.move_schedules:
            runs[f"ditron, {how}"] = lambda x=x, out=out, s=schedule: kernels.all_gather(x, out=out, **s)
        calls = 20 if nbytes <= 1 << 22 else 4
        yield Case("all_gather", f"{nbytes} bytes a rank", runs, gathered.float(), 1e-9, calls)


def reduce_scatter(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for nbytes in args.bytes:
        x = random(ranks, nbytes // 2, rank, device).view(-1)
        out, scattered = (torch.empty(nbytes // 2, dtype=x.dtype, device=device) for _ in range(2))
        expected = torch.empty(nbytes // 2, device=device)
        dist.reduce_scatter_tensor(expected, x.float())

        def nccl(x=x, scattered=scattered) -> torch.Tensor:
            dist.reduce_scatter_tensor(scattered, x)
            return scattered

        runs: dict[str, Run] = {
            "copies alone": copies_alone(nbytes, device),
            "torch + NCCL": nccl,
            "ditron": lambda x=x, out=out: kernels.reduce_scatter(x, out=out),
        }
        for how, schedule in args.move_schedules:
            runs[f"ditron, {how}"] = lambda x=x, out=out, s=schedule: kernels.reduce_scatter(x, out=out, **s)
        calls = 20 if nbytes <= 1 << 22 else 4
        yield Case("reduce_scatter", f"{nbytes} bytes a rank", runs, expected, 6e-3, calls)


def gemm_ar(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank = dist.get_rank()
    for M in (1, 16, 64, 128, 8192):
        for N, K in ((8192, 28672 // 8), (5120, 25600 // 8)):
            a, b = random(M, K, rank, device), random(N, K, 100 + rank, device)
            out = torch.empty(M, N, dtype=a.dtype, device=device)
            expected = a.float() @ b.float().T
            dist.all_reduce(expected)
            runs = gemm_ar_peers(a, b) | {"ditron": lambda a=a, b=b, out=out: kernels.gemm_ar(a, b, out=out)}
            if M > 128:
                del runs["torch one-shot"]
            yield Case("gemm_ar", f"M={M} {N}x{K}", runs, expected, 6e-3, calls=10 if M <= 128 else 2)


OPERATORS = {
    "ag_gemm": ag_gemm,
    "gemm_rs": gemm_rs,
    "all_reduce": all_reduce,
    "all_reduce_norm": all_reduce_norm,
    "gemm_ar": gemm_ar,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "ag_small": ag_small,
    "rs_small": rs_small,
}


def main() -> None:
    parser = arguments(__doc__, OPERATORS)
    parser.add_argument("--rows", type=int, default=8192, help="M of all ranks together")
    parser.add_argument("--shapes", nargs="*", default=[], help="e.g. '7B strong'; all by default")
    for operator in ("ag", "rs", "ar", "norm", "small", "move"):
        parser.add_argument(
            f"--{operator}-schedules", nargs="*", type=parse_schedule, default=[], metavar="pieces=1,group_m=4"
        )
    parser.add_argument("--norm-rows", nargs="*", type=int, default=[1, 4, 16, 64, 128])
    parser.add_argument("--small-rows", nargs="*", type=int, default=[1, 8, 32, 64, 128, 256, 512, 1024])
    parser.add_argument("--bytes", nargs="*", type=int, default=[1 << k for k in (13, 16, 18, 19, 20, 21, 23, 25, 27)])
    args = parser.parse_args()
    measure(OPERATORS, args, f"M = {args.rows}, ")


if __name__ == "__main__":
    main()
