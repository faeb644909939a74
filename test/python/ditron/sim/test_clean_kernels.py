"""Kernels that are right are clean, whatever the seed: the cures of what broken_kernels has."""

from __future__ import annotations

import os
import subprocess
import sys

import paths
import pytest
import torch
import triton.language as tl
from broken_kernels import N

import ditron
import ditron.language as dl

SEEDS = range(int(os.environ.get("SEEDS", "40")))


@ditron.jit
def flag_in_order(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)
    dl.st(dl.symm_at(flags, peer), epoch, scope="node", semantic="release")
    while dl.ld(flags, scope="node", semantic="acquire") < epoch:
        pass
    tl.store(out + at, tl.load(data + at))
    dl.barrier_all()


@ditron.jit
def fetched_signal(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())
    while dl.signal_fetch(flags) < epoch:
        pass
    tl.store(out + N + at, tl.load(data + at))
    dl.barrier_all()


@ditron.jit
def polled_signal(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())
    for _ in range(3):  # it need not change between two reads
        if dl.signal_fetch(flags) >= epoch:
            tl.store(out + N + at, tl.load(data + at))
    dl.barrier_all()


@ditron.jit
def polled_flag(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)
    dl.st(dl.symm_at(flags, peer), epoch, scope="node", semantic="release")
    for _ in range(3):
        if dl.ld(flags, scope="node", semantic="acquire") >= epoch:
            tl.store(out + at, tl.load(data + at))
    dl.barrier_all()


@ditron.jit
def lock_or_leave(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    for _ in range(3):
        if dl.atomic_cas(flags, 0, 1, semantic="acquire") == 0:
            tl.store(data + at, tl.load(out + at) + tl.program_id(0))
            dl.st(flags, 0, semantic="release")


@ditron.jit
def fence_then_signal(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    half = data + (epoch % 2) * N
    for part in range(2):
        dl.putmem_nbi(half + part * (N // 2), out + part * (N // 2), N * 2, peer)
    dl.fence()
    dl.signal_op(flags, epoch, peer)
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(half + at))
    dl.quiet()


@ditron.jit
def one_buffer_with_credit(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    dl.wait(flags + 1, 1, epoch - 1)
    dl.putmem_signal_nbi(data, out, N * 4, flags, epoch, peer)
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + at))
    dl.notify(flags + 1, peer, epoch)
    dl.quiet()


@ditron.jit
def lock(data, flags, out, epoch, N: tl.constexpr):
    while dl.atomic_cas(flags, 0, 1, semantic="acquire") != 0:
        pass
    tl.store(out, tl.load(out) + 1.0)
    dl.st(flags, 0, semantic="release")


@ditron.jit
def last_program_adds_up(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + tl.program_id(0) * N + at, 1.0)
    if tl.atomic_add(flags, 1) == 4 * epoch - 1:
        total = tl.zeros((N,), tl.float32)
        for other in range(4):
            total += tl.load(out + other * N + at)
        tl.store(data + at, total)


@ditron.jit
def get_then_quiet(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(data + at, 1.0 * epoch)
    dl.barrier_all()
    dl.getmem_nbi(out, data, N * 4, 1 - dl.rank())
    dl.quiet()
    tl.store(out + N + at, tl.load(out + at))
    dl.barrier_all()


@ditron.jit
def neighbours_and_masks(data, flags, out, epoch, N: tl.constexpr):
    # Programs share cache lines and words, never bytes; the padding is never read.
    at = tl.arange(0, 8)
    mine = (data.to(tl.pointer_type(tl.int8)) + tl.program_id(0) * 3 + at).to(tl.pointer_type(tl.int8))
    tl.store(mine, 1, mask=at < 3)
    tl.store(mine, tl.load(mine, mask=at < 3, other=0) + 1, mask=at < 3)


KERNELS = {
    flag_in_order: 1, fetched_signal: 1, polled_signal: 1, polled_flag: 1, lock_or_leave: 4, fence_then_signal: 1, one_buffer_with_credit: 1, lock: 4, last_program_adds_up: 4,
    get_then_quiet: 1, neighbours_and_masks: 4,
}  # fmt: skip


def on_rank(kernel, grid: int) -> None:
    ditron.init()
    data = ditron.symm_empty(4, N, dtype=torch.float32, name="data")
    flags = ditron.symm_zeros(8, dtype=torch.int64, name="flags")
    out = torch.zeros(4, N)
    for epoch in (1, 2, 3):
        kernel[(grid,)](data, flags, out, epoch, N=N)
    ditron.barrier()
    data.sum()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_right_kernel_is_clean(kernel):
    for seed in SEEDS:
        ditron.sim.run(on_rank, ranks=2, seed=seed, args=(kernel, KERNELS[kernel]))


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from broken_kernels import CASES
CASES["equality_overtaken"].main()
print("not overtaken")
"""


def test_seeds_are_explored_and_replayed(tmp_path):
    script = tmp_path / "overtaken.py"
    script.write_text(SCRIPT.format(folder=str(paths.ROOT / "test/python/support")))

    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "ditron.cli", "run", "--sim", "2", *arguments, str(script)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    found = run("--seeds", "100")
    assert found.returncode == 1 and "deadlock" in found.stderr
    again = next(line for line in found.stderr.splitlines() if "again: ditron run" in line)
    seed = again.split("--replay ")[1].split()[0]
    assert run("--replay", seed).stderr == found.stderr
    assert run("--seeds", "0").returncode == 2
