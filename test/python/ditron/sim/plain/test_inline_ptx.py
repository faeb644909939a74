"""Inline assembly of one PTX instruction on the simulator; anything else is refused."""

import pytest
import torch
import triton
import triton.language as tl
from numerics import assert_error_within, gamma

import ditron


@triton.jit
def _instruction(x, y, o, ASM: tl.constexpr, OPERANDS: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    if OPERANDS == 1:
        value = tl.inline_asm_elementwise(ASM, "=r,r", [a], dtype=tl.float32, is_pure=True, pack=1)
    else:
        value = tl.inline_asm_elementwise(ASM, "=r,r,r", [a, b], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(o + i, value)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("tanh.approx.f32", torch.tanh),
        ("ex2.approx.ftz.f32", torch.exp2),
        ("rcp.rn.f32", torch.reciprocal),
        ("rsqrt.approx.f32", torch.rsqrt),
        ("lg2.approx.f32", torch.log2),
        ("mov.f32", torch.clone),
        ("sub.rn.f32", torch.sub),
        ("div.full.f32", torch.div),
        ("max.f32", torch.maximum),
    ],
)
def test_single_instructions_of_assembly(name, expected):
    operands = [torch.rand(64) + 0.1, torch.rand(64) + 0.1]
    count = 2 if expected in (torch.sub, torch.div, torch.maximum) else 1
    out = torch.zeros(64)
    with ditron.sim.triton():
        _instruction[(1,)](*operands, out, f"{name} $0, {', '.join(f'${n + 1}' for n in range(count))};", count, B=64)
    exact = expected(*[operand.double() for operand in operands[:count]])
    assert_error_within(out, exact, gamma(4) * (exact.abs() + (expected is torch.log2)))  # log2 is 0 within the range


@pytest.mark.parametrize(
    "asm",
    [
        "sub.f32 $0, $2, $1;",
        "ex2.approx.f16 $0, $1;",
        "rcp.rn.f32 $0, $1; add.f32 $0, $0, $1;",
        "sqrt.rz.f32 $0, $1;",
    ],
)
def test_other_assembly_is_refused(asm):
    with ditron.sim.triton(), pytest.raises(ditron.CompileError, match="no inline assembly but single instructions"):
        _instruction[(1,)](*[torch.ones(64)] * 3, asm, 2 if "$2" in asm else 1, B=64)


@triton.jit
def _fetched(x, o, ASM: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    given = tl.full((B,), 16, tl.int32)
    zero = tl.inline_asm_elementwise(ASM, "=r,l,r", [x + i, given], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(o + i, tl.load(x + i) + zero)


@pytest.mark.parametrize(
    "asm",
    ["prefetch.global.L2 [$1]; mov.u32 $0, 0;", "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;"],
)
def test_prefetches_do_nothing(asm):
    x, out = torch.rand(64), torch.zeros(64)
    with ditron.sim.triton():
        _fetched[(1,)](x, out, asm, B=64)
        with pytest.raises(ditron.CompileError, match="no inline assembly but single instructions"):
            _fetched[(1,)](x, out, asm.replace("mov", "st.global.u32 [$1], 1; mov"), B=64)
    assert torch.equal(x, out)


@triton.jit
def _to_fp8(x, o, ASM: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    value = tl.inline_asm_elementwise(ASM, "=h,r,r", [tl.load(x + i)], dtype=o.dtype.element_ty, is_pure=True, pack=2)
    tl.store(o + i, value)


@pytest.mark.parametrize("kind, dtype", [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)])
def test_conversion_to_pairs_of_fp8(kind, dtype):
    x, out = torch.randn(128) * 300, torch.zeros(128, dtype=dtype)
    asm = f"cvt.rn.satfinite.{kind}x2.f32 $0, $2, $1;"
    with ditron.sim.triton():
        _to_fp8[(1,)](x, out, asm, B=128)
        with pytest.raises(ditron.CompileError, match="inline assembly"):  # neighbours would change places
            _to_fp8[(1,)](x, out, asm.replace("$2, $1", "$1, $2"), B=128)
    largest = torch.finfo(dtype).max
    assert torch.equal(out.float(), x.clamp(-largest, largest).to(dtype).float())
