"""Host programs on real GPUs: right results eagerly and from graphs, with ranks that lag, and what a call costs the
host.

    torchrun --nproc-per-node 4 test/gpu/check_programs.py --table table.md

Each row is one program at one shape. Every call has other data than the one before; before each, a rank chosen by
chance sleeps a while on its GPU. All results are compared with torch in fp32 at the end, so that calls follow each
other without a pause. A rank that hangs is ended by ``--limit`` seconds per row.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import triton

import ditron
import ditron.host as dh

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import ag_gemm  # noqa: E402
import ag_gemm_ring  # noqa: E402
import gemm_rs_chunks  # noqa: E402
import left_to_passes  # noqa: E402

SETS = 3  # of data, used in turn


class Gather:
    """``all_gather(a) @ b``: arguments per set of data, and what they should give."""

    bound = 8e-3

    def __init__(self, program: Callable, rows: int, N: int, K: int, place: Callable = torch.clone):
        ranks, rank, device = ditron.num_ranks(), ditron.rank(), ditron.device()
        self.program, self.place, self.inputs, self.expected = program, place, [], []
        for number in range(SETS):
            shards = [_random(rows, K, seed=100 * number + r) for r in range(ranks)]
            b = _random(K, N, seed=100 * number + 50 + rank)
            self.inputs.append((place(shards[rank]), b))
            self.expected.append(torch.cat(shards).float() @ b.float())
        self.out = torch.empty(rows * ranks, N, dtype=torch.bfloat16, device=device)

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.program(a, b, self.out)

    def others(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """The same by torch and NCCL, one after the other; and the multiplication alone."""
        a, b = self.inputs[0]
        whole = torch.empty(len(a) * ditron.num_ranks(), a.shape[1], dtype=a.dtype, device=a.device)

        def both() -> None:
            dist.all_gather_into_tensor(whole, a)
            torch.matmul(whole, b, out=self.out)

        return both, lambda: torch.matmul(whole, b, out=self.out)


class Scatter(Gather):
    """``reduce_scatter(a @ b)``."""

    bound = 1.5e-2

    def __init__(self, program: Callable, rows: int, N: int, K: int, place: Callable = torch.clone):
        ranks, rank, device = ditron.num_ranks(), ditron.rank(), ditron.device()
        self.program, self.place, self.inputs, self.expected = program, place, [], []
        for number in range(SETS):
            total = torch.zeros(rows, N, device=device)
            for r in range(ranks):
                a, b = _random(ranks * rows, K, seed=100 * number + r), _random(K, N, seed=100 * number + 50 + r)
                total += a[rank * rows : (rank + 1) * rows].float() @ b.float()
                if r == rank:
                    self.inputs.append((place(a), b))
            self.expected.append(total)
        self.out = torch.empty(rows, N, dtype=torch.bfloat16, device=device)

    def others(self) -> tuple[Callable[[], None], Callable[[], None]]:
        a, b = self.inputs[0]
        product = torch.empty(len(a), b.shape[1], dtype=a.dtype, device=a.device)

        def both() -> None:
            torch.matmul(a, b, out=product)
            dist.reduce_scatter_tensor(self.out, product)

        return both, lambda: torch.matmul(a, b, out=product)


def _random(rows: int, cols: int, seed: int) -> torch.Tensor:
    generator = torch.Generator(ditron.device()).manual_seed(seed)
    return torch.randn(rows, cols, device=ditron.device(), generator=generator).bfloat16()


def unaligned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy at an address that 16 does not divide."""
    return torch.cat([tensor.new_zeros(1), tensor.flatten()])[1:].view(tensor.shape)


