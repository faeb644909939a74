"""scf.for, scf.while, scf.if and calls.

Scalars stay SSA values. A tile that a region hands on lives in a buffer of its own, written at the yield; a tile of
pointers or indices that only moves by a uniform amount (`ptrs += BLOCK * stride`) is carried as that amount.
"""

from __future__ import annotations

from ditron_compiler import ir

from .function import FunctionLowering, Lowered, Unsupported, lowers
from .tiles import DescriptorValue, ElementwiseTile, SplatTile, Tile, TileBuffer
from .types import I64, Elem

TOKEN, SCALAR, TILE, OFFSET, DESCRIPTOR = range(5)


class Carried:
    """One value that crosses a region boundary, and the scalars that stand for it there."""

    def __init__(self, fn: FunctionLowering, op: ir.Operation, value: ir.Value, start: Lowered = None):
        """`start`: what the value is at first; needed for descriptors (their static part) and offsets."""
        type = fn.type_of(value, op)
        self.fn, self.type, self.start = fn, type, start
        self.buffer: TileBuffer | None = None
        self.types: list[str] = []
        if type.is_token:
            self.kind = TOKEN
        elif type.block is not None:
            self.kind, self.types = DESCRIPTOR, start.scalar_types()
        elif type.shape is None:
            self.kind, self.types = SCALAR, [type.elem.carrier]
        elif value in fn.analysis.offset_arguments:
            self.kind = OFFSET
            self.offset: Elem = I64 if type.elem.kind == "ptr" else type.elem
            self.types = [self.offset.carrier]
        else:
            self.kind = TILE
            self.buffer = fn.new_buffer(type.shape, type.elem)

    def initial(self) -> list[ir.Value]:
        """The scalars at first; a tile's buffer is filled."""
        if self.kind == OFFSET:
            return [self.fn.b.constant(self.offset.carrier, 0)]
        return self.scalars(self.start)

    def scalars(self, value: Lowered) -> list[ir.Value]:
        """The scalars that stand for `value`; tiles are written by `write_tiles`."""
        if self.kind == SCALAR:
            return [value]
        return value.scalars() if self.kind == DESCRIPTOR else []

    def inside(self, scalars: list[ir.Value]) -> Lowered:
        """What the value is where `scalars` stand for it."""
        if self.kind == TOKEN:
            return None
        if self.kind == SCALAR:
            return scalars[0]
        if self.kind == DESCRIPTOR:
            return self.start.rebuilt(scalars)
        if self.kind == TILE:
            return self.buffer
        moved = SplatTile(self.type.shape, self.offset, scalars[0])
        return ElementwiseTile(self.type.elem, self._move, (self.start, moved), 0, "tt.addptr")

    def _move(self, b, values):
        if self.type.elem.kind == "ptr":
            return b.gep(values[0], values[1], self.type.elem.pointee.memory)
        return b.binary("arith.addi", *values, self.offset.carrier)

    def advanced(self, argument: ir.Value, scalar: ir.Value) -> ir.Value:
        """The offset after one iteration."""
        b = self.fn.b
        for step in self.fn.analysis.offset_arguments[argument]:
            tile = self.fn.env[step]
            amount = b.resize(tile.value, tile.elem.bits, self.offset.bits)
            scalar = b.binary("arith.addi", scalar, amount, self.offset.carrier)
        return scalar


def split(carried: list[Carried], scalars: list[ir.Value]) -> list[list[ir.Value]]:
    """Deal the scalars of a region boundary out to the values they stand for."""
    parts, at = [], 0
    for c in carried:
        parts.append(scalars[at : at + len(c.types)])
        at += len(c.types)
    return parts


def write_tiles(fn: FunctionLowering, pairs: list[tuple[TileBuffer, Tile]]) -> None:
    """Write each tile into its buffer as if all at once: a tile may read the buffer of another, or its own."""
    pairs = [(to, tile) for to, tile in pairs if not (isinstance(tile, TileBuffer) and tile.address == to.address)]
    addresses = {to.address for to, _ in pairs}
    deferred: list[tuple[TileBuffer, Tile]] = []
    groups: dict[tuple[int, ...], list[tuple[TileBuffer, Tile]]] = {}
    for to, tile in pairs:
        # Reading at another index than the one written needs the old contents as a whole.
        if any(read.address in addresses and not same for read, same in tile.reads()):
            copied = fn.new_buffer(tile.shape, tile.elem)
            fn.fill(copied, tile)
            deferred.append((to, copied))
        else:
            groups.setdefault(tile.shape, []).append((to, tile))
    for shape, members in groups.items():
        with fn.nest(shape) as nest:
            values = [nest.element(tile) for _, tile in members]
            for (to, _), value in zip(members, values, strict=True):
                nest.store(to, value)
    for to, copied in deferred:
        fn.fill(to, copied)


def region_block(fn: FunctionLowering, region: ir.Region, types: list[str]) -> list[ir.Value]:
    """Start the body of a new operation; returns its arguments. The caller restores `fn.b.ip`."""
    block = fn.b.block(region, types)
    fn.b.at_end(block)
    return list(block.arguments)


