"""Tensor descriptors on real GPUs: made by the host of a program's arguments and buffers, and made by kernels.

    torchrun --nproc-per-node 2 test/gpu/check_descriptors.py --table table.md
    ditron run --sim 2 test/gpu/check_descriptors.py --small

Host-made: ``a @ b`` of the own and of the left neighbour's ``a``, which a copy engine brings. Every call has tensors at
other addresses; then calls are captured, and replayed with new contents. Kernel-made: in a plain launch, in a program on
its main stream and on another one, and captured, with no allocator set. All results are compared with torch.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.runtime import _allocation
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh


@ditron.jit
def gemm(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros([BM, BN], dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([i, k]), b.load([k, j]), total)
    c.store([i, j], total.to(tl.bfloat16))


@ditron.program(max_nodes=1)
def gemm_with_left(a, b, out, *, BM=64, BN=64, BK=64):
    """``out[0] = a @ b``, ``out[1] = a of the left neighbour @ b``."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (m, k), n = a.shape, b.shape[1]
    inbox = dh.symm_empty(m, k, dtype=a.dtype, name="inbox")
    full, done = (dh.symm_zeros(1, dtype=torch.int64, name=name) for name in ("full", "done"))
    with dh.stream("copy"):
        dh.signal_wait(done[0], epoch - 1)
        dh.rank_copy(a, inbox, (rank + 1) % ranks)
        dh.signal_write(full[0], epoch, (rank + 1) % ranks)
    grid = dh.cdiv(m, BM), dh.cdiv(n, BN)
    right = TensorDescriptor.from_tensor(b, [BK, BN])
    for number, left in enumerate((a, inbox)):
        if left is inbox:
            dh.signal_wait(full[0], epoch)
        operands = TensorDescriptor(left, [m, k], [k, 1], [BM, BK]), right
        gemm[grid](*operands, TensorDescriptor.from_tensor(out[number], [BM, BN]), k, BM=BM, BN=BN, BK=BK)
    dh.signal_write(done[0], epoch, (rank - 1) % ranks)


@ditron.jit
def scale(x_ptr, out_ptr, m, n, factor: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [m, n], [n, 1], [BM, BN])
    out = tl.make_tensor_descriptor(out_ptr, [m, n], [n, 1], [BM, BN])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    out.store([i, j], x.load([i, j]) * factor)


@ditron.program
def scaled_twice(x, out):
    """On the main stream and on another one, each with descriptors of its own."""
    m, n = x.shape
    between = dh.empty(m, n, dtype=x.dtype, name="between")
    grid = dh.cdiv(m, 64), dh.cdiv(n, 64)
    scale[grid](x, between, m, n, 2.0, BM=64, BN=64)
    event = dh.record()
    with dh.stream("side") as side:
        dh.await_event(event, side)
        scale[grid](between, out, m, n, 3.0, BM=64, BN=64)


def _random(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).bfloat16().to(ditron.device())


