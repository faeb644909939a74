"""Constants, ranges and operations that only move elements: lazy tiles with another index."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ditron_compiler import ir

from .elementwise import int_attribute
from .function import FunctionLowering, Unsupported, lowers
from .nest import Indices, LoopIndex, LoopNest
from .tiles import ComputedTile, RangeTile, ReindexedTile, SplatTile, Tile


def view(
    shape: tuple[int, ...], source: Tile, index: Callable[[LoopNest, Indices], Indices], moves: bool = True
) -> Tile:
    """`source` under another index; a splat stays one."""
    if isinstance(source, SplatTile):
        return SplatTile(shape, source.elem, source.value, source.number)
    return ReindexedTile(shape, source, index, moves)


@lowers("arith.constant")
def _constant(fn: FunctionLowering, op: ir.Operation) -> None:
    type = fn.type_of(op.results[0], op)
    value = op.attributes["value"]
    if type.shape is None:
        fn.set(op, fn.b.constant(type.elem.carrier, number_of(value)))
        return
    dense = ir.DenseElementsAttr(value)
    if not dense.is_splat:
        raise Unsupported(op, "the simulator has no lowering of a constant tile whose elements differ")
    number = number_of(dense.get_splat_value())
    fn.set(op, SplatTile(type.shape, type.elem, fn.b.constant(type.elem.carrier, number), number))


@lowers("tt.make_range")
def _make_range(fn: FunctionLowering, op: ir.Operation) -> None:
    type = fn.type_of(op.results[0], op)
    fn.set(op, RangeTile(type.shape, type.elem, int_attribute(op, "start")))


@lowers("tt.splat")
def _splat(fn: FunctionLowering, op: ir.Operation) -> None:
    type = fn.type_of(op.results[0], op)
    fn.set(op, SplatTile(type.shape, type.elem, fn.scalar(op.operands[0])))


@lowers("tt.unsplat")
def _unsplat(fn: FunctionLowering, op: ir.Operation) -> None:
    tile = fn.tile(op.operands[0])
    with fn.nest() as nest:
        fn.set(op, nest.element(tile, (0,) * len(tile.shape)))


@lowers("tt.expand_dims")
def _expand_dims(fn: FunctionLowering, op: ir.Operation) -> None:
    axis = int_attribute(op, "axis")
    shape = fn.type_of(op.results[0], op).shape
    fn.bind(op, view(shape, fn.tile(op.operands[0]), lambda nest, idx: idx[:axis] + idx[axis + 1 :]))


@lowers("tt.broadcast")
def _broadcast(fn: FunctionLowering, op: ir.Operation) -> None:
    source, shape = fn.tile(op.operands[0]), fn.type_of(op.results[0], op).shape
    have = source.shape

    def index(nest: LoopNest, idx: Indices) -> Indices:
        return tuple(0 if n == 1 else i for i, n in zip(idx, have, strict=True))

    fn.bind(op, view(shape, source, index))


@lowers("tt.trans")
def _trans(fn: FunctionLowering, op: ir.Operation) -> None:
    order = list(ir.DenseI32ArrayAttr(op.attributes["order"]))
    shape = fn.type_of(op.results[0], op).shape
    inverse = [order.index(d) for d in range(len(order))]
    fn.bind(op, view(shape, fn.tile(op.operands[0]), lambda nest, idx: tuple(idx[k] for k in inverse)))


@lowers("tt.reshape")
def _reshape(fn: FunctionLowering, op: ir.Operation) -> None:
    source, shape = fn.tile(op.operands[0]), fn.type_of(op.results[0], op).shape
    groups = reshape_groups(source.shape, shape)
    fn.bind(op, view(shape, source, lambda nest, idx: regroup(nest, idx, groups), moves=False))


def reshape_groups(have: tuple[int, ...], want: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cut both shapes into runs of equal size: only inside a run does an index need arithmetic."""
    groups, i, j = [], 0, 0
    while i < len(have) or j < len(want):
        a, b = [], []
        while True:
            if (prod(a) <= prod(b) and i < len(have)) or j == len(want):
                a.append(have[i])
                i += 1
            else:
                b.append(want[j])
                j += 1
            if prod(a) == prod(b) and ((a and b) or i == len(have) or j == len(want)):
                break
        groups.append((tuple(a), tuple(b)))
    return groups


