"""Operations that work element by element, on scalars and inside loop nests alike.

`ELEMENTWISE[name]` is a row: its `emit(b, op, args, src, dst)` writes one element's computation, where `args` are
carrier values of the element types `src` and the result is a carrier of `dst`. The row's caller rounds the result when
`dst` is a narrow float and the row says so. `cost` is in units of one float addition; index arithmetic counts
nothing, for recomputing it in a loop is cheaper than loading it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ditron_compiler import ir

from . import device_functions, inline_ptx
from .builder import Builder
from .rounding import from_bits, round_to, to_bits
from .types import Elem

Emit = Callable[[Builder, ir.Operation, list[ir.Value], tuple[Elem, ...], Elem], ir.Value]
EXPENSIVE = 16.0


@dataclass(frozen=True)
class ElementwiseLowering:
    emit: Emit
    cost: float = 1.0
    rounds: bool = False


ELEMENTWISE: dict[str, ElementwiseLowering] = {}


def elementwise(*names: str, cost: float = 1.0, rounds: bool = False):
    """Register the decorated function for the operations `names`."""

    def register(emit: Emit) -> Emit:
        for name in names:
            ELEMENTWISE[name] = ElementwiseLowering(emit, cost, rounds)
        return emit

    return register


def emit_elementwise(
    row: ElementwiseLowering, op: ir.Operation, src: tuple[Elem, ...], dst: Elem
) -> Callable[..., ir.Value]:
    """The row applied to one operation: `f(b, args) -> value`."""
    emit = row.emit
    if row.rounds and dst.narrow:
        return lambda b, args: round_to(b, emit(b, op, args, src, dst), dst)
    return lambda b, args: emit(b, op, args, src, dst)


def int_attribute(op: ir.Operation, name: str, default: int | None = None) -> int:
    """An integer (or enumeration) attribute of `op`."""
    if name in op.attributes:
        return ir.IntegerAttr(op.attributes[name]).value
    if default is None:
        raise KeyError(name)
    return default


# --- arith ------------------------------------------------------------------------------------------------------


def _same(b, op, a, src, dst):
    return b.create(op.name, [dst.carrier], a).results[0]


for _name in ("addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "maxui", "minsi", "minui"):
    ELEMENTWISE[f"arith.{_name}"] = ElementwiseLowering(_same, 0)


@elementwise("arith.shli", "arith.shrsi", "arith.shrui", cost=0)
def _shift(b, op, a, src, dst):
    """By the width or more: 0, or the sign in every bit, as on GPUs; in LLVM it is poison."""
    type, (value, amount) = dst.carrier, a
    last = b.constant(type, dst.bits - 1)
    within = b.cmpi("ule", amount, last)
    shifted = b.op(op.name, type, value, b.select(within, amount, last, type))
    return shifted if op.name == "arith.shrsi" else b.select(within, shifted, b.constant(type, 0), type)


for _name in ("addf", "subf", "mulf"):
    ELEMENTWISE[f"arith.{_name}"] = ElementwiseLowering(_same, 1, rounds=True)
for _name in ("divf", "remf"):
    ELEMENTWISE[f"arith.{_name}"] = ElementwiseLowering(_same, 6, rounds=True)
for _name in ("negf", "maxnumf", "minnumf", "maximumf", "minimumf"):
    ELEMENTWISE[f"arith.{_name}"] = ElementwiseLowering(_same, 1)


@elementwise("arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.floordivsi", "arith.ceildivsi",
             "arith.ceildivui", cost=8)  # fmt: skip
def _divide(b, op, a, src, dst):
    """Division never traps: as on a GPU, dividing by zero, or the least integer by -1, gives an unspecified number."""
    type, bits = dst.carrier, dst.bits
    b.scalar_only += 1
    divisor = a[1]
    bad = b.cmpi("eq", divisor, b.constant(type, 0))
    if not op.name.endswith("ui"):
        least = b.cmpi("eq", a[0], b.constant(type, 1 << (bits - 1)))
        minus = b.cmpi("eq", divisor, b.constant(type, -1))
        bad = b.binary("arith.ori", bad, b.binary("arith.andi", least, minus, "i1"), "i1")
    return b.binary(op.name, a[0], b.select(bad, b.constant(type, 1), divisor, type), type)


@elementwise("arith.cmpi", cost=0)
def _cmpi(b, op, a, src, dst):
    return b.create("arith.cmpi", ["i1"], a, {"predicate": op.attributes["predicate"]}).results[0]


@elementwise("arith.cmpf")
def _cmpf(b, op, a, src, dst):
    return b.create("arith.cmpf", ["i1"], a, {"predicate": op.attributes["predicate"]}).results[0]


@elementwise("arith.select", cost=0.5)
def _select(b, op, a, src, dst):
    return b.select(a[0], a[1], a[2], dst.carrier)


@elementwise("arith.extsi", "arith.extui", "arith.trunci", cost=0)
def _resize(b, op, a, src, dst):
    return b.op(op.name, dst.carrier, a[0])


@elementwise("arith.extf")
def _extf(b, op, a, src, dst):
    return a[0] if dst.carrier == src[0].carrier else b.op("arith.extf", dst.carrier, a[0])


@elementwise("arith.truncf", "tt.fp_to_fp", cost=3)
def _narrow(b, op, a, src, dst):
    if dst.bits > src[0].bits:
        return _extf(b, op, a, src, dst)
    value = b.op("arith.truncf", "f32", a[0]) if src[0].bits == 64 and dst.bits < 64 else a[0]
    to_zero = op.name == "tt.fp_to_fp" and int_attribute(op, "rounding", 1) == 0
    return round_to(b, value, dst, nearest=not to_zero)


@elementwise("arith.sitofp", "arith.uitofp", rounds=True)
def _int_to_float(b, op, a, src, dst):
    return b.op(op.name, dst.carrier, a[0])


@elementwise("arith.fptosi", "arith.fptoui", cost=2)
def _float_to_int(b, op, a, src, dst):
    """Out of range goes to the nearest integer of at least 32 bits and NaN to 0, as the GPU's conversion does."""
    bits = max(dst.bits, 32)
    name = "llvm.fptosi.sat" if op.name.endswith("si") else "llvm.fptoui.sat"
    return b.resize(b.intrinsic(name, f"i{bits}", a[0]), bits, dst.bits)


