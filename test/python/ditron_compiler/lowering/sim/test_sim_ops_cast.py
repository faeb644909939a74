"""Casts of the simulator's lowering: every pair of types, rounding, special values."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from sim_programs import run

N = 117
_TL = {
    torch.float32: tl.float32, torch.float64: tl.float64, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16,
    torch.int8: tl.int8, torch.int16: tl.int16, torch.int32: tl.int32, torch.int64: tl.int64, torch.uint8: tl.uint8,
    torch.bool: tl.int1,
}  # fmt: skip
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]


@triton.jit
def _cast(x, o, n, T: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n).to(T), mask=i < n)


def _cast_to(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    o = torch.zeros(len(x), dtype=dtype)
    run(_cast, (triton.cdiv(len(x), 32),), x, o, len(x), T=_TL[dtype], B=32)
    return o


@pytest.mark.parametrize("to", FLOATS, ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_float_to_float(source: torch.dtype, to: torch.dtype) -> None:
    x = (torch.randn(N, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 100).to(source)
    x[:8] = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 1e-7, -3e-6, 65519.0, 1.0]).to(source)
    got, expected = _cast_to(x, to), (x.float() if source == torch.float64 and to == torch.bfloat16 else x).to(to)
    assert torch.equal(got, expected)
    assert torch.equal(torch.signbit(got), torch.signbit(expected))


@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16], ids=str)
def test_narrowing_rounds_every_f32_pattern_as_torch_does(to: torch.dtype) -> None:
    bits = torch.randint(-(2**31), 2**31, (20000,), generator=torch.Generator().manual_seed(2)).to(torch.int32)
    # Halfway cases: the bits behind the narrow mantissa are 100...0.
    cut = 13 if to == torch.float16 else 16
    bits[:5000] = (bits[:5000] >> cut << cut) | (1 << (cut - 1))
    bits[5000:6000] = bits[5000:6000] & -0x7F800001 | 0x38000000
    x = bits.view(torch.float32)
    got, expected = _cast_to(x, to), x.to(to)
    nan = torch.isnan(x)
    assert torch.equal(got[~nan].view(torch.int16), expected[~nan].view(torch.int16))
    assert torch.isnan(got[nan]).all()


@pytest.mark.parametrize("to", FLOATS, ids=str)
@pytest.mark.parametrize("source", INTS, ids=str)
def test_int_to_float(source: torch.dtype, to: torch.dtype) -> None:
    info, generator = torch.iinfo(source), torch.Generator().manual_seed(3)
    x = torch.randint(max(info.min, -(2**45)), min(info.max, 2**45), (N,), generator=generator).to(source)
    expected = x.to(torch.float32).to(to) if to in (torch.bfloat16, torch.float16) else x.to(to)
    assert torch.equal(_cast_to(x, to), expected)


@pytest.mark.parametrize("to", INTS, ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_float_to_int(source: torch.dtype, to: torch.dtype) -> None:
    x = (torch.rand(N, dtype=torch.float64, generator=torch.Generator().manual_seed(4)) * 120).to(source)
    if to != torch.uint8:
        x[::2] = -x[::2]
    assert torch.equal(_cast_to(x, to), x.to(to))


def test_float_to_int_saturates() -> None:
    x = torch.tensor([3e9, -3e9, float("inf"), -float("inf"), float("nan"), 2147483520.0])
    assert _cast_to(x, torch.int32).tolist() == [2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 2147483520]


@pytest.mark.parametrize("to", INTS, ids=str)
@pytest.mark.parametrize("source", [*INTS, torch.bool], ids=str)
def test_int_to_int(source: torch.dtype, to: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    if source == torch.bool:
        x = torch.randint(0, 2, (N,), generator=generator).bool()
    else:
        info = torch.iinfo(source)
        x = torch.randint(max(info.min, -(2**45)), min(info.max, 2**45), (N,), generator=generator).to(source)
    assert torch.equal(_cast_to(x, to), x.to(to))


@triton.jit
def _through_f8(x, o, bits, n, T: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    narrow = tl.load(x + i, mask=i < n, other=0.0).to(T)
    tl.store(bits + i, narrow.to(tl.uint8, bitcast=True), mask=i < n)
    tl.store(o + i, narrow.to(tl.float32), mask=i < n)


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn"])
def test_f8(name: str) -> None:
    dtype = getattr(torch, name)
    largest = torch.finfo(dtype).max
    x = torch.randn(3000, generator=torch.Generator().manual_seed(6)) * torch.logspace(-6, 1.5, 3000)
    x = torch.cat([x, torch.arange(256, dtype=torch.uint8).view(dtype).float()])
    x = x[x.abs() <= largest]  # beyond, the GPU saturates
    n = len(x)
    o, bits = torch.zeros(n), torch.zeros(n, dtype=torch.uint8)
    narrow = tl.float8e5 if name == "float8_e5m2" else tl.float8e4nv
    run(_through_f8, (triton.cdiv(n, 128),), x, o, bits, n, T=narrow, B=128)
    expected = x.to(dtype)
    assert torch.equal(o, expected.float())
    assert torch.equal(bits, expected.view(torch.uint8))


def test_f8_saturates() -> None:
    x = torch.tensor([1000.0, -1e9, float("inf"), float("nan")])
    o, bits = torch.zeros(4), torch.zeros(4, dtype=torch.uint8)
    run(_through_f8, (1,), x, o, bits, 4, T=tl.float8e4nv, B=4)
    assert o[:3].tolist() == [448.0, -448.0, 448.0] and o[3].isnan()


@triton.jit
def _toward_zero(x, o, n, T: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    narrow = tl.cast(tl.load(x + i, mask=i < n), T, fp_downcast_rounding="rtz")
    tl.store(o + i, narrow.to(tl.float32), mask=i < n)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounding_toward_zero(dtype: torch.dtype) -> None:
    x = torch.randn(N, generator=torch.Generator().manual_seed(7)) * 50
    x[0] = 1e30
    o = torch.zeros(N)
    run(_toward_zero, (4,), x, o, N, T=_TL[dtype], B=32)
    assert (o.abs() <= x.abs()).all() and torch.isfinite(o).all()
    up = torch.nextafter(o.to(dtype), (torch.sign(x) * float("inf")).to(dtype)).float()
    assert ((up.abs() > x.abs()) | (o == x)).all()


@triton.jit
def _bits(x, o, back, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    bits = v.to(o.dtype.element_ty, bitcast=True)
    tl.store(o + i, bits, mask=i < n)
    tl.store(back + i, bits.to(v.dtype, bitcast=True), mask=i < n)


@pytest.mark.parametrize(
    "dtype, bits",
    [
        (torch.float32, torch.int32),
        (torch.bfloat16, torch.int16),
        (torch.float16, torch.int16),
        (torch.float64, torch.int64),
    ],
    ids=str,
)
def test_bitcast(dtype: torch.dtype, bits: torch.dtype) -> None:
    x = torch.randn(N).to(dtype)
    o, back = torch.zeros(N, dtype=bits), torch.zeros(N, dtype=dtype)
    run(_bits, (4,), x, o, back, N, B=32)
    assert torch.equal(o, x.view(bits)) and torch.equal(back, x)
