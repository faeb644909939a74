"""Narrow floats: from bits, to bits, and rounding of an f32 to a value of the narrow type.

bf16 and fp8 use integer arithmetic (no library calls, the same on every host); f16 uses the host's conversion, which
every CPU since 2012 has. Rounding is to nearest even; fp8 saturates to the largest finite value, as the GPU's does.
"""

from __future__ import annotations

from ditron_compiler import ir

from .builder import Builder
from .types import Elem

UNO = 14  # arith.cmpf predicate "unordered"
_OLT = 4
_OGT = 2


def _f32_bits(b: Builder, value: ir.Value) -> ir.Value:
    return b.op("arith.bitcast", "i32", value)


def _cut(b: Builder, bits: ir.Value, dropped: int, nearest: bool) -> ir.Value:
    """f32 bits with the last `dropped` mantissa bits rounded away (nearest even) or cut off."""
    c = lambda v: b.constant("i32", v)  # noqa: E731
    if nearest:
        odd = b.binary("arith.andi", b.binary("arith.shrui", bits, c(dropped), "i32"), c(1), "i32")
        bits = b.binary("arith.addi", bits, c((1 << (dropped - 1)) - 1), "i32")
        bits = b.binary("arith.addi", bits, odd, "i32")
    return b.binary("arith.andi", bits, c(-(1 << dropped)), "i32")


def _round_bf16(b: Builder, value: ir.Value, nearest: bool) -> ir.Value:
    bits = _f32_bits(b, value)
    cut = _cut(b, bits, 16, nearest)
    # A NaN could carry over into infinity: keep its high half, made quiet.
    quiet = b.binary("arith.ori", bits, b.constant("i32", 0x00400000), "i32")
    quiet = b.binary("arith.andi", quiet, b.constant("i32", 0xFFFF0000), "i32")
    cut = b.select(b.cmpf(UNO, value, value), quiet, cut, "i32")
    return b.op("arith.bitcast", "f32", cut)


def _round_f16_to_zero(b: Builder, value: ir.Value) -> ir.Value:
    nearest = _round_f16(b, value)
    magnitude = lambda v: b.op("math.absf", "f32", v)  # noqa: E731
    above = b.cmpf(_OGT, magnitude(nearest), magnitude(value))
    bits = b.op("arith.bitcast", "i16", b.op("arith.truncf", "f16", nearest))
    down = b.op("arith.bitcast", "f16", b.binary("arith.subi", bits, b.constant("i16", 1), "i16"))
    return b.select(above, b.op("arith.extf", "f32", down), nearest, "f32")


def _round_f16(b: Builder, value: ir.Value) -> ir.Value:
    return b.op("arith.extf", "f32", b.op("arith.truncf", "f16", value))


# Bits of the mantissa, exponent of the smallest normal number, largest number.
_F8 = {
    "f8E5M2": (2, -14, 57344.0),
    "f8E4M3FN": (3, -6, 448.0),
    "f8E5M2FNUZ": (2, -15, 57344.0),
    "f8E4M3FNUZ": (3, -7, 240.0),
}
_NAN_OF_FNUZ = 0x80  # AMD's formats have one NaN, where the negative zero would be, and no infinity


def _round_f8(b: Builder, value: ir.Value, elem: Elem, nearest: bool) -> ir.Value:
    mantissa, least, largest = _F8[elem.name]
    size = b.op("math.absf", "f32", value)
    normal = b.op("arith.bitcast", "f32", _cut(b, _f32_bits(b, size), 23 - mantissa, nearest))
    step = 2.0 ** (least - mantissa)
    if nearest:  # adding a number whose last place is `step` rounds to a multiple of it
        magic = b.constant("f32", step * 2.0**23)
        small = b.binary("arith.subf", b.binary("arith.addf", size, magic, "f32"), magic, "f32")
    else:
        scaled = b.binary("arith.mulf", size, b.constant("f32", 1 / step), "f32")
        small = b.binary("arith.mulf", b.op("math.floor", "f32", scaled), b.constant("f32", step), "f32")
    rounded = b.select(b.cmpf(_OLT, size, b.constant("f32", 2.0**least)), small, normal, "f32")
    rounded = b.binary("arith.minnumf", rounded, b.constant("f32", largest), "f32")
    rounded = b.op("math.copysign", "f32", rounded, value)
    return b.select(b.cmpf(UNO, value, value), value, rounded, "f32")


def round_to(b: Builder, value: ir.Value, elem: Elem, nearest: bool = True) -> ir.Value:
    """The f32 `value` rounded to a value of `elem`; the identity for types that are not narrow floats."""
    if not elem.narrow:
        return value
    if elem.name == "bf16":
        return _round_bf16(b, value, nearest)
    if elem.name == "f16":
        return _round_f16(b, value) if nearest else _round_f16_to_zero(b, value)
    return _round_f8(b, value, elem, nearest)


def to_bits(b: Builder, value: ir.Value, elem: Elem) -> ir.Value:
    """The carrier `value` as an integer of `elem.bits` bits."""
    if elem.kind == "int":
        return value
    if elem.kind == "ptr":
        return b.op("llvm.ptrtoint", "i64", value)
    if not elem.narrow:
        return b.op("arith.bitcast", f"i{elem.bits}", value)
    if elem.name == "bf16":
        high = b.binary("arith.shrui", _f32_bits(b, value), b.constant("i32", 16), "i32")
        return b.op("arith.trunci", "i16", high)
    if elem.name == "f16":
        return b.op("arith.bitcast", "i16", b.op("arith.truncf", "f16", value))
    return _f8_to_bits(b, value, elem)


