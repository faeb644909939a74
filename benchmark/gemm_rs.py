"""GEMM+RS on the GPUs of one host against cuBLAS alone, torch + NCCL, and torch's async tensor parallelism.

    torchrun --nproc-per-node 2 benchmark/gemm_rs.py --table out.md

The own rows of the sum over ranks of A @ B.T, with the shapes of LLaMA and Qwen MLPs: *strong* divides K among the
ranks, *tp8slice* gives each rank the eighth that it would have among eight. Measured as in ag_gemm.py. ``--check``
calls in bursts with fresh data and lagging ranks, and compares with the same calls one by one, bit by bit.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import json
import os
import sys
from pathlib import Path

for _multicast in ("NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"):
    os.environ.setdefault(*_multicast.split("="))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed._symmetric_memory as symm_mem  # noqa: E402, F401  (registers the operators)
import triton  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ag_gemm_triton import Symmetric  # noqa: E402
from gemm_rs_triton import GemmReduceScatter  # noqa: E402
from measuring import MLPS, Samples, random, relative_error  # noqa: E402


def expectation(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Own rows of the sum, in fp32."""
    result = torch.empty(len(a) // dist.get_world_size(), len(b), device=a.device)
    dist.reduce_scatter_tensor(result, a.float() @ b.float().T)
    return result


def check(memory: Symmetric, device: torch.device, bursts: int) -> None:
    rank, ranks, M, N, K = dist.get_rank(), dist.get_world_size(), 8192, 512, 1024
    b = random(N, K, 1 + rank, device)
    inputs = [torch.empty(M, K, dtype=b.dtype, device=device) for _ in range(4)]
    outputs = [torch.empty(M // ranks, N, dtype=b.dtype, device=device) for _ in inputs]
    for pieces in (1, 4):
        operator = GemmReduceScatter(memory, inputs[0], b, pieces)

        def burst() -> None:
            for a, c in zip(inputs, outputs, strict=True):
                operator.use(a, c)  # noqa: B023
                operator()  # noqa: B023

        burst()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            burst()
        dist.barrier()
        for name, run in (("eager", burst), ("graph", graph.replay)):
            wrong, errors = 0, []
            for turn in range(bursts):
                for i, (a, c) in enumerate(zip(inputs, outputs, strict=True)):
                    a.copy_(random(*a.shape, 1000 * turn + 10 * i + rank, device))
                    c.fill_(float("nan"))
                if turn % ranks == rank:
                    torch.cuda._sleep(int(torch.randint(1, 4_000_000, (1,))))
                run()
                results = [c.clone() for c in outputs]
                for a, c, result in zip(inputs, outputs, results, strict=True):
                    dist.barrier()
                    operator.use(a, c)
                    wrong += (operator() != result).sum()
                    errors.append(relative_error(result, expectation(a, b)))
            print(
                f"rank {rank}: {name}, {pieces} pieces: {4 * bursts} calls, {int(wrong)} elements differ, error "
                f"against fp32 {max(errors):.1e}",
                flush=True,
            )
            assert int(wrong) == 0 and max(errors) < 4e-3
            dist.barrier()


def measure(memory: Symmetric, M: int, N: int, K: int, rounds: int, samples: Samples) -> dict:
    """Medians of all contenders for one shape, eagerly and of graphs."""
    rank, ranks, device = dist.get_rank(), dist.get_world_size(), samples.one.device
    a, b = random(M, K, rank, device), random(N, K, 100 + rank, device)
    product = torch.empty(M, N, dtype=a.dtype, device=device)
    rows = torch.empty(M // ranks, N, dtype=a.dtype, device=device)
    expected = expectation(a, b)
    memory.clear()
    ours = {
        f"ours, {pieces} {'copy' if pieces == 1 else 'copies'}": GemmReduceScatter(memory, a, b, pieces)
        for pieces in (1, 2, 4)
    }
    ours["ours, 8 copies"] = GemmReduceScatter(memory, a, b, 8, group=4)
    copies_alone = GemmReduceScatter(memory, a, b, 1)

    def nccl() -> torch.Tensor:
        torch.mm(a, b.T, out=product)
        dist.reduce_scatter_tensor(rows, product)
        return rows

    def push() -> None:
        memory.copies.wait_stream(torch.cuda.current_stream())
        copies_alone.push(0, wait=False)
        torch.cuda.current_stream().wait_stream(memory.copies)

    def cublas() -> None:
        torch.mm(a, b.T, out=product)

    def async_tp() -> torch.Tensor:
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b.T, "sum", 0, dist.group.WORLD.group_name)

    runs = {"cuBLAS alone": cublas, "copies alone": push, "torch + NCCL": nccl, "async-TP": async_tp, **ours}
    graphs, errors = {}, {}
    for name, run in runs.items():
        for _ in range(2):
            result = run()
            if isinstance(result, torch.Tensor):
                errors[name] = relative_error(result, expected)
                assert errors[name] < 6e-3, f"rank {rank}, {name}, N={N}, K={K}: relative error {errors[name]}"
        dist.barrier()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name], capture_error_mode="relaxed"):
            run()
            run()
        torch.cuda.synchronize()
        dist.barrier()
    memory.signals.zero_()
    torch.cuda.synchronize()
    dist.barrier()
    return {
        "N": N,
        "K": K,
        "errors": errors,
        "call": samples.medians(runs, rounds, 900_000, 1),
        "graph": samples.medians({name: graph.replay for name, graph in graphs.items()}, rounds, 100_000, 2),
    }


def lines(shape: str, result: dict) -> list[str]:
    """Rows of the table: milliseconds, and over cuBLAS alone."""
    rows = []
    for form in ("call", "graph"):
        times = result[form]
        best = min((name for name in times if name.startswith("ours")), key=times.get)
        cells = [times[name] for name in ("cuBLAS alone", "copies alone", "torch + NCCL", "async-TP", best)]
        rows.append(
            f"| {shape} | {result['N']} x {result['K']} | {form} | "
            + " | ".join(f"{time:.3f}" for time in cells)
            + f" | {times[best] / times['cuBLAS alone']:.3f} | {times['torch + NCCL'] / times[best]:.2f} | "
            f"{times['async-TP'] / times[best]:.2f} | {best.removeprefix('ours, ')} | {result['errors'][best]:.1e} / "
            f"{result['errors']['torch + NCCL']:.1e} |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=8192, help="M")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--shapes", nargs="*", default=[], help="e.g. '7B strong'; all by default")
    parser.add_argument(
        "--check", type=int, default=0, metavar="BURSTS", help="first compare this many bursts of calls"
    )
    parser.add_argument("--limit", type=int, default=90, help="seconds a shape may take")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--json", type=Path, help="write all medians to this file, after every shape")
    args = parser.parse_args()

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    faulthandler.dump_traceback_later(args.limit, exit=True)
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=args.limit))
    memory, samples = Symmetric(max(8192, args.rows) * 8192 * 2), Samples(device)
    if args.check:
        check(memory, device, args.check)
    ranks, results = dist.get_world_size(), {}
    header = (
        "| shape | N x K a rank | form | cuBLAS alone | copies alone | torch + NCCL | async-TP | ours | / cuBLAS | "
        "NCCL / ours | async-TP / ours | how | error: ours / NCCL |"
    )
    table = [header, "|---" * (header.count("|") - 1) + "|"]
    for mlp, (n, k) in MLPS.items():
        for mode, K in (("strong", n // ranks), ("tp8slice", n // 8)):
            shape = f"{mlp} {mode}"
            if args.shapes and shape not in args.shapes:
                continue
            faulthandler.dump_traceback_later(args.limit, exit=True)
            results[shape] = measure(memory, args.rows, k, K, args.rounds, samples)
            table += lines(shape, results[shape])
            if dist.get_rank() == 0:
                print("\n".join(table if len(results) == 1 else table[-2:]), flush=True)
                for form in ("call", "graph"):
                    times = results[shape][form]
                    ratios = (f"{name}: {time / times['cuBLAS alone']:.3f}" for name, time in times.items())
                    print(f"    {form} " + "  ".join(ratios), flush=True)
                if args.json:
                    args.json.write_text(json.dumps(results, indent=1))
    if dist.get_rank() == 0 and args.table:
        with args.table.open("a") as file:
            file.write(
                f"\nGEMM+RS, M = {args.rows}, bf16, ms, slowest of {ranks} x {torch.cuda.get_device_name()}, torch "
                f"{torch.__version__}, triton {triton.__version__}, {datetime.date.today()}\n\n"
                + "\n".join(table)
                + "\n"
            )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