def lower_yields(fn: FunctionLowering, carried: list[Carried], values: list[ir.Value]) -> list[ir.Value]:
    """Hand `values` on: tiles into the buffers, the rest as scalars."""
    write_tiles(fn, [(c.buffer, fn.env[v]) for c, v in zip(carried, values, strict=True) if c.kind == TILE])
    return [s for c, v in zip(carried, values, strict=True) for s in c.scalars(fn.env[v])]


@lowers("scf.for")
def _for(fn: FunctionLowering, op: ir.Operation) -> None:
    b = fn.b
    bounds = [fn.scalar(v) for v in list(op.operands)[:3]]
    inits = list(op.operands)[3:]
    old = op.regions[0].blocks[0]
    arguments = list(old.arguments)
    carried = [Carried(fn, op, a, fn.env[v]) for a, v in zip(arguments[1:], inits, strict=True)]
    write_tiles(fn, [(c.buffer, c.start) for c in carried if c.kind == TILE])
    starts = [s for c in carried for s in c.initial()]
    types = [t for c in carried for t in c.types]
    attrs = {"unsignedCmp": op.attributes["unsignedCmp"]} if "unsignedCmp" in op.attributes else None
    loop = b.create("scf.for", types, [*bounds, *starts], attrs, regions=1)
    keep = b.ip
    iv, *scalars = region_block(fn, loop.regions[0], [str(arguments[0].type), *types])
    fn.env[arguments[0]] = iv
    parts = split(carried, scalars)
    for c, argument, part in zip(carried, arguments[1:], parts, strict=True):
        fn.env[argument] = c.inside(part)
    last = fn.lower_block(old)
    b.loc = last.location
    yields = list(last.operands)
    results: list[ir.Value] = []
    write_tiles(fn, [(c.buffer, fn.env[v]) for c, v in zip(carried, yields, strict=True) if c.kind == TILE])
    for c, argument, part, value in zip(carried, arguments[1:], parts, yields, strict=True):
        results += [c.advanced(argument, part[0])] if c.kind == OFFSET else c.scalars(fn.env[value])
    b.create("scf.yield", [], results)
    b.ip = keep
    fn.set(op, *[c.inside(part) for c, part in zip(carried, split(carried, list(loop.results)), strict=True)])


@lowers("scf.if")
def _if(fn: FunctionLowering, op: ir.Operation) -> None:
    b = fn.b
    blocks = [region.blocks[0] for region in op.regions if len(region.blocks)]  # one without an else
    condition = fn.scalar(op.operands[0])
    keep = b.ip
    carried = [Carried(fn, op, r, _static_descriptor(fn, op, r)) for r in op.results]
    types = [t for c in carried for t in c.types]
    built = b.create("scf.if", types, [condition], regions=2)
    for region, block in zip(built.regions, blocks, strict=False):
        region_block(fn, region, [])
        last = fn.lower_block(block)
        b.loc = last.location
        b.create("scf.yield", [], lower_yields(fn, carried, list(last.operands)))
    b.ip = keep
    fn.set(op, *[c.inside(part) for c, part in zip(carried, split(carried, list(built.results)), strict=True)])


def _static_descriptor(fn: FunctionLowering, op: ir.Operation, value: ir.Value) -> DescriptorValue | None:
    block = fn.type_of(value, op).block
    if block is None:
        return None
    rank = len(block.shape)
    return DescriptorValue(block.shape, block.elem, None, [None] * rank, [None] * rank, None)


@lowers("scf.while")
def _while(fn: FunctionLowering, op: ir.Operation) -> None:
    b = fn.b
    before, after = (region.blocks[0] for region in op.regions)
    enter = [Carried(fn, op, a, fn.env[v]) for a, v in zip(before.arguments, op.operands, strict=True)]
    leave = [Carried(fn, op, r, _static_descriptor(fn, op, r)) for r in op.results]
    write_tiles(fn, [(c.buffer, c.start) for c in enter if c.kind == TILE])
    starts = [s for c in enter for s in c.initial()]
    enter_types = [t for c in enter for t in c.types]
    leave_types = [t for c in leave for t in c.types]
    loop = b.create("scf.while", leave_types, starts, regions=2)
    keep = b.ip
    for c, argument, part in zip(
        enter, before.arguments, split(enter, region_block(fn, loop.regions[0], enter_types)), strict=True
    ):
        fn.env[argument] = c.inside(part)
    condition = fn.lower_block(before)
    b.loc = condition.location
    test, *values = condition.operands
    b.create("scf.condition", [], [fn.scalar(test), *lower_yields(fn, leave, values)])
    for c, argument, part in zip(
        leave, after.arguments, split(leave, region_block(fn, loop.regions[1], leave_types)), strict=True
    ):
        fn.env[argument] = c.inside(part)
    last = fn.lower_block(after)
    b.loc = last.location
    b.create("scf.yield", [], lower_yields(fn, enter, list(last.operands)))
    b.ip = keep
    fn.set(op, *[c.inside(part) for c, part in zip(leave, split(leave, list(loop.results)), strict=True)])


@lowers("scf.execute_region")
def _execute_region(fn: FunctionLowering, op: ir.Operation) -> None:
    blocks = list(op.regions[0].blocks)
    if len(blocks) != 1:
        raise Unsupported(op, "the simulator has no lowering of a region with branches")
    last = fn.lower_block(blocks[0])
    fn.set(op, *[fn.env[v] for v in last.operands])
