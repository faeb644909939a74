"""Functions of libdevice on the simulator, against torch."""

import math
from fractions import Fraction

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

import ditron

F32, F64, I32, I64 = torch.float32, torch.float64, torch.int32, torch.int64


@triton.jit
def _one(x, o, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, F(tl.load(x + i)).to(o.dtype.element_ty))


@triton.jit
def _two(x, y, o, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, F(tl.load(x + i), tl.load(y + i)).to(o.dtype.element_ty))


FLOATS = torch.tensor([0.5, -1.25, 2.5, 3.75, -0.0, 0.1, 7.9, -12.3, 1e-3, 100.0, -2.5, 1.5, 0.75, 5.0, -6.5, 2.0])
WHOLE = torch.tensor([0, 1, -1, 2, 5, -7, 1 << 20, -(1 << 31), (1 << 31) - 1, 12345, 77, -99, 64, 3, 255, -256])


def _popc(x, bits):
    return torch.tensor([bin(v & (1 << bits) - 1).count("1") for v in x.tolist()])


ONE = {
    "exp10": (F32, lambda x: 10**x),
    "expm1": (F32, torch.expm1),
    "log1p": (F32, lambda x: torch.log1p(x)),
    "tanh": (F32, torch.tanh),
    "tan": (F32, torch.tan),
    "sinh": (F32, torch.sinh),
    "erfc": (F32, torch.erfc),
    "cbrt": (F32, lambda x: x.sign() * x.abs() ** (1 / 3)),
    "lgamma": (F32, torch.lgamma),
    "rint": (F32, torch.round),
    "round": (F32, lambda x: torch.copysign((x.abs() + 0.5).floor(), x)),
    "trunc": (F32, torch.trunc),
    "fast_expf": (F32, torch.exp),
    "fast_logf": (F32, torch.log),
    "fast_sinf": (F32, torch.sin),
    "fast_cosf": (F32, torch.cos),
    "saturatef": (F32, lambda x: x.clamp(0, 1)),
    "sinpi": (F32, lambda x: torch.sin(math.pi * x)),
    "cospi": (F64, lambda x: torch.cos(math.pi * x)),
    "normcdf": (F32, torch.special.ndtr),
    "rcp_rn": (F32, lambda x: 1 / x),
    "rcbrt": (F32, lambda x: torch.copysign(x.abs() ** (-1 / 3), x)),
    "isnan": (F32, torch.isnan),
    "isinf": (F32, torch.isinf),
    "finitef": (F32, torch.isfinite),
    "signbit": (F32, torch.signbit),
    "float_as_int": (F32, lambda x: x.float().view(I32)),
    "float2int_rn": (F32, torch.round),
    "float2int_rz": (F32, torch.trunc),
    "float2int_rd": (F32, torch.floor),
    "float2ll_ru": (F32, torch.ceil),
    "llrint": (F32, torch.round),
    "int2float_rn": (I32, lambda x: x),
    "popc": (I32, lambda x: _popc(x, 32)),
    "ffs": (I32, lambda x: torch.tensor([(v & -v).bit_length() for v in x.tolist()])),
    "clz": (I32, lambda x: torch.tensor([32 - (v & 0xFFFFFFFF).bit_length() for v in x.tolist()])),
    "brev": (I32, lambda x: torch.tensor([int(f"{v & 0xFFFFFFFF:032b}"[::-1], 2) for v in x.tolist()])),
}
_WHOLE_RESULTS = (
    "float_as_int",
    "float2int_rn",
    "float2int_rz",
    "float2int_rd",
    "float2ll_ru",
    "llrint",
    "popc",
    "ffs",
    "clz",
    "brev",
    "isnan",
    "isinf",
    "finitef",
    "signbit",
)


