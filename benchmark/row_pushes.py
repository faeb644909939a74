"""GB/s of rows that go to chosen places of another GPU, as tokens to experts: by 1 to all SMs, and by the copy engine.

    torchrun --nproc-per-node 2 benchmark/row_pushes.py --table docs/results/row-pushes.md
    ditron run --sim 2 benchmark/row_pushes.py --check

Every rank pushes its rows, in the order of a permutation, to its right neighbour, or pulls them from its left one, all
at the same time: GB/s out of one GPU, medians of the slowest rank, in turns, a graph of two calls. The copy engine
copies segments of several rows, each a node of the graph. Every result of a kernel is compared, element by element.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.calibration.kernels import neighbour

sys.path.insert(0, str(Path(__file__).resolve().parent))  # what measure() imports


@ditron.jit
def push_rows(x_ptr, place_ptr, box_ptr, rows, COLS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Row r of ``x`` to row ``place[r]`` of the right neighbour's box."""
    there_ptr = dl.symm_at(box_ptr, neighbour(1))
    col = tl.arange(0, BLOCK)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        place = tl.load(place_ptr + row, mask=row < rows, other=0).to(tl.int64)
        mask = (row < rows)[:, None] & (col < COLS)[None, :]
        value = tl.load(x_ptr + row.to(tl.int64)[:, None] * COLS + col[None, :], mask=mask)
        tl.store(there_ptr + place[:, None] * COLS + col[None, :], value, mask=mask)


