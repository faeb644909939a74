"""What the checker knows of integers in memory is what the simulator computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.protocol.capture import capture
from ditron_compiler.protocol.contents import Contents
from ditron_compiler.protocol.memory import HeapBuffer, address
from ditron_compiler.protocol.streams import execute
from ditron_compiler.protocol.values import UNKNOWN

N = 16


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("value", [3, -5, 1 << 40, (1 << 63) + 7, UNKNOWN])
def test_a_cell_is_stored_as_a_tile_of_one(size, value):
    """Also behind the end of the buffer, where nothing is stored."""
    cell, tile = (Contents({1: HeapBuffer(1, "x", 20, 4, zeroed=True)}) for _ in range(2))
    assert cell.load(address(0, 1), 4) == tile.load(address(0, 1), 4) == 0
    for offset in (8, 19, 20, -4):
        cell.store(address(0, 1, offset), size, value)
        tile.store(np.array([address(0, 1, offset)]), size, value)
    for offset in range(20):
        one, other = (contents.load(address(0, 1, offset), 1) for contents in (cell, tile))
        assert one is other or one == other
        assert (one is UNKNOWN) == (value is UNKNOWN and (8 <= offset < 8 + size or 19 <= offset < 19 + size <= 20))
    stored = cell.load(address(0, 1, 8), size)
    assert stored is UNKNOWN if value is UNKNOWN else (stored - value) % (1 << 8 * size) == 0


@ditron.jit(pipeline="as-written")
def tiles(x, out, n, N: tl.constexpr):
    """Rows of out: reductions, scans and permutations of x."""
    i = tl.arange(0, N)
    v = tl.load(x + i)
    partly = tl.load(x + i, mask=i < tl.load(n), other=-7)
    row = out
    tl.store(row + i, partly)
    row += N
    tl.store(row + i, tl.cumsum(v, 0))
    row += N
    tl.store(row + i, tl.cumsum(v, 0, reverse=True))
    row += N
    tl.store(row + i, tl.sum(v) + tl.max(v) * tl.min(v), mask=(v & 1) != 0)
    row += N
    square = (v[:, None] - v[None, :]) // 3
    tl.store(row + i, tl.sum(square, axis=1) + tl.max(square, axis=0))
    row += N
    tl.store(row + i, tl.argmax(v, 0) * 100 + tl.argmin(v, 0))
    row += N
    tl.store(row + i, tl.sort(v))
    row += N
    tl.store(row + i, tl.histogram(v & (N - 1), N))
    row += N
    tl.store(row + i, tl.where(v > 0, v, -v) ^ (v << 1))
    row += N
    a, b = tl.split(tl.reshape(v, (N // 2, 2)))
    tl.store(row + i, tl.reshape(tl.join(b, a), (N,)))
    row += N
    tl.store(row + i, tl.gather(v, (i * 5) & (N - 1), 0))
    row += N
    old = tl.atomic_add(row + (i & 3), v, mask=v > 0)
    tl.store(row + N + (i & 3), tl.zeros((N,), tl.int32))
    tl.store(row + 8, tl.sum(tl.where(v > 0, old * 0, 0)))
    row += N
    tl.atomic_max(row + (i & 3), v)
    tl.atomic_min(row + 4 + (i & 3), v)
    tl.atomic_xor(row + 8, 5)
    tl.atomic_or(row + 8, 24)
    tl.atomic_and(row + 8, 25)
    row += N
    seen = tl.atomic_cas(row, 0, 11) + tl.atomic_cas(row, 0, 12) + tl.atomic_xchg(row, 13)
    tl.store(row + 1, seen)
    tl.store(row + 2, tl.load(x + tl.load(x + 1) % 7))


def contents(machine, name: str, rank: int) -> np.ndarray:
    number = max(number for number, root in machine.scenario.roots.items() if root.name == name)
    root = machine.scenario.roots[number]
    first = address(rank, number)
    return machine.contents.load(first + root.itemsize * np.arange(root.nbytes // root.itemsize), root.itemsize)


@pytest.mark.parametrize("seed", range(4))
def test_integers_are_the_simulators(seed):
    results = []

    def main():
        ditron.init()
        x = torch.randint(-50, 50, (N,), generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
        x[1] = seed
        out = torch.zeros(14, N, dtype=torch.int32)
        tiles[(1,)](x, out, torch.tensor([5 + seed], dtype=torch.int32), N=N)
        results.append(out)

    ditron.sim.run(main, 1)
    machine = execute(capture(main, 1))
    known = contents(machine, "out", 0)
    assert known.reshape(14, N).tolist() == results[0].tolist()


@ditron.jit(pipeline="as-written")
def moves(x, here, there, small, N: tl.constexpr):
    """Contents go to the right by a put, to the left by a get, and by bytes."""
    rank, ranks, i = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    tl.store(here + i, tl.load(x + i) + rank)
    dl.barrier_all()
    dl.putmem(there, here, N * 4, (rank + 1) % ranks)
    dl.barrier_all()
    dl.getmem(there + N, there + 2, 2 * 4, (rank + 1) % ranks)
    tl.store(small + i, tl.load(there + i).to(tl.int8))
    tl.store(dl.symm_at(there, (rank + 2) % ranks) + 2 * N - 1, tl.load(small + 3).to(tl.int32))
    dl.barrier_all()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_moved_integers_are_the_simulators(ranks):
    results = {}

    def main():
        ditron.init()
        x = torch.arange(N, dtype=torch.int32) * 37 - 99
        here = ditron.symm_zeros(N, dtype=torch.int32, name="here")
        there = ditron.symm_zeros(2, N, dtype=torch.int32, name="there")
        small = torch.zeros(N, dtype=torch.int8)
        moves[(1,)](x, here, there, small, N=N)
        ditron.barrier()
        here.copy_(there[0])
        here[3] = 5
        results[ditron.rank()] = here.clone(), there.clone()

    ditron.sim.run(main, ranks)
    expected = dict(results)
    machine = execute(capture(main, ranks))
    for rank, (_, there) in expected.items():
        known = [machine.contents.load(p, 4) for p in address_of(machine, "there", rank, 2 * N)]
        value = there.flatten().tolist()
        assert known[: N + 2] == value[: N + 2], rank
        assert (
            not isinstance(known[-1], int) or known[-1] == value[-1]
        )  # 8-bit integers that are stored are not followed


def address_of(machine, name: str, rank: int, count: int) -> list[int]:
    (number,) = (number for number, root in machine.scenario.roots.items() if root.name == name)
    return [address(rank, number, 4 * i) for i in range(count)]
