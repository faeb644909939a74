"""How fast the simulator is, after compilation: a bf16 matrix product on one rank and AG+GEMM on eight, with the search
for races; a matrix product and a softmax as plain kernels, on one core and on all.

    python benchmark/simulator.py                  # prints a table
    python benchmark/simulator.py --table out.md

Each row is the fastest of ``--repeat`` runs; seconds of CPU are the process's, and mean something on a busy machine.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl

import ditron

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import ag_gemm_in_kernel as ag_gemm  # noqa: E402


@ditron.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """One tile of C = A @ B, row-major; any M, N, K."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + ks[:, None] * N + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        inside = ks < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & inside[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=inside[:, None] & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    c_ptrs = c_ptr + rows[:, None] * N + cols[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def softmax(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One row."""
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + cols, mask=cols < N, other=float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + tl.program_id(0) * N + cols, e / tl.sum(e, 0), mask=cols < N)


plain_matmul = triton.jit(matmul.fn)


def _fastest(run: Callable[[], object], repeat: int) -> tuple[float, float]:
    """Seconds of wall clock and of CPU, each the least, after one call that compiles."""
    run()
    walls, cpus = [], []
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus)


def measure_matmul(size: int, block: tuple[int, int, int], repeat: int) -> tuple[float, float]:
    """A product of ``size`` cubed on one rank, checked against torch."""

    def main() -> tuple[float, float]:
        ditron.init()
        a, b = (torch.randn(size, size, generator=torch.Generator().manual_seed(i)).bfloat16() for i in range(2))
        c = torch.empty(size, size, dtype=torch.bfloat16)
        grid = (triton.cdiv(size, block[0]) * triton.cdiv(size, block[1]),)
        times = _fastest(lambda: matmul[grid](a, b, c, size, size, size, *block), repeat)
        torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=1e-2)
        return times

    return ditron.sim.run(main, ranks=1)[0]


def measure_ag_gemm(
    M: int, N: int, K: int, ranks: int, block: tuple[int, int, int], repeat: int
) -> tuple[float, float]:
    """A call of ``examples/ag_gemm_in_kernel.py`` on every rank (each has all N columns of its own B), checked once."""

    def main() -> tuple[float, float]:
        ditron.init()
        error = ag_gemm.check(M // ranks, 64, K, calls=1, num_push=2, block=block)
        assert error < 8e-3, error
        op = ag_gemm.AllGatherGemm(M // ranks, K, num_push=2, block=block)
        a, b = torch.randn(M // ranks, K).bfloat16(), torch.randn(K, N).bfloat16()

        def call() -> None:
            ditron.world().barrier()  # from the first rank's start
            op(a, b)
            ditron.world().barrier()  # to the last one's end

        return _fastest(call, repeat)

    times = ditron.sim.run(main, ranks=ranks)
    return max(wall for wall, _ in times), max(cpu for _, cpu in times)


def measure_plain(cores: int, repeat: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """A product of 1024 cubed in bf16, and a softmax of 4096 rows, without races, on that many cores; checked."""
    os.environ["DITRON_SIM_THREADS"] = str(cores)

    def main() -> tuple[tuple[float, float], tuple[float, float]]:
        size, block = 1024, (64, 64, 32)
        a, b = (torch.randn(size, size, generator=torch.Generator().manual_seed(i)).bfloat16() for i in range(2))
        c, x = torch.empty(size, size, dtype=torch.bfloat16), torch.randn(4096, 1000)
        out = torch.empty_like(x)
        product = _fastest(lambda: plain_matmul[(256,)](a, b, c, size, size, size, *block), repeat)
        rows = _fastest(lambda: softmax[(4096,)](x, out, 1000, BLOCK=1024), repeat)
        torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(out, x.softmax(1))
        return product, rows

    return ditron.sim.run(main, ranks=1, races=False)[0]


def _cpu() -> str:
    """The processor's name, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--table", help="write the table there as well")
    args = parser.parse_args()
    rows = []
    for block in ((64, 64, 32), (128, 128, 64)):
        rows.append(
            ("matrix product 1024 x 1024 x 1024, bf16, 1 rank", block, 2, *measure_matmul(1024, block, args.repeat))
        )
    for block in ((64, 64, 32), (128, 128, 64)):
        rows.append(
            (
                "AG+GEMM M=2048 N=2048 (on each rank) K=2048, bf16, 8 ranks",
                block,
                15,
                *measure_ag_gemm(2048, 2048, 2048, 8, block, args.repeat),
            )
        )
    for cores in (1, os.cpu_count()):
        product, softmaxes = measure_plain(cores, args.repeat)
        where = f"plain kernel, {cores} core{'s' * (cores > 1)}"
        rows.append((f"matrix product 1024 x 1024 x 1024, bf16, {where}", (64, 64, 32), "", *product))
        rows.append((f"softmax 4096 x 1000, f32, {where}", (1, 1024), "", *softmaxes))
    lines = [
        f"{_cpu()}, {os.cpu_count()} cores, torch {torch.__version__}, triton {triton.__version__}, "
        f"{datetime.date.today()}",
        "",
        "| what | tile | s | s of CPU | asked for: s |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {what} | {'x'.join(map(str, block))} | {wall:.2f} | {cpu:.2f} | {bound} |"
        for what, block, bound, wall, cpu in rows
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.table:
        Path(args.table).write_text(text)


if __name__ == "__main__":
    main()