@ditron.jit
def pull_rows(x_ptr, place_ptr, box_ptr, rows, COLS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Row ``place[r]`` of the left neighbour's box to row r of ``x``."""
    there_ptr = dl.symm_at(box_ptr, neighbour(-1))
    col = tl.arange(0, BLOCK)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        place = tl.load(place_ptr + row, mask=row < rows, other=0).to(tl.int64)
        mask = (row < rows)[:, None] & (col < COLS)[None, :]
        value = tl.load(there_ptr + place[:, None] * COLS + col[None, :], mask=mask)
        tl.store(x_ptr + row.to(tl.int64)[:, None] * COLS + col[None, :], value, mask=mask)


class Rows:
    """``count`` rows of ``cols`` bf16 elements, and the memory that they go to or come from."""

    def __init__(self, count: int, cols: int, box: torch.Tensor):
        self.count, self.cols, device = count, cols, ditron.device()
        self.x = torch.empty(count, cols, dtype=torch.bfloat16, device=device)
        self.box = box[: count * cols].view(count, cols)
        self.place = self.permutation(ditron.rank())

    def permutation(self, rank: int) -> torch.Tensor:
        """Where a rank's rows go."""
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(rank))
        return order.to(self.x.device, torch.int32)

    def run(self, pulls: bool, programs: int, elements: int, warps: int) -> Callable[[], None]:
        """A launch; a program moves ``elements`` or a row at a time."""
        block = triton.next_power_of_2(self.cols)
        how = dict(COLS=self.cols, BLOCK=block, ROWS=max(1, elements // block), num_warps=warps)
        kernel = (pull_rows if pulls else push_rows)[(programs,)]
        return lambda: kernel(self.x, self.place, self.box, self.count, **how)

    def check(self, pulls: bool, run: Callable[[], None]) -> None:
        """Raises AssertionError unless every element is where it belongs."""
        ranks, rank = ditron.num_ranks(), ditron.rank()

        def data(of: int) -> torch.Tensor:
            generator = torch.Generator().manual_seed(100 + of)
            return torch.randint(-256, 256, self.x.shape, generator=generator).to(self.x.device, torch.bfloat16)

        sent, received = (self.box, self.x) if pulls else (self.x, self.box)
        received.zero_()
        sent.copy_(data(rank))
        ditron.barrier()
        run()
        ditron.barrier()
        theirs, left = data((rank - 1) % ranks), (rank - 1) % ranks
        if pulls:
            assert torch.equal(received, theirs[self.place.long()]), f"rank {rank} pulls wrong rows of {self.cols}"
        else:
            assert torch.equal(received[self.permutation(left).long()], theirs), f"rank {rank} has wrong rows"
        ditron.barrier()


WAYS = {
    "push, 8192 elements, 8 warps": (False, 8192, 8),
    "push, 16384 elements, 16 warps": (False, 16384, 16),
    "push, 32768 elements, 32 warps": (False, 32768, 32),
    "pull, 16384 elements, 16 warps": (True, 16384, 16),
    "pull, 32768 elements, 32 warps": (True, 32768, 32),
}


def measure(args: argparse.Namespace, box: torch.Tensor) -> list[str]:
    """Rows of the tables."""
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem
    from ag_gemm_triton import copy
    from measuring import Samples, capture, extend

    samples, rank, ranks = Samples(box.device), ditron.rank(), ditron.num_ranks()
    shared = symm_mem.empty(args.total, dtype=torch.uint8, device=box.device)
    there = int(symm_mem.rendezvous(shared, group=dist.group.WORLD).buffer_ptrs[(rank + 1) % ranks])
    lines: list[str] = []
    for nbytes in args.row_bytes:
        extend(args.limit)
        rows = Rows(args.total // nbytes, nbytes // 2, box)
        runs = {(name, sms): rows.run(way[0], sms, way[1], way[2]) for name, way in WAYS.items() for sms in args.sms}
        for (name, _), run in runs.items():
            rows.check(WAYS[name][0], run)
        for segment in args.segments:
            size, source = segment * nbytes, rows.x.data_ptr()

            def copies(size=size, source=source, count=rows.count // segment) -> None:
                for i in range(count):
                    copy(torch.cuda.current_stream(), there + i * size, source + i * size, size)

            runs[f"copy engine, segments of {segment} rows", 0] = copies
        graphs = {key: capture(run, 2) for key, run in runs.items()}
        times = samples.medians({key: graph.replay for key, graph in graphs.items()}, args.rounds, 100_000, 2)
        rate = {key: rows.count * nbytes / 1e6 / ms for key, ms in times.items()}
        head = [f"rows of {nbytes} bytes, GB/s by SMs", *map(str, args.sms)]
        lines += ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        for name in WAYS:
            lines.append(f"| {name} | " + " | ".join(f"{rate[name, sms]:.0f}" for sms in args.sms) + " |")
        for name in (name for name, sms in rate if not sms):
            lines.append(f"| {name} | {rate[name, 0]:.0f} |" + " |" * (len(args.sms) - 1))
        if rank == 0:
            print("\n".join(lines[-len(WAYS) - len(args.segments) - 3 :]), flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row-bytes", nargs="*", type=int, default=[1792, 3584, 7168, 14336])
    parser.add_argument("--total", type=int, default=58720256, help="bytes that a rank moves")
    parser.add_argument("--segments", nargs="*", type=int, default=[32, 128, 512], help="rows of a copy")
    parser.add_argument("--sms", nargs="*", type=int, default=[4, 8, 12, 16, 32, 132])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--check", action="store_true", help="only compare, with few rows")
    parser.add_argument("--table", type=Path, help="append the tables to this file")
    parser.add_argument("--limit", type=int, default=60, help="seconds a size of rows may take")
    args = parser.parse_args()
    if not args.check:
        from measuring import start

        start(args.limit)
    ditron.init()
    box = ditron.symm_empty(1 << 14 if args.check else args.total // 2, dtype=torch.bfloat16, name="box")
    if args.check:
        for cols in (56, 120):
            rows = Rows(37, cols, box)
            for pulls in (False, True):
                for programs, elements in ((1, 256), (3, 64)):
                    rows.check(pulls, rows.run(pulls, programs, elements, 4))
        print(f"rank {ditron.rank()}: every row arrived", flush=True)
    else:
        lines = measure(args, box)
        if ditron.rank() == 0 and args.table:
            title = f"{ditron.num_ranks()} x {torch.cuda.get_device_name()}, torch {torch.__version__}, "
            title += f"triton {triton.__version__}, {datetime.date.today()}"
            with args.table.open("a") as file:
                file.write(f"\n{title}\n" + "\n".join(lines) + "\n")
    ditron.finalize()


if __name__ == "__main__":
    main()