@pytest.mark.parametrize("name", ONE)
def test_of_one(name):
    dtype, expected = ONE[name]
    x = (FLOATS if dtype.is_floating_point else WHOLE).to(dtype)
    if name in ("isnan", "isinf", "finitef"):
        x = x / torch.tensor([0.0, 1.0]).repeat(8)
    o = torch.zeros(16, dtype=I64 if name in _WHOLE_RESULTS else F32 if dtype == I32 else dtype)
    with ditron.sim.triton():
        _one[(1,)](x, o, getattr(libdevice, name), 16)
    want = expected(x.double() if dtype.is_floating_point else x)
    if name in _WHOLE_RESULTS:
        assert torch.equal(o & 0xFFFFFFFF, want.long() & 0xFFFFFFFF)
    else:
        torch.testing.assert_close(o.double(), want.to(o.dtype).double(), rtol=2e-6, atol=2e-6, equal_nan=True)


TWO = {
    "pow": (F32, F32, torch.pow),
    "fmod": (F32, F32, torch.fmod),
    "atan2": (F32, F32, torch.atan2),
    "hypot": (F32, F32, torch.hypot),
    "copysign": (F32, F32, torch.copysign),
    "nextafter": (F32, F32, None),
    "fast_dividef": (F32, F32, torch.div),
    "div_rn": (F32, F32, torch.div),
    "add_rn": (F32, F32, torch.add),
    "ldexp": (F32, I32, lambda x, y: x * 2.0**y),
    "rhypot": (F32, F32, lambda x, y: 1 / torch.hypot(x, y)),
    "mulhi": (I32, I32, lambda x, y: (x.long() * y.long()) >> 32),
    "hadd": (I32, I32, lambda x, y: (x.long() + y.long()) >> 1),
}


@pytest.mark.parametrize("name", TWO)
def test_of_two(name):
    first, second, expected = TWO[name]
    x = (FLOATS if first == F32 else WHOLE).to(first)
    y = (FLOATS.flip(0) if second == F32 else WHOLE.flip(0) if first == I32 else torch.arange(16) - 8).to(second)
    o = torch.zeros(16, dtype=first)
    with ditron.sim.triton():
        _two[(1,)](x, y, o, getattr(libdevice, name), 16)
    want = (
        torch.nextafter(x, y)
        if expected is None
        else expected(*[v.double() if v.is_floating_point() else v for v in (x, y)])
    )
    torch.testing.assert_close(o.double(), want.to(o.dtype).double(), rtol=2e-6, atol=0, equal_nan=True)


@triton.jit
def _missing(x):
    tl.store(x, libdevice.rcp64h(tl.load(x)))


def test_a_missing_one_is_named():
    with ditron.sim.triton(), pytest.raises(ditron.CompileError, match="__nv_rcp64h"):
        _missing[(1,)](torch.zeros(1, dtype=F64))


# --- what the machine's library computes ----------------------------------------------------------------------------

BETWEEN = torch.tensor([0.0, 1e-9, 0.1, 0.25, 0.49, 0.5, 0.51, 0.75, 0.9, 0.99, 0.999, 1 - 1e-6, 0.3, 0.6, 1.0, 1e-3])
SPECIAL = {
    "erfinv": (BETWEEN * 2 - 1, torch.special.erfinv),
    "erfcinv": (BETWEEN, lambda x: -torch.special.ndtri(x / 2) / 2**0.5),
    "normcdfinv": (BETWEEN, torch.special.ndtri),
    "erfcx": (FLOATS.abs() * 3, torch.special.erfcx),
    "cyl_bessel_i0": (FLOATS / 2, torch.special.i0),
    "cyl_bessel_i1": (FLOATS / 2, torch.special.i1),
}


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name, dtype):
    x, expected = SPECIAL[name]
    x, o = x.to(dtype), torch.zeros(16, dtype=dtype)
    with ditron.sim.triton():
        _one[(1,)](x, o, getattr(libdevice, name), 16)
    tolerance = 2e-6 if dtype == F32 else 1e-9
    torch.testing.assert_close(o.double(), expected(x.double()), rtol=tolerance, atol=1e-12, equal_nan=True)


@triton.jit
def _bessel(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, libdevice.jn(i % 3, tl.load(x + i)))
    tl.store(o + N + i, libdevice.ilogb(tl.load(x + i)).to(tl.float32))


