"""Functions of CUDA's libdevice that the C library does not have, written with MLIR's operations.

`FUNCTIONS[stem]` is `emit(b, arguments, src, dst) -> value`; the stem is the symbol without `__nv_`, and, if that is
no key, without the `f` at its end. What takes more than a few operations is in device_library.py.
"""

from __future__ import annotations

from collections.abc import Callable

from ditron_compiler import ir

from .builder import Builder
from .types import Elem

Emit = Callable[[Builder, list[ir.Value], tuple[Elem, ...], Elem], ir.Value]
FUNCTIONS: dict[str, Emit] = {}
_OEQ, _OLT, _ONE, _UNO = 1, 4, 6, 14  # arith.cmpf predicates
_PI = 3.141592653589793


def find(symbol: str) -> Emit | None:
    """What computes the device function `symbol`; None when it is not here."""
    if not symbol.startswith("__nv_"):
        return None
    stem = symbol[len("__nv_") :]
    return FUNCTIONS.get(stem) or FUNCTIONS.get(stem.removesuffix("f"))


def define(names: str, emit: Emit) -> None:
    """Say how the functions of these stems are computed."""
    for name in names.split():
        FUNCTIONS[name] = emit


def _op(name: str) -> Emit:
    return lambda b, a, src, dst: b.op(name, dst.carrier, *a)


for _names, _name in (
    ("fadd_rn dadd_rn", "arith.addf"), ("fsub_rn dsub_rn", "arith.subf"), ("fmul_rn dmul_rn", "arith.mulf"),
    ("fdiv_rn ddiv_rn fast_fdividef", "arith.divf"), ("fma_rn fmaf_rn", "math.fma"),
    ("fsqrt_rn dsqrt_rn", "math.sqrt"), ("fast_expf", "math.exp"), ("fast_logf", "math.log"),
    ("fast_log2f", "math.log2"), ("fast_log10f", "math.log10"), ("fast_sinf", "math.sin"), ("fast_cosf", "math.cos"),
    ("fast_tanf", "math.tan"), ("fast_powf", "math.powf"), ("popc popcll", "math.ctpop"), ("clz clzll", "math.ctlz"),
    ("abs llabs", "math.absi"), ("double2float_rn", "arith.truncf"),
):  # fmt: skip
    define(_names, _op(_name))


def _resized(name: str) -> Emit:
    """popc and clz of 64 bits give 32."""

    def emit(b, a, src, dst):
        return b.resize(b.op(name, src[0].carrier, a[0]), src[0].bits, dst.bits)

    return emit


define("popcll", _resized("math.ctpop"))
define("clzll", _resized("math.ctlz"))

# --- bits and numbers -------------------------------------------------------------------------------------------

define(
    "float_as_int float_as_uint int_as_float uint_as_float double_as_longlong longlong_as_double",
    lambda b, a, src, dst: b.op("arith.bitcast", dst.carrier, a[0]),
)


def _is(b: Builder, condition: ir.Value, dst: Elem) -> ir.Value:
    return condition if dst.name == "i1" else b.op("arith.extui", dst.carrier, condition)


def _size(b: Builder, value: ir.Value, elem: Elem) -> ir.Value:
    return b.op("math.absf", elem.carrier, value)


define("isnand isnanf", lambda b, a, src, dst: _is(b, b.cmpf(_UNO, a[0], a[0]), dst))
define(
    "isinfd isinff",
    lambda b, a, src, dst: _is(b, b.cmpf(_OEQ, _size(b, a[0], src[0]), b.constant(src[0].carrier, float("inf"))), dst),
)
define(
    "isfinited finitef",
    lambda b, a, src, dst: _is(b, b.cmpf(_OLT, _size(b, a[0], src[0]), b.constant(src[0].carrier, float("inf"))), dst),
)


def _signbit(b, a, src, dst):
    bits = b.op("arith.bitcast", f"i{src[0].bits}", a[0])
    return _is(b, b.cmpi("slt", bits, b.constant(f"i{src[0].bits}", 0)), dst)


define("signbitd signbitf", _signbit)