@elementwise("arith.bitcast", "tt.bitcast", cost=0.5)
def _bitcast(b, op, a, src, dst):
    return a[0] if src[0].carrier == dst.carrier == "!llvm.ptr" else from_bits(b, to_bits(b, a[0], src[0]), dst)


# --- math -------------------------------------------------------------------------------------------------------

for _name in ("absf", "floor", "ceil", "trunc", "round", "roundeven", "copysign"):
    ELEMENTWISE[f"math.{_name}"] = ElementwiseLowering(_same, 1)
for _name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "tanh", "sinh",
              "cosh", "atan", "asin", "acos", "atan2", "powf", "cbrt"):  # fmt: skip
    ELEMENTWISE[f"math.{_name}"] = ElementwiseLowering(_same, EXPENSIVE, rounds=True)
ELEMENTWISE["math.fma"] = ElementwiseLowering(_same, 1, rounds=True)
ELEMENTWISE["math.absi"] = ElementwiseLowering(_same, 0)
ELEMENTWISE["math.ctpop"] = ELEMENTWISE["math.ctlz"] = ELEMENTWISE["math.cttz"] = ElementwiseLowering(_same, 1)


@elementwise("math.rsqrt", cost=12, rounds=True)
def _rsqrt(b, op, a, src, dst):
    return b.binary("arith.divf", b.constant(dst.carrier, 1.0), b.op("math.sqrt", dst.carrier, a[0]), dst.carrier)