def regroup(nest: LoopNest, idx: Indices, groups) -> Indices:
    result: list[LoopIndex | int] = []
    at = 0
    for have, want in groups:
        part = idx[at : at + len(want)]
        at += len(want)
        significant = [(i, n) for i, n in zip(part, want, strict=True) if n != 1]
        if len([n for n in have if n != 1]) == 1 and len(significant) == 1:
            result += [significant[0][0] if n != 1 else 0 for n in have]
            continue
        linear = nest.linear(part, [prod(want[k + 1 :]) for k in range(len(want))])
        first = True
        for k, n in enumerate(have):
            digit = nest.div(linear, prod(have[k + 1 :]))
            result.append(digit if first or n == 1 else nest.rem(digit, n))
            first = first and n == 1
            if n == 1:
                result[-1] = 0
    return tuple(result)


@lowers("tt.join")
def _join(fn: FunctionLowering, op: ir.Operation) -> None:
    left, right = (fn.tile(v) for v in op.operands)
    shape = (*left.shape, 2)

    def emit(nest: LoopNest, idx: Indices) -> ir.Value:
        if isinstance(idx[-1], int):
            return nest.element((left, right)[idx[-1]], idx[:-1])
        first = nest.b.cmpi("eq", idx[-1].value, nest.b.constant("i64", 0))
        values = [nest.element(t, idx[:-1]) for t in (left, right)]
        return nest.b.select(first, *values, left.elem.carrier)

    fn.bind(op, ComputedTile(shape, left.elem, emit, (left, right)))


@lowers("tt.split")
def _split(fn: FunctionLowering, op: ir.Operation) -> None:
    source = fn.tile(op.operands[0])
    for number, result in enumerate(op.results):
        half = view(source.shape[:-1], source, lambda nest, idx, number=number: (*idx, number))
        fn.env[result] = fn.materialize_if_cheaper(op, result, half)


@lowers("tt.cat")
def _cat(fn: FunctionLowering, op: ir.Operation) -> None:
    left, right = (fn.materialize(fn.tile(v)) for v in op.operands)
    cut = left.shape[0]

    def emit(nest: LoopNest, idx: Indices) -> ir.Value:
        b = nest.b
        i = nest.value(idx[0])
        first = b.cmpi("slt", i, b.constant("i64", cut))
        # Either side is read inside its bounds; the select drops the other.
        at = nest.index_of(b.select(first, i, b.constant("i64", 0), "i64"), idx)
        over = b.binary("arith.subi", i, b.constant("i64", cut), "i64")
        behind = nest.index_of(b.select(first, b.constant("i64", 0), over, "i64"), idx)
        values = [nest.element(left, (at, *idx[1:])), nest.element(right, (behind, *idx[1:]))]
        return b.select(first, *values, left.elem.carrier)

    fn.bind(op, ComputedTile((cut + right.shape[0], *left.shape[1:]), left.elem, emit, (left, right)))


@lowers("tt.gather")
def _gather(fn: FunctionLowering, op: ir.Operation) -> None:
    source, indices = fn.materialize(fn.tile(op.operands[0])), fn.tile(op.operands[1])
    axis = int_attribute(op, "axis")
    size = source.shape[axis]

    def emit(nest: LoopNest, idx: Indices) -> ir.Value:
        b = nest.b
        wide = b.resize(nest.element(indices, idx), indices.elem.bits, 64)
        # An index outside the tile has no meaning; it must only not read outside the buffer.
        inside = b.cmpi("ult", wide, b.constant("i64", size))
        at = nest.index_of(b.select(inside, wide, b.constant("i64", 0), "i64"), idx)
        return nest.element(source, (*idx[:axis], at, *idx[axis + 1 :]))

    fn.bind(op, ComputedTile(indices.shape, source.elem, emit, (source, indices)))


def number_of(value) -> int | float:
    """A constant's Python number."""
    return value.value if hasattr(value, "value") else value