def test_bessel_functions_by_order_and_exponents():
    x, o = FLOATS.abs() + 0.5, torch.zeros(2, 16)
    with ditron.sim.triton():
        _bessel[(1,)](x, o, 16)
    j0, j1 = torch.special.bessel_j0(x.double()), torch.special.bessel_j1(x.double())
    want = torch.stack([j0, j1, 2 / x.double() * j1 - j0])[torch.arange(16) % 3, torch.arange(16)]
    torch.testing.assert_close(o[0].double(), want, rtol=1e-4, atol=1e-6)
    assert torch.equal(o[1], x.log2().floor())


EXACT = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}


def _neighbour(exact: Fraction, direction: str, dtype: torch.dtype) -> float:
    """The number of `dtype` next to `exact` in a direction."""
    if direction == "rz":
        direction = "rd" if exact > 0 else "ru"
    near = torch.tensor(float(exact), dtype=dtype)
    if direction == "rd" and Fraction(near.item()) > exact:
        near = torch.nextafter(near, torch.tensor(-math.inf, dtype=dtype))
    if direction == "ru" and Fraction(near.item()) < exact:
        near = torch.nextafter(near, torch.tensor(math.inf, dtype=dtype))
    return near.item()


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("direction", ["rz", "rd", "ru"])
@pytest.mark.parametrize("operation", EXACT)
def test_directions_of_rounding(operation, direction, dtype):
    x, y = torch.randn(16, dtype=dtype), torch.randn(16, dtype=dtype) * 1e-3
    o = torch.zeros(16, dtype=dtype)
    with ditron.sim.triton():
        _two[(1,)](x, y, o, getattr(libdevice, f"{operation}_{direction}"), 16)
    want = [
        _neighbour(EXACT[operation](Fraction(a), Fraction(b)), direction, dtype)
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    assert o.tolist() == want
    assert o.tolist() != EXACT[operation](x, y).tolist()


@pytest.mark.parametrize("direction", ["rz", "rd", "ru"])
def test_directions_of_conversion(direction):
    whole, o = torch.tensor([16777217, -16777217, 1, 2**31 - 1] * 4, dtype=I32), torch.zeros(16)
    with ditron.sim.triton():
        _one[(1,)](whole, o, getattr(libdevice, f"int2float_{direction}"), 16)
        assert o.tolist() == [_neighbour(Fraction(v), direction, F32) for v in whole.tolist()]
        x = torch.randn(16, dtype=F64)
        _one[(1,)](x, o, getattr(libdevice, f"double2float_{direction}"), 16)
        assert o.tolist() == [_neighbour(Fraction(v), direction, F32) for v in x.tolist()]
        _one[(1,)](x.abs().float(), o, getattr(libdevice, f"sqrt_{direction}"), 16)
        exact = x.abs().float().double().sqrt()
        assert o.tolist() == [_neighbour(Fraction(v), direction, F32) for v in exact.tolist()]


@triton.jit
def _words(x, y, bits, o, p, N: tl.constexpr):
    i = tl.arange(0, N)
    high, low = libdevice.double2hiint(tl.load(x + i)), libdevice.double2loint(tl.load(x + i))
    tl.store(o + i, libdevice.hiloint2double(high, low))
    tl.store(p + i, libdevice.byte_perm(tl.load(y + i), tl.load(bits + i), 0x6172))


def test_parts_of_words():
    x, y, z = torch.randn(16, dtype=F64), WHOLE.to(I32), WHOLE.flip(0).to(I32)
    o, p = torch.zeros(16, dtype=F64), torch.zeros(16, dtype=I32)
    with ditron.sim.triton():
        _words[(1,)](x, y, z, o, p, 16)
    assert torch.equal(o, x)
    both = [
        (a & 0xFFFFFFFF | (b & 0xFFFFFFFF) << 32).to_bytes(8, "little")
        for a, b in zip(y.tolist(), z.tolist(), strict=True)
    ]
    want = [int.from_bytes(bytes((b[2], b[7], b[1], b[6])), "little") for b in both]
    assert [v & 0xFFFFFFFF for v in p.tolist()] == want