@elementwise("math.erf", cost=EXPENSIVE, rounds=True)
def _erf(b, op, a, src, dst):
    return call_libm(b, "erf", a, dst)


def call_libm(b: Builder, name: str, args: list[ir.Value], dst: Elem) -> ir.Value:
    """Call the C library's function of that name, for f64 or (with an f behind the name) for f32."""
    symbol = name if dst.carrier == "f64" else name + "f"
    return b.call(symbol, args, [dst.carrier])[0]


# --- tt ---------------------------------------------------------------------------------------------------------


@elementwise("tt.addptr", cost=0)
def _addptr(b, op, a, src, dst):
    return b.gep(a[0], b.resize(a[1], src[1].bits, 64), dst.pointee.memory)


@elementwise("tt.int_to_ptr", cost=0)
def _int_to_ptr(b, op, a, src, dst):
    return b.op("llvm.inttoptr", "!llvm.ptr", a[0])


@elementwise("tt.ptr_to_int", cost=0)
def _ptr_to_int(b, op, a, src, dst):
    return b.op("llvm.ptrtoint", dst.carrier, a[0])


@elementwise("tt.mulhiui", cost=2)
def _mulhiui(b, op, a, src, dst):
    wide = f"i{2 * dst.bits}"
    factors = [b.op("arith.extui", wide, v) for v in a]
    product = b.op("arith.muli", wide, *factors)
    return b.op("arith.trunci", dst.carrier, b.op("arith.shrui", wide, product, b.constant(wide, dst.bits)))


@elementwise("tt.clampf", cost=2)
def _clampf(b, op, a, src, dst):
    # propagateNan is Triton's: 0 none, 0xffff all.
    high, low = ("arith.maximumf", "arith.minimumf") if int_attribute(op, "propagateNan", 0) else (
        "arith.maxnumf", "arith.minnumf")  # fmt: skip
    return b.op(low, dst.carrier, b.op(high, dst.carrier, a[0], a[1]), a[2])


@elementwise("tt.precise_sqrt", cost=8, rounds=True)
def _precise_sqrt(b, op, a, src, dst):
    return b.op("math.sqrt", dst.carrier, a[0])


@elementwise("tt.precise_divf", "tt.approx_divf", cost=6, rounds=True)
def _divf(b, op, a, src, dst):
    return b.op("arith.divf", dst.carrier, *a)


# --- device math libraries --------------------------------------------------------------------------------------

# Names of CUDA's libdevice (__nv_X, __nv_Xf) and AMD's ocml (__ocml_X_f32) that the C library has as X, Xf.
_LIBM = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim floor "
    "fma fmax fmin fmod hypot j0 j1 lgamma log log10 log1p log2 logb nearbyint nextafter pow remainder rint round "
    "rsqrt sin sinh sqrt tan tanh tgamma trunc y0 y1".split()
)


def device_math(symbol: str) -> str | None:
    """The C library's name for a device math function, without the f32 suffix; None if it is not one."""
    if symbol.startswith("__nv_"):
        name = symbol[len("__nv_") :]
        for stem in (name, name[:-1] if name.endswith("f") else name):
            if stem in _LIBM:
                return stem
    elif symbol.startswith("__ocml_"):
        stem = symbol[len("__ocml_") :].rsplit("_", 1)[0]
        return stem if stem in _LIBM else None
    return None


@elementwise("tt.extern_elementwise", cost=EXPENSIVE)
def _extern(b, op, a, src, dst):
    symbol = ir.StringAttr(op.attributes["symbol"]).value
    name = device_math(symbol)
    if name is None:
        return device_functions.find(symbol)(b, a, src, dst)
    return _rsqrt(b, op, a, src, dst) if name == "rsqrt" else call_libm(b, name, a, dst)


@elementwise("tt.elementwise_inline_asm", cost=EXPENSIVE)
def _instruction(b, op, a, src, dst):
    return inline_ptx.find(op)(b, a, dst)
