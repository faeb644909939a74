"""Loads, stores, atomics and tensor descriptors of the simulator's lowering."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from sim_programs import run


@triton.jit
def _copy_2d(x, o, m, n, stride, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    v = tl.load(x + rows[:, None] * stride + columns[None, :], mask=mask, other=-1)
    tl.store(o + rows[:, None] * n + columns[None, :], v, mask=mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.bool],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("m, n", [(32, 64), (37, 61), (1, 5)])
def test_masked_copy(m: int, n: int, dtype: torch.dtype) -> None:
    x = torch.randint(0, 100, (m, n + 3)).to(dtype)
    o = torch.zeros(m, n, dtype=dtype)
    run(_copy_2d, (triton.cdiv(m, 16), triton.cdiv(n, 32)), x, o, m, n, n + 3, BM=16, BN=32)
    assert torch.equal(o, x[:, :n])


@triton.jit
def _other(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n, other=-5.0))
    tl.store(o + B + i, tl.load(x + i, mask=i < n, other=i.to(tl.float32) * 2))


def test_other_where_the_mask_is_false() -> None:
    x, o = torch.randn(20), torch.zeros(64)
    run(_other, (1,), x, o, 20, B=32)
    outside = torch.arange(20.0, 32)
    assert torch.equal(o, torch.cat([x, torch.full((12,), -5.0), x, outside * 2]))


@triton.jit
def _scalars(x, n, flag, value, wide):
    a = tl.load(x)
    b = tl.load(x + 1, mask=flag, other=9.0)
    tl.store(x + 2, a + b * n)
    tl.store(x + 3, value)
    tl.store(x + 4, (wide >> 33).to(tl.float32))
    tl.store(x + 5, 1.0, mask=flag)


@pytest.mark.parametrize("flag", [False, True])
def test_scalar_accesses_and_arguments(flag: bool) -> None:
    x = torch.tensor([3.0, 5.0, 0, 0, 0, 0])
    run(_scalars, (1,), x, -4, flag, 0.375, -5 << 33)
    expected = [3.0, 5.0, 3.0 - 4 * (5.0 if flag else 9.0), 0.375, -5.0, float(flag)]
    assert x.tolist() == expected


@triton.jit
def _read_own_write(x, B: tl.constexpr):
    i = tl.arange(0, B)
    before = tl.load(x + i)
    tl.store(x + i, before + 1)
    after = tl.load(x + i)
    tl.store(x + i, before * 100 + after)


def test_loads_stay_at_their_place() -> None:
    x = torch.arange(32.0)
    run(_read_own_write, (1,), x, B=32)
    assert torch.equal(x, torch.arange(32.0) * 100 + torch.arange(32.0) + 1)


@triton.jit
def _indirect(table, x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    where = tl.load(table + i, mask=i < n, other=0)
    tl.store(o + i, tl.load(x + where, mask=i < n), mask=i < n)


def test_indirect_load() -> None:
    x, table, o = torch.randn(50), torch.randperm(50)[:30].int(), torch.zeros(30)
    run(_indirect, (1,), table, x, o, 30, B=32)
    assert torch.equal(o, x[table.long()])


@triton.jit
def _pointers(pointers, o, B: tl.constexpr):
    for k in range(4):
        base = tl.load(pointers + k).to(tl.pointer_type(tl.float32))
        tl.store(o + k * B + tl.arange(0, B), tl.load(base + tl.arange(0, B)))


def test_integer_to_pointer() -> None:
    tensors = [torch.randn(8) for _ in range(4)]
    o = torch.zeros(4, 8)
    run(_pointers, (1,), torch.tensor([t.data_ptr() for t in tensors]), o, B=8)
    assert torch.equal(o, torch.stack(tensors))


@triton.jit
def _atomic(x, o, v, n, OP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i < n
    value = tl.load(v + i, mask=mask)
    at = x + i % 8
    if OP == "add":
        old = tl.atomic_add(at, value, mask=mask)
    elif OP == "max":
        old = tl.atomic_max(at, value, mask=mask)
    elif OP == "min":
        old = tl.atomic_min(at, value, mask=mask)
    elif OP == "and":
        old = tl.atomic_and(at, value, mask=mask)
    elif OP == "or":
        old = tl.atomic_or(at, value, mask=mask)
    elif OP == "xor":
        old = tl.atomic_xor(at, value, mask=mask)
    else:
        old = tl.atomic_xchg(at, value, mask=mask)
    tl.store(o + i, old, mask=mask)


def _sequential(op: str, x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    apply = {"add": lambda a, b: a + b, "max": max, "min": min, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
             "xor": lambda a, b: a ^ b, "xchg": lambda a, b: b}[op]  # fmt: skip
    x, old = x.clone(), v.clone()
    for k, value in enumerate(v):
        old[k] = x[k % 8]
        x[k % 8] = apply(x[k % 8], value)
    return x, old


_ATOMICS = [(op, dtype) for dtype in (torch.int32, torch.int64, torch.float32, torch.uint32)
            for op in ("add", "max", "min", "and", "or", "xor", "xchg")
            if dtype != torch.float32 or op in ("add", "max", "min", "xchg")]  # fmt: skip


@pytest.mark.parametrize("op, dtype", _ATOMICS, ids=str)
def test_atomic_rmw(op: str, dtype: torch.dtype) -> None:
    low = 0 if dtype == torch.uint32 else -100
    x, v = torch.randint(low, 100, (8,)), torch.randint(low, 100, (29,))
    expected, old = _sequential(op, x, v)
    x, v, o = x.to(dtype), v.to(dtype), torch.zeros(29, dtype=dtype)
    run(_atomic, (1,), x, o, v, 29, OP=op, B=32)
    assert x.tolist() == expected.tolist()
    # Triton does a float max or min as two integer atomics, first of the positive elements: another order.
    if dtype != torch.float32 or op not in ("max", "min"):
        assert o.tolist() == old.tolist()


@triton.jit
def _compare_and_swap(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.atomic_cas(x + i, i, i + 100))
    tl.atomic_cas(x, 100, 7)


def test_atomic_cas() -> None:
    x = torch.arange(16, dtype=torch.int32)
    x[::2] += 1
    before, o = x.clone(), torch.zeros(16, dtype=torch.int32)
    x[0] = before[0] = 0
    run(_compare_and_swap, (1,), x, o, B=16)
    i = torch.arange(16, dtype=torch.int32)
    expected = torch.where(before == i, i + 100, before)
    expected[0] = 7
    assert torch.equal(x, expected) and torch.equal(o, before)


@triton.jit
def _through_descriptors(x, o, m, n, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [BM, BN], padding_option=PAD)
    target = tl.make_tensor_descriptor(o, [m + 3, n + 3], [n + 3, 1], [BM, BN])
    row = tl.program_id(0) * BM
    for column in range(0, n, BN):
        target.store([row, column], source.load([row, column]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("pad", ["zero", "nan"])
def test_descriptor_clips_and_pads(pad: str, dtype: torch.dtype) -> None:
    if pad == "nan" and not dtype.is_floating_point:
        pad = "zero"
    m, n = 45, 70
    x, o = torch.randint(-50, 50, (m, n)).to(dtype), torch.full((m + 3, n + 3), 77).to(dtype)
    run(_through_descriptors, (3,), x, o, m, n, PAD=pad, BM=16, BN=32)
    assert torch.equal(o[:m, :n], x)
    outside = torch.cat([o[m:].flatten(), o[:m, n:].flatten()]).float()
    assert (outside.isnan() if pad == "nan" else outside == 0).all()


@triton.jit
def _one_or_the_other(x, o, n, B: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [n], [1], [B])
    if tl.program_id(0) == 1:
        d = tl.make_tensor_descriptor(x, [n], [1], [B], padding_option="nan")
    tl.store(o + tl.program_id(0) * B + tl.arange(0, B), d.load([0]))


def test_descriptors_that_pad_differently() -> None:
    x, o = torch.randn(12), torch.ones(2, 16)
    run(_one_or_the_other, (2,), x, o, 12, B=16)
    assert torch.equal(o[:, :12], x.expand(2, 12)) and (o[0, 12:] == 0).all() and o[1, 12:].isnan().all()


@triton.jit
def _negative_corner(x, o, n, B: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [n, n], [n, 1], [B, B])
    i = tl.arange(0, B)
    tl.store(o + i[:, None] * B + i[None, :], d.load([-3, n - 5]))


def test_descriptor_before_the_first_row() -> None:
    x, o = torch.randn(20, 20), torch.ones(16, 16)
    run(_negative_corner, (1,), x, o, 20, B=16)
    expected = torch.zeros(16, 16)
    expected[3:, :5] = x[:13, 15:]
    assert torch.equal(o, expected)


@triton.jit
def _reduce_descriptor(x, o, m, n, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [BM, BN])
    target = tl.make_tensor_descriptor(o, [m, n], [n, 1], [BM, BN])
    v = source.load([0, 0])
    if KIND == "add":
        target.atomic_add([0, 0], v)
    elif KIND == "max":
        target.atomic_max([0, 0], v)
    else:
        target.atomic_min([0, 0], v)


@pytest.mark.parametrize("kind", ["add", "max", "min"])
def test_descriptor_reduce(kind: str) -> None:
    x, o = torch.randint(-50, 50, (13, 30)).int(), torch.randint(-50, 50, (13, 30)).int()
    expected = {"add": torch.add, "max": torch.maximum, "min": torch.minimum}[kind](x, o)
    run(_reduce_descriptor, (1,), x, o, 13, 30, KIND=kind, BM=16, BN=32)
    assert torch.equal(o, expected)


@triton.jit
def _gather_rows(x, rows, o, p, m, n, B: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [m, n], [n, 1], [1, BN])
    e = tl.make_tensor_descriptor(p, [m, n], [n, 1], [1, BN])
    r = tl.load(rows + tl.arange(0, B))
    v = d.gather(r, 8)
    tl.store(o + tl.arange(0, B)[:, None] * BN + tl.arange(0, BN)[None, :], v)
    e.scatter(v, r, 8)


def test_descriptor_gather_and_scatter() -> None:
    m, n = 40, 36
    x, rows, o, p = torch.randn(m, n), torch.randperm(60)[:16].int(), torch.ones(16, 32), torch.zeros(m, n)
    run(_gather_rows, (1,), x, rows, o, p, m, n, B=16, BN=32)
    expected, scattered = torch.zeros(16, 32), torch.zeros(m, n)
    for k, row in enumerate(rows.tolist()):
        if row < m:
            expected[k, : n - 8] = x[row, 8:]
            scattered[row, 8:] = x[row, 8:]
    assert torch.equal(o, expected) and torch.equal(p, scattered)


@triton.jit
def _neighbours(x, o, p, start, n, KIND: tl.constexpr, B: tl.constexpr):
    i = start + tl.arange(0, B)
    if KIND == "wrapped":
        at = i % n
    elif KIND == "cut":
        at = tl.maximum(tl.minimum(i, n - 1), 3)
    elif KIND == "in groups":
        at = i // n
    elif KIND == "wrapped and grouped":
        at = i % n + i // n
    else:
        at = (i * 3) % n // 3
    rows = tl.arange(0, 4)[:, None]
    v = tl.load(x + rows * 1000 + at[None, :], mask=at[None, :] != 7, other=-1)
    tl.store(o + rows * B + tl.arange(0, B)[None, :], v)
    tl.store(p + at, v.to(tl.float32).sum(0))


def _fmod(a: torch.Tensor, n: int) -> torch.Tensor:
    return a - n * _quotient(a, n)


def _quotient(a: torch.Tensor, n: int) -> torch.Tensor:
    return torch.div(a, n, rounding_mode="trunc")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "kind, place",
    [
        ("wrapped", _fmod),
        ("cut", lambda i, n: i.clamp(max=n - 1).clamp(min=3)),
        ("in groups", _quotient),
        ("wrapped and grouped", lambda i, n: _fmod(i, n) + _quotient(i, n)),
        ("in threes", lambda i, n: _quotient(_fmod(i * 3, n), 3)),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
@pytest.mark.parametrize("start, n", [(0, 32), (5, 64), (20, 32), (100, 30), (64, 96), (0, 5), (200, 100), (-3, 40)])
def test_what_may_be_neighbours(start: int, n: int, kind: str, place, dtype: torch.dtype) -> None:
    """Whether a tile wraps, is cut or lies in one piece shows only when it runs."""
    memory, o = torch.randint(0, 100, (4, 1000)).to(dtype), torch.zeros(4, 32, dtype=dtype)
    p = torch.full((1000,), -9.0)
    x = memory.flatten()[64:]  # negative places lie in front of it
    at = place(torch.arange(start, start + 32), n)
    run(_neighbours, (1,), x, o, p[64:], start, n, KIND=kind, B=32)
    values = memory.flatten()[64 + torch.arange(4)[:, None] * 1000 + at]
    expected = torch.where(at == 7, torch.tensor(-1, dtype=dtype), values)
    assert torch.equal(o, expected)
    sums = torch.full((1000,), -9.0).index_put_((64 + at,), expected.float().sum(0))  # equal where it is written twice
    assert torch.equal(p, sums)
