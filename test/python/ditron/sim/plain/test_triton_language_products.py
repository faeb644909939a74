"""Functions of ``triton.language`` that need more than a row of a table: products, random numbers."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from numerics import assert_product
from test_triton_language import BF16, F16, F32, F64, FP8, INTS, check, make

import ditron

# --- products ---------------------------------------------------------------------------------------------------


@triton.jit
def _dot(a, b, o, P: tl.constexpr, T: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left, right = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    tl.store(o + m[:, None] * N + n[None, :], tl.dot(left, right, input_precision=P, out_dtype=T))


@pytest.mark.parametrize(
    "dtype,precision",
    [
        (F32, "ieee"),
        (F32, "tf32"),
        (F32, "tf32x3"),
        (F16, None),
        (BF16, None),
        (F64, None),
        (torch.int8, None),
        (FP8[0], None),
        (FP8[1], None),
    ],
)
def test_dot(dtype, precision):
    a, b = (make(dtype if dtype not in FP8 else F32, *s).to(dtype) for s in ((16, 32), (32, 16)))
    out = torch.int32 if dtype == torch.int8 else F64 if dtype == F64 else F32
    o = torch.zeros(16, 16, dtype=out)
    with ditron.sim.triton():
        _dot[(1,)](a, b, o, precision, {F32: tl.float32, F64: tl.float64, torch.int32: tl.int32}[out], 16, 16, 32)
    if out == F32 and precision != "tf32":
        assert_product(o, a, b)
    else:
        check(o, (a.double() @ b.double()).to(out), 1000 if precision == "tf32" else 100)


@triton.jit
def _batched(a, b, o, Z: tl.constexpr, M: tl.constexpr):
    z, m, n = tl.arange(0, Z)[:, None, None], tl.arange(0, M)[None, :, None], tl.arange(0, M)[None, None, :]
    at = z * M * M + m * M + n
    tl.store(o + at, tl.dot(tl.load(a + at), tl.load(b + at), acc=tl.load(o + at)))


def test_dot_of_batches_into_an_accumulator():
    a, b, o = make(F16, 2, 16, 16), make(F16, 2, 16, 16, seed=1), make(F32, 2, 16, 16, seed=2)
    c = o.clone()
    with ditron.sim.triton():
        _batched[(1,)](a, b, o, 2, 16)
    assert_product(o, a, b, c)


@triton.jit
def _scaled(
    a,
    sa,
    b,
    sb,
    o,
    FA: tl.constexpr,
    FB: tl.constexpr,
    PA: tl.constexpr,
    PB: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    m, n = tl.arange(0, M), tl.arange(0, N)
    left = tl.load(a + m[:, None] * (K // PA) + tl.arange(0, K // PA)[None, :])
    right = tl.load(b + tl.arange(0, K // PB)[:, None] * N + n[None, :])
    scale_a = tl.load(sa + m[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    scale_b = tl.load(sb + n[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    tl.store(o + m[:, None] * N + n[None, :], tl.dot_scaled(left, scale_a, FA, right, scale_b, FB))


_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=F64)


def _operand(kind: str, rows: int, columns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What is given to the kernel, packed along the columns, and its values."""
    if kind == "e2m1":
        codes = torch.randint(16, (rows, columns), generator=torch.Generator().manual_seed(seed))
        return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8), _E2M1[codes]
    dtype = {"e4m3": FP8[0], "e5m2": FP8[1], "bf16": BF16, "fp16": F16}[kind]
    value = make(F32, rows, columns, seed=seed).to(dtype)
    return value.view(torch.uint8) if kind in ("e4m3", "e5m2") else value, value.double()


@pytest.mark.parametrize("kinds", ["e4m3 e4m3", "e5m2 e4m3", "e2m1 e2m1", "e2m1 bf16", "fp16 e5m2", "bf16 e2m1"])
def test_dot_scaled(kinds):
    left, right = kinds.split()
    m, n, k = 32, 32, 64
    a, value_a = _operand(left, m, k, 0)
    b, value_b = _operand(right, n, k, 1)
    scales = torch.randint(120, 132, (2, 32, k // 32), dtype=torch.uint8)
    o = torch.zeros(m, n)
    with ditron.sim.triton():
        _scaled[(1,)](
            a,
            scales[0],
            b.T.contiguous(),
            scales[1],
            o,
            left,
            right,
            1 + (left == "e2m1"),
            1 + (right == "e2m1"),
            m,
            n,
            k,
        )
    stretched = torch.exp2(scales.double() - 127).repeat_interleave(32, -1)
    assert_product(o, value_a * stretched[0], (value_b * stretched[1]).T)


# --- random numbers ---------------------------------------------------------------------------------------------


@triton.jit
def _random(o, bits, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.rand(5, i))
    tl.store(o + N + i, tl.randn(5, i))
    a, b, c, d = tl.rand4x(5, i)
    tl.store(o + 2 * N + i, d)
    a, b, c, d = tl.randn4x(5, i)
    tl.store(o + 3 * N + i, c)
    x, y = tl.pair_uniform_to_normal(tl.rand(5, i), tl.rand(6, i))
    tl.store(o + 4 * N + i, y)
    tl.store(o + 5 * N + i, tl.uint_to_uniform_float(tl.randint(5, i)))
    tl.store(bits + i, tl.randint(5, i))
    a, b, c, d = tl.randint4x(5, i)
    tl.store(bits + N + i, b)
    zero = i * 0
    a, b, c, d = tl.philox(5, i.to(tl.uint32), zero.to(tl.uint32), zero.to(tl.uint32), zero.to(tl.uint32))
    tl.store(bits + 2 * N + i, b.to(tl.int32, bitcast=True))


def _philox(seed: int, offset: int, rounds: int = 10) -> list[int]:
    """Philox 4x32, after Salmon et al., 2011."""
    c, k, mask = [offset, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32], 0xFFFFFFFF
    for _ in range(rounds):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & mask, (a >> 32) ^ c[3] ^ k[1], a & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def test_random_numbers():
    n = 256
    o, bits = torch.zeros(6, n), torch.zeros(3, n, dtype=torch.int32)
    with ditron.sim.triton():
        _random[(1,)](o, bits, n)
    words = torch.tensor([_philox(5, i) for i in range(n)], dtype=torch.uint32).view(torch.int32)
    assert torch.equal(bits, torch.stack((words[:, 0], words[:, 1], words[:, 1])))
    uniform = torch.where(words < 0, -words - 1, words).double() * 4.6566127342e-10
    check(o[0], uniform[:, 0].float())
    check(o[2], uniform[:, 3].float())
    check(o[5], uniform[:, 0].float())
    radius = (-2 * uniform.clamp(min=1e-7).log()).sqrt()
    check(o[1], (radius[:, 0] * (6.283185307179586 * uniform[:, 1]).cos()).float(), 50)
    check(o[3], (radius[:, 2] * (6.283185307179586 * uniform[:, 3]).cos()).float(), 50)


def test_integer_types_wrap():
    """Sums of integers wrap as the GPU's do."""
    for dtype in INTS:
        x = torch.full((4,), torch.iinfo(dtype).max, dtype=dtype)
        o = torch.zeros_like(x)
        with ditron.sim.triton():
            _wraps[(1,)](x, o, 4)
        assert torch.equal(o, torch.full((4,), torch.iinfo(dtype).min, dtype=dtype))


@triton.jit
def _wraps(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    tl.store(o + i, (value + 1).to(value.dtype))
