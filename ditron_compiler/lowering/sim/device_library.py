"""Functions of CUDA's libdevice that are called, not written out: the machine's (runtime/sim/abi/libdevice.h) and some
of the C library's that are no plain function of floats; and those that take words apart.
"""

from __future__ import annotations

from ditron_compiler import ir

from .builder import Builder
from .device_functions import Emit, define

# --- special functions ------------------------------------------------------------------------------------------


def _in_f64(symbol: str, scale: float = 1.0, of: float = 1.0) -> Emit:
    """scale * symbol(of * x), in f64."""

    def emit(b, a, src, dst):
        x = a[0] if dst.bits == 64 else b.op("arith.extf", "f64", a[0])
        x = x if of == 1.0 else b.op("arith.mulf", "f64", x, b.constant("f64", of))
        value = b.call(f"ditron_sim_{symbol}", [x], ["f64"])[0]
        value = value if scale == 1.0 else b.op("arith.mulf", "f64", value, b.constant("f64", scale))
        return value if dst.bits == 64 else b.op("arith.truncf", "f32", value)

    return emit


for _stem in ("erfinv", "erfcinv", "erfcx", "cyl_bessel_i0", "cyl_bessel_i1"):
    define(_stem, _in_f64(_stem))
define("normcdfinv", _in_f64("erfcinv", -1.4142135623730951, 2.0))
define("jn", lambda b, a, src, dst: b.call("jn" if dst.bits == 64 else "jnf", a, [dst.carrier])[0])
define("yn", lambda b, a, src, dst: b.call("yn" if dst.bits == 64 else "ynf", a, [dst.carrier])[0])
define("ilogb ilogbf", lambda b, a, src, dst: b.call("ilogb" if src[0].bits == 64 else "ilogbf", a, ["i32"])[0])

# --- other directions of rounding -------------------------------------------------------------------------------

_OPERATIONS = {"add": 0, "sub": 1, "mul": 2, "div": 3, "fma": 4, "sqrt": 5}


def _rounded(operation: str, direction: int, reciprocal: bool = False) -> Emit:
    def emit(b, a, src, dst):
        operands = [b.constant(dst.carrier, 1.0), *a] if reciprocal else list(a)
        operands += [b.constant(dst.carrier, 0.0)] * (3 - len(operands))
        how = [b.constant("i32", _OPERATIONS[operation]), b.constant("i32", direction)]
        return b.call(f"ditron_sim_rounded_f{dst.bits}", [*how, *operands], [dst.carrier])[0]

    return emit


def _from_double(direction: int) -> Emit:
    return lambda b, a, src, dst: b.call("ditron_sim_rounded_to_f32", [b.constant("i32", direction), a[0]], ["f32"])[0]


def _from_int(direction: int, signed: bool) -> Emit:
    def emit(b, a, src, dst):
        wide = b.resize(a[0], src[0].bits, 64, signed)
        operands = [b.constant("i32", direction), wide, b.constant("i32", int(signed))]
        return b.call(f"ditron_sim_rounded_int_to_f{dst.bits}", operands, [dst.carrier])[0]

    return emit


for _number, _short in enumerate(("rz", "rd", "ru")):
    for _name in ("add", "sub", "mul", "div", "sqrt"):
        define(f"f{_name}_{_short} d{_name}_{_short}", _rounded(_name, _number))
    define(f"fma_{_short} fmaf_{_short}", _rounded("fma", _number))
    define(f"frcp_{_short} drcp_{_short}", _rounded("div", _number, reciprocal=True))
    define(f"double2float_{_short}", _from_double(_number))
    for _source, _signed in (("int", True), ("uint", False), ("ll", True), ("ull", False)):
        define(f"{_source}2float_{_short} {_source}2double_{_short}", _from_int(_number, _signed))

# --- parts of words ---------------------------------------------------------------------------------------------


def _upper_or_lower(upper: bool) -> Emit:
    def emit(b, a, src, dst):
        bits = b.op("arith.bitcast", "i64", a[0])
        return b.resize(b.binary("arith.shrui", bits, b.constant("i64", 32), "i64") if upper else bits, 64, 32)

    return emit


def _joined(b: Builder, high: ir.Value, low: ir.Value) -> ir.Value:
    high, low = (b.resize(v, 32, 64, signed=False) for v in (high, low))
    return b.binary("arith.ori", b.binary("arith.shli", high, b.constant("i64", 32), "i64"), low, "i64")


def _byte_perm(b, a, src, dst):
    """Four of the eight bytes of x and y, each named by three bits of a nibble of the selector."""
    bytes8, selector = _joined(b, a[1], a[0]), b.resize(a[2], 32, 64, signed=False)
    result = b.constant("i64", 0)
    for place in range(4):
        nibble = b.binary("arith.shrui", selector, b.constant("i64", 4 * place), "i64")
        shift = b.binary("arith.muli", b.binary("arith.andi", nibble, b.constant("i64", 7), "i64"),
                         b.constant("i64", 8), "i64")  # fmt: skip
        byte = b.binary("arith.andi", b.binary("arith.shrui", bytes8, shift, "i64"), b.constant("i64", 255), "i64")
        result = b.binary("arith.ori", result, b.binary("arith.shli", byte, b.constant("i64", 8 * place), "i64"), "i64")
    return b.resize(result, 64, 32)


define("double2hiint", _upper_or_lower(True))
define("double2loint", _upper_or_lower(False))
define("hiloint2double", lambda b, a, src, dst: b.op("arith.bitcast", "f64", _joined(b, *a)))
define("byte_perm", _byte_perm)
