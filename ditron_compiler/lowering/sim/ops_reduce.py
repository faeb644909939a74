"""tt.reduce, tt.scan and tt.histogram: loops along one axis around the combine region.

Sums and products of floats are made as a GPU's threads make them, many partial results and then a tree: in bf16 a sum
of 1024 ones one after the other would be 256.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ditron_compiler import ir

from .elementwise import int_attribute
from .function import FunctionLowering, lowers
from .nest import WIDTH, Indices, LoopIndex
from .tiles import SplatTile, Tile


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

    def is_float_sum(self) -> bool:
        """Whether it is a sum or a product of floats: the order is free, and matters for how exact it is."""
        names = [op.name for op in self.block.operations]
        return len(names) == 2 and names[0] in ("arith.addf", "arith.mulf")

    def at(self, idx: Indices, position: LoopIndex | int) -> Indices:
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
    rows = combine.axis == len(combine.shape) - 1 or prod(combine.rest) == 1
    # By columns it is the slower way, and in 32 bits a column is short enough for the other.
    if combine.is_float_sum() and combine.size >= 2 * WIDTH and (rows or combine.inputs[0].elem.bits < 32):
        _reduce_tree(fn, op, combine)
    elif rows or combine.size == 2:
        _reduce_rows(fn, op, combine)
    else:
        _reduce_columns(fn, op, combine)


def _reduce_rows(fn: FunctionLowering, op: ir.Operation, combine: Combine) -> None:
    """Along the contiguous axis, or one of two elements: the partial results are scalars."""
    scalar = not combine.rest
    out = [] if scalar else [fn.new_buffer(combine.rest, t.elem) for t in combine.inputs]
    with fn.nest(combine.rest) as nest:
        values = [nest.element(t, combine.at(nest.idx, 0)) for t in combine.inputs]
        if combine.size == 2:  # as in a sort, of which there are many
            values = combine(values, [nest.element(t, combine.at(nest.idx, 1)) for t in combine.inputs])
        elif combine.size > 2:
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
        idx = nest.loops(combine.rest)
        partial = [nest.element(buffer, idx) for buffer in out]
        here = [nest.element(t, combine.at(idx, position)) for t in combine.inputs]
        for buffer, value in zip(out, combine(partial, here), strict=True):
            nest.store(buffer, value, idx)
    fn.set(op, *out)


THREADS = 128  # partial results that are made side by side: Triton's default of four warps


def _reduce_tree(fn: FunctionLowering, op: ir.Operation, combine: Combine) -> None:
    """Many partial results side by side, each of every so many elements; then by halves until one is left."""
    lanes = min(THREADS, combine.size // 2)
    buffer = fn.new_buffer((lanes,), combine.inputs[0].elem)
    out = fn.new_buffer(combine.rest, buffer.elem) if combine.rest else None
    with fn.nest(combine.rest) as nest:
        outer, tile = nest.idx, combine.inputs[0]

        def add(lane: LoopIndex | int, value: ir.Value) -> None:
            nest.store(buffer, combine([buffer.at(nest, (lane,))], [value])[0], (lane,))

        lane = nest.loop(lanes)
        nest.store(buffer, nest.element(tile, combine.at(outer, lane)), (lane,))
        nest.close()
        step = nest.carry(combine.size, [], [], start=lanes, step=lanes)[0]
        lane = nest.loop(lanes)
        add(lane, nest.element(tile, combine.at(outer, nest.add(step, lane))))
        nest.close()
        nest.close()
        while lanes > 1:
            lanes //= 2
            lane = nest.carry(lanes, [], [])[0]
            add(lane, buffer.at(nest, (nest.add(lane, lanes),)))
            nest.close()
        value = buffer.at(nest, (0,))
        if out is not None:
            nest.store(out, value)
    fn.set(op, value if out is None else out)


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
    fn.fill(bins, SplatTile(result.shape, result.elem, b.constant(carrier, 0)))
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
