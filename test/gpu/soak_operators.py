"""Thousands of calls of the operators in random order: sizes, lagging ranks, other streams, graphs; every result checked.

    torchrun --nproc-per-node 2 test/gpu/soak_operators.py --calls 10000

Every rank draws the tensors of all, so that it knows each result without another exchange: compared with torch's of
them in fp32, element by element, within the bounds of bf16 sums. Memory must not grow after the first tenth of the
calls. A rank that hangs ends itself after ``--limit`` seconds without progress.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import itertools
import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

import ditron
from ditron import kernels

LARGEST = 1200  # rows of a rank


def wrong(got: torch.Tensor, exact: torch.Tensor, parts: torch.Tensor | float, products: torch.Tensor | float) -> int:
    """Elements that differ by more than rounding: of the result and of its ``parts`` to bf16, of fp32 sums of products.

    ``parts``: the sum of their magnitudes, where they are rounded; ``products``: the sum of the products' magnitudes.
    """
    bound = 2.0**-8 * (exact.abs() + parts) + 2.0**-16 * products
    return int(((got.float() - exact).abs() > bound).sum()) + int(got.isnan().sum())


def count(bad: dict[str, int], burst: list, results: list[torch.Tensor]) -> None:
    """Add up the wrong elements by operator."""
    for (kind, _, check), got in zip(burst, results, strict=True):
        if elements := check(got):
            bad[kind] = bad.get(kind, 0) + elements


class Calls:
    """Calls that all ranks draw alike from one generator, with the tensors of each rank."""

    def __init__(self, seed: int, device: torch.device):
        self.draw, self.rank, self.ranks = random.Random(seed), dist.get_rank(), dist.get_world_size()
        self.pools, self.weights = [], []
        for rank in range(self.ranks):
            generator = torch.Generator(device).manual_seed(seed * 100 + rank)
            drawn = partial(torch.randn, device=device, generator=generator)
            self.pools.append(drawn(self.ranks * LARGEST + 64, 1024).bfloat16())
            self.weights.append({(n, k): drawn(n, k).bfloat16() for n in (256, 776) for k in (64, 520, 1024)})

    def one(self) -> tuple[str, Callable[[], torch.Tensor], Callable[[torch.Tensor], int]]:
        """An operator's name, its call, and what counts the wrong elements of its result."""
        kind = self.draw.choice(["ag_gemm", "gemm_rs", "gemm_ar", "all_gather", "reduce_scatter", "all_reduce"])
        rows = self.draw.choice([self.draw.randint(1, LARGEST), self.draw.randint(1, 64), 128])
        n, k = self.draw.choice(list(self.weights[0]))
        how = {"algorithm": "by_rank"} if kind in ("ag_gemm", "gemm_rs") and self.draw.random() < 0.25 else {}
        if kind == "ag_gemm" and not how and self.draw.random() < 0.5:
            how = {"algorithm": "k_slices", "slice_k": (128, 256), "in_flight": self.draw.randint(1, 3)}
        per_rank = rows if kind in ("ag_gemm", "all_gather") else rows * self.ranks
        first = self.draw.randrange(len(self.pools[0]) - per_rank)
        every = [pool[first : first + per_rank, :k] for pool in self.pools]
        weights = [of_rank[n, k] for of_rank in self.weights]
        x, b = every[self.rank].contiguous(), weights[self.rank]
        part = slice(self.rank * rows, (self.rank + 1) * rows) if kind in ("gemm_rs", "reduce_scatter") else slice(None)
        if kind == "all_gather":
            return kind, lambda: kernels.all_gather(x), lambda got: int((got != torch.cat(every)).sum())
        if kind == "ag_gemm":

            def check(got: torch.Tensor) -> int:
                a = torch.cat(every).float()
                return wrong(got, a @ b.float().T, 0.0, a.abs() @ b.float().abs().T)

            return kind, lambda: kernels.ag_gemm(x, b, **how), check
        if kind in ("gemm_rs", "gemm_ar"):

            def check(got: torch.Tensor) -> int:
                factors = [(a[part].float(), w.float().T) for a, w in zip(every, weights, strict=True)]
                sums = torch.stack([a @ w for a, w in factors])
                return wrong(got, sums.sum(0), sums.abs().sum(0), sum(a.abs() @ w.abs() for a, w in factors))

            return kind, lambda: getattr(kernels, kind)(x, b, **how), check

        def check(got: torch.Tensor) -> int:
            parts = torch.stack([a[part] for a in every]).float()
            return wrong(got, parts.sum(0), 0.0, parts.abs().sum(0))

        return kind, lambda: getattr(kernels, kind)(x), check


