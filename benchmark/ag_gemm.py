"""AG+GEMM on the GPUs of one host against cuBLAS alone, torch + NCCL, and torch's async tensor parallelism.

    torchrun --nproc-per-node 2 benchmark/ag_gemm.py --table out.md

C = all_gather(A) @ B.T with the shapes of LLaMA and Qwen MLPs: *strong* divides N among the ranks,
*tp8slice* gives each rank the eighth that it would have among eight. Contenders take turns in one process, the order
rotates, the L2 cache is overwritten and the ranks are aligned before each sample. A sample is one call, enqueued while
the GPU is still busy, or a CUDA graph of two. Per contender: the median on each rank, of which the slowest rank's is
shown. Every result is compared with fp32 torch; ``--check`` calls in bursts with fresh data and lagging ranks, and
compares bit by bit with the same kernel on NCCL's gather. A shape has ``--limit`` seconds, after which a rank ends
itself and torchrun the others.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

for _multicast in ("NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"):
    os.environ.setdefault(*_multicast.split("="))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed._symmetric_memory as symm_mem  # noqa: E402
import triton  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ag_gemm_triton import BM, BN, AllGatherGemm, Symmetric  # noqa: E402
from measuring import MLPS, Samples, random, relative_error  # noqa: E402


def variants(M: int, N: int, programs: int, pushers: bool) -> dict[str, dict]:
    """Arguments of AllGatherGemm worth trying."""
    tiles = M // BM * triton.cdiv(N, BN)

    def tail(programs: int) -> dict[str, int]:
        whole = tiles // programs * programs
        splits = min(8, programs // (tiles - whole)) if tiles > whole else 1
        return {"whole": whole, "splits": splits} if splits > 1 else {}

    ways: dict[str, dict] = {"1 copy": {}, "2 copies": {"pieces": 2}}
    if pushers:
        ways |= {f"{n} pushers": {"pieces": 8, "pushers": n, "group": 4} for n in (8, 12)}
    result = {}
    for name, args in ways.items():
        result[f"ours, {name}"] = args
        divided = tail(programs - args.get("pushers", 0))
        if divided:
            result[f"ours, {name}, tail / {divided['splits']}"] = {**args, **divided}
    return result


def check(memory: Symmetric, device: torch.device, bursts: int, pushers: bool) -> None:
    """Bursts of four calls, each with other data, while one rank lags; N so small that the tiles wait."""
    rank, ranks, M, K, N = dist.get_rank(), dist.get_world_size(), 8192, 4096, 512
    b = random(N, K, 1, device)
    signals = torch.ones(Symmetric.SIGNALS, dtype=torch.int64, device=device)
    gathered = torch.empty(M, K, dtype=b.dtype, device=device)
    last = M // ranks // BM // 4 * triton.cdiv(N, BN)
    tiles = M // BM * triton.cdiv(N, BN)
    ways = [{}, {"pieces": 2, "whole": tiles - last, "splits": 4}]
    for arguments in [{"pieces": 8, "pushers": 8, "group": 4}] if pushers else ways:
        inputs = [torch.empty(M // ranks, K, dtype=b.dtype, device=device) for _ in range(4)]
        outputs = [torch.empty(M, N, dtype=b.dtype, device=device) for _ in inputs]
        operator = AllGatherGemm(memory, inputs[0], b, **arguments)

        def burst() -> None:
            for a, c in zip(inputs, outputs, strict=True):  # noqa: B023
                operator.use(a, c)  # noqa: B023
                operator()  # noqa: B023

        def graph() -> torch.cuda.CUDAGraph:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured, capture_error_mode="relaxed"):
                burst()  # noqa: B023
            dist.barrier()
            return captured

        for name in ("eager", "graph"):
            if name == "graph":
                run = graph().replay
            else:
                run = burst
            wrong, errors = 0, []
            for turn in range(bursts):
                for i, (a, c) in enumerate(zip(inputs, outputs, strict=True)):
                    a.copy_(random(*a.shape, 1000 * turn + 10 * i + rank, device))
                    c.fill_(float("nan"))
                if turn % ranks == rank:
                    torch.cuda._sleep(int(torch.randint(1, 4_000_000, (1,))))
                run()
                results = [c.clone() for c in outputs]
                for a, result in zip(inputs, results, strict=True):
                    dist.all_gather_into_tensor(gathered, a)
                    operator.use(a, outputs[0])
                    operator.launch(operator.rows(gathered), signals, wait="none", own=False)
                    wrong += (result != outputs[0]).sum()
                    errors.append(relative_error(result, gathered.float() @ b.float().T))
            print(
                f"rank {rank}: {name}, {arguments}: {4 * bursts} calls, {int(wrong)} elements differ, "
                f"error against fp32 {max(errors):.1e}",
                flush=True,
            )
            assert int(wrong) == 0 and max(errors) < 3e-3
            dist.barrier()


def ditron_programs(a: torch.Tensor, b: torch.Tensor, M: int) -> dict[str, Callable[[], torch.Tensor]]:
    """The operator in DITRON's own language, by number of copies of a shard."""
    import ag_gemm_program

    def run(c: torch.Tensor, chunks: int) -> torch.Tensor:
        ag_gemm_program.ag_gemm(a, b, c, chunks=chunks)
        return c

    outputs = {chunks: torch.empty(M, b.shape[0], dtype=a.dtype, device=a.device) for chunks in (1, 2)}
    return {f"program, {n} a shard": functools.partial(run, c, n) for n, c in outputs.items()}


