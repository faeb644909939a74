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
import datetime
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ag_gemm_triton import copy  # noqa: E402
from measuring import MLPS, Samples, capture, extend, random, relative_error, start  # noqa: E402
from tp_report import HEADER, MICROSECONDS, table_rows  # noqa: E402

import ditron  # noqa: E402
from ditron import kernels  # noqa: E402

Run = Callable[[], object]


class Case:
    """One shape of one operator: its contenders, the result that is expected, calls in a graph."""

    def __init__(self, operator: str, name: str, runs: dict[str, Run], expected: torch.Tensor, bound: float, calls=2):
        self.operator, self.name, self.runs = operator, name, runs
        self.expected, self.bound, self.calls = expected, bound, calls

    def measure(self, samples: Samples, rounds: int) -> dict:
        errors, graphs = {}, {}
        for name, run in self.runs.items():
            for _ in range(2):
                result = run()
                if isinstance(result, torch.Tensor):
                    errors[name] = relative_error(result, self.expected)
                    where = f"rank {dist.get_rank()}, {self.operator} {self.name}, {name}"
                    assert errors[name] < self.bound, f"{where}: relative error {errors[name]}"
            torch.cuda.synchronize()
            dist.barrier()
            graphs[name] = capture(run, self.calls)
        self.expected = None
        return {
            "errors": errors,
            "call": samples.medians(self.runs, rounds, 900_000, 1),
            "graph": samples.medians({n: g.replay for n, g in graphs.items()}, rounds, 100_000, self.calls),
        }


def floor(run: Run) -> Run:
    """What computes something else than the operator: its result is not compared."""
    return lambda: (run(), None)[1]


def schedule(text: str) -> tuple[str, dict[str, Any]]:
    """Keyword arguments ``a=1,b=word`` of an operator, and their text."""
    pairs = (item.split("=") for item in text.split(","))
    return text, {name: _value(value) for name, value in pairs}


def _value(text: str) -> int | str | tuple[int, ...]:
    """A number, a word, or numbers as in ``128x256x64``."""
    numbers = text.split("x")
    if not all(map(str.isdigit, numbers)):
        return text
    return int(text) if len(numbers) == 1 else tuple(map(int, numbers))


