"""Every function of ``triton.language`` on the simulator, by data type, against torch.

``TABLES`` names what is tested here and in test_triton_language_more.py; a function of a new Triton that is in none of
them, and not in ``NOT_FUNCTIONS``, fails ``test_every_function_is_tested``.
"""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import ditron

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
FLOATS = (F16, BF16, F32, F64)
INTS = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
ROWS, COLUMNS = 8, 32

# Of results that are rounded to the type once or twice.
TOLERANCE = {F16: 2e-3, BF16: 1.6e-2, F32: 2e-6, F64: 1e-12}


def make(dtype: torch.dtype, *shape: int, seed: int = 0, positive: bool = False) -> torch.Tensor:
    """Random numbers: floats around 0, integers over a range that sums fit in."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        value = torch.randn(shape, generator=generator, dtype=F64) * 2
        return (value.abs() + 0.1 if positive else value).to(F32).to(dtype)
    if dtype == torch.bool:
        return torch.randint(2, shape, generator=generator).bool()
    low = 0 if positive or not dtype.is_signed else -100
    return torch.randint(low, 100, shape, generator=generator).to(dtype)


def check(got: torch.Tensor, want: torch.Tensor, factor: float = 1.0) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, want.dtype, got.shape, want.shape)
    if got.dtype.is_floating_point:
        tolerance = TOLERANCE.get(got.dtype, 0.0) * factor
        torch.testing.assert_close(got.to(F64), want.to(F64), rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        assert torch.equal(got, want)


def wide(dtype: torch.dtype) -> torch.dtype:
    """What torch computes in, so that it rounds once, at the end."""
    return F64 if dtype.is_floating_point else torch.int64


def parameters(table: dict) -> list:
    """A case per row and type: the table's values are (torch's function, types)."""
    return [pytest.param(name, dtype, id=f"{name}-{str(dtype)[6:]}") for name, row in table.items() for dtype in row[1]]


# --- elementwise ------------------------------------------------------------------------------------------------

UNARY = {
    "abs": (torch.abs, FLOATS + INTS),
    "ceil": (torch.ceil, (F32, F64)),
    "floor": (torch.floor, (F32, F64)),
    "cos": (torch.cos, (F32, F64)),
    "sin": (torch.sin, (F32, F64)),
    "erf": (torch.erf, (F32, F64)),
    "exp": (torch.exp, (F32, F64)),
    "exp2": (torch.exp2, (F32, F64)),
    "log": (torch.log, (F32, F64)),
    "log2": (torch.log2, (F32, F64)),
    "sqrt": (torch.sqrt, (F32, F64)),
    "sqrt_rn": (torch.sqrt, (F32,)),
    "rsqrt": (torch.rsqrt, (F32, F64)),
    "sigmoid": (torch.sigmoid, (F32, F64)),
}


@triton.jit
def _unary(x, o, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, F(tl.load(x + i)))


@pytest.mark.parametrize("name,dtype", parameters(UNARY))
def test_unary(name, dtype):
    x = make(dtype, 64, positive=name in ("log", "log2", "sqrt", "sqrt_rn", "rsqrt"))
    o = torch.empty_like(x)
    with ditron.sim.triton():
        _unary[(1,)](x, o, getattr(tl, name), 64)
    check(o, UNARY[name][0](x.to(wide(dtype))).to(dtype), 4)


BINARY = {
    "add": (torch.add, FLOATS + INTS + UNSIGNED[:1]),
    "sub": (torch.sub, FLOATS + INTS),
    "mul": (torch.mul, FLOATS + INTS),
    "maximum": (torch.maximum, FLOATS + INTS + UNSIGNED[:1]),
    "minimum": (torch.minimum, FLOATS + INTS + UNSIGNED[:1]),
    "div_rn": (torch.div, (F32,)),
    "fdiv": (torch.div, (F32,)),
    "cdiv": (lambda x, y: -(-x // y), (torch.int32, torch.int64)),
    "umulhi": (lambda x, y: (x * y) >> 32, (torch.uint32,)),
}


@triton.jit
def _binary(x, y, o, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, F(tl.load(x + i), tl.load(y + i)))


@pytest.mark.parametrize("name,dtype", parameters(BINARY))
def test_binary(name, dtype):
    x, y = make(dtype, 64, positive=name == "cdiv"), make(dtype, 64, seed=1, positive=name == "cdiv")
    if name == "cdiv":
        y += 1
    if name == "umulhi":
        x, y = (v.to(torch.int64) * 12345678 for v in (x, y))
        expected = ((x & 0xFFFFFFFF) * (y & 0xFFFFFFFF)) >> 32
        x, y, expected = x.to(dtype), y.to(dtype), (expected & 0xFFFFFFFF).to(dtype)
    else:
        expected = BINARY[name][0](x.to(wide(dtype)), y.to(wide(dtype))).to(dtype)
    o = torch.empty_like(x)
    with ditron.sim.triton():
        _binary[(1,)](x, y, o, getattr(tl, name), 64)
    check(o, expected)


@triton.jit
def _ternary(x, y, z, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    tl.store(o + i, tl.fma(a, b, c))
    tl.store(o + N + i, tl.clamp(a, tl.minimum(b, c), tl.maximum(b, c)))
    tl.store(o + 2 * N + i, tl.where(a > b, c, a))


@pytest.mark.parametrize("dtype", (F32, F64))
def test_fma_clamp_where(dtype):
    x, y, z = (make(dtype, 64, seed=s) for s in range(3))
    o = torch.empty(3, 64, dtype=dtype)
    with ditron.sim.triton():
        _ternary[(1,)](x, y, z, o, 64)
    check(o[0], (x.double() * y.double() + z.double()).to(dtype))
    check(o[1], torch.clamp(x, torch.minimum(y, z), torch.maximum(y, z)))
    check(o[2], torch.where(x > y, z, x))


@triton.jit
def _cast(x, o, R: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    if R == "bits":
        tl.store(o + i, tl.cast(value, o.dtype.element_ty, bitcast=True))
    elif R == "":
        tl.store(o + i, value.to(o.dtype.element_ty))
    else:
        tl.store(o + i, value.to(o.dtype.element_ty, fp_downcast_rounding=R))


def _saturated(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Casting to fp8 saturates, as the GPU's does; the host's makes NaN or infinity of what is too large."""
    limit = torch.finfo(dtype).max
    return torch.where(x.isnan(), x, x.clamp(-limit, limit)).to(dtype)