def _f8_to_bits(b: Builder, value: ir.Value, elem: Elem) -> ir.Value:
    if elem.name.endswith("FNUZ"):
        return _fnuz_to_bits(b, value, elem)
    c = lambda v: b.constant("i16", v)  # noqa: E731
    if elem.name == "f8E5M2":  # the high byte of an f16
        half = b.op("arith.bitcast", "i16", b.op("arith.truncf", "f16", value))
        return b.op("arith.trunci", "i8", b.binary("arith.shrui", half, c(8), "i16"))
    # f8E4M3FN over 2**8 is an f16 whose exponent fits four bits.
    scaled = b.binary("arith.mulf", value, b.constant("f32", 2.0**-8), "f32")
    half = b.op("arith.bitcast", "i16", b.op("arith.truncf", "f16", scaled))
    sign = b.binary("arith.andi", b.binary("arith.shrui", half, c(8), "i16"), c(0x80), "i16")
    rest = b.binary("arith.andi", b.binary("arith.shrui", half, c(7), "i16"), c(0x7F), "i16")
    rest = b.select(b.cmpf(UNO, value, value), c(0x7F), rest, "i16")
    return b.op("arith.trunci", "i8", b.binary("arith.ori", sign, rest, "i16"))


def _fnuz_to_bits(b: Builder, value: ir.Value, elem: Elem) -> ir.Value:
    mantissa, least, _ = _F8[elem.name]
    c = lambda v: b.constant("i32", v)  # noqa: E731
    size = b.op("math.absf", "f32", value)
    high = b.binary("arith.shrui", _f32_bits(b, size), c(23 - mantissa), "i32")
    normal = b.binary("arith.subi", high, c((126 + least) << mantissa), "i32")
    steps = b.binary("arith.mulf", size, b.constant("f32", 2.0 ** (mantissa - least)), "f32")
    is_small = b.cmpf(_OLT, size, b.constant("f32", 2.0**least))
    rest = b.select(is_small, b.op("arith.fptosi", "i32", steps), normal, "i32")
    sign = b.binary("arith.andi", b.binary("arith.shrui", _f32_bits(b, value), c(24), "i32"), c(0x80), "i32")
    signed = b.select(b.cmpi("eq", rest, c(0)), rest, b.binary("arith.ori", sign, rest, "i32"), "i32")
    return b.op("arith.trunci", "i8", b.select(b.cmpf(UNO, value, value), c(_NAN_OF_FNUZ), signed, "i32"))


def _fnuz_from_bits(b: Builder, bits: ir.Value, elem: Elem) -> ir.Value:
    mantissa, least, _ = _F8[elem.name]
    c = lambda v: b.constant("i32", v)  # noqa: E731
    wide = b.op("arith.extui", "i32", bits)
    rest = b.binary("arith.andi", wide, c(0x7F), "i32")
    biased = b.binary("arith.addi", rest, c((126 + least) << mantissa), "i32")
    normal = b.op("arith.bitcast", "f32", b.binary("arith.shli", biased, c(23 - mantissa), "i32"))
    steps = b.op("arith.sitofp", "f32", rest)
    small = b.binary("arith.mulf", steps, b.constant("f32", 2.0 ** (least - mantissa)), "f32")
    size = b.select(b.cmpi("ult", rest, c(1 << mantissa)), small, normal, "f32")
    signed = b.select(b.cmpi("ult", wide, c(0x80)), size, b.op("arith.negf", "f32", size), "f32")
    return b.select(b.cmpi("eq", wide, c(_NAN_OF_FNUZ)), b.constant("f32", float("nan")), signed, "f32")


def from_bits(b: Builder, bits: ir.Value, elem: Elem) -> ir.Value:
    """The carrier of the `elem` whose bits are the integer `bits`."""
    if elem.kind == "int":
        return bits
    if elem.kind == "ptr":
        return b.op("llvm.inttoptr", "!llvm.ptr", bits)
    if not elem.narrow:
        return b.op("arith.bitcast", elem.name, bits)
    if elem.name == "bf16":
        wide = b.op("arith.extui", "i32", bits)
        return b.op("arith.bitcast", "f32", b.binary("arith.shli", wide, b.constant("i32", 16), "i32"))
    if elem.name == "f16":
        return b.op("arith.extf", "f32", b.op("arith.bitcast", "f16", bits))
    if elem.name.endswith("FNUZ"):
        return _fnuz_from_bits(b, bits, elem)
    c = lambda v: b.constant("i16", v)  # noqa: E731
    wide = b.op("arith.extui", "i16", bits)
    if elem.name == "f8E5M2":
        half = b.binary("arith.shli", wide, c(8), "i16")
        return b.op("arith.extf", "f32", b.op("arith.bitcast", "f16", half))
    rest = b.binary("arith.andi", wide, c(0x7F), "i16")
    sign = b.binary("arith.shli", b.binary("arith.andi", wide, c(0x80), "i16"), c(8), "i16")
    half = b.binary("arith.ori", sign, b.binary("arith.shli", rest, c(7), "i16"), "i16")
    value = b.op("arith.extf", "f32", b.op("arith.bitcast", "f16", half))
    value = b.binary("arith.mulf", value, b.constant("f32", 2.0**8), "f32")
    return b.select(b.cmpi("eq", rest, c(0x7F)), b.constant("f32", float("nan")), value, "f32")
