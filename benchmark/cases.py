"""A shape of an operator with its contenders: what every benchmark of operators runs, compares and times."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ag_gemm_triton import copy  # noqa: E402
from measuring import MLPS, Samples, capture, extend, relative_error, start  # noqa: E402
from tp_report import HEADER, MICROSECONDS, table_rows  # noqa: E402

import ditron  # noqa: E402

Run = Callable[[], object]


class Case:
    """One shape of one operator: its contenders, the results that are expected, and how it is sampled.

    ``calls`` in a graph, 0 for none. ``cycles`` that the GPU sleeps while the host enqueues a call.
    """

    def __init__(
        self,
        operator: str,
        name: str,
        runs: dict[str, Run],
        expected: torch.Tensor | tuple[torch.Tensor, ...],
        bound: float,
        calls: int = 2,
        cycles: int = 900_000,
    ):
        self.operator, self.name, self.runs = operator, name, runs
        self.expected: tuple[torch.Tensor, ...] = expected if isinstance(expected, tuple) else (expected,)
        self.bound, self.calls, self.cycles = bound, calls, cycles

    def measure(self, samples: Samples, rounds: int) -> dict:
        errors, graphs = {}, {}
        for name, run in self.runs.items():
            for _ in range(2):
                result = run()
                if result is not None:
                    errors[name] = self.error(name, result if isinstance(result, tuple) else (result,))
                    del result
            torch.cuda.synchronize()
            dist.barrier()
            if self.calls:
                graphs[name] = capture(run, self.calls)
        self.expected = ()
        times = {"errors": errors, "call": samples.medians(self.runs, rounds, self.cycles, 1)}
        if graphs:
            times["graph"] = samples.medians({n: g.replay for n, g in graphs.items()}, rounds, 100_000, self.calls)
        return times

    def error(self, name: str, results: tuple[torch.Tensor, ...]) -> float:
        """The largest relative error of the results."""
        error = max(relative_error(*pair) for pair in zip(results, self.expected, strict=True))
        assert error < self.bound, f"rank {dist.get_rank()}, {self.operator} {self.name}, {name}: error {error}"
        return error


def floor(run: Run) -> Run:
    """What computes something else than the operator: its result is not compared."""
    return lambda: (run(), None)[1]


def mlp_shapes(ranks: int, names: list[str]) -> Iterator[tuple[str, int, int]]:
    """Name, the whole of the weight's divided dimension for this mode, and the other one."""
    for mlp, (n, k) in MLPS.items():
        for mode, part in (("strong", n // ranks), ("tp8slice", n // 8)):
            if not names or f"{mlp} {mode}" in names:
                yield f"{mlp} {mode}", part, k


def copies_alone(nbytes: int | Sequence[int], device: torch.device) -> Run:
    """Push ``nbytes`` to every peer by the copy engine, nothing else.

    Of a sequence, each rank gets the bytes that stand at its number; other ranks may push others. Symmetric memory is
    of one size on all ranks, that of the largest push. Collective.
    """
    rank, ranks, stream = dist.get_rank(), dist.get_world_size(), torch.cuda.Stream(priority=-1)
    sizes = [nbytes] * ranks if isinstance(nbytes, int) else list(nbytes)
    sizes[rank] = 0
    largest = torch.tensor(max(1, *sizes), device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    most = int(largest)
    source = torch.empty(most, dtype=torch.uint8, device=device)
    box = symm_mem.empty(most * ranks, dtype=torch.uint8, device=device)
    handle = symm_mem.rendezvous(box, group=dist.group.WORLD)
    peers = [(rank - step) % ranks for step in range(1, ranks)]
    pushes = [(int(handle.buffer_ptrs[peer]) + rank * most, sizes[peer]) for peer in peers if sizes[peer]]

    def run(_memory=(box, handle)) -> None:  # kept mapped
        stream.wait_stream(torch.cuda.current_stream())
        for target, size in pushes:
            copy(stream, target, source.data_ptr(), size)
        torch.cuda.current_stream().wait_stream(stream)

    return run


def gemm_ar_peers(a: torch.Tensor, b: torch.Tensor) -> dict[str, Run]:
    """a @ b.T, added over ranks: the product alone, with NCCL, and with torch's symmetric memory."""
    c, shared = (empty(len(a), len(b), dtype=a.dtype, device=a.device) for empty in (torch.empty, symm_mem.empty))
    symm_mem.rendezvous(shared, group=dist.group.WORLD)
    group = dist.group.WORLD.group_name

    def nccl() -> torch.Tensor:
        torch.mm(a, b.T, out=c)
        dist.all_reduce(c)
        return c

    def symm(how: str) -> torch.Tensor:
        torch.mm(a, b.T, out=shared)
        return getattr(torch.ops.symm_mem, how)(shared, "sum", group)

    return {
        "cuBLAS alone": floor(lambda: torch.mm(a, b.T, out=c)),
        "torch + NCCL": nccl,
        "torch two-shot": lambda: symm("two_shot_all_reduce_"),
        "torch one-shot": lambda: symm("one_shot_all_reduce"),
    }


def usable(runs: dict[str, Run], captured: bool = False) -> dict[str, Run]:
    """Those that can be called here, and captured; it says why others cannot, which is the same on every rank."""
    found = {}
    for name, run in runs.items():
        try:
            run()
            torch.cuda.synchronize()
            if captured:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode="relaxed"):
                    run()
                    run()
                graph.replay()
                torch.cuda.synchronize()
            found[name] = run
        except Exception as error:
            if dist.get_rank() == 0:
                print(f"left out: {name}: {type(error).__name__}: {str(error).strip()[:300]}", flush=True)
    return found


def parse_schedule(text: str) -> tuple[str, dict[str, Any]]:
    """Keyword arguments ``a=1,b=word`` of an operator, and their text."""
    pairs = (item.split("=") for item in text.split(","))
    return text, {name: _value(value) for name, value in pairs}


def _value(text: str) -> int | str | bool | tuple[int, ...]:
    """A number, a word, True or False, or numbers as in ``128x256x64``."""
    if text in ("True", "False"):
        return text == "True"
    numbers = text.split("x")
    if not all(map(str.isdigit, numbers)):
        return text
    return int(text) if len(numbers) == 1 else tuple(map(int, numbers))


Operators = dict[str, Callable[[argparse.Namespace, torch.device], Iterator[Case]]]


def arguments(description: str, operators: Operators) -> argparse.ArgumentParser:
    """What every benchmark of operators takes."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("operators", nargs="*", default=list(operators), choices=[*operators, list(operators)])
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--limit", type=int, default=90, help="seconds a shape may take")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--json", type=Path, help="write all medians to this file, after every shape")
    return parser


def measure(operators: Operators, args: argparse.Namespace, title: str = "") -> None:
    """Run the operators that ``args`` names; rank 0 prints, and writes the table and the medians."""
    device = start(args.limit)
    ditron.init(transport="p2p")
    samples, results, table = Samples(device), [], list(HEADER)
    for operator in args.operators:
        extend(args.limit)
        for case in operators[operator](args, device):
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
        title += f"slowest of {dist.get_world_size()} x {torch.cuda.get_device_name()}"
        versions = f"torch {torch.__version__}, triton {triton.__version__}, {datetime.date.today()}"
        with args.table.open("a") as file:
            file.write(f"\n{title}, {versions}; ms; us: {', '.join(MICROSECONDS)}\n\n" + "\n".join(table) + "\n")
    ditron.finalize()
