"""tt.reduce, tt.scan and tt.histogram: loops along one axis around the combine region."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ditron_compiler import ir

from .elementwise import int_attribute
from .function import FunctionLowering, lowers
from .nest import Index
from .tiles import Indices, Splat, Tile


class Combine:
    """The operands of a reduction or scan, and its region as a function of scalars."""

    def __init__(self, fn: FunctionLowering, op: ir.Operation):
        self.fn, self.op = fn, op
        self.inputs: list[Tile] = [fn.tile(v) for v in op.operands]
        self.axis = int_attribute(op, "axis")
        self.shape = self.inputs[0].shape
        self.size = self.shape[self.axis]
        self.rest = self.shape[: self.axis] + self.shape[self.axis + 1 :]
        self.block = op.regions[0].blocks[0]
        self.types = [t.elem.carrier for t in self.inputs]

    def at(self, idx: Indices, position: Index | int) -> Indices:
        """The full index: `idx` over the other dimensions, `position` along the axis."""
        return (*idx[: self.axis], position, *idx[self.axis :])

    def __call__(self, left: Sequence[ir.Value], right: Sequence[ir.Value]) -> list[ir.Value]:
        fn = self.fn
        for argument, value in zip(self.block.arguments, [*left, *right], strict=True):
            fn.env[argument] = value
        last = fn.lower_block(self.block)
        return [fn.scalar(v) for v in last.operands]


@lowers("tt.reduce")
def _reduce(fn: FunctionLowering, op: ir.Operation) -> None:
    combine = Combine(fn, op)
    # With nothing beside it the axis is contiguous wherever it stands, and as a column it would be the innermost loop,
    # which is taken to be free of dependences.
    if combine.axis == len(combine.shape) - 1 or prod(combine.rest) == 1:
        _reduce_rows(fn, op, combine)
    else:
        _reduce_columns(fn, op, combine)


def _reduce_rows(fn: FunctionLowering, op: ir.Operation, combine: Combine) -> None:
    """Along the contiguous axis: the partial results are scalars."""
    scalar = not combine.rest
    out = [] if scalar else [fn.new_buffer(combine.rest, t.elem) for t in combine.inputs]
    with fn.nest(combine.rest) as nest:
        values = [nest.element(t, combine.at(nest.idx, 0)) for t in combine.inputs]
        if combine.size > 1:
            outer = nest.idx
            position, *partial = nest.carry(combine.size, values, combine.types, start=1)
            here = [nest.element(t, combine.at(outer, position)) for t in combine.inputs]
            values = nest.close(combine(partial, here))
        for buffer, value in zip(out, values, strict=not scalar):
            nest.store(buffer, value)
    fn.set(op, *(values if scalar else out))


def _reduce_columns(fn: FunctionLowering, op: ir.Operation, combine: Combine) -> None:
    """Along an outer axis: a row of partial results in a buffer, so that the inner loop stays contiguous."""
    out = [fn.new_buffer(combine.rest, t.elem) for t in combine.inputs]
    with fn.nest(combine.rest) as nest:
        for buffer, tile in zip(out, combine.inputs, strict=True):
            nest.store(buffer, nest.element(tile, combine.at(nest.idx, 0)))
    with fn.nest() as nest:
        position = nest.carry(combine.size, [], [], start=1)[0]
        idx = tuple(nest.loop(n) for n in combine.rest)
        partial = [nest.element(buffer, idx) for buffer in out]
        here = [nest.element(t, combine.at(idx, position)) for t in combine.inputs]
        for buffer, value in zip(out, combine(partial, here), strict=True):
            nest.store(buffer, value, idx)
    fn.set(op, *out)


@lowers("tt.scan")
def _scan(fn: FunctionLowering, op: ir.Operation) -> None:
    combine = Combine(fn, op)
    backwards = "reverse" in op.attributes and ir.BoolAttr(op.attributes["reverse"]).value
    out = [fn.new_buffer(combine.shape, t.elem) for t in combine.inputs]
    first = combine.size - 1 if backwards else 0
    with fn.nest(combine.rest) as nest:
        outer = nest.idx
        values = [nest.element(t, combine.at(outer, first)) for t in combine.inputs]
        for buffer, value in zip(out, values, strict=True):
            nest.store(buffer, value, combine.at(outer, first))
        if combine.size > 1:
            position, *partial = nest.carry(combine.size, values, combine.types, start=1)
            if backwards:
                position = nest.sub_from(combine.size - 1, position)
            here = [nest.element(t, combine.at(outer, position)) for t in combine.inputs]
            values = combine(partial, here)
            for buffer, value in zip(out, values, strict=True):
                nest.store(buffer, value, combine.at(outer, position))
            nest.close(values)
    fn.set(op, *out)


@lowers("tt.histogram")
def _histogram(fn: FunctionLowering, op: ir.Operation) -> None:
    source = fn.tile(op.operands[0])
    mask = fn.tile(op.operands[1]) if len(op.operands) > 1 else None
    result = fn.type_of(op.results[0], op)
    bins = fn.new_buffer(result.shape, result.elem)
    b, carrier = fn.b, result.elem.carrier
    fn.fill(bins, Splat(result.shape, result.elem, b.constant(carrier, 0)))
    with fn.nest(source.shape) as nest:
        b.scalar_only += 1  # two elements may be counted in one bin
        wide = b.resize(nest.element(source), source.elem.bits, 64)
        inside = b.cmpi("ult", wide, b.constant("i64", result.shape[0]))
        if mask is not None:
            inside = b.binary("arith.andi", inside, nest.element(mask), "i1")
        # A value that is not counted adds 0 to the first bin.
        at = (nest.index_of(b.select(inside, wide, b.constant("i64", 0), "i64"), nest.idx),)
        count = b.resize(inside, 1, result.elem.bits, signed=False)
        nest.store(bins, b.binary("arith.addi", bins.at(nest, at), count, carrier), at)
    fn.set(op, bins)


