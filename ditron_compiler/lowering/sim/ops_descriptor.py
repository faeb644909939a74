"""Tensor descriptors: accesses that are clipped at the tensor's bounds and padded outside.

Each dimension's coordinate, bounds test and offset are lazy tiles over that dimension alone, so a row's part is
computed once per row.
"""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.lowering.sim.race_records import record

from . import abi
from .elementwise import ELEMENTWISE, int_attribute
from .function import FunctionLowering, Unsupported, lowers
from .memory import access_flags, check, check_range, guarded, load_element, store_element, to_i64, zero
from .nest import Indices, LoopNest
from .ops_memory import abi_dtype
from .ops_shape import regroup, reshape_groups
from .tiles import DescriptorValue, ElementwiseTile, RangeTile, SplatTile, Tile
from .types import I1, I64, Elem

PAD_NAN = 2  # Triton's PaddingOption
_REDUCE_KINDS = {
    1: abi.RMW_ADD, 2: abi.RMW_MIN, 3: abi.RMW_MAX, 6: abi.RMW_AND, 7: abi.RMW_OR, 8: abi.RMW_XOR,
}  # fmt: skip
_UNSIGNED = {abi.RMW_MIN: abi.RMW_UMIN, abi.RMW_MAX: abi.RMW_UMAX}


@lowers("tt.make_tensor_descriptor")
def _make(fn: FunctionLowering, op: ir.Operation) -> None:
    base, *rest = (fn.scalar(v) for v in op.operands)
    rank = len(rest) // 2
    block = fn.type_of(op.results[0], op).block
    pad_nan = fn.b.constant("i1", int(int_attribute(op, "padding", 1) == PAD_NAN))
    fn.set(op, DescriptorValue(block.shape, block.elem, base, rest[:rank], rest[rank:], pad_nan))


@lowers("arith.select")
def _select(fn: FunctionLowering, op: ir.Operation) -> None:
    """Of descriptors, as an ``if`` that makes another one becomes; all else is elementwise."""
    if fn.type_of(op.results[0], op).block is None:
        fn.lower_elementwise(op, ELEMENTWISE[op.name])
        return
    condition, yes, no = fn.scalar(op.operands[0]), fn.env[op.operands[1]], fn.env[op.operands[2]]
    parts = zip(yes.scalars(), no.scalars(), yes.scalar_types(), strict=True)
    fn.set(op, yes.rebuilt([fn.b.select(condition, a, b, type) for a, b, type in parts]))


class Box:
    """The elements of a descriptor's tensor at coordinates that are lazy tiles, one per dimension."""

    def __init__(self, fn: FunctionLowering, desc: DescriptorValue, coordinates: list[Tile]):
        self.fn, self.desc = fn, desc
        self.block = tuple(c.shape[0] for c in coordinates)
        b = fn.b
        self.inside: list[Tile] = []
        self.offset: list[Tile] = []
        for coordinate, size, stride in zip(coordinates, desc.shape, desc.strides, strict=True):
            limit = SplatTile(coordinate.shape, I64, b.resize(size, 32, 64))
            step = SplatTile(coordinate.shape, I64, stride)
            # Unsigned: a negative coordinate is outside too.
            self.inside.append(ElementwiseTile(I1, lambda b, v: b.cmpi("ult", *v), (coordinate, limit), 0))
            self.offset.append(
                ElementwiseTile(I64, lambda b, v: b.binary("arith.muli", *v, "i64"), (coordinate, step), 0)
            )

    def element(self, nest: LoopNest, idx: Indices) -> tuple[ir.Value, ir.Value]:
        """Address of the element at `idx` of the block, and whether it is inside the tensor."""
        b = nest.b
        tests = [nest.element(t, (i,)) for t, i in zip(self.inside, idx, strict=True)]
        offsets = [nest.element(t, (i,)) for t, i in zip(self.offset, idx, strict=True)]
        test, offset = tests[0], offsets[0]
        for more, step in zip(tests[1:], offsets[1:], strict=True):
            test = b.binary("arith.andi", test, more, "i1")
            offset = b.binary("arith.addi", offset, step, "i64")
        return b.gep(self.desc.base, offset, self.desc.elem.memory), test


def _box(fn: FunctionLowering, desc: DescriptorValue, starts: list[ir.Value]) -> Box:
    coordinates = [_coordinate(fn, n, start) for n, start in zip(desc.block, starts, strict=True)]
    return Box(fn, desc, coordinates)


def _coordinate(fn: FunctionLowering, size: int, start: ir.Value) -> Tile:
    first = SplatTile((size,), I64, fn.b.resize(start, 32, 64))
    return ElementwiseTile(I64, lambda b, v: b.binary("arith.addi", *v, "i64"), (RangeTile((size,), I64, 0), first), 0)


