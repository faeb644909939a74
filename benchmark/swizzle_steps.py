"""GEMM + ReduceScatter on simulated ranks: after how many tiles of the others does each rank get its first one?

    python benchmark/swizzle_steps.py                                  # 16 ranks on 2 nodes, 4 tiles a rank
    python benchmark/swizzle_steps.py --rows 61 --ranks 8 --nodes 1    # tiles that straddle ranks
    python benchmark/swizzle_steps.py --table FILE.md

The kernel takes tiles in plain order, by one persistent program per rank: on every rank, rank 0's tiles come first, and
the last rank's consumer has nothing to add up until all the others' tiles are done. The same kernel is compiled by the
pipelines ``default`` and ``swizzled`` (with ``insert-swizzle``). Steps are counted in the simulator's trace: a rank's
step is the number of tiles that it has computed, and a send belongs to the step it happens in.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import ditron
import ditron.language as dl


@ditron.jit
def produce(
    a_ptr,
    b_ptr,
    outbox_ptr,
    inbox_ptr,
    signal_ptr,
    rows_per_rank,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """All tiles of A @ B, one after the other; each rank that owns rows of a tile gets its rows of it."""
    rank, num_ranks = dl.rank(), dl.num_ranks()
    M = rows_per_rank * num_ranks
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n
    slots = (tl.cdiv(rows_per_rank, BLOCK_M) + 1) * tiles_n
    TILE: tl.constexpr = BLOCK_M * BLOCK_N
    packed = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    for tile in range(tl.program_id(0), tiles, 1):
        pid_m = tile // tiles_n
        pid_n = tile % tiles_n
        rows = tl.minimum(pid_m * BLOCK_M + tl.arange(0, BLOCK_M), M - 1)
        cols = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
        ks = tl.arange(0, BLOCK_K)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            inside = ks + k < K
            a = tl.load(a_ptr + rows[:, None] * K + (ks + k)[None, :], mask=inside[None, :], other=0.0)
            b = tl.load(b_ptr + (ks + k)[:, None] * N + cols[None, :], mask=inside[:, None], other=0.0)
            acc = tl.dot(a, b, acc)
        parcel = outbox_ptr + (pid_m * tiles_n + pid_n) * TILE
        tl.store(parcel + packed, acc)
        first_row = pid_m * BLOCK_M
        last_row = tl.minimum(first_row + BLOCK_M, M)
        for owner in range(first_row // rows_per_rank, (last_row - 1) // rows_per_rank + 1):
            begin = tl.maximum(first_row, owner * rows_per_rank) - first_row
            end = tl.minimum(last_row, (owner + 1) * rows_per_rank) - first_row
            slot = (pid_m - owner * rows_per_rank // BLOCK_M) * tiles_n + pid_n
            box = inbox_ptr + (rank * slots + slot) * TILE
            dl.putmem_signal_nbi(
                box + begin * BLOCK_N,
                parcel + begin * BLOCK_N,
                (end - begin) * BLOCK_N * 4,
                signal_ptr + slot * num_ranks + rank,
                1,
                owner,
            )
        dl.quiet()  # ends the step


@ditron.jit
def reduce(out_ptr, inbox_ptr, signal_ptr, rows_per_rank, N, slot, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """One tile of this rank's rows, as far as they are its own: the sum over ranks, as each share arrives."""
    rank, num_ranks = dl.rank(), dl.num_ranks()
    tiles_n = tl.cdiv(N, BLOCK_N)
    slots = (tl.cdiv(rows_per_rank, BLOCK_M) + 1) * tiles_n
    TILE: tl.constexpr = BLOCK_M * BLOCK_N
    first = rank * rows_per_rank
    rows = (first // BLOCK_M + slot // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = slot % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    own = (rows >= first) & (rows < first + rows_per_rank)
    if (first // BLOCK_M + slot // tiles_n) * BLOCK_M < first + rows_per_rank:
        packed = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for source in range(num_ranks):
            token = dl.wait(signal_ptr + slot * num_ranks + source, 1, 1)
            box = dl.consume_token(inbox_ptr, token) + (source * slots + slot) * TILE
            total += tl.load(box + packed, mask=own[:, None], other=0.0)
        tl.store(out_ptr + (rows - first)[:, None] * N + cols[None, :], total, mask=own[:, None] & (cols[None, :] < N))


@ditron.jit
def plain_gemm_rs(
    a_ptr,
    b_ptr,
    out_ptr,
    outbox_ptr,
    inbox_ptr,
    signal_ptr,
    rows_per_rank,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    pid = tl.program_id(0)
    if pid < 1:
        produce(a_ptr, b_ptr, outbox_ptr, inbox_ptr, signal_ptr, rows_per_rank, N, K, BLOCK_M, BLOCK_N, BLOCK_K)
    else:
        reduce(out_ptr, inbox_ptr, signal_ptr, rows_per_rank, N, pid - 1, BLOCK_M, BLOCK_N)


def multiply(rows: int, n: int = 16, k: int = 16, block: int = 16) -> float:
    """Run the kernel once on this rank, ``rows`` of the result each; the largest error against torch."""
    ditron.init()
    rank, num_ranks = ditron.rank(), ditron.num_ranks()
    m, tiles_n = rows * num_ranks, triton.cdiv(n, block)
    slots = (triton.cdiv(rows, block) + 1) * tiles_n
    inbox = ditron.symm_empty(num_ranks, slots, block * block, dtype=torch.float32, name="inbox")
    outbox = ditron.symm_empty(triton.cdiv(m, block) * tiles_n, block * block, dtype=torch.float32, name="outbox")
    signals = ditron.symm_zeros(slots, num_ranks, dtype=torch.int64, name="signals")

    def share(r: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(r)
        return torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator)

    a, b = share(rank)
    out = torch.full((rows, n), float("nan"))
    plain_gemm_rs[(1 + slots,)](
        a, b, out, outbox, inbox, signals, rows, n, k, BLOCK_M=block, BLOCK_N=block, BLOCK_K=block
    )
    expected = sum(torch.matmul(*share(r))[rank * rows : (rank + 1) * rows] for r in range(num_ranks))
    return (out - expected).abs().max().item()


class Steps(NamedTuple):
    """What a run's trace says; a step is one tile on each rank.

    first: per rank, the step in which some rank sends it its first rows. complete: the step in which the last rank
        sends it rows of a tile that all others have sent before. tiles: steps in all.
    fan_in: the most ranks that send to the same one in the same step.
    """

    first: list[int]
    complete: list[int]
    tiles: int
    fan_in: int

    @property
    def late(self) -> int:
        """Ranks whose consumer has nothing to do after the first step."""
        return sum(step > 1 for step in self.first)


def count_steps(ranks: int, nodes: int, rows: int, pipeline: str, seed: int = 0) -> Steps:
    """Run the kernel, compiled by ``pipeline``, and count. AssertionError if its result is wrong."""
    before = os.environ.get("DITRON_PIPELINE")
    os.environ["DITRON_PIPELINE"] = pipeline
    world = ditron.sim.World(ranks, ranks // nodes, seed)
    world.machine.enable_trace(4_000_000)
    try:
        errors = world.run(multiply, (rows,))
    finally:
        os.environ.pop("DITRON_PIPELINE")
        if before is not None:
            os.environ["DITRON_PIPELINE"] = before
    assert max(errors) < 1e-3, f"wrong by {max(errors)}"
    return _steps_of(world.machine.take_trace(), ranks)


def _steps_of(events: list, ranks: int) -> Steps:
    done = [0] * ranks
    sends: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # by receiver: step, sender, address of the signal
    for event in events:
        if event.kind == "call" and event.name == "quiet":
            done[event.rank] += 1
        elif event.kind == "send":
            sends[event.peer].append((done[event.rank] + 1, event.rank, event.address))
    complete, fan_in = [], 0
    for rank in range(ranks):
        senders: dict[int, set[int]] = defaultdict(set)
        slots: dict[int, int] = defaultdict(int)
        first_signal = min(address for _, _, address in sends[rank])
        for step, sender, address in sends[rank]:
            slot = (address - first_signal) // 8 // ranks
            slots[slot] = max(slots[slot], step)
            senders[step].add(sender)
        complete.append(min(slots.values()))
        fan_in = max(fan_in, *map(len, senders.values()))
    return Steps([min(sends[rank])[0] for rank in range(ranks)], complete, max(done), fan_in)


def _spell(steps: list[int]) -> str:
    return f"all {steps[0]}" if len(set(steps)) == 1 else " ".join(map(str, steps))


def report(ranks: int, nodes: int, rows: int, seed: int) -> list[str]:
    """Both pipelines, as rows of a Markdown table."""
    lines = [
        "| tiles come | step of the first rows for ranks 0, 1, 2, ... | ranks whose first rows are late | step of "
        "the first complete tile | most ranks that send to one in a step |",
        "|---|---|---|---|---|",
    ]
    for name, pipeline in (("as written, in plain order", "default"), ("by `insert-swizzle`", "swizzled")):
        steps = count_steps(ranks, nodes, rows, pipeline, seed)
        lines.append(
            f"| {name} | {_spell(steps.first)} of {steps.tiles} | {steps.late} of {ranks} | "
            f"{_spell(steps.complete)} | {steps.fan_in} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rows", type=int, default=64, help="rows of the result on each rank; tiles have 16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", type=Path, help="append the table to this file")
    args = parser.parse_args()
    lines = report(args.ranks, args.nodes, args.rows, args.seed)
    print("\n".join(lines))
    if args.table:
        with args.table.open("a") as file:
            print(
                f"\n{args.ranks} ranks on {args.nodes} node{'s' * (args.nodes > 1)}, {args.rows} rows per rank, "
                f"tiles of 16 rows:\n",
                *lines,
                sep="\n",
                file=file,
            )


if __name__ == "__main__":
    main()