def _ffs(b, a, src, dst):
    """One more than the number of the lowest bit; 0 of 0."""
    type, bits = src[0].carrier, src[0].bits
    place = b.binary("arith.addi", b.op("math.cttz", type, a[0]), b.constant(type, 1), type)
    found = b.select(b.cmpi("eq", a[0], b.constant(type, 0)), b.constant(type, 0), place, type)
    return b.resize(found, bits, dst.bits)


define("ffs ffsll", _ffs)
define("brev brevll", lambda b, a, src, dst: b.intrinsic("llvm.bitreverse", dst.carrier, a[0]))


def _high(signed: bool) -> Emit:
    def emit(b, a, src, dst):
        wide, extend = f"i{2 * dst.bits}", "arith.extsi" if signed else "arith.extui"
        product = b.op("arith.muli", wide, *[b.op(extend, wide, v) for v in a])
        return b.op("arith.trunci", dst.carrier, b.op("arith.shrui", wide, product, b.constant(wide, dst.bits)))

    return emit


define("mulhi mul64hi", _high(True))
define("umulhi umul64hi", _high(False))


def _mean(signed: bool, up: bool) -> Emit:
    """(x + y) / 2 without overflow, rounded down or up."""

    def emit(b, a, src, dst):
        wide = f"i{2 * dst.bits}"
        total = b.op("arith.addi", wide, *[b.op("arith.extsi" if signed else "arith.extui", wide, v) for v in a])
        if up:
            total = b.op("arith.addi", wide, total, b.constant(wide, 1))
        half = b.op("arith.shrsi" if signed else "arith.shrui", wide, total, b.constant(wide, 1))
        return b.op("arith.trunci", dst.carrier, half)

    return emit


for _stem, _signed, _up in (
    ("hadd", True, False),
    ("rhadd", True, True),
    ("uhadd", False, False),
    ("urhadd", False, True),
):
    define(_stem, _mean(_signed, _up))


def _mul24(signed: bool) -> Emit:
    def emit(b, a, src, dst):
        eight = b.constant("i32", 8)
        cut = [
            b.op("arith.shrsi" if signed else "arith.shrui", "i32", b.op("arith.shli", "i32", v, eight), eight)
            for v in a
        ]
        return b.op("arith.muli", "i32", *cut)

    return emit


define("mul24", _mul24(True))
define("umul24", _mul24(False))


def _sad(signed: bool) -> Emit:
    """|x - y| + z."""

    def emit(b, a, src, dst):
        larger, smaller = (b.op(f"arith.{n}{'s' if signed else 'u'}i", "i32", *a[:2]) for n in ("max", "min"))
        return b.op("arith.addi", "i32", b.op("arith.subi", "i32", larger, smaller), a[2])

    return emit


define("sad", _sad(True))
define("usad", _sad(False))


# --- conversions ------------------------------------------------------------------------------------------------

_ROUND = {"rn": "math.roundeven", "rz": "math.trunc", "rd": "math.floor", "ru": "math.ceil"}


def _to_int(rounding: str, signed: bool) -> Emit:
    def emit(b, a, src, dst):
        whole = b.op(rounding, src[0].carrier, a[0])
        return b.intrinsic(f"llvm.fpto{'s' if signed else 'u'}i.sat", dst.carrier, whole)

    return emit


for _source in ("float", "double"):
    for _target, _signed in (("int", True), ("uint", False), ("ll", True), ("ull", False)):
        for _short, _name in _ROUND.items():
            define(f"{_source}2{_target}_{_short}", _to_int(_name, _signed))
        for _float in ("float", "double"):
            define(f"{_target}2{_float}_rn", _op("arith.sitofp" if _signed else "arith.uitofp"))
define("llrint llrintf", _to_int("math.roundeven", True))
define("llround llroundf", _to_int("math.round", True))

# --- functions --------------------------------------------------------------------------------------------------


def _c(b: Builder, dst: Elem, value: float) -> ir.Value:
    return b.constant(dst.carrier, value)


