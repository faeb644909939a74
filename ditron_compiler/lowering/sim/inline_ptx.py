"""Inline assembly of one PTX instruction that does arithmetic on f32, which is how kernels ask for `tanh.approx`.

`find(op)` is `emit(b, arguments, dst) -> value`, one element's computation, or None when the assembly is anything else.
The approximations are computed like the functions that they approximate; numbers below the normal ones are kept, which
`.ftz` would flush.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ditron_compiler import ir

from .builder import Builder
from .rounding import round_to
from .types import Elem

Emit = Callable[[Builder, list[ir.Value], Elem], ir.Value]

# One instruction on the results and operands in their order, perhaps in braces.
_ONE = re.compile(r"\s*\{?\s*([a-z][\w.]*)\s+\$0((?:\s*,\s*\$\d)+)\s*;?\s*\}?\s*")
_PACKED_FP8 = re.compile(r"cvt\.rn\.satfinite\.(e4m3|e5m2)x2\.f32")
_NAMES = {"e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}
_MODIFIERS = r"(?:\.(?:approx|rn|full))?(?:\.ftz)?\.f32"


def _op(name: str) -> Emit:
    return lambda b, a, dst: b.op(name, dst.carrier, *a)


def _one_over(name: str | None) -> Emit:
    def emit(b, a, dst):
        value = a[0] if name is None else b.op(name, dst.carrier, a[0])
        return b.binary("arith.divf", b.constant(dst.carrier, 1.0), value, dst.carrier)

    return emit


# Instruction -> number of operands, computation.
_FLOAT: dict[str, tuple[int, Emit]] = {
    "mov": (1, lambda b, a, dst: a[0]), "rcp": (1, _one_over(None)), "rsqrt": (1, _one_over("math.sqrt")),
    **{ptx: (1, _op(f"math.{name}")) for ptx, name in (
        ("tanh", "tanh"), ("ex2", "exp2"), ("lg2", "log2"), ("sin", "sin"), ("cos", "cos"), ("sqrt", "sqrt"),
        ("abs", "absf"))},
    "neg": (1, _op("arith.negf")), "fma": (3, _op("math.fma")),
    **{ptx: (2, _op(f"arith.{name}")) for ptx, name in (
        ("add", "addf"), ("sub", "subf"), ("mul", "mulf"), ("div", "divf"), ("min", "minnumf"), ("max", "maxnumf"))},
}  # fmt: skip


def find(op: ir.Operation) -> Emit | None:
    """What computes this inline assembly; None when the simulator does not know it."""
    parts = _ONE.fullmatch(ir.StringAttr(op.attributes["asm_string"]).value)
    if parts is None or len(op.results) != 1:
        return None
    instruction, operands = parts[1], [int(number) for number in re.findall(r"\$(\d)", parts[2])]
    packed = ir.IntegerAttr(op.attributes["packed_element"]).value
    source = {_element(value) for value in op.operands}
    result = _element(op.results[0])
    fp8 = _PACKED_FP8.fullmatch(instruction)
    if fp8 is not None:  # the first operand becomes the upper byte, so the second element
        right = packed == 2 and operands == [2, 1] and source == {"f32"} and result == _NAMES[fp8[1]]
        return (lambda b, a, dst: round_to(b, a[0], dst)) if right else None
    stem = instruction.partition(".")[0]
    count, emit = _FLOAT.get(stem, (0, None))
    known = re.fullmatch(stem + _MODIFIERS, instruction) and operands == list(range(1, count + 1))
    return emit if known and packed == 1 and len(op.operands) == count and source | {result} == {"f32"} else None


def _element(value: ir.Value) -> str:
    """The element type of a scalar or a tile."""
    type = value.type
    return str(type.element_type if isinstance(type, ir.RankedTensorType) else type)