# Triton casts fp8 from and to floats only.
CASTS = [
    (a, b)
    for a in FLOATS + FP8 + INTS + (torch.bool,)
    for b in FLOATS + FP8 + INTS + (torch.bool,)
    if not (a in FP8 and b not in FLOATS or b in FP8 and a not in FLOATS)
]


@pytest.mark.parametrize("dtype,to", CASTS, ids=lambda d: str(d)[6:])
def test_cast(dtype, to):
    x = make(torch.bool, 64) if dtype == torch.bool else make(F32, 64).mul(20).to(dtype)
    o = torch.zeros(64, dtype=to)
    with ditron.sim.triton():
        _cast[(1,)](x, o, "", 64)
    source = x.to(F32) if dtype in FP8 else x
    expected = _saturated(source.to(F32), to) if to in FP8 else source != 0 if to == torch.bool else source.to(to)
    if dtype.is_floating_point and to == torch.int8:
        expected = source.to(torch.int32).to(torch.int8)
    check(o.to(F32) if to in FP8 else o, expected.to(F32) if to in FP8 else expected)


@pytest.mark.parametrize("dtype,to", [(F32, FP8[0]), (F32, FP8[1]), (F16, FP8[0]), (BF16, FP8[1])])
def test_fp8_casts_saturate(dtype, to):
    x = torch.tensor(
        [1e4, -1e4, 448.0, 464.0, 465.0, -500.0, 57344.0, -6e4, float("nan"), 0.0, -0.0, 1e-9, 0.001, 1.0, 17.0, 19.0]
    ).to(dtype)
    o = torch.zeros(16, dtype=to)
    with ditron.sim.triton():
        _cast[(1,)](x, o, "", 16)
    check(o.to(F32), _saturated(x.to(F32), to).to(F32))