def measure(
    memory: Symmetric, M: int, N: int, K: int, rounds: int, samples: Samples, with_ditron: bool, pushers: bool
) -> dict:
    """Medians of all contenders for one shape, eagerly and of graphs."""
    rank, ranks, device = dist.get_rank(), dist.get_world_size(), samples.one.device
    a, b = random(M // ranks, K, rank, device), random(N, K, 100 + rank, device)
    gathered = torch.empty(M, K, dtype=a.dtype, device=device)
    c = torch.empty(M, N, dtype=a.dtype, device=device)
    dist.all_gather_into_tensor(gathered, a)
    expected = gathered.float() @ b.float().T
    shard = symm_mem.empty(*a.shape, dtype=a.dtype, device=device).copy_(a)
    symm_mem.rendezvous(shard, group=dist.group.WORLD)
    memory.clear()
    programs = torch.cuda.get_device_properties(device).multi_processor_count
    ours = {name: AllGatherGemm(memory, a, b, **args) for name, args in variants(M, N, programs, pushers).items()}
    copies_alone = AllGatherGemm(memory, a, b)
    ones = torch.ones(Symmetric.SIGNALS, dtype=torch.int64, device=device)
    alone = next((ours[name] for name in ours if "tail" in name and "pushers" not in name), ours["ours, 1 copy"])

    def nccl() -> torch.Tensor:
        dist.all_gather_into_tensor(gathered, a)
        return torch.mm(gathered, b.T, out=c)

    def async_tp() -> torch.Tensor:
        _gathered, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(
            shard, [b.T], gather_dim=0, group_name=dist.group.WORLD.group_name
        )
        return product

    def push() -> None:
        memory.copies.wait_stream(torch.cuda.current_stream())
        copies_alone.push(0)
        torch.cuda.current_stream().wait_stream(memory.copies)

    runs = {
        "cuBLAS alone": lambda: torch.mm(gathered, b.T, out=c),
        "copies alone": push,
        "kernel alone": lambda: alone.launch(alone.rows(gathered), ones),
        "torch + NCCL": nccl,
        "async-TP": async_tp,
        **ours,
        **(ditron_programs(a, b, M) if with_ditron else {}),
    }
    graphs = {}
    for name, run in runs.items():
        for _ in range(2):
            result = run()
            if isinstance(result, torch.Tensor):
                error = relative_error(result, expected)
                assert error < 4e-3, f"rank {rank}, {name}, N={N}, K={K}: relative error {error}"
        dist.barrier()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, capture_error_mode="relaxed"):
            run()
            run()
        torch.cuda.synchronize()
        dist.barrier()
        graphs[name] = captured
    del expected
    memory.signals.zero_()
    torch.cuda.synchronize()
    dist.barrier()
    return {
        "N": N,
        "K": K,
        "call": samples.medians(runs, rounds, 900_000, 1),
        "graph": samples.medians({name: graph.replay for name, graph in graphs.items()}, rounds, 100_000, 2),
    }