def _rows(fn: FunctionLowering, desc: DescriptorValue, rows: Tile, column: ir.Value) -> Box:
    bits = rows.elem.bits
    wide = ElementwiseTile(I64, lambda b, v: b.resize(v[0], bits, 64), (rows,), 0)
    return Box(fn, desc, [wide, _coordinate(fn, desc.block[1], column)])


def _check(fn: FunctionLowering, op: ir.Operation, box: Box, elem: Elem, is_store: bool) -> None:
    """Have the machine check the addresses of the access."""

    def emit(nest: LoopNest) -> tuple[ir.Value, ir.Value]:
        return box.element(nest, nest.idx)

    flags = access_flags(fn, op.operands[0], is_store)
    check(fn, box.block, emit, check_range(fn, elem, flags, fn.where(op)))
    # A reduction's atomics are checked by the machine.
    if fn.state.races and op.name != "tt.descriptor_reduce":
        record(fn, box.block, emit, elem, flags, fn.where(op))


def _load_box(fn: FunctionLowering, op: ir.Operation, box: Box) -> None:
    result = fn.type_of(op.results[0], op)
    elem = result.elem
    _check(fn, op, box, elem, False)
    buffer = fn.new_buffer(result.shape, elem)
    groups = reshape_groups(box.block, result.shape)
    pad = zero(fn.b, elem)
    if elem.kind == "float":
        pad = fn.b.select(box.desc.pad_nan, fn.b.constant(elem.carrier, float("nan")), pad, elem.carrier)
    with fn.nest(result.shape) as nest:
        address, inside = box.element(nest, regroup(nest, nest.idx, groups))
        nest.store(buffer, guarded(fn.b, inside, lambda: load_element(fn.b, address, elem), pad, elem.carrier))
    fn.set(op, buffer)


def _store_box(fn: FunctionLowering, op: ir.Operation, box: Box, tile: Tile, put) -> None:
    """`put(address, value)` for every element of `tile` that is inside."""
    groups = reshape_groups(box.block, tile.shape)
    _check(fn, op, box, tile.elem, True)
    with fn.nest(tile.shape) as nest:
        address, inside = box.element(nest, regroup(nest, nest.idx, groups))
        value = nest.element(tile)
        guarded(fn.b, inside, lambda: put(address, value))


def _descriptor(fn: FunctionLowering, value: ir.Value) -> DescriptorValue:
    found = fn.env[value]
    assert isinstance(found, DescriptorValue), value
    return found


@lowers("tt.descriptor_load")
def _load(fn: FunctionLowering, op: ir.Operation) -> None:
    desc, *starts = op.operands
    _load_box(fn, op, _box(fn, _descriptor(fn, desc), [fn.scalar(v) for v in starts]))


@lowers("tt.descriptor_gather")
def _gather(fn: FunctionLowering, op: ir.Operation) -> None:
    desc, rows, column = op.operands
    _load_box(fn, op, _rows(fn, _descriptor(fn, desc), fn.tile(rows), fn.scalar(column)))


def _put(fn: FunctionLowering, elem: Elem):
    return lambda address, value: store_element(fn.b, value, address, elem)


@lowers("tt.descriptor_store")
def _store(fn: FunctionLowering, op: ir.Operation) -> None:
    desc, source, *starts = op.operands
    tile = fn.tile(source)
    box = _box(fn, _descriptor(fn, desc), [fn.scalar(v) for v in starts])
    _store_box(fn, op, box, tile, _put(fn, tile.elem))


@lowers("tt.descriptor_scatter")
def _scatter(fn: FunctionLowering, op: ir.Operation) -> None:
    desc, rows, column, source = op.operands
    tile = fn.tile(source)
    box = _rows(fn, _descriptor(fn, desc), fn.tile(rows), fn.scalar(column))
    _store_box(fn, op, box, tile, _put(fn, tile.elem))


@lowers("tt.descriptor_reduce")
def _reduce(fn: FunctionLowering, op: ir.Operation) -> None:
    desc, source, *starts = op.operands
    tile = fn.tile(source)
    elem, dtype = tile.elem, abi_dtype(tile.elem, op)
    kind = _REDUCE_KINDS.get(int_attribute(op, "kind"))
    if kind is None:
        raise Unsupported(op, "the simulator has no descriptor reduction of kind inc or dec")
    if kind == abi.RMW_ADD and elem.kind == "float":
        kind = abi.RMW_FADD
    if kind in _UNSIGNED and "xui" in str(desc.type):
        kind, dtype = _UNSIGNED[kind], abi.UNSIGNED_DTYPE.get(dtype, dtype)
    # Relaxed, for this GPU: what the TMA unit does.
    order = [fn.i32(kind), fn.i32(dtype), fn.i32(0), fn.i32(0), fn.where(op)]

    def put(address: ir.Value, value: ir.Value) -> None:
        fn.call("ditron_sim_atomic_rmw", [address, to_i64(fn.b, value, elem), *order], ("i64",))

    box = _box(fn, _descriptor(fn, desc), [fn.scalar(v) for v in starts])
    _store_box(fn, op, box, tile, put)