def test_bitcast_and_rounding_to_zero():
    x = make(F32, 64)
    bits, cut = torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=BF16)
    with ditron.sim.triton():
        _cast[(1,)](x, bits, "bits", 64)
        _cast[(1,)](x, cut, "rtz", 64)
    assert torch.equal(bits, x.view(torch.int32))
    assert torch.equal(cut.view(torch.int16), (x.view(torch.int32) >> 16).to(torch.int16))


# --- reductions and scans ---------------------------------------------------------------------------------------

REDUCTIONS = {
    "sum": (lambda x, d: x.sum(d), (F32, F64, torch.int32, torch.int64)),
    "max": (lambda x, d: x.amax(d), FLOATS + INTS),
    "min": (lambda x, d: x.amin(d), FLOATS + INTS),
    "argmax": (lambda x, d: _first(x == x.amax(d, keepdim=True), d), FLOATS + INTS),
    "argmin": (lambda x, d: _first(x == x.amin(d, keepdim=True), d), FLOATS + INTS),
    "xor_sum": (lambda x, d: _fold(torch.bitwise_xor, x, d), (torch.int32, torch.int64)),
    "reduce_or": (lambda x, d: _fold(torch.bitwise_or, x, d), (torch.int32, torch.int64)),
}


def _first(mask: torch.Tensor, dim: int) -> torch.Tensor:
    return mask.to(torch.int32).argmax(dim)


def _fold(function, x: torch.Tensor, dim: int) -> torch.Tensor:
    values = x.unbind(dim)
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result


