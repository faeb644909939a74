"""tt.dot: the operands in row-major buffers, the product by the machine's matrix routine."""

from __future__ import annotations

from math import prod

from ditron_compiler import ir

from .function import FunctionLowering, Unsupported, lowers
from .rounding import round_to
from .tiles import ElementwiseTile, Tile, TileBuffer
from .types import F32, F64, I32, Elem

_ALIASES = ("ditron.consume_token", "scf.execute_region")  # their result is the operand's buffer


@lowers("tt.dot")
def _dot(fn: FunctionLowering, op: ir.Operation) -> None:
    left, right, start = (fn.tile(v) for v in op.operands)
    symbol, elem = _routine(op, left.elem, right.elem, start.elem)
    a, b = (_operand(fn, t, elem) for t in (left, right))
    fn.set(op, multiply(fn, op, a, b, start, symbol))


def multiply(fn: FunctionLowering, op: ir.Operation, a: TileBuffer, b: TileBuffer, start: Tile, symbol: str,
             accumulator: int = 2) -> TileBuffer:  # fmt: skip
    """`start` plus the product of `a` and `b` by the routine `symbol`; `start` is operand `accumulator` of `op`."""
    result = _accumulator(fn, op, start, accumulator)
    *batch, m, k = a.shape
    n = b.shape[-1]
    sizes = [fn.b.constant("i64", v) for v in (m, n, k, k, n, n)]
    with fn.nest(tuple(batch)) as nest:
        starts = [t.slot(nest, (*nest.idx, 0, 0)) if prod(batch) > 1 else t.address for t in (a, b, result)]
        fn.call(symbol, [*starts, *sizes])
    if result.elem.narrow:  # accumulated in f32, handed on as the narrow type
        with fn.nest(result.shape) as nest:
            nest.store(result, round_to(fn.b, nest.element(result), result.elem))
    return result


def _routine(op: ir.Operation, left: Elem, right: Elem, acc: Elem) -> tuple[str, Elem]:
    if left.kind == right.kind == "int" and acc.name == "i32":
        return "ditron_sim_dot_i32", I32
    if left.name == right.name == acc.name == "f64":
        return "ditron_sim_dot_f64", F64
    if all(e.kind == "float" and e.bits <= 32 for e in (left, right, acc)):
        return "ditron_sim_dot_f32", F32
    raise Unsupported(op, f"the simulator has no dot of {left.name} and {right.name} into {acc.name}")


def _operand(fn: FunctionLowering, tile: Tile, elem: Elem) -> TileBuffer:
    """`tile` in a buffer of `elem`'s carrier."""
    if tile.elem.carrier == elem.carrier:
        return fn.materialize(tile)
    bits = tile.elem.bits
    return fn.materialize(ElementwiseTile(elem, lambda b, v: b.resize(v[0], bits, elem.bits), (tile,), 0))


def _accumulator(fn: FunctionLowering, op: ir.Operation, start: Tile, number: int) -> TileBuffer:
    """A buffer that holds `start` and that the dot may overwrite: start's own when nobody else looks at it."""
    value = op.operands[number]
    home = value.owner if isinstance(value, ir.BlockArgument) else fn.analysis.block.get(value.owner)
    if isinstance(value, ir.OpResult) and value.owner.name in _ALIASES:
        home = None
    if isinstance(start, TileBuffer) and fn.analysis.used_once(value) and home == fn.analysis.block[op]:
        return start
    buffer = fn.new_buffer(start.shape, start.elem)
    fn.fill(buffer, start)
    return buffer