def lines(shape: str, result: dict) -> list[str]:
    """Rows of the table: milliseconds, and over cuBLAS alone."""
    rows = []
    for form in ("call", "graph"):
        times = result[form]
        floor = times["cuBLAS alone"]
        best = min((name for name in times if name.startswith("ours")), key=times.get)
        program = min((name for name in times if name.startswith("program")), key=times.get, default=None)
        cells = [times[name] for name in ("cuBLAS alone", "copies alone", "torch + NCCL", "async-TP", best)]
        rows.append(
            f"| {shape} | {result['N']} x {result['K']} | {form} | "
            + " | ".join(f"{time:.3f}" for time in cells)
            + f" | {times[best] / floor:.3f} | {times['torch + NCCL'] / times[best]:.2f} | "
            f"{times['async-TP'] / times[best]:.2f} | {best.removeprefix('ours, ')} | "
            + (f"{times[program]:.3f} |" if program else " |")
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=8192, help="M, of all ranks together")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--shapes", nargs="*", default=[], help="e.g. '7B strong'; all by default")
    parser.add_argument(
        "--check", type=int, default=0, metavar="BURSTS", help="first compare this many bursts of calls"
    )
    parser.add_argument("--ditron", action="store_true", help="also the program of benchmark/ag_gemm_program.py")
    parser.add_argument("--pushers", action="store_true", help="also push by a kernel of 8 or 12 programs")
    parser.add_argument("--limit", type=int, default=90, help="seconds a shape may take")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--json", type=Path, help="write all medians to this file, after every shape")
    args = parser.parse_args()

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    faulthandler.dump_traceback_later(args.limit, exit=True)
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=args.limit))
    if args.ditron:
        import ditron

        os.environ.setdefault("DITRON_PROTOCOL", "off")  # the checker has run elsewhere
        triton.set_allocator(lambda nbytes, _align, _stream: torch.empty(nbytes, dtype=torch.int8, device=device))
        ditron.init(transport="p2p", heap_bytes=4 << 30)
    memory, samples = Symmetric(max(8192, args.rows) * 8192 * 2), Samples(device)
    if args.check:
        check(memory, device, args.check, args.pushers)
    ranks, results = dist.get_world_size(), {}
    header = (
        "| shape | N x K a rank | form | cuBLAS alone | copies alone | torch + NCCL | async-TP | ours | "
        "/ cuBLAS | NCCL / ours | async-TP / ours | how | program |"
    )
    table = [header, "|---" * (header.count("|") - 1) + "|"]
    for mlp, (n, k) in MLPS.items():
        for mode, N in (("strong", n // ranks), ("tp8slice", n // 8)):
            shape = f"{mlp} {mode}"
            if args.shapes and shape not in args.shapes:
                continue
            faulthandler.dump_traceback_later(args.limit, exit=True)
            results[shape] = measure(memory, args.rows, N, k, args.rounds, samples, args.ditron, args.pushers)
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
                f"\nAG+GEMM, M = {args.rows}, bf16, ms, slowest of {ranks} x {torch.cuda.get_device_name()}, torch "
                f"{torch.__version__}, triton {triton.__version__}, {datetime.date.today()}\n\n"
                + "\n".join(table)
                + "\n"
            )
    dist.barrier()
    if args.ditron:
        import ditron

        ditron.finalize()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
