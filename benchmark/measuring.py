"""Times of contenders that take turns in one process on every rank, and what they are computed with.

The L2 cache holds other data, and the ranks are aligned, before each sample; the order of contenders rotates. Per
contender: the median on each rank, of which the slowest rank's counts.
"""

from __future__ import annotations

import datetime
import faulthandler
import os
import statistics
from collections.abc import Callable

for _multicast in ("NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"):
    os.environ.setdefault(*_multicast.split("="))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

# N and K of the MLPs of LLaMA 7B, 8B, 70B and 405B, Qwen 32B and 72B, Seed-OSS 36B and GPT-3 175B.
MLPS = {
    "7B": (11008, 4096),
    "8B": (14336, 4096),
    "32B": (25600, 5120),
    "36B": (27648, 5120),
    "70B": (28672, 8192),
    "72B": (29568, 8192),
    "175B": (49152, 12288),
    "405B": (53248, 16384),
}


def start(limit: int) -> torch.device:
    """Join the other ranks; the process ends itself ``limit`` seconds after the latest :func:`extend`."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    extend(limit)
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=limit))
    return device


def extend(limit: int) -> None:
    """Let the process live for ``limit`` seconds more, from now."""
    faulthandler.dump_traceback_later(limit, exit=True)


def relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    return ((result.float() - expected).norm() / expected.norm()).item()


def random(rows: int, cols: int, seed: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return (torch.randn(rows, cols, device=device, generator=generator) * cols**-0.25).bfloat16()


class Samples:
    """Milliseconds of calls or graphs, taken in turns."""

    def __init__(self, device: torch.device):
        self.cache = torch.zeros(48 << 20, dtype=torch.int32, device=device)
        self.one = torch.zeros(1, device=device)

    def take(self, run: Callable[[], object], cycles: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.cache.sum()  # read, not written: L2 would write it back during the sample
        torch.cuda._sleep(cycles)  # while the host enqueues what comes
        dist.all_reduce(self.one)
        begin.record()
        run()
        end.record()
        return begin, end

    def medians(self, runs: dict[str, Callable[[], object]], rounds: int, cycles: int, calls: int) -> dict[str, float]:
        """Of the slowest rank. An even number of calls of each, so that parities come out as they went in."""
        names, times = list(runs), {name: [] for name in runs}
        for turn in range(rounds + rounds % 2):
            shift = turn % len(names)
            order = names[shift:] + names[:shift]
            for name in order[:: -1 if turn % 2 else 1]:
                times[name].append(self.take(runs[name], cycles))
            torch.cuda.synchronize()
        mine = {
            name: statistics.median(begin.elapsed_time(end) / calls for begin, end in pairs[2:])
            for name, pairs in times.items()
        }
        everybody = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, mine)
        return {name: max(rank[name] for rank in everybody) for name in names}


def capture(run: Callable[[], object], calls: int) -> torch.cuda.CUDAGraph:
    """A graph of several calls; every rank has captured when it returns."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        for _ in range(calls):
            run()
    torch.cuda.synchronize()
    dist.barrier()
    return graph
