"""Loops, branches and calls of the simulator's lowering, with tiles carried through them."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from numerics import assert_error_within, gamma
from sim_programs import run


@triton.jit
def _rotate(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    a = tl.load(x + i)
    b = a + 100
    c = a + 200
    for _ in range(n):
        a, b, c = b, tl.trans(c), a + c
    tl.store(o + i, a)
    tl.store(o + B * B + i, b)
    tl.store(o + 2 * B * B + i, c)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_carried_tiles_may_permute_and_transpose(n: int) -> None:
    x, o = torch.randn(8, 8), torch.zeros(3, 8, 8)
    run(_rotate, (1,), x, o, n, B=8)
    a, b, c = x, x + 100, x + 200
    for _ in range(n):
        a, b, c = b, c.T, a + c
    torch.testing.assert_close(o, torch.stack([a, b, c]))


@triton.jit
def _transpose_itself(x, n, B: tl.constexpr):
    i = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    a = tl.load(x + i)
    for k in range(n):
        a = tl.trans(a) + k
    tl.store(x + i, a)


def test_carried_tile_transposes_itself() -> None:
    x = torch.randn(8, 8)
    expected = x.clone()
    for k in range(5):
        expected = expected.T + k
    run(_transpose_itself, (1,), x, 5, B=8)
    torch.testing.assert_close(x, expected)


@triton.jit
def _nested(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    pointers = x + i
    for outer in range(n):
        row = tl.zeros((B,), tl.float32)
        for inner in range(outer + 1):
            row += tl.load(pointers) * (inner + 1)
        total = total * 0.5 + row
        pointers += B
    tl.store(o + i, total)
    tl.store(o + B + i, tl.load(pointers - B))


def test_nested_loops_and_moving_pointers() -> None:
    n, b = 5, 16
    x, o = torch.randn(n, b), torch.zeros(2, b)
    run(_nested, (1,), x, o, n, B=b)
    weights = torch.tensor([sum(range(1, outer + 2)) * 0.5 ** (n - 1 - outer) for outer in range(n)])
    assert_error_within(o[0], weights.double() @ x.double(), gamma(4 * n) * (weights.double() @ x.double().abs()))
    assert torch.equal(o[1], x[n - 1])


@triton.jit
def _offsets(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    for _step in range(n):
        tl.store(o + i, tl.load(x + i), mask=i < n * B - 3)
        i += B


def test_moving_indices() -> None:
    x, o = torch.randn(64), torch.zeros(64)
    run(_offsets, (1,), x, o, 4, B=16)
    assert torch.equal(o[:61], x[:61]) and (o[61:] == 0).all()


@triton.jit
def _branch(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    scale = 1.0
    if n > 3:
        v = v * 2
        scale = 10.0
    elif n > 1:
        v = tl.load(x + B + i)
    tl.store(o + i, v * scale)


@pytest.mark.parametrize("n", [0, 2, 5])
def test_branches_with_tiles(n: int) -> None:
    x, o = torch.randn(2, 16), torch.zeros(16)
    run(_branch, (1,), x, o, n, B=16)
    expected = x[0] * 20 if n > 3 else x[1] if n > 1 else x[0]
    torch.testing.assert_close(o, expected)


@triton.jit
def _store_sometimes(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    for k in range(4):
        if k == n:
            tl.store(o + i, v * k)
        v += 1


def test_branch_without_else() -> None:
    x, o = torch.randn(16), torch.zeros(16)
    run(_store_sometimes, (1,), x, o, 3, B=16)
    torch.testing.assert_close(o, (x + 3) * 3)


@triton.jit
def _while(x, o, limit, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    w = v * 0
    steps = 0
    while tl.max(v, 0) < limit:
        w = v
        v = v * 2
        steps += 1
    tl.store(o + i, v)
    tl.store(o + B + i, w)
    tl.store(o + 2 * B, steps)


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_while_with_tiles(limit: float) -> None:
    x, o = torch.rand(16) + 0.5, torch.zeros(33)
    x[0] = 1.0
    run(_while, (1,), x, o, limit, B=16)
    v, w, steps = x, x * 0, 0
    while v.max() < limit:
        v, w, steps = v * 2, v, steps + 1
    torch.testing.assert_close(o, torch.cat([v, w, torch.tensor([float(steps)])]))


@triton.jit
def _early_return(x, o, n, B: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, B)
    if pid >= n:
        return
    v = tl.load(x + pid * B + i)
    if pid == 1:
        tl.store(o + pid * B + i, v + 1000)
        return
    tl.store(o + pid * B + i, v)


def test_early_return() -> None:
    x, o = torch.randn(4, 16), torch.zeros(4, 16)
    run(_early_return, (4,), x, o, 3, B=16)
    assert torch.equal(o[0], x[0]) and torch.equal(o[1], x[1] + 1000) and torch.equal(o[2], x[2])
    assert (o[3] == 0).all()


@triton.jit(noinline=True)
def _helper(p, n, factor):
    value = tl.load(p + n) * factor
    if n == 2:
        value += tl.program_id(0)
    return value


@triton.jit
def _calls(x, o):
    for k in range(4):
        tl.store(o + tl.program_id(0) * 4 + k, _helper(x, k, 3.0))


def test_noinline_call() -> None:
    x, o = torch.randn(4), torch.zeros(2, 4)
    run(_calls, (2,), x, o)
    expected = (x * 3).repeat(2, 1)
    expected[1, 2] += 1
    torch.testing.assert_close(o, expected)


@triton.jit
def _grid(o):
    a, b, c = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (a * tl.num_programs(1) + b) * tl.num_programs(2) + c
    tl.store(o + at, a * 100 + b * 10 + c)


def test_program_ids() -> None:
    o = torch.zeros(2, 3, 4, dtype=torch.int32)
    run(_grid, (2, 3, 4), o)
    assert o.flatten().tolist() == [a * 100 + b * 10 + c for a in range(2) for b in range(3) for c in range(4)]


@triton.jit
def _choose_descriptor(x, y, o, n, B: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [n, n], [n, 1], [B, B])
    if tl.program_id(0) == 1:
        d = tl.make_tensor_descriptor(y, [n, n], [n, 1], [B, B])
    i = tl.arange(0, B)
    for k in range(2):
        tl.store(o + tl.program_id(0) * B * B + i[:, None] * B + i[None, :], d.load([0, 0]) * (k + 1))


def test_descriptor_through_a_branch() -> None:
    x, y, o = torch.randn(16, 16), torch.randn(16, 16), torch.zeros(2, 16, 16)
    run(_choose_descriptor, (2,), x, y, o, 16, B=16)
    torch.testing.assert_close(o, torch.stack([x, y]) * 2)


@triton.jit
def _one_of_two_descriptors(x, o, n, B: tl.constexpr, C: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [B, n], [n, 1], [B, C])
    e = tl.make_tensor_descriptor(o, [B, n], [n, 1], [B, C])
    for i in range(0, n, C):
        if i % (3 * C) == 0:
            d = e
        d.store([0, i], d.load([0, i]) + 1)


def test_one_of_two_descriptors() -> None:
    x, o = torch.zeros(4, 64), torch.zeros(4, 64)
    run(_one_of_two_descriptors, (1,), x, o, 64, B=4, C=16)
    assert (o == 1).all() and (x == 0).all()


@triton.jit
def _random(o, seed, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.rand(seed, i))


def test_philox() -> None:
    o, again, other = torch.zeros(1024), torch.zeros(1024), torch.zeros(1024)
    run(_random, (1,), o, 3, B=1024)
    run(_random, (1,), again, 3, B=1024)
    run(_random, (1,), other, 4, B=1024)
    assert torch.equal(o, again) and not torch.equal(o, other)
    assert 0.45 < o.mean() < 0.55 and o.min() >= 0 and o.max() < 1


@triton.jit
def _long_chain(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    for _ in tl.static_range(300):
        v = v * 0.5 + 1
    tl.store(o + i, v)


def test_long_chain_of_operations() -> None:
    x, o = torch.randn(16), torch.zeros(16)
    run(_long_chain, (1,), x, o, B=16)
    torch.testing.assert_close(o, torch.full((16,), 2.0))
