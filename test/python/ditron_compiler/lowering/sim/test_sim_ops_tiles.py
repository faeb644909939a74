"""Shapes, dots, reductions and scans of the simulator's lowering."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from numerics import assert_error_within, assert_product, gamma
from sim_programs import run


@triton.jit
def _shapes(x, o, OP: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + i)
    flat = tl.arange(0, M * N)
    if OP == "trans":
        r = tl.reshape(tl.trans(v), (M * N,))
    elif OP == "reshape":
        r = tl.reshape(tl.reshape(v, (N // 2, 2 * M)) + tl.arange(0, N // 2)[:, None], (M * N,))
    elif OP == "permute":
        r = tl.reshape(tl.permute(tl.reshape(v, (M, 2, N // 2)), (2, 0, 1)), (M * N,))
    elif OP == "join_split":
        a, b = tl.split(tl.reshape(v, (M, N // 2, 2)))
        r = tl.reshape(tl.join(b, a * 2), (M * N,))
    elif OP == "interleave":
        r = tl.reshape(tl.interleave(v, v + 1), (2 * M * N,))
        flat = tl.arange(0, 2 * M * N)
    elif OP == "cat":
        w = tl.reshape(v, (M * N,))
        r = tl.cat(w, w * 3, can_reorder=True)
        flat = tl.arange(0, 2 * M * N)
    elif OP == "flip":
        r = tl.reshape(tl.flip(v, 1), (M * N,))
    elif OP == "gather":
        r = tl.reshape(tl.gather(v, (tl.arange(0, N)[None, :] * 3 + tl.arange(0, M)[:, None]) % N, 1), (M * N,))
    elif OP == "sort":
        r = tl.reshape(tl.sort(v), (M * N,))
    else:
        r = tl.reshape(tl.broadcast_to(tl.expand_dims(tl.load(x + tl.arange(0, N)), 0), (M, N)), (M * N,))
    tl.store(o + flat, r)


def _expected_shape(op: str, x: torch.Tensor, m: int, n: int) -> torch.Tensor:
    if op == "trans":
        return x.T
    if op == "reshape":
        return x.reshape(n // 2, 2 * m) + torch.arange(n // 2)[:, None]
    if op == "permute":
        return x.reshape(m, 2, n // 2).permute(2, 0, 1)
    if op == "join_split":
        return torch.stack([x[:, 1::2], x[:, ::2] * 2], -1)
    if op == "interleave":
        return torch.stack([x, x + 1], -1)
    if op == "cat":
        return torch.cat([x.flatten(), x.flatten() * 3])
    if op == "flip":
        return x.flip(1)
    if op == "gather":
        return x.gather(1, (torch.arange(n)[None, :] * 3 + torch.arange(m)[:, None]) % n)
    if op == "sort":
        return x.sort(1).values
    return x[:1].expand(m, n)


@pytest.mark.parametrize("op", ["trans", "reshape", "permute", "join_split", "interleave", "cat", "flip", "gather",
                                "sort", "broadcast"])  # fmt: skip
def test_shapes(op: str) -> None:
    m, n = 8, 16
    x = torch.randn(m, n)
    expected = _expected_shape(op, x, m, n).reshape(-1)
    o = torch.zeros(len(expected))
    run(_shapes, (1,), x, o, OP=op, M=m, N=n)
    assert torch.equal(o, expected)


@triton.jit
def _matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
            ACC: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    left = a + rows[:, None] * sam + depth[None, :] * sak
    right = b + depth[:, None] * sbk + columns[None, :] * sbn
    acc = tl.zeros((BM, BN), ACC)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(left, mask=(rows[:, None] < M) & (depth[None, :] < K - k * BK), other=0)
        y = tl.load(right, mask=(depth[:, None] < K - k * BK) & (columns[None, :] < N), other=0)
        acc = tl.dot(x, y, acc, out_dtype=ACC)
        left += BK * sak
        right += BK * sbk
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(c.dtype.element_ty), mask=mask)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int8], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(transposed: bool, dtype: torch.dtype) -> None:
    m, n, k = 65, 70, 83
    if dtype == torch.int8:
        a, b = torch.randint(-128, 128, (m, k)).to(dtype), torch.randint(-128, 128, (k, n)).to(dtype)
    else:
        a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    b = b.T.contiguous().T if transposed else b
    out = torch.int32 if dtype == torch.int8 else torch.float32
    c = torch.zeros(m, n, dtype=out)
    run(
        _matmul,
        (3, 3),
        a,
        b,
        c,
        m,
        n,
        k,
        *a.stride(),
        *b.stride(),
        BM=32,
        BN=32,
        BK=32,
        ACC=tl.int32 if dtype == torch.int8 else tl.float32,
    )
    if dtype == torch.int8:
        assert torch.equal(c, (a.double() @ b.double()).int())
    else:
        assert_product(c, a, b)


@triton.jit
def _dots(a, b, c, o, p, B: tl.constexpr):
    i = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    x, y, z = tl.load(a + i), tl.load(b + i), tl.load(c + i)
    first = tl.dot(x, tl.trans(y), z)
    second = tl.dot(x * 2, y, first)
    tl.store(o + i, first)
    tl.store(p + i, second + z)


def test_dot_keeps_an_accumulator_that_is_used_again() -> None:
    a, b, c = (torch.randn(16, 16, dtype=torch.float32) for _ in range(3))
    o, p = torch.zeros(16, 16), torch.zeros(16, 16)
    run(_dots, (1,), a, b, c, o, p, B=16)
    assert_product(o, a, b.T, c)
    assert_product(p, torch.cat([2 * a, a], 1), torch.cat([b, b.T]), 2 * c)


@triton.jit
def _half_accumulator(a, b, o, B: tl.constexpr):
    i = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(o + i, tl.dot(tl.load(a + i), tl.load(b + i), out_dtype=tl.float16))


def test_dot_into_half() -> None:
    a, b, o = torch.randn(16, 16).half(), torch.randn(16, 16).half(), torch.zeros(16, 16).half()
    run(_half_accumulator, (1,), a, b, o, B=16)
    assert_product(o, a, b)


@triton.jit
def _batched(a, b, o, S: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, S)[:, None, None] * B * B + tl.arange(0, B)[None, :, None] * B + tl.arange(0, B)[None, None, :]
    tl.store(o + i, tl.dot(tl.load(a + i), tl.load(b + i)))


def test_batched_dot() -> None:
    a, b, o = torch.randn(2, 16, 16), torch.randn(2, 16, 16), torch.zeros(2, 16, 16)
    run(_batched, (1,), a, b, o, S=2, B=16)
    assert_product(o, a, b)


@triton.jit
def _multiply_add(a, b):
    return a * b


@triton.jit
def _reduce(x, o, OP: tl.constexpr, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    if OP == "sum":
        r = tl.sum(v, AXIS)
    elif OP == "max":
        r = tl.max(v, AXIS)
    elif OP == "argmax":
        r = tl.argmax(v, AXIS)
    elif OP == "argmin":
        r = tl.argmin(v, AXIS)
    elif OP == "xor":
        r = tl.xor_sum(v, AXIS)
    else:
        r = tl.reduce(v, AXIS, _multiply_add)
    if AXIS is None:
        tl.store(o, r)
    else:
        tl.store(o + tl.arange(0, r.shape[0]), r)


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("op", ["sum", "max", "argmax", "argmin", "xor", "prod"])
@pytest.mark.parametrize("m, n", [(8, 32), (64, 1), (1, 64), (64, 2)])
def test_reduce(op: str, axis: int | None, m: int, n: int) -> None:
    if op == "xor":
        x = torch.randint(-(2**31), 2**31, (m, n)).int()
    else:
        x = torch.randint(-9, 9, (m, n)).float() if op.startswith("arg") else torch.rand(m, n) + 0.5
    if axis is None and op.startswith("arg"):
        axis = 0  # Triton's argmax wants an axis
    size = 1 if axis is None else (n, m)[axis]
    o = torch.zeros(size, dtype=torch.int32 if op in ("xor", "argmax", "argmin") else torch.float32)
    run(_reduce, (1,), x, o, OP=op, AXIS=axis, M=m, N=n)
    flat, dim = (x.reshape(-1), 0) if axis is None else (x, axis)
    if op == "xor":
        expected = flat.movedim(dim, 0)[0].clone()
        for part in flat.movedim(dim, 0)[1:]:
            expected ^= part
    else:
        reference = {"sum": torch.sum, "max": torch.amax, "prod": torch.prod}
        expected = getattr(torch, op)(flat, dim) if op.startswith("arg") else reference[op](flat.double(), dim)
    if op in ("sum", "prod"):  # of positive numbers
        assert_error_within(o, expected.reshape(-1), gamma(flat.shape[dim]) * expected.reshape(-1))
    else:
        assert torch.equal(o.to(expected.dtype), expected.reshape(-1))


@pytest.mark.parametrize("m, n, axis", [(1, 4096, 1), (2048, 2, 0), (32, 64, None)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_narrow_sum_is_made_of_many_partial_ones(dtype: torch.dtype, m: int, n: int, axis: int | None) -> None:
    o = torch.zeros(n if axis == 0 else 1, dtype=dtype)
    run(_reduce, (1,), torch.ones(m, n, dtype=dtype), o, OP="sum", AXIS=axis, M=m, N=n)
    assert torch.equal(o, torch.full_like(o, m * n // o.numel()))


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _scan(x, o, OP: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + i)
    r = tl.cumsum(v, AXIS, reverse=REVERSE) if OP == "sum" else tl.cumprod(v, AXIS, reverse=REVERSE)
    tl.store(o + i, r)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", ["sum", "prod"])
def test_scan(op: str, axis: int, reverse: bool) -> None:
    x, o = torch.rand(8, 16) + 0.5, torch.zeros(8, 16)
    run(_scan, (1,), x, o, OP=op, AXIS=axis, REVERSE=reverse, M=8, N=16)
    ordered = x.flip(axis) if reverse else x
    expected = getattr(torch, f"cum{op}")(ordered.double(), axis)
    expected = expected.flip(axis) if reverse else expected
    assert_error_within(o, expected, gamma(x.shape[axis]) * expected)


@triton.jit
def _histogram(x, o, n, B: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + tl.arange(0, BINS), tl.histogram(tl.load(x + i), BINS))
    tl.store(o + BINS + tl.arange(0, BINS), tl.histogram(tl.load(x + i), BINS, mask=i < n))


def test_histogram() -> None:
    x, o = torch.randint(0, 16, (64,)).int(), torch.zeros(32, dtype=torch.int32)
    run(_histogram, (1,), x, o, 50, B=64, BINS=16)
    expected = [torch.bincount(v, minlength=16) for v in (x, x[:50])]
    assert torch.equal(o.long(), torch.cat(expected))


@triton.jit
def _softmax(x, o, n, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * n + i, e / tl.sum(e, 0), mask=i < n)


def test_softmax() -> None:
    x, o = torch.randn(5, 100), torch.zeros(5, 100)
    run(_softmax, (5,), x, o, 100, B=128)
    expected = torch.softmax(x.double(), 1)
    differences = (x - x.amax(1, keepdim=True)).abs().amax().item()  # their rounding is exp's relative error
    assert_error_within(o, expected, gamma(128 + 2 * (int(differences) + 4)) * expected)
