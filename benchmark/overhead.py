"""What DITRON costs above plain Triton: compile time of AG+GEMM, and (on a GPU) host time of a launch.

    python benchmark/overhead.py                                       # compile time, anywhere
    torchrun --nproc-per-node 1 benchmark/overhead.py --table out.md   # launch time too

Both sides of each ratio are measured interleaved in one process, after a warm-up; medians are printed with quartiles.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import time
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import ditron
from ditron_compiler import knobs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import ag_gemm_in_kernel as ag_gemm  # noqa: E402


# ``ag_gemm_in_kernel.py``'s kernel with the primitives left out, function by function: rank and num_ranks are
# arguments, what is pushed is stored at home, nothing is waited for.
@triton.jit
def plain_push_rows(
    a_ptr, workspace_ptr, rank, num_ranks, rows_per_rank, K, NUM_PUSH: tl.constexpr, PUSH_ROWS: tl.constexpr
):
    row_bytes = tl.cast(K, tl.int64) * (a_ptr.dtype.element_ty.primitive_bitwidth // 8)
    mine = workspace_ptr + rank.to(tl.int64) * rows_per_rank * K
    for step in range(num_ranks):
        peer = (rank + num_ranks - step) % num_ranks
        for row in range(tl.program_id(0) * PUSH_ROWS, rows_per_rank, NUM_PUSH * PUSH_ROWS):
            rows = tl.minimum(PUSH_ROWS, rows_per_rank - row)
            start = row.to(tl.int64) * K
            tl.store(mine + start, tl.load(a_ptr + start) + rows * row_bytes + peer)


@triton.jit
def plain_tile(
    workspace_ptr,
    b_ptr,
    c_ptr,
    num_ranks,
    rows_per_rank,
    N,
    K,
    tile,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    M = rows_per_rank * num_ranks
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid_m = tile // tiles_n
    pid_n = tile % tiles_n
    first_row = pid_m * BLOCK_M
    rows = first_row + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = workspace_ptr + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + ks.to(tl.int64)[:, None] * N + (cols % N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=ks[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=ks[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * tl.cast(N, tl.int64)
    c_ptrs = c_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def plain_kernel(
    a_ptr,
    workspace_ptr,
    b_ptr,
    c_ptr,
    rank,
    num_ranks,
    rows_per_rank,
    N,
    K,
    NUM_PUSH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PUSH_ROWS: tl.constexpr,
):
    pid = tl.program_id(0)
    if pid < NUM_PUSH:
        plain_push_rows(a_ptr, workspace_ptr, rank, num_ranks, rows_per_rank, K, NUM_PUSH, PUSH_ROWS)
    else:
        plain_tile(
            workspace_ptr, b_ptr, c_ptr, num_ranks, rows_per_rank, N, K, pid - NUM_PUSH, BLOCK_M, BLOCK_N, BLOCK_K
        )


@triton.jit
def empty_plain(x_ptr, n):
    pass


@ditron.jit
def empty_ditron(x_ptr, n):
    pass


def interleaved(sides: dict, rounds: int) -> dict[str, list[float]]:
    """Seconds of each side's calls, taken in turn; the first round is a warm-up and is dropped."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, call in sides.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: values[1:] for name, values in times.items()}


def spread(values: list[float], scale: float) -> str:
    low, middle, high = (v * scale for v in statistics.quantiles(values, n=4))
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def compile_times(rounds: int) -> dict[str, list[float]]:
    example = ag_gemm.EXAMPLE
    types = {
        **example["signature"],
        "rank": "i32",
        "num_ranks": "i32",
        **dict.fromkeys(example["constexprs"], "constexpr"),
    }
    target = GPUTarget("cuda", 90, 32)

    def plain():
        signature = {name: types[name] for name in plain_kernel.arg_names}
        attrs = {(i,): [["tt.divisibility", 16]] for i in range(4)}  # the pointers, as ditron.compile assumes too
        triton.compile(
            ASTSource(plain_kernel, signature, example["constexprs"], attrs), target=target, options=example["options"]
        )

    def ours():
        ditron.compile(ag_gemm.ag_gemm_kernel, target="cuda:90", transport="p2p", **example)

    with triton.knobs.compilation.scope():
        triton.knobs.compilation.always_compile = True
        return interleaved({"triton": plain, "ditron": ours}, rounds)


def launch_times(rounds: int) -> dict[str, list[float]]:
    import torch

    ditron.init(heap_bytes=1 << 20)
    x = torch.zeros(16, device=ditron.device())
    batch = 50

    def burst(kernel):
        def call():
            for _ in range(batch):
                kernel[(1,)](x, 16)

        return call

    times = interleaved({"triton": burst(empty_plain), "ditron": burst(empty_ditron)}, rounds)
    torch.cuda.synchronize()
    return {name: [t / batch for t in values] for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--table", type=Path, help="append the table to this file")
    args = parser.parse_args()
    rows = ["| what | triton | ditron | ditron / triton |", "|---|---|---|---|"]

    times = compile_times(args.rounds)
    ratio = statistics.median(times["ditron"]) / statistics.median(times["triton"])
    rows.append(
        f"| compile AG+GEMM for cuda:90, ms | {spread(times['triton'], 1e3)} | {spread(times['ditron'], 1e3)} "
        f"| {ratio:.3f}x (promise: at most 1.15x) |"
    )
    print(rows[-1], flush=True)
    import torch

    if torch.cuda.is_available() and knobs.under_torchrun():
        times = launch_times(40 * args.rounds)
        extra = 1e6 * (statistics.median(times["ditron"]) - statistics.median(times["triton"]))
        rows.append(
            f"| launch, host us | {spread(times['triton'], 1e6)} | {spread(times['ditron'], 1e6)} "
            f"| {extra:+.2f} us (promise: at most +3) |"
        )
        print(rows[-1], flush=True)
        ditron.finalize()
    else:
        print("launch time not measured: needs a GPU and torchrun --nproc-per-node 1")
    if args.table:
        machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
        with args.table.open("a") as file:
            file.write(
                f"\n{machine}, torch {torch.__version__}, triton {triton.__version__}, "
                f"{datetime.date.today()}\n\n" + "\n".join(rows) + "\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
