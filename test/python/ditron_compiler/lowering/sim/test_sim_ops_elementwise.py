"""Elementwise operations of the simulator's lowering against torch in higher precision, by operation and type."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from sim_programs import run

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int8, torch.int16, torch.int32, torch.int64]
N = 203  # not a multiple of the block


def _random(dtype: torch.dtype, n: int = N, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return (torch.randn(n, generator=generator, dtype=torch.float64) * 3).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(max(info.min, -(2**40)), min(info.max, 2**40), (n,), generator=generator).to(dtype)


def _out(dtype: torch.dtype, n: int = N) -> torch.Tensor:
    """Filled with a value that no result has, so that what is not written shows."""
    return torch.full((n + 16,), 77, dtype=torch.float64).to(dtype)


@triton.jit
def _binary(x, y, o, n, OP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i < n
    a = tl.load(x + i, mask=mask)
    b = tl.load(y + i, mask=mask)
    if OP == "add":
        r = a + b
    elif OP == "sub":
        r = a - b
    elif OP == "mul":
        r = a * b
    elif OP == "div":
        r = (a / b).to(a.dtype)
    elif OP == "floordiv":
        r = a // b
    elif OP == "mod":
        r = a % b
    elif OP == "max":
        r = tl.maximum(a, b)
    elif OP == "min":
        r = tl.minimum(a, b)
    elif OP == "max_nan":
        r = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "and":
        r = a & b
    elif OP == "or":
        r = a | b
    elif OP == "xor":
        r = a ^ b
    elif OP == "lt":
        r = (a < b).to(a.dtype)
    elif OP == "ne":
        r = (a != b).to(a.dtype)
    else:
        r = tl.where(a > b, a, b * 2)
    tl.store(o + i, r, mask=mask)


_EXPECTED = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "max": torch.maximum, "min": torch.minimum,
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "lt": lambda a, b: (a < b).to(a.dtype), "ne": lambda a, b: (a != b).to(a.dtype),
    "where": lambda a, b: torch.where(a > b, a, b * 2),
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "max", "min", "lt", "ne", "where"])
def test_float_binary(op: str, dtype: torch.dtype) -> None:
    x, y, o = _random(dtype), _random(dtype, seed=1), _out(dtype)
    run(_binary, (7,), x, y, o, N, OP=op, B=32)
    wide = torch.float64
    if op == "div":
        expected = (x.to(wide) / y.to(wide)).to(dtype)
    else:
        expected = _EXPECTED[op](x.to(wide), y.to(wide)).to(dtype)
    assert torch.equal(o[:N], expected)
    assert (o[N:] == 77).all()


@pytest.mark.parametrize("dtype", [*INTS, torch.uint8, torch.uint32], ids=str)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "max", "min", "and", "or", "xor", "lt", "where"])
def test_int_binary(op: str, dtype: torch.dtype) -> None:
    x, y, o = _random(dtype), _random(dtype, seed=1), _out(dtype)
    run(_binary, (4,), x, y, o, N, OP=op, B=64)
    if dtype == torch.uint32:  # torch computes little with it: compute in int64 and cut
        expected = _EXPECTED[op](x.to(torch.int64), y.to(torch.int64)) & 0xFFFFFFFF
        assert torch.equal(o[:N].to(torch.int64), expected)
    else:
        assert torch.equal(o[:N], _EXPECTED[op](x, y))


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_integer_division_is_cs_and_never_traps(op: str, dtype: torch.dtype) -> None:
    x, y, o = _random(dtype), _random(dtype, seed=1), _out(dtype)
    y[::7] = 0
    x[3], y[3] = torch.iinfo(dtype).min, -1
    run(_binary, (4,), x, y, o, N, OP=op, B=64)
    defined = (y != 0) & ~((x == torch.iinfo(dtype).min) & (y == -1))
    quotient = torch.div(x[defined], y[defined], rounding_mode="trunc")
    expected = quotient if op == "floordiv" else x[defined] - quotient * y[defined]
    assert torch.equal(o[:N][defined], expected)


def test_max_with_nan() -> None:
    x, y, o, p = _random(torch.float32), _random(torch.float32, seed=1), _out(torch.float32), _out(torch.float32)
    x[::3], y[::5] = float("nan"), float("nan")
    run(_binary, (7,), x, y, o, N, OP="max", B=32)
    assert torch.equal(torch.nan_to_num(o[:N], 5.0), torch.nan_to_num(torch.fmax(x, y), 5.0))
    run(_binary, (7,), x, y, p, N, OP="max_nan", B=32)
    assert torch.equal(torch.nan_to_num(p[:N], 5.0), torch.nan_to_num(torch.maximum(x, y), 5.0))


@triton.jit
def _unary(x, o, n, OP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i < n
    a = tl.load(x + i, mask=mask, other=1.0)
    if OP == "exp":
        r = tl.exp(a)
    elif OP == "exp2":
        r = tl.exp2(a)
    elif OP == "log":
        r = tl.log(a)
    elif OP == "log2":
        r = tl.log2(a)
    elif OP == "sqrt":
        r = tl.sqrt(a)
    elif OP == "sqrt_rn":
        r = tl.sqrt_rn(a)
    elif OP == "rsqrt":
        r = tl.rsqrt(a)
    elif OP == "sin":
        r = tl.sin(a)
    elif OP == "cos":
        r = tl.cos(a)
    elif OP == "erf":
        r = tl.erf(a)
    elif OP == "abs":
        r = tl.abs(a)
    elif OP == "floor":
        r = tl.floor(a)
    elif OP == "ceil":
        r = tl.ceil(a)
    elif OP == "neg":
        r = -a
    elif OP == "sigmoid":
        r = tl.sigmoid(a)
    elif OP == "fma":
        r = tl.fma(a, a, a)
    elif OP == "clamp":
        r = tl.clamp(a, -1.0, 1.0)
    elif OP == "div_rn":
        r = tl.div_rn(a, a + 3.0)
    else:
        r = tl.extra.cuda.libdevice.tanh(a)
    tl.store(o + i, r, mask=mask)


_UNARY = {
    "exp": torch.exp, "exp2": torch.exp2, "log": torch.log, "log2": torch.log2, "sqrt": torch.sqrt,
    "sqrt_rn": torch.sqrt, "rsqrt": torch.rsqrt, "sin": torch.sin, "cos": torch.cos, "erf": torch.erf,
    "abs": torch.abs, "floor": torch.floor, "ceil": torch.ceil,
    "neg": torch.neg, "sigmoid": torch.sigmoid, "fma": lambda a: a * a + a,
    "clamp": lambda a: a.clamp(-1, 1), "div_rn": lambda a: a / (a + 3), "tanh": torch.tanh,
}  # fmt: skip
_POSITIVE = ("log", "log2", "sqrt", "sqrt_rn", "rsqrt", "div_rn")
_F32_ONLY = ("sqrt_rn", "div_rn")  # in Triton


_CASES = [(op, dtype) for op in _UNARY for dtype in (torch.float32, torch.float64)
          if dtype == torch.float32 or op not in _F32_ONLY]  # fmt: skip


@pytest.mark.parametrize("op, dtype", _CASES, ids=str)
def test_float_unary(op: str, dtype: torch.dtype) -> None:
    x, o = _random(dtype), _out(dtype)
    if op in _POSITIVE:
        x = x.abs() + 0.01
    run(_unary, (13,), x, o, N, OP=op, B=16)
    expected = _UNARY[op](x.to(torch.float64))
    tolerance = 3e-7 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(o[:N].to(torch.float64), expected, rtol=tolerance, atol=tolerance)
    assert (o[N:] == 77).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", ["abs", "neg"])
def test_narrow_unary(op: str, dtype: torch.dtype) -> None:
    x, o = _random(dtype), _out(dtype)
    run(_unary, (13,), x, o, N, OP=op, B=16)
    assert torch.equal(o[:N], _UNARY[op](x))


@triton.jit
def _round_each(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)
    b = tl.load(y + i, mask=i < n)
    tl.store(o + i, (a + b) * b - a, mask=i < n)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_floats_round_after_every_operation(dtype: torch.dtype) -> None:
    x, y, o = _random(dtype), _random(dtype, seed=1), _out(dtype)
    run(_round_each, (4,), x, y, o, N, B=64)
    assert torch.equal(o[:N], (x + y) * y - x)


@triton.jit
def _shift(x, o, s, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)
    tl.store(o + i, (a << s) ^ (a >> 3), mask=i < n)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_shifts(dtype: torch.dtype) -> None:
    x, o = _random(dtype), _out(dtype)
    run(_shift, (4,), x, o, 5, N, B=64)
    assert torch.equal(o[:N], (x << 5) ^ (x >> 3))


@triton.jit
def _shift_by(x, s, left, right, logical, N: tl.constexpr, U: tl.constexpr):
    i = tl.arange(0, N)
    a, by = tl.load(x + i), tl.load(s + i)
    tl.store(left + i, a << by)
    tl.store(right + i, a >> by)
    tl.store(logical + i, (a.to(U, bitcast=True) >> by.to(U, bitcast=True)).to(a.dtype, bitcast=True))


@pytest.mark.parametrize("dtype, unsigned", list(zip(INTS, (tl.uint8, tl.uint16, tl.uint32, tl.uint64), strict=True)))
def test_shifts_by_the_width_and_more_leave_nothing(dtype: torch.dtype, unsigned: tl.dtype) -> None:
    bits = torch.iinfo(dtype).bits
    x, amounts = _random(dtype, 16), torch.tensor([0, 1, bits - 1, bits, bits + 1, 2 * bits, 127, -1] * 2)
    left, right, logical = (_out(dtype, 16) for _ in range(3))
    run(_shift_by, (1,), x, amounts.to(dtype), left, right, logical, N=16, U=unsigned)
    far = [min(amount % 2**bits, bits) for amount in amounts.tolist()]
    number = lambda bit: (bit % 2**bits + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)  # noqa: E731
    pairs = list(zip(x.tolist(), far, strict=True))
    assert left[:16].tolist() == [number(a << by) for a, by in pairs]
    assert right[:16].tolist() == [a >> by for a, by in pairs]
    assert logical[:16].tolist() == [number(a % 2**bits >> by) for a, by in pairs]


@triton.jit
def _high(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n).to(tl.uint32, bitcast=True)
    tl.store(o + i, tl.umulhi(a, a + 12345).to(tl.int32, bitcast=True), mask=i < n)


def test_umulhi() -> None:
    x, o = _random(torch.int32), _out(torch.int32)
    run(_high, (4,), x, o, N, B=64)
    for got, value in zip(o[:N].tolist(), x.tolist(), strict=False):
        a = value % 2**32
        assert got % 2**32 == (a * ((a + 12345) % 2**32)) >> 32
