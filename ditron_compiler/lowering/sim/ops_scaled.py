"""tl.dot_scaled: microscaling formats, by decoding the operands and multiplying them in f32.

Exact: a power of two times a number of at most 11 bits, as on GPUs that have no such instruction and decode to bf16.
"""

from __future__ import annotations

from ditron_compiler import ir

from .elementwise import int_attribute
from .function import FunctionLowering, Unsupported, lowers
from .nest import Indices, LoopNest
from .ops_dot import multiply
from .rounding import from_bits
from .tiles import Tile, TileBuffer
from .types import F32, Elem

_E2M1 = 4  # Triton's ScaleDotElemType
_FLOATS = {0: "f8E4M3FN", 1: "f8E5M2", 5: "bf16", 6: "f16"}


@lowers("tt.dot_scaled")
def _dot_scaled(fn: FunctionLowering, op: ir.Operation) -> None:
    given = iter(op.operands)
    sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    left, right, start, left_scale, right_scale = [next(given) if size else None for size in sizes]
    a = _decode(fn, op, left, left_scale, "a_elem_type", "lhs_k_pack", along=-1)
    b = _decode(fn, op, right, right_scale, "b_elem_type", "rhs_k_pack", along=-2)
    fn.set(op, multiply(fn, op, a, b, fn.tile(start), "ditron_sim_dot_f32", accumulator=2))


def _decode(fn: FunctionLowering, op: ir.Operation, value: ir.Value, scale: ir.Value | None, kind: str, packed: str,
            along: int) -> TileBuffer:  # fmt: skip
    """The operand's numbers, scaled, in an f32 buffer. `along`: the dimension that is summed over."""
    tile = fn.tile(value)
    number = int_attribute(op, kind)
    if number != _E2M1 and number not in _FLOATS:
        raise Unsupported(op, f"the simulator has no dot_scaled of Triton's element type {number}")
    by_k = ir.BoolAttr(op.attributes[packed]).value if packed in op.attributes else True
    rank = len(tile.shape)
    halved = (along if by_k else -3 - along) % rank if number == _E2M1 else None
    shape = tuple(n * 2 if d == halved else n for d, n in enumerate(tile.shape))
    scales = None if scale is None else fn.tile(scale)
    block = 0 if scales is None else shape[along] // scales.shape[-1]
    scale_elem = None if scale is None else fn.type_of(scale, op).elem
    buffer = fn.new_buffer(shape, F32)
    with fn.nest(shape) as nest:
        if halved is None:
            element = nest.element(tile)
            if tile.elem.kind == "int":
                element = from_bits(fn.b, element, Elem(_FLOATS[number], "float", 8))
        else:
            element = _nibble(nest, tile, halved)
        if scales is not None:
            # The scales of both operands have the summed dimension last.
            other = nest.idx[-2] if along == -1 else nest.idx[-1]
            place = (*nest.idx[:-2], other, nest.div(nest.idx[along], block))
            element = fn.b.binary("arith.mulf", element, _scale(nest, scales, place, scale_elem), "f32")
        nest.store(buffer, element)
    return buffer


def _nibble(nest: LoopNest, tile: Tile, halved: int):
    """A number of e2m1, of which two lie in a byte, the first in the low half."""
    b, index = nest.b, nest.idx[halved]
    byte = nest.element(tile, (*nest.idx[:halved], nest.div(index, 2), *nest.idx[halved + 1 :]))
    bits = b.op("arith.extui", "i32", byte)
    c = lambda v: b.constant("i32", v)  # noqa: E731
    shift = b.resize(nest.value(nest.mul(nest.rem(index, 2), 4)), 64, 32)
    code = b.binary("arith.andi", b.binary("arith.shrui", bits, shift, "i32"), c(15), "i32")
    sign = b.binary("arith.shli", b.binary("arith.andi", code, c(8), "i32"), c(28), "i32")
    # Exponent and mantissa, put where an f32 has them, are a number 2**126 too small; 0.5, their denormal, included.
    size = b.op("arith.bitcast", "f32", b.binary("arith.shli", b.binary("arith.andi", code, c(7), "i32"), c(22), "i32"))
    size = b.binary("arith.mulf", size, b.constant("f32", 2.0**126), "f32")
    return b.op("arith.bitcast", "f32", b.binary("arith.ori", b.op("arith.bitcast", "i32", size), sign, "i32"))


def _scale(nest: LoopNest, scales: Tile, place: Indices, elem: Elem):
    """2 ** (e8m0 - 127), which is NaN for 255; a scale that is a float is itself."""
    b, value = nest.b, nest.element(scales, place)
    if elem.kind == "float":
        return value
    c = lambda v: b.constant("i32", v)  # noqa: E731
    bits = b.op("arith.extui", "i32", value)
    wide = b.binary("arith.shli", bits, c(23), "i32")
    wide = b.select(b.cmpi("eq", bits, c(0)), c(0x00400000), wide, "i32")
    wide = b.select(b.cmpi("eq", bits, c(255)), c(0x7FC00000), wide, "i32")
    return b.op("arith.bitcast", "f32", wide)