def _difference(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative to the largest value."""
    return ((got.float() - expected).abs().max() / expected.abs().max().clamp(min=1e-6)).item()


def _is_gpu() -> bool:
    return torch.device(ditron.device()).type == "cuda"


def _captured(call: Callable[[], None]) -> Callable[[], None]:
    """Replays a graph of one call; where there are no graphs, calls."""
    call()
    if not _is_gpu():
        return call
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def host_made(calls: int, m: int, n: int, k: int) -> tuple[float, float, float]:
    """The largest differences of eager and of captured calls, and the host's microseconds for an eager call."""
    rank, ranks = ditron.rank(), ditron.num_ranks()

    def inputs(seed: int, of: int) -> torch.Tensor:
        return _random(m, k, seed=100 * seed + of)

    def expected(seed: int, b: torch.Tensor) -> torch.Tensor:
        return torch.stack([inputs(seed, of).float() @ b.float() for of in (rank, (rank - 1) % ranks)])

    b = _random(k, n, seed=7)
    results, kept = [], []
    for call in range(calls):
        a, out = inputs(call % 5, rank), torch.empty(2, m, n, dtype=torch.bfloat16, device=b.device)
        kept.append(a)  # so that the next one has another address
        gemm_with_left(a, b, out)
        results.append((call % 5, out))
    eager = max(_difference(out, expected(seed, b)) for seed, out in results)
    addresses = len({a.data_ptr() for a in kept})
    assert addresses == calls, f"{calls} calls had {addresses} addresses"
    start = time.perf_counter()
    for a in kept:
        gemm_with_left(a, b, results[0][1])
    host = (time.perf_counter() - start) / calls * 1e6
    if _is_gpu():
        torch.cuda.synchronize()

    a, out = inputs(0, rank), torch.empty(2, m, n, dtype=torch.bfloat16, device=b.device)
    replay = _captured(lambda: gemm_with_left(a, b, out))
    captured = 0.0
    for call in range(calls):
        a.copy_(inputs(call % 5, rank))
        replay()
        captured = max(captured, _difference(out, expected(call % 5, b)))
    return eager, captured, host


def kernel_made(calls: int, m: int, n: int) -> tuple[float, float]:
    """The largest differences of launches and calls, and of captured ones."""
    assert isinstance(_allocation._allocator.get(), _allocation.NullAllocator), "an allocator is set"
    grid = triton.cdiv(m, 64), triton.cdiv(n, 64)
    eager = captured = 0.0
    for call in range(calls):
        x = _random(m, n, seed=call)
        out = torch.empty_like(x)
        scale[grid](x, out, m, n, 2.0, BM=64, BN=64)
        eager = max(eager, _difference(out, 2 * x.float()))
        scaled_twice(x, out)
        eager = max(eager, _difference(out, 6 * x.float()))
    x = _random(m, n, seed=0)
    out, plain = torch.empty_like(x), torch.empty_like(x)

    def both() -> None:
        scale[grid](x, plain, m, n, 2.0, BM=64, BN=64)
        scaled_twice(x, out)

    replay = _captured(both)
    for call in range(calls):
        x.copy_(_random(m, n, seed=call))
        replay()
        captured = max(captured, _difference(plain, 2 * x.float()), _difference(out, 6 * x.float()))
    return eager, captured


BOUND = 1.2e-2  # bfloat16 results, relative to the largest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--small", action="store_true", help="leave out the full-size row")
    parser.add_argument("--limit", type=int, default=90, help="seconds a row may take")
    args = parser.parse_args()

    os.environ.setdefault("DITRON_PROTOCOL", "off")  # the checker needs no GPU, and has tests of its own
    if not _simulated():
        ditron.init(transport="p2p")
    else:
        ditron.init()
        args.calls = min(args.calls, 3)
    failed = 0
    table = ["| descriptors | shape | eager | captured | bound | host us/call |", "|---|---|---|---|---|---|"]

    def row(name: str, shape: tuple[int, ...], eager: float, captured: float, host: float | None = None) -> None:
        nonlocal failed
        worst = [max(values) for values in zip(*ditron.all_gather_object((eager, captured)), strict=True)]
        right = all(error <= BOUND for error in worst)  # False for a NaN
        failed += not right
        cells = [name, " x ".join(map(str, shape)), *(f"{error:.1e}" for error in worst), f"{BOUND:g}"]
        table.append(f"| {' | '.join(cells)} | {'' if host is None else f'{host:.3g}'} |")
        if ditron.rank() == 0:
            print(table[-1] if right else f"FAILED {table[-1]}", flush=True)

    for shape in [(128, 128, 128), (72, 136, 200), *([] if args.small else [(4096, 4096, 4096)])]:
        if not _simulated():
            faulthandler.dump_traceback_later(args.limit, exit=True)
        row("by the host", shape, *host_made(args.calls, *shape))
    for shape in [(128, 128), (72, 200)]:
        if not _simulated():
            faulthandler.dump_traceback_later(args.limit, exit=True)
        row("by kernels", shape, *kernel_made(args.calls, *shape))
    faulthandler.cancel_dump_traceback_later()
    if ditron.rank() == 0 and args.table:
        with args.table.open("a") as file:
            device = torch.cuda.get_device_name() if _is_gpu() else "simulated rank"
            file.write(
                f"\n{ditron.num_ranks()} x {device}, torch {torch.__version__}, triton {triton.__version__}, "
                f"{datetime.date.today()}: {len(table) - 2 - failed} of {len(table) - 2} rows right in {args.calls} "
                "calls\n\n" + "\n".join(table) + "\n"
            )
    ditron.finalize()
    return 1 if failed else 0


def _simulated() -> bool:
    return "LOCAL_RANK" not in os.environ


if __name__ == "__main__":
    sys.exit(main())
