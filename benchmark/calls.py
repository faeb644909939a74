"""What an eager call of an operator costs beside its kernel: time of the host, and what else the GPU executes.

    torchrun --nproc-per-node 1 benchmark/calls.py --table out.md

One rank, so that nothing is sent and what remains is the call. Beside each operator are torch's ``copy_`` and ``mm``
and NCCL's collectives of one rank, for scale. Columns: host us of a call that is only enqueued; us on the GPU of a
single call and of calls one behind the other, enqueued while the GPU is busy, and in a CUDA graph; kernels, copies and
fills of a call. *eager*: before the operator was captured; *counted*: after that, when calls and replays count together
on the GPU.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.autograd import DeviceType

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import Samples, capture, extend, random, start  # noqa: E402

import ditron  # noqa: E402
from ditron import kernels  # noqa: E402
from ditron.kernels import schedules  # noqa: E402

Run = Callable[[], object]
LIMIT = 60  # seconds that one contender may take
CALLS = 20  # of calls one behind the other, and of a graph


def host_time(run: Run, bursts: int, calls: int) -> float:
    """Median us of a call that is enqueued; the GPU has finished before each burst."""
    times = []
    for _ in range(bursts):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        times.append((time.perf_counter() - begin) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def work_of(run: Run, calls: int = 4) -> tuple[float, dict[str, float]]:
    """How many kernels, copies and fills a call has on the GPU, and how many us each takes, by name."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            run()
        torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type == DeviceType.CUDA]
    names = dict.fromkeys(event.name for event in events)
    each = {name: sum(e.device_time for e in events if e.name == name) / calls for name in names}
    return len(events) / calls, each


def operators(device: torch.device, nbytes: int) -> dict[str, Run]:
    """Operators and what stands beside them, for operands of ``nbytes`` and a product of few and of many rows."""
    x = random(1, nbytes // 2, 1, device).view(-1)
    out, other = torch.empty_like(x), torch.empty_like(x)
    splits = torch.tensor([x.numel()], device=device)
    few, many, weight = random(16, 4096, 2, device), random(8192, 4096, 3, device), random(1376, 4096, 4, device)
    products = {len(a): torch.empty(len(a), len(weight), dtype=a.dtype, device=device) for a in (few, many)}
    schedules.OVERLAPPED_BYTES = 0  # one rank sends nothing, and takes the kernels that several would

    def with_gradients(product: Callable[..., torch.Tensor]) -> Run:
        def run() -> None:
            # New leaves each time: autograd keeps the stream on which one was first used, which no capture may join.
            leaves = many.detach().requires_grad_(), weight.detach().requires_grad_()
            torch.autograd.grad(product(*leaves), leaves, products[8192])

        return run

    return {
        "copy_": lambda: other.copy_(x),
        "NCCL all-reduce": lambda: dist.all_reduce(other),
        "NCCL all-gather": lambda: dist.all_gather_into_tensor(other, x),
        "all_reduce": lambda: kernels.all_reduce(x, out=out),
        "all_gather": lambda: kernels.all_gather(x, out=out),
        "reduce_scatter": lambda: kernels.reduce_scatter(x, out=out),
        "all_to_all": lambda: kernels.all_to_all(x.view(1, -1), out=out.view(1, -1)),
        "all_to_all_v": lambda: kernels.all_to_all_v(x, splits, max_rows=x.numel(), out=out),
        "mm, 16 rows": lambda: torch.mm(few, weight.T, out=products[16]),
        "ag_gemm, 16 rows": lambda: kernels.ag_gemm(few, weight, out=products[16]),
        "gemm_rs, 16 rows": lambda: kernels.gemm_rs(few, weight, out=products[16], algorithm="sequential"),
        "mm, 8192 rows": lambda: torch.mm(many, weight.T, out=products[8192]),
        "ag_gemm, 8192 rows": lambda: kernels.ag_gemm(many, weight, out=products[8192]),
        "gemm_rs, 8192 rows": lambda: kernels.gemm_rs(many, weight, out=products[8192]),
        "mm, gradients": with_gradients(lambda a, w: torch.mm(a, w.T)),
        "ag_gemm, gradients": with_gradients(kernels.ag_gemm),
        "gemm_rs, gradients": with_gradients(kernels.gemm_rs),
    }


def measured(run: Run, samples: Samples, args: argparse.Namespace) -> dict[str, float]:
    """Of calls as they are now: eager, or counted if the operator has been captured."""

    def several() -> None:
        for _ in range(CALLS):
            run()

    single = samples.medians({"call": run}, args.rounds, 900_000, 1)["call"]
    row = samples.medians({"calls": several}, args.rounds, 4_000_000, CALLS)["calls"]
    work, each = work_of(run)
    if args.verbose:
        print("   ", ", ".join(f"{name[:40]} {us:.1f}" for name, us in each.items()), flush=True)
    return {"host": host_time(run, args.bursts, CALLS), "single": 1e3 * single, "row": 1e3 * row, "work": work}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="these rows")
    parser.add_argument("--bytes", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--bursts", type=int, default=15)
    parser.add_argument("--verbose", action="store_true", help="print what the GPU executes")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    args = parser.parse_args()
    device = start(LIMIT)
    ditron.init(transport="p2p")
    samples = Samples(device)
    forms = ("eager", "counted")
    table = [
        "| call | " + " | ".join(f"{form}: host | single | in a row | kernels" for form in forms) + " | graph |",
        "|---" * (2 + 4 * len(forms)) + "|",
    ]
    print("\n".join(table), flush=True)
    for name, run in operators(device, args.bytes).items():
        if args.only and name not in args.only:
            continue
        extend(LIMIT)
        for _ in range(3):
            run()
        results = [measured(run, samples, args)]
        graph = capture(run, CALLS)
        if not name.startswith(("copy", "NCCL", "mm")):
            run()
            results.append(measured(run, samples, args))
        captured = 1e3 * samples.medians({"graph": graph.replay}, args.rounds, 100_000, CALLS)["graph"]
        cells = [f"{r['host']:.1f} | {r['single']:.1f} | {r['row']:.1f} | {r['work']:.0f}" for r in results]
        cells += [" | | | "] * (len(forms) - len(cells))
        table.append(f"| {name} | {' | '.join(cells)} | {captured:.1f} |")
        print(table[-1], flush=True)
    if args.table:
        title = f"{args.bytes} bytes, us, {torch.cuda.get_device_name()}, torch {torch.__version__}"
        with args.table.open("a") as file:
            file.write(f"\n{title}, {datetime.date.today()}\n\n" + "\n".join(table) + "\n")
    ditron.finalize()


if __name__ == "__main__":
    main()
