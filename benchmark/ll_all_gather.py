"""All-gather of 8 B to 64 KB per rank: packets (LL, LL128) against put with signal, and against NCCL.

    torchrun --nproc-per-node 4 benchmark/ll_all_gather.py --table out.md

The kernel is that of examples/ll_all_gather.py, compiled by each pipeline. A sample is a CUDA graph of ``--calls``
calls, replayed once (each call has an epoch of its own, so a graph is made anew for each sample); the methods take
turns. Per method and size: the median of the samples on each rank, of which the slowest rank's is shown, in us per
call. ``empty`` is a kernel that does nothing, with the grid of the first packet column: what a call costs at least.
Results are compared with NCCL's before and after.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

for _multicast in ("NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"):
    os.environ.setdefault(*_multicast.split("="))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import triton  # noqa: E402

import ditron  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import ll_all_gather  # noqa: E402

# (protocol, elements of a chunk): ll128 fills whole lines of 120 bytes, put with signal likes larger chunks.
METHODS = [
    ("ll", 512),
    ("ll", 1024),
    ("ll128", 960),
    ("ll128", 1920),
    ("simple", 512),
    ("simple", 2048),
    ("simple", 8192),
]
SIZES = [8 << i for i in range(14)]  # bytes per rank


@ditron.jit
def empty_kernel(x_ptr):
    pass


class Gathers:
    """A call of every method on the first ``n`` elements of a shard."""

    def __init__(self, largest: int):
        self.shard = torch.empty(largest, dtype=torch.bfloat16, device=ditron.device())
        self.of = {method: ll_all_gather.AllGather(largest, protocol=method[0], chunk=method[1]) for method in METHODS}

    def calls(self, n: int) -> dict[str, Callable[[], torch.Tensor | None]]:
        shard, ranks = self.shard[:n], ditron.num_ranks()
        theirs = torch.empty(ranks, n, dtype=torch.bfloat16, device=ditron.device())

        def nccl() -> torch.Tensor:
            dist.all_gather_into_tensor(theirs.view(-1), shard)
            return theirs

        grid = (triton.cdiv(n, METHODS[0][1]), ranks)
        return {
            "nccl": nccl,
            "empty": lambda: empty_kernel[grid](shard, num_warps=4),
            **{
                f"{protocol}/{chunk}": lambda gather=gather: gather(shard)
                for (protocol, chunk), gather in self.of.items()
            },
        }


def sample(call: Callable[[], object], calls: int) -> float:
    """Microseconds per call of a graph of ``calls`` calls."""
    graph, begin, end = torch.cuda.CUDAGraph(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    ditron.barrier()
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / calls


def compare(gathers: Gathers, n: int, seed: int) -> list[str]:
    """The methods whose result differs from NCCL's, for fresh data."""
    generator = torch.Generator().manual_seed(100 * seed + ditron.rank())
    gathers.shard.copy_(torch.randn(gathers.shard.numel(), generator=generator))
    calls = gathers.calls(n)
    expected = calls.pop("nccl")().clone()
    results = {name: call() for name, call in calls.items()}  # which also loads every kernel, before any is captured
    ditron.barrier()
    return [name for name, result in results.items() if name != "empty" and not torch.equal(result, expected)]


def row(gathers: Gathers, nbytes: int, samples: int, calls: int) -> dict[str, float]:
    """Microseconds of each method, on the rank that is slowest. Raises AssertionError when a result is wrong."""
    n = nbytes // 2
    wrong = compare(gathers, n, 1)
    times: dict[str, list[float]] = {name: [] for name in gathers.calls(n)}
    for _ in range(samples):
        for name, call in gathers.calls(n).items():
            times[name].append(sample(call, calls))
    wrong += compare(gathers, n, 2)
    assert not wrong, f"rank {ditron.rank()}, {nbytes} bytes: wrong results by {sorted(set(wrong))}"
    everybody = ditron.all_gather_object({name: statistics.median(values) for name, values in times.items()})
    return {name: max(rank[name] for rank in everybody) for name in times}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--calls", type=int, default=100, help="calls in one graph")
    parser.add_argument("--transport", default="p2p")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--limit", type=int, default=60, help="seconds a size may take")
    args = parser.parse_args()

    ditron.init(transport=args.transport, heap_bytes=64 << 20)
    gathers = Gathers(SIZES[-1] // 2)
    names = list(gathers.calls(1))
    table = [
        "| bytes per rank | " + " | ".join(names) + " | best of ours | nccl / best |",
        "|---" * (len(names) + 3) + "|",
    ]
    for nbytes in SIZES:
        faulthandler.dump_traceback_later(args.limit, exit=True)
        times = row(gathers, nbytes, args.samples, args.calls)
        faulthandler.cancel_dump_traceback_later()
        ours = min((name for name in names if "/" in name), key=times.get)
        table.append(
            f"| {nbytes} | "
            + " | ".join(f"{times[name]:.2f}" for name in names)
            + f" | {ours} {times[ours]:.2f} | {times['nccl'] / times[ours]:.2f} |"
        )
        if ditron.rank() == 0:
            print("\n".join(table) if nbytes == SIZES[0] else table[-1], flush=True)
    if ditron.rank() == 0 and args.table:
        with args.table.open("a") as file:
            file.write(
                f"\nAll-gather, us per call in a CUDA graph, slowest of {ditron.num_ranks()} x "
                f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}, "
                f"{datetime.date.today()}\n\n" + "\n".join(table) + "\n"
            )
    ditron.finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
