"""What pushing one shard to a peer costs: the copy engine in pieces with signals, and stores by a few programs.

    torchrun --nproc-per-node 2 benchmark/pushes.py

Both ranks push at the same time; microseconds of the slower one, medians, for a call and for a graph of one.
"""

from __future__ import annotations

import datetime
import faulthandler
import os
import sys
from collections.abc import Callable
from pathlib import Path

for _multicast in ("NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"):
    os.environ.setdefault(*_multicast.split("="))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gemm_kernels  # noqa: E402
from ag_gemm_triton import WRITE64, Symmetric, copy, stream_operations  # noqa: E402
from measuring import Samples  # noqa: E402

MB = 1 << 20
LIMIT = 90  # seconds


class Pushes:
    def __init__(self, device: torch.device):
        self.memory, self.peer = Symmetric(128 * MB), 1 - dist.get_rank()
        self.source = torch.randint(0, 255, (64 * MB,), dtype=torch.uint8, device=device)
        self.one = torch.ones(1, dtype=torch.int64, device=device)

    def copies(self, pieces: int, nbytes: int, signal: str) -> Callable[[], None]:
        """``pieces`` of ``nbytes``; after each a signal, which the stream writes or the copy engine copies."""
        memory, stream = self.memory, self.memory.copies
        target, signals = memory.workspaces[self.peer], memory.signal_ptrs[self.peer]

        def run() -> None:
            stream.wait_stream(torch.cuda.current_stream())
            for piece in range(pieces):
                copy(stream, target + piece * nbytes, self.source.data_ptr() + piece * nbytes, nbytes)
                if signal == "written":
                    stream_operations(stream, [(WRITE64, signals + 8 * piece, 1)])
                elif signal == "copied":
                    copy(stream, signals + 8 * piece, self.one.data_ptr(), 8)
            torch.cuda.current_stream().wait_stream(stream)

        return run

    def stores(self, nbytes: int, programs: int, block: int, num_warps: int, pieces: int) -> Callable[[], None]:
        """By ``programs`` programs of 32 * ``num_warps`` threads, with a signal after each of ``pieces``."""
        source = self.source.view(torch.bfloat16)
        target = self.memory.workspace_of(self.peer)[: 64 * MB].view(torch.bfloat16)
        signals, numel = self.memory.signals_of(self.peer), nbytes // 2
        return lambda: gemm_kernels.push[(programs,)](
            source, target, signals, numel, numel // pieces, BLOCK=block, PROGRAMS=programs, num_warps=num_warps
        )


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=LIMIT))
    pushes, samples = Pushes(device), Samples(device)
    runs = {}
    for pieces, size in ((1, 32), (2, 16), (4, 8), (8, 4), (1, 64), (4, 16)):
        for signal in ("none", "written", "copied"):
            runs[f"copy engine, {pieces} x {size} MB, signals {signal}"] = pushes.copies(pieces, size * MB, signal)
    for programs in (8, 16, 32):
        for block, num_warps in ((8192, 8), (16384, 8), (32768, 16)):
            for pieces in (1, 8):
                name = f"{programs} programs of {num_warps} warps, {block} elements at once, {pieces} signals"
                runs[name] = pushes.stores(32 * MB, programs, block, num_warps, pieces)
    graphs = {}
    for name, run in runs.items():
        run()
        torch.cuda.synchronize()
        dist.barrier()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, capture_error_mode="relaxed"):
            run()
        graphs[name] = captured.replay
        dist.barrier()
    calls, replays = samples.medians(runs, 10, 600_000, 1), samples.medians(graphs, 10, 100_000, 1)
    if dist.get_rank() == 0:
        print("| push | call, us | graph, us |\n|---|---|---|")
        for name in runs:
            print(f"| {name} | {1e3 * calls[name]:.1f} | {1e3 * replays[name]:.1f} |", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