def gapped(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with rows that do not lie side by side."""
    return torch.nn.functional.pad(tensor, (0, 3))[:, : tensor.shape[1]]


def _lag(chance: random.Random) -> None:
    """Let one rank's GPU sleep up to 2 ms; the same one is chosen on every rank."""
    rank, cycles = chance.randrange(ditron.num_ranks()), chance.randrange(10_000, 3_000_000)
    if rank == ditron.rank():
        torch.cuda._sleep(cycles)


def _worst(case: Gather, results: list[tuple[int, torch.Tensor]]) -> float:
    return max(
        ((out.float() - case.expected[number]).abs().max() / case.expected[number].abs().max()).item()
        for number, out in results
    )


def eager(case: Gather, calls: int) -> float:
    """``calls`` calls, one after the other."""
    chance, results = random.Random(1), []
    for call in range(calls):
        _lag(chance)
        case.out.zero_()
        case(*case.inputs[call % SETS])
        results.append((call % SETS, case.out.clone()))
    return _worst(case, results)


def captured(case: Gather, calls: int, per_graph: int = 1) -> float:
    """``calls`` replays of a graph of ``per_graph`` calls, eager calls in between."""
    chance, results = random.Random(2), []
    a, b = case.place(case.inputs[0][0]), case.inputs[0][1].clone()
    graph = graph_of(case, a, b, per_graph)
    for call in range(calls):
        number = call % SETS
        a.copy_(case.inputs[number][0])
        b.copy_(case.inputs[number][1])
        case.out.zero_()
        _lag(chance)
        if call % 7 == 6:
            case(a, b)
        else:
            graph.replay()
        results.append((number, case.out.clone()))
    torch.cuda.synchronize()
    return _worst(case, results)


def graph_of(case: Gather, a: torch.Tensor, b: torch.Tensor, calls: int = 1) -> torch.cuda.CUDAGraph:
    """A graph of ``calls`` calls."""
    case(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            case(a, b)
    return graph


def host_time(case: Gather, calls: int = 40) -> float:
    """Microseconds of the host per call (the GPU is kept behind)."""
    a, b = case.inputs[0]
    ditron.barrier()
    torch.cuda._sleep(20_000_000)
    start = time.perf_counter()
    for _ in range(calls):
        case(a, b)
    spent = time.perf_counter() - start
    ditron.barrier()
    return 1e6 * spent / calls


def gpu_times(calls: list[Callable[[], None]], rounds: int = 15, burst: int = 4) -> list[float]:
    """Median milliseconds of each call on the slowest rank, taken in turn, in bursts."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds + 1):
        for call, taken in zip(calls, times, strict=True):
            call()
            ditron.barrier()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(burst):
                call()
            end.record()
            end.synchronize()
            if turn:
                taken.append(start.elapsed_time(end) / burst)
    medians = ditron.all_gather_object([sorted(taken)[rounds // 2] for taken in times])
    return [max(ranks) for ranks in zip(*medians, strict=True)]


@ditron.program
def by_parity(x, out):
    """All-gather through two halves of a workspace by parity: right when called, refused when captured."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    boxes = dh.symm_empty(2, ranks, x.shape[0], dtype=x.dtype, name="boxes")[epoch % 2]
    full = dh.symm_zeros(ranks, dtype=torch.int64, name="full")
    for peer in dh.range(ranks):
        dh.rank_copy(x, boxes[rank], peer)
        dh.signal_write(full[rank], epoch, peer)
    for source in dh.range(ranks):
        dh.signal_wait(full[source], epoch)
    dh.copy(boxes, out)


def parity(calls: int) -> float:
    """The largest difference of ``by_parity``; raises when it lets itself be captured."""
    chance, rank, ranks = random.Random(3), ditron.rank(), ditron.num_ranks()
    x, worst = torch.empty(1000, device=ditron.device()), []
    out = torch.empty(ranks, 1000, device=ditron.device())
    expected = torch.arange(ranks, device=ditron.device()).float()[:, None]
    for call in range(calls):
        _lag(chance)
        x.fill_(1000 * call + rank)
        by_parity(x, out)
        worst.append((out - 1000 * call - expected).abs().max())
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            by_parity(x, out)
    except ditron.DitronError as error:
        assert "cannot be captured" in str(error), error
    else:
        raise AssertionError("a slice by parity was captured")
    return max(value.item() for value in worst)


CASES = [
    ("ag_gemm", Gather, ag_gemm.ag_gemm),
    ("ag_gemm_ring", Gather, ag_gemm_ring.ag_gemm_ring),
    ("gemm_rs_chunks", Scatter, gemm_rs_chunks.gemm_rs),
]
# The same by the pipeline `overlap`, and what leaves its copies and streams to it; with how ``a`` lies in memory.
OVERLAP = [
    (f"{name}, overlap", kind, ditron.program(program.fn, passes="overlap", max_nodes=1), torch.clone)
    for name, kind, program in CASES
]
OVERLAP += [
    (
        name if place is torch.clone else f"{name}, {place.__name__}",
        Gather if name.startswith("gather") else Scatter,
        program,
        place,
    )
    for name, program in left_to_passes.PROGRAMS.items()
    for place in (torch.clone, unaligned, gapped)
    if "overlap" in name and (place is not gapped or name.startswith("gather"))
]
# Rows per rank, N, K.
SHAPES = [(256, 256, 256), (333, 200, 328), (77, 131, 67)]


def full_size(kind: type) -> tuple[int, int, int]:
    ranks = ditron.num_ranks()
    return (8192 // ranks, 8192, 28672 // ranks) if kind is Scatter else (8192 // ranks, 28672 // ranks, 8192)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--only", default="", help="programs whose name contains this word")
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--small", action="store_true", help="leave out the full-size rows")
    parser.add_argument("--limit", type=int, default=90, help="seconds a row may take")
    args = parser.parse_args()

    os.environ.setdefault("DITRON_PROTOCOL", "off")  # the checker needs no GPU, and has tests of its own
    ditron.init(transport="p2p", heap_bytes=6 << 30)
    rank, failed = ditron.rank(), 0
    table = [
        "| program | rows/rank, N, K | eager | graph | graph of 2 calls | bound | host us/call | ms/call | "
        "of a graph | torch + NCCL | matmul alone |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]

    def row(name: str, shape: str, errors: list[float], bound: float, *times: float) -> None:
        nonlocal failed
        worst = [max(values) for values in zip(*ditron.all_gather_object(errors), strict=True)]
        right = all(error <= bound for error in worst)
        failed += not right
        cells = [
            *(f"{error:.1e}" for error in worst),
            *[""] * (3 - len(worst)),
            f"{bound:g}",
            *(f"{value:.3g}" for value in times),
            *[""] * (5 - len(times)),
        ]
        table.append(f"| {name} | {shape} | {' | '.join(cells)} |")
        if rank == 0:
            print(table[-1] if right else f"FAILED {table[-1]}", flush=True)

    for name, kind, program in CASES:
        for shape in [*SHAPES, *([] if args.small else [full_size(kind)])]:
            if args.only not in name:
                continue
            if rank == 0:
                print(f"{name}, {shape} ...", flush=True)
            faulthandler.dump_traceback_later(args.limit, exit=True)
            case = kind(program, *shape)
            errors = [eager(case, args.calls)]
            host = host_time(case)
            eagerly, *others = gpu_times([lambda: case(*case.inputs[0]), *case.others()])  # noqa: B023
            errors += [captured(case, args.calls), captured(case, args.calls // 2, per_graph=2)]
            [replayed] = gpu_times([graph_of(case, *case.inputs[0]).replay])
            row(name, ", ".join(map(str, shape)), errors, kind.bound, host, eagerly, replayed, *others)
            faulthandler.cancel_dump_traceback_later()
    start = time.perf_counter()
    for name, kind, program, place in OVERLAP:
        for shape in (SHAPES[0], SHAPES[-1]) if place is torch.clone else SHAPES[-1:]:
            if args.only not in name:
                continue
            faulthandler.dump_traceback_later(args.limit, exit=True)
            case = kind(program, *shape, place)
            errors = [eager(case, args.calls // 2), captured(case, args.calls // 2)]
            row(name, ", ".join(map(str, shape)), errors, kind.bound)
            faulthandler.cancel_dump_traceback_later()
    if rank == 0:
        print(f"the rows of the pipeline overlap took {time.perf_counter() - start:.0f} s", flush=True)
    if args.only in "by_parity":
        faulthandler.dump_traceback_later(args.limit, exit=True)
        row("by_parity", "1000 elements", [parity(args.calls)], 0)
        faulthandler.cancel_dump_traceback_later()
    if rank == 0 and args.table:
        with args.table.open("a") as file:
            file.write(
                f"\n{ditron.num_ranks()} x {torch.cuda.get_device_name()}, torch {torch.__version__}, triton "
                f"{triton.__version__}, {datetime.date.today()}: {len(table) - 2 - failed} of "
                f"{len(table) - 2} programs right in {args.calls} calls with lagging ranks\n\n"
                + "\n".join(table)
                + "\n"
            )
    ditron.finalize()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