@triton.jit
def _reduction(x, o, F: tl.constexpr, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    result = F(tile, AXIS)
    tl.store(o + tl.arange(0, result.shape[0]), result)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name,dtype", parameters(REDUCTIONS))
def test_reduction(name, dtype, axis):
    x = make(dtype, ROWS, COLUMNS)
    if name.startswith("arg"):
        x = (x.to(F32) / 50).round().to(dtype)  # many ties: the first is meant
    expected = REDUCTIONS[name][0](x.to(wide(dtype)), axis)
    expected = expected.to(torch.int32 if name.startswith("arg") else dtype)
    o = torch.zeros_like(expected)
    with ditron.sim.triton():
        _reduction[(1,)](x, o, getattr(tl, name), axis, ROWS, COLUMNS)
    check(o, expected, 4)


SCANS = {
    "cumsum": (lambda x, d: x.cumsum(d), (F32, F64, torch.int32, torch.int64)),
    "cumprod": (lambda x, d: x.cumprod(d), (F32, F64, torch.int64)),
}


@triton.jit
def _scan(x, o, F: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(o + at, F(tl.load(x + at), AXIS, REVERSE))


@pytest.mark.parametrize("reverse", [False, True], ids=["", "reverse"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name,dtype", parameters(SCANS))
def test_scan(name, dtype, axis, reverse):
    x = make(dtype, ROWS, COLUMNS)
    if name == "cumprod":
        x = (x % 3 - 1) if not dtype.is_floating_point else x * 0.3 + 1
    turned = x.to(wide(dtype)).flip(axis) if reverse else x.to(wide(dtype))
    expected = SCANS[name][0](turned, axis)
    expected = (expected.flip(axis) if reverse else expected).to(dtype)
    o = torch.zeros_like(x)
    with ditron.sim.triton():
        _scan[(1,)](x, o, getattr(tl, name), axis, reverse, ROWS, COLUMNS)
    check(o, expected, 32)


@triton.jit
def _mean_of(mean_a, weight_a, mean_b, weight_b):
    weight = weight_a + weight_b
    return mean_a + (mean_b - mean_a) * (weight_b / weight), weight


@triton.jit
def _affine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def _own_functions(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    mean, weight = tl.reduce((value, tl.full((N,), 1.0, tl.float32)), 0, _mean_of)
    tl.store(o, mean)
    tl.store(o + 1, weight)
    slope, offset = tl.associative_scan((value, value + 1), 0, _affine)
    tl.store(o + 2 + i, slope)
    tl.store(o + 2 + N + i, offset)


def test_reduce_and_associative_scan_with_ones_own_function():
    x = make(F32, 16) * 0.5
    o = torch.zeros(2 + 32)
    with ditron.sim.triton():
        _own_functions[(1,)](x, o, 16)
    slope, offset, slopes, offsets = 1.0, 0.0, [], []
    for value in x.double():
        slope, offset = slope * value, offset * value + value + 1
        slopes.append(slope)
        offsets.append(offset)
    check(o, torch.tensor([x.mean(), 16.0, *slopes, *offsets], dtype=F32), 20)


# --- order ------------------------------------------------------------------------------------------------------


@triton.jit
def _order(x, o, WHAT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    if WHAT == "sort":
        result = tl.sort(tile)
    elif WHAT == "sort descending":
        result = tl.sort(tile, descending=True)
    elif WHAT == "topk":
        result = tl.topk(tile, K)
    elif WHAT == "flip":
        result = tl.flip(tile, 1)
    elif WHAT == "flip rows":
        result = tl.flip(tile, 0)
    else:
        # Rows that rise, then fall.
        half = tl.sort(tl.reshape(tile, [M, 2, N // 2]))
        result = tl.bitonic_merge(
            tl.reshape(tl.where(tl.arange(0, 2)[None, :, None] == 0, half, tl.flip(half, 2)), [M, N])
        )
    tl.store(o + tl.arange(0, M)[:, None] * result.shape[1] + tl.arange(0, result.shape[1])[None, :], result)


ORDER = {
    "sort": (lambda x: x.sort(1).values, FLOATS[:3] + INTS),
    "sort descending": (lambda x: x.sort(1, descending=True).values, (F32, torch.int32)),
    "topk": (lambda x: x.topk(8, 1).values, (F32, torch.int32)),
    "flip": (lambda x: x.flip(1), (F32, torch.int8)),
    "flip rows": (lambda x: x.flip(0), (F32,)),
    "bitonic_merge": (lambda x: x.sort(1).values, (F32, torch.int32)),
}


@pytest.mark.parametrize("name,dtype", parameters(ORDER))
def test_order(name, dtype):
    x = make(dtype, ROWS, COLUMNS)
    expected = ORDER[name][0](x).contiguous()
    o = torch.zeros_like(expected)
    with ditron.sim.triton():
        _order[(1,)](x, o, name, ROWS, COLUMNS, 8)
    check(o, expected)


# --- is everything tested? --------------------------------------------------------------------------------------

TABLES = [UNARY, BINARY, REDUCTIONS, SCANS, ORDER]
# Tested here and in test_triton_language_more.py by what they do together.
TOGETHER = set(
    "fma clamp where cast reduce associative_scan arange zeros full zeros_like broadcast broadcast_to expand_dims "
    "reshape view ravel permute trans cat join split interleave gather histogram map_elementwise softmax swizzle2d dot "
    "dot_scaled program_id num_programs load store atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or "
    "atomic_xchg atomic_xor debug_barrier static_assert static_print device_assert device_print range static_range "
    "condition assume multiple_of max_contiguous max_constancy make_tensor_descriptor load_tensor_descriptor "
    "store_tensor_descriptor make_block_ptr advance inline_asm_elementwise philox philox_impl rand rand4x randint "
    "randint4x randn randn4x pair_uniform_to_normal uint_to_uniform_float squeeze unsqueeze to_tensor atomic_load "
    "atomic_store atomic_poll expect_zero".split()
)
NOT_FUNCTIONS = {
    "types": set(
        "PropagateNan TRITON_MAX_TENSOR_NUMEL bfloat16 block_type const constexpr constexpr_type dtype "
        "float16 float32 float64 float8e4b15 float8e4b8 float8e4nv float8e5 float8e5b16 int1 int16 int32 "
        "int64 int8 pi32_t pointer_type slice tensor tensor_descriptor tuple uint16 uint32 uint64 uint8 "
        "void".split()
    ),
    "modules": {"extra", "math", "target_info"},
}


def test_every_function_is_tested():
    tested = {name.split()[0] for table in TABLES for name in table} | TOGETHER
    rest = set(tl.__all__) - tested - set().union(*NOT_FUNCTIONS.values())
    assert not rest, f"neither tested nor said why not: {sorted(rest)}"