def mlp_shapes(ranks: int, names: list[str]) -> Iterator[tuple[str, int, int]]:
    """Name, the whole of the weight's divided dimension for this mode, and the other one."""
    for mlp, (n, k) in MLPS.items():
        for mode, part in (("strong", n // ranks), ("tp8slice", n // 8)):
            if not names or f"{mlp} {mode}" in names:
                yield f"{mlp} {mode}", part, k


def copies_alone(nbytes: int, device: torch.device) -> Run:
    """Push ``nbytes`` to every peer by the copy engine, nothing else."""
    source = torch.empty(nbytes, dtype=torch.uint8, device=device)
    box = symm_mem.empty(nbytes * dist.get_world_size(), dtype=torch.uint8, device=device)
    handle = symm_mem.rendezvous(box, group=dist.group.WORLD)
    rank, ranks, stream = dist.get_rank(), dist.get_world_size(), torch.cuda.Stream(priority=-1)
    peers = [(rank - step) % ranks for step in range(1, ranks)]
    targets = [int(handle.buffer_ptrs[peer]) + rank * nbytes for peer in peers]

    def run(_memory=(box, handle)) -> None:  # kept mapped
        stream.wait_stream(torch.cuda.current_stream())
        for target in targets:
            copy(stream, target, source.data_ptr(), nbytes)
        torch.cuda.current_stream().wait_stream(stream)

    return run


def ag_gemm(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks, M = dist.get_rank(), dist.get_world_size(), args.rows
    for name, N, K in mlp_shapes(ranks, args.shapes):
        a, b = random(M // ranks, K, rank, device), random(N, K, 100 + rank, device)
        gathered = torch.empty(M, K, dtype=a.dtype, device=device)
        dist.all_gather_into_tensor(gathered, a)
        c = torch.empty(M, N, dtype=a.dtype, device=device)
        shard = symm_mem.empty(*a.shape, dtype=a.dtype, device=device).copy_(a)
        symm_mem.rendezvous(shard, group=dist.group.WORLD)

        def nccl(a=a, b=b, gathered=gathered, c=c) -> torch.Tensor:
            dist.all_gather_into_tensor(gathered, a)
            return torch.mm(gathered, b.T, out=c)

        def async_tp(shard=shard, b=b) -> torch.Tensor:
            return torch.ops.symm_mem.fused_all_gather_matmul(
                shard, [b.T], gather_dim=0, group_name=dist.group.WORLD.group_name
            )[1][0]

        runs: dict[str, Run] = {
            "cuBLAS alone": lambda b=b, gathered=gathered, c=c: torch.mm(gathered, b.T, out=c),
            "copies alone": copies_alone(a.nbytes, device),
            "torch + NCCL": nccl,
            "async-TP": async_tp,
            "ditron": lambda a=a, b=b, c=c: kernels.ag_gemm(a, b, out=c),
        }
        for how, schedule in args.ag_schedules:
            runs[f"ditron, {how}"] = lambda a=a, b=b, c=c, s=schedule: kernels.ag_gemm(a, b, out=c, **s)
        yield Case("ag_gemm", f"{name} {N}x{K}", runs, gathered.float() @ b.float().T, 4e-3)


def ag_small(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for N, K in ((3584, 8192), (1792, 4096)):
        for rows in args.small_rows:
            a, b = random(rows, K, rank, device), random(N, K, 100 + rank, device)
            gathered = torch.empty(ranks * rows, K, dtype=a.dtype, device=device)
            dist.all_gather_into_tensor(gathered, a)
            c = torch.empty(ranks * rows, N, dtype=a.dtype, device=device)
            shard = symm_mem.empty(*a.shape, dtype=a.dtype, device=device).copy_(a)
            symm_mem.rendezvous(shard, group=dist.group.WORLD)

            def nccl(a=a, b=b, gathered=gathered, c=c) -> torch.Tensor:
                dist.all_gather_into_tensor(gathered, a)
                return torch.mm(gathered, b.T, out=c)

            def async_tp(shard=shard, b=b) -> torch.Tensor:
                return torch.ops.symm_mem.fused_all_gather_matmul(
                    shard, [b.T], gather_dim=0, group_name=dist.group.WORLD.group_name
                )[1][0]

            runs: dict[str, Run] = {
                "cuBLAS alone": floor(lambda b=b, gathered=gathered, c=c: torch.mm(gathered, b.T, out=c)),
                "torch + NCCL": nccl,
                "async-TP": async_tp,
                "ditron": lambda a=a, b=b, c=c: kernels.ag_gemm(a, b, out=c),
            }
            for how, schedule in args.small_schedules:
                runs[f"ditron, {how}"] = lambda a=a, b=b, c=c, s=schedule: kernels.ag_gemm(a, b, out=c, **s)
            yield Case("ag_small", f"M={ranks * rows} {N}x{K}", runs, gathered.float() @ b.float().T, 4e-3, calls=10)


def rs_small(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for N, K in ((8192, 3584), (4096, 1792)):
        for rows in args.small_rows:
            a, b = random(ranks * rows, K, rank, device), random(N, K, 100 + rank, device)
            product = torch.empty(ranks * rows, N, dtype=a.dtype, device=device)
            own = torch.empty(rows, N, dtype=a.dtype, device=device)
            expected = torch.empty(rows, N, device=device)
            dist.reduce_scatter_tensor(expected, a.float() @ b.float().T)

            def nccl(a=a, b=b, product=product, own=own) -> torch.Tensor:
                torch.mm(a, b.T, out=product)
                dist.reduce_scatter_tensor(own, product)
                return own

            def async_tp(a=a, b=b) -> torch.Tensor:
                return torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b.T, "sum", 0, dist.group.WORLD.group_name)

            runs: dict[str, Run] = {
                "cuBLAS alone": floor(lambda a=a, b=b, product=product: torch.mm(a, b.T, out=product)),
                "torch + NCCL": nccl,
                "async-TP": async_tp,
                "ditron": lambda a=a, b=b, own=own: kernels.gemm_rs(a, b, out=own),
            }
            for how, schedule in args.small_schedules:
                runs[f"ditron, {how}"] = lambda a=a, b=b, own=own, s=schedule: kernels.gemm_rs(a, b, out=own, **s)
            yield Case("rs_small", f"M={ranks * rows} {N}x{K}", runs, expected, 6e-3, calls=10)


def gemm_rs(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, ranks, M = dist.get_rank(), dist.get_world_size(), args.rows
    for name, K, N in mlp_shapes(ranks, args.shapes):
        a, b = random(M, K, rank, device), random(N, K, 100 + rank, device)
        product = torch.empty(M, N, dtype=a.dtype, device=device)
        rows = torch.empty(M // ranks, N, dtype=a.dtype, device=device)
        expected = torch.empty(M // ranks, N, device=device)
        dist.reduce_scatter_tensor(expected, a.float() @ b.float().T)

        def nccl(a=a, b=b, product=product, rows=rows) -> torch.Tensor:
            torch.mm(a, b.T, out=product)
            dist.reduce_scatter_tensor(rows, product)
            return rows

        def async_tp(a=a, b=b) -> torch.Tensor:
            return torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b.T, "sum", 0, dist.group.WORLD.group_name)

        runs: dict[str, Run] = {
            "cuBLAS alone": floor(lambda a=a, b=b, product=product: torch.mm(a, b.T, out=product)),
            "copies alone": copies_alone(rows.nbytes, device),
            "torch + NCCL": nccl,
            "async-TP": async_tp,
            "ditron": lambda a=a, b=b, rows=rows: kernels.gemm_rs(a, b, out=rows),
        }
        for how, schedule in args.rs_schedules:
            runs[f"ditron, {how}"] = lambda a=a, b=b, r=rows, s=schedule: kernels.gemm_rs(a, b, out=r, **s)
        yield Case("gemm_rs", f"{name} {N}x{K}", runs, expected, 6e-3)


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


def all_reduce_norm(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank, group, N = dist.get_rank(), dist.group.WORLD.group_name, 8192
    for rows in (1, 4, 16, 64, 128):
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
    rank, group = dist.get_rank(), dist.group.WORLD.group_name
    for M in (1, 16, 64, 128, 8192):
        for N, K in ((8192, 28672 // 8), (5120, 25600 // 8)):
            a, b = random(M, K, rank, device), random(N, K, 100 + rank, device)
            shared = symm_mem.empty(M, N, dtype=a.dtype, device=device)
            symm_mem.rendezvous(shared, group=dist.group.WORLD)
            c, out = torch.empty(M, N, dtype=a.dtype, device=device), torch.empty(M, N, dtype=a.dtype, device=device)
            expected = a.float() @ b.float().T
            dist.all_reduce(expected)

            def nccl(a=a, b=b, c=c) -> torch.Tensor:
                torch.mm(a, b.T, out=c)
                dist.all_reduce(c)
                return c

            def symm(how: str, a=a, b=b, shared=shared) -> torch.Tensor:
                torch.mm(a, b.T, out=shared)
                return getattr(torch.ops.symm_mem, how)(shared, "sum", group)

            runs: dict[str, Run] = {
                "cuBLAS alone": floor(lambda a=a, b=b, c=c: torch.mm(a, b.T, out=c)),
                "torch + NCCL": nccl,
                "torch two-shot": lambda symm=symm: symm("two_shot_all_reduce_"),
                "ditron": lambda a=a, b=b, out=out: kernels.gemm_ar(a, b, out=out),
            }
            if M <= 128:
                runs["torch one-shot"] = lambda symm=symm: symm("one_shot_all_reduce")
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*", default=list(OPERATORS), choices=[*OPERATORS, []])
    parser.add_argument("--rows", type=int, default=8192, help="M of all ranks together")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--shapes", nargs="*", default=[], help="e.g. '7B strong'; all by default")
    for operator in ("ag", "rs", "ar", "small", "move"):
        parser.add_argument(
            f"--{operator}-schedules", nargs="*", type=schedule, default=[], metavar="pieces=1,group_m=4"
        )
    parser.add_argument("--small-rows", nargs="*", type=int, default=[1, 8, 32, 64, 128, 256, 512, 1024])
    parser.add_argument("--bytes", nargs="*", type=int, default=[1 << k for k in (13, 16, 18, 19, 20, 21, 23, 25, 27)])
    parser.add_argument("--limit", type=int, default=90, help="seconds a shape may take")
    parser.add_argument("--heap", type=int, default=6 << 30, help="bytes of symmetric memory")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--json", type=Path, help="write all medians to this file, after every shape")
    args = parser.parse_args()
    device = start(args.limit)
    ditron.init(transport="p2p", heap_bytes=args.heap)
    samples, results = Samples(device), []
    table = list(HEADER)
    for operator in args.operators:
        extend(args.limit)
        for case in OPERATORS[operator](args, device):
            extend(args.limit)
            result = case.measure(samples, args.rounds)
            results.append({"operator": operator, "shape": case.name, **result})
            rows = table_rows(results[-1])
            table += rows
            if dist.get_rank() == 0:
                print("\n".join(rows), flush=True)
                if args.json:
                    args.json.write_text(json.dumps(results, indent=1))
    if dist.get_rank() == 0 and args.table:
        title = f"M = {args.rows}, slowest of {dist.get_world_size()} x {torch.cuda.get_device_name()}"
        versions = f"torch {torch.__version__}, triton {triton.__version__}, {datetime.date.today()}"
        with args.table.open("a") as file:
            file.write(f"\n{title}, {versions}; ms; us: {', '.join(MICROSECONDS)}\n\n" + "\n".join(table) + "\n")
    ditron.finalize()


if __name__ == "__main__":
    main()