define("frcp_rn drcp_rn", lambda b, a, src, dst: b.op("arith.divf", dst.carrier, _c(b, dst, 1.0), a[0]))
define(
    "frsqrt_rn",
    lambda b, a, src, dst: b.op("arith.divf", dst.carrier, _c(b, dst, 1.0), b.op("math.sqrt", dst.carrier, a[0])),
)
define(
    "rcbrt",
    lambda b, a, src, dst: b.op(
        "arith.divf", dst.carrier, _c(b, dst, 1.0), b.call("cbrt" if dst.bits == 64 else "cbrtf", a, [dst.carrier])[0]
    ),
)
define("fast_exp10f", lambda b, a, src, dst: b.op("math.powf", dst.carrier, _c(b, dst, 10.0), a[0]))


def _saturate(b, a, src, dst):
    """Between 0 and 1; 0 of what is no number."""
    positive = b.op("arith.maxnumf", dst.carrier, a[0], _c(b, dst, 0.0))
    return b.op("arith.minnumf", dst.carrier, positive, _c(b, dst, 1.0))


define("saturatef", _saturate)


def _scale(b, a, src, dst):
    """x * 2**n, in two steps, so that neither overflows where the product does not."""
    power = b.binary(
        "arith.minsi", b.binary("arith.maxsi", a[1], b.constant("i32", -4000), "i32"), b.constant("i32", 4000), "i32"
    )
    half = b.binary("arith.shrsi", power, b.constant("i32", 1), "i32")
    rest = b.binary("arith.subi", power, half, "i32")
    value = a[0] if dst.bits == 64 else b.op("arith.extf", "f64", a[0])
    for part in (half, rest):
        value = b.op("arith.mulf", "f64", value, b.op("math.exp2", "f64", b.op("arith.sitofp", "f64", part)))
    return value if dst.bits == 64 else b.op("arith.truncf", "f32", value)


define("ldexp ldexpf scalbn scalbnf", _scale)
define(
    "powi powif", lambda b, a, src, dst: b.op("math.powf", dst.carrier, a[0], b.op("arith.sitofp", dst.carrier, a[1]))
)


def _of_pi(name: str) -> Emit:
    """sin(pi x), cos(pi x): the whole turns are taken off before pi comes in."""

    def emit(b, a, src, dst):
        wide = a[0] if dst.bits == 64 else b.op("arith.extf", "f64", a[0])
        turn = b.op("arith.remf", "f64", wide, b.constant("f64", 2.0))
        value = b.op(name, "f64", b.op("arith.mulf", "f64", turn, b.constant("f64", _PI)))
        return value if dst.bits == 64 else b.op("arith.truncf", "f32", value)

    return emit


define("sinpi sinpif", _of_pi("math.sin"))
define("cospi cospif", _of_pi("math.cos"))


def _norm(inverse: bool) -> Emit:
    """sqrt(x*x + y*y ...), or one over it, in f64."""

    def emit(b, a, src, dst):
        wide = [v if dst.bits == 64 else b.op("arith.extf", "f64", v) for v in a]
        total = b.op("arith.mulf", "f64", wide[0], wide[0])
        for value in wide[1:]:
            total = b.op("math.fma", "f64", value, value, total)
        root = b.op("math.sqrt", "f64", total)
        if inverse:
            root = b.op("arith.divf", "f64", b.constant("f64", 1.0), root)
        return root if dst.bits == 64 else b.op("arith.truncf", "f32", root)

    return emit


define("norm3d norm3df norm4d norm4df", _norm(False))
define("rnorm3d rnorm3df rnorm4d rnorm4df rhypot rhypotf", _norm(True))


def _normcdf(b, a, src, dst):
    """erfc(-x / sqrt 2) / 2."""
    wide = a[0] if dst.bits == 64 else b.op("arith.extf", "f64", a[0])
    scaled = b.op("arith.mulf", "f64", wide, b.constant("f64", -0.7071067811865476))
    value = b.op("arith.mulf", "f64", b.call("erfc", [scaled], ["f64"])[0], b.constant("f64", 0.5))
    return value if dst.bits == 64 else b.op("arith.truncf", "f32", value)


define("normcdf normcdff", _normcdf)