class Progress(threading.Thread):
    """Ends the process, with what the GPU has not done, when ``limit`` seconds have passed since the latest burst."""

    def __init__(self, limit: float):
        super().__init__(daemon=True)
        self.limit, self.events, self.begin = limit, [], time.monotonic()

    def burst(self) -> None:
        self.events, self.begin = [], time.monotonic()

    def add(self, name: str) -> None:
        event = torch.cuda.Event()
        event.record()
        self.events = [*self.events, (name, event)]

    def run(self) -> None:
        while time.monotonic() < self.begin + self.limit:
            time.sleep(0.5)
        waiting = [name for name, event in self.events if not event.query()]
        text = (
            f"rank {dist.get_rank()}: no progress for {self.limit} s; of {len(self.events)} calls not done: {waiting}\n"
        )
        os.write(2, text.encode())
        faulthandler.dump_traceback()
        os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end with fewer calls after so long")
    parser.add_argument("--replays", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=60, help="seconds without progress")
    args = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=args.limit))
    torch.backends.cuda.matmul.allow_tf32 = False
    ditron.init(transport="p2p", heap_bytes=2 << 30)
    progress = Progress(args.limit)
    progress.start()
    calls, local = Calls(args.seed, device), random.Random(1000 + args.seed + dist.get_rank())
    other, noise = torch.cuda.Stream(), torch.randn(2048, 2048, device=device)
    bad, used, done, seconds = {}, 0, 0, 0.0
    begin = printed = time.perf_counter()
    for number in itertools.count():
        if number % 32 == 0:  # otherwise ranks may be out of step
            seconds = ditron.all_gather_object(time.perf_counter() - begin)[0]
        if done >= args.calls or seconds > args.seconds:
            break
        progress.burst()
        burst = [calls.one() for _ in range(calls.draw.randint(1, 8))]
        if local.random() < 0.2:
            torch.cuda._sleep(local.randint(1, 3_000_000))
        if local.random() < 0.2:
            with torch.cuda.stream(other):
                noise @ noise
        results = []
        for kind, call, _ in burst:
            results.append(call())
            progress.add(f"{kind} -> {tuple(results[-1].shape)}")
        count(bad, burst, results)
        done += len(burst)
        torch.cuda.synchronize()
        if used == 0 and (done > args.calls // 10 or seconds > args.seconds / 10):
            used = torch.cuda.mem_get_info()[0]
        if dist.get_rank() == 0 and time.perf_counter() > printed + 10:
            printed = time.perf_counter()
            print(f"{done} calls, wrong elements {bad}, {printed - begin:.0f} s", flush=True)
    grown = used - torch.cuda.mem_get_info()[0]
    print(
        f"rank {dist.get_rank()}: {done} calls, wrong elements {bad}, free memory fell by {grown >> 20} MiB", flush=True
    )
    dist.barrier()

    progress.burst()
    burst = [calls.one() for _ in range(12)]
    for _, call, _ in burst:
        call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        results = [call() for _, call, _ in burst]
    dist.barrier()
    for replay in range(args.replays):
        if local.random() < 0.05:
            torch.cuda._sleep(local.randint(1, 3_000_000))
        graph.replay()
        if replay % 100 == 99:
            torch.cuda.synchronize()
            progress.burst()
            count(bad, burst, results)
            for got in results:
                got.fill_(float("nan"))
    torch.cuda.synchronize()
    print(f"rank {dist.get_rank()}: {args.replays} replays of 12 calls, wrong elements {bad} in all", flush=True)
    dist.barrier()
    ditron.finalize()
    assert not bad


if __name__ == "__main__":
    main()
