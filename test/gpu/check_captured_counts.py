"""GEMM+RS in CUDA graphs, whose copies wait for counts by memory operations: results, a held GPU, and times.

    torchrun --nproc-per-node 2 test/gpu/check_captured_counts.py [--replays 1000]

Two groups of the same ranks: one waits as said, the other by kernels, as captured calls did before. Graphs are replayed
with other data again and again, by ranks that are slowed down by chance, between calls that are not captured and calls
of another size in the same memory; all results are compared.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmark"))

import measuring  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import ditron  # noqa: E402
from ditron._program.execute import cuda  # noqa: E402
from ditron._program.execute.counts import CapturedCounts  # noqa: E402
from ditron.kernels import gemm_rs  # noqa: E402

BOUND = 1e-2
LIMIT = 40  # seconds, from one sign of progress to the next


class Shape:
    """A product of one size: A and the result, which each call uses, and what it should be for each set of data."""

    def __init__(self, M: int, N: int, K: int, device: torch.device, sets: int = 3):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        self.name = f"{M} x {N} x {K}"
        self.b = measuring.random(N, K, 7 + rank, device)
        self.a = torch.empty(M, K, dtype=torch.bfloat16, device=device)
        self.out = torch.empty(M // ranks, N, dtype=torch.bfloat16, device=device)
        self.data = [measuring.random(M, K, 100 * number + rank, device) for number in range(sets)]
        self.expected = []
        for a in self.data:
            partial = a.float() @ self.b.float().T
            dist.all_reduce(partial)
            self.expected.append(partial.chunk(ranks)[rank].clone())

    def call(self, group: ditron.Group) -> None:
        gemm_rs(self.a, self.b, out=self.out, group=group, algorithm="overlapped")

    def check(self, number: int, what: str) -> None:
        error = measuring.relative_error(self.out, self.expected[number])
        assert error < BOUND, f"{what}, {self.name}: error {error}"


def captured(run: Callable[[], None], calls: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    dist.barrier()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    return graph


def check_replays(shapes: list[Shape], group: ditron.Group, replays: int) -> None:
    """Replays with other data, other sizes and calls between them, and ranks that lag."""
    graphs = [captured(lambda shape=shape: shape.call(group), 2) for shape in shapes]
    if dist.get_rank() == 0:
        print("captured", flush=True)
    chance, slow = random.Random(1), random.Random(50 + dist.get_rank())
    for replay in range(replays):
        index, number = chance.randrange(len(shapes)), chance.randrange(3)
        shape = shapes[index]
        if slow.random() < 0.1:
            torch.cuda._sleep(slow.randrange(2_000_000))
        shape.a.copy_(shape.data[number])
        if chance.random() < 0.2:
            shape.call(group)
        else:
            graphs[index].replay()
        if replay % 20 == 19:
            torch.cuda.synchronize()
            shape.check(number, f"replay {replay}")
            measuring.extend(LIMIT)
    torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replays", type=int, default=1000)
    args = parser.parse_args()
    device = measuring.start(LIMIT)
    ditron.init()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    by_memory, by_kernels = (ditron.new_group(range(ranks)) for _ in range(2))
    shapes = [Shape(4096, 4096, 2048, device), Shape(3072, 4096, 2048, device)]
    allocate = CapturedCounts.allocate
    for shape in shapes:
        shape.a.copy_(shape.data[0])
        for group, allocated in ((by_memory, allocate), (by_kernels, lambda *_: CapturedCounts())):
            cuda.CapturedCounts.allocate = allocated
            for call in range(2):
                shape.call(group)
                torch.cuda.synchronize()
                shape.check(0, f"call {call}")
            if rank == 0:
                print(f"{shape.name}: two calls right", flush=True)
    cuda.CapturedCounts.allocate = allocate
    for name, group in (("memory operations", by_memory), ("kernels", by_kernels)):
        count = args.replays if group is by_memory else args.replays // 5
        check_replays(shapes, group, count)
        if rank == 0:
            print(f"waits by {name}: {count} replays and calls right", flush=True)

    samples, rows = measuring.Samples(device), []
    for name in ("7B", "8B", "70B"):
        measuring.extend(LIMIT)
        N, K = measuring.MLPS[name][::-1]
        shape = Shape(8192, N, K // 8, device, sets=1)
        shape.a.copy_(shape.data[0])
        for group, allocated in ((by_memory, allocate), (by_kernels, lambda *_: CapturedCounts())):
            cuda.CapturedCounts.allocate = allocated
            shape.call(group)
        cuda.CapturedCounts.allocate = allocate
        graphs = {
            "memory operations": captured(lambda shape=shape: shape.call(by_memory), 4),
            "kernels": captured(lambda shape=shape: shape.call(by_kernels), 4),
        }
        times = samples.medians({n: g.replay for n, g in graphs.items()}, 24, 100_000, 4)
        shape.check(0, "timed")
        rows.append((name, times))
        if rank == 0:
            print(f"{name} tp8slice, ms: " + ", ".join(f"{n} {t:.4f}" for n, t in times.items()), flush=True)
    if rank == 0:
        ratio = statistics.geometric_mean(times["memory operations"] / times["kernels"] for _, times in rows)
        print(f"memory operations / kernels: {ratio:.3f}", flush=True)
    ditron.finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
