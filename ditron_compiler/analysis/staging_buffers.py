"""Staging buffers inside kernels: a tile is loaded, stored to the buffer, and put to a peer from there."""

from __future__ import annotations

from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.buffer_effects import BufferAccess, ProgramAccesses, kernel_of
from ditron_compiler.analysis.kernel_effects import argument_effects
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.ir.matchers import constant_int, defining_op

__all__ = ["StagedPut", "staged_puts"]


@dataclass(frozen=True)
class StagedPut:
    """A put from a staging buffer of a tile that ``store`` wrote there, and where the tile was loaded from."""

    put: ir.Operation
    store: tt.StoreOp
    source: ir.Value


def staged_puts(accesses: ProgramAccesses, launch: ditron.LaunchOp, operand: int) -> list[StagedPut]:
    """The puts of a kernel from the argument ``operand`` of ``launch``, if all may read from where the tile is loaded.

    Empty when the argument is no staging buffer. Raises MatchFailure.
    """
    kernel = kernel_of(launch)
    index = operand - len(launch.grid)
    stores, puts = _stores_and_puts(kernel, kernel.arguments[index])
    if not stores or not puts:
        return []
    found = [(store, _source(kernel, store, stores, puts)) for store in stores]
    _check_no_other_use(accesses, launch, index)
    return [StagedPut(put, store, source) for store, source in found for put in puts]


def _stores_and_puts(kernel: ir.Operation, argument: ir.Value) -> tuple[list[tt.StoreOp], list[ir.Operation]]:
    """Stores to an argument's memory, and puts from it; none when the memory has any other use."""
    stores, puts, others = [], [], []

    def visit(op: ir.Operation) -> None:
        for number, value in enumerate(op.operands):
            if "!tt.ptr" not in str(value.type) or all(o.root != argument for o in underlying_objects(value)):
                continue
            if isinstance(op, tt.StoreOp) and number == 0:
                stores.append(op)
            elif isinstance(op, ditron.PutmemOp | ditron.PutmemSignalOp) and number == 1:  # its source
                puts.append(op)
            elif not isinstance(op, tt.SplatOp | tt.AddPtrOp):
                others.append(op)

    kernel.walk(visit)
    return ([], []) if others else (stores, puts)


@dataclass(frozen=True)
class _Tile:
    """``base + [0, size)``, as a tensor of pointers; elements from ``count`` on are masked, when there is one."""

    base: ir.Value
    size: int
    count: ir.Value | None


def _source(kernel: ir.Operation, store: tt.StoreOp, stores: list[tt.StoreOp], puts: list[ir.Operation]) -> ir.Value:
    """The pointer that the tile which ``store`` writes to the staging buffer was loaded from. Raises MatchFailure."""
    load = defining_op(store.value)
    tile = _tile(store)
    if not isinstance(load, tt.LoadOp) or tile is None or len(stores) != 1:
        raise MatchFailure("what is staged is not one contiguous tile that was loaded", store)
    loaded = _tile(load)
    if loaded is None or (loaded.size, loaded.count) != (tile.size, tile.count) and loaded.count is not None:
        raise MatchFailure("the load of the tile is not contiguous", load)
    for put in puts:
        if put.src != tile.base or put.block != store.block or not store.is_before_in_block(put):
            raise MatchFailure("the put does not send the part of the staging buffer that was stored before it", put)
        if put.nbi:
            raise MatchFailure("the put is nonblocking, and its source may change before it completes", put)
        if load.block != store.block:
            raise MatchFailure("the tile is loaded in another iteration or branch", load)
        if (signal := _signal_between(load, put)) is not None:
            raise MatchFailure("peers may be signaled in between that they may overwrite the tile", signal)
        if not _is_within(put.nbytes, tile):
            raise MatchFailure("the put may send more than was stored", put)
    for root in {o.root for o in underlying_objects(loaded.base)}:
        if not isinstance(root, ir.BlockArgument) or _is_written(kernel, root):
            raise MatchFailure("the kernel writes to the memory that the tile is loaded from", load)
    return loaded.base


def _tile(access: tt.LoadOp | tt.StoreOp) -> _Tile | None:
    """The tile of a load or a store; None when it is not ``base + arange``, with a mask ``arange < count`` or none."""
    pointers = defining_op(access.ptr)
    if not isinstance(pointers, tt.AddPtrOp):
        return None
    base, offsets = defining_op(pointers.ptr), defining_op(pointers.offset)
    if not isinstance(base, tt.SplatOp) or not isinstance(offsets, tt.MakeRangeOp) or offsets.start.value != 0:
        return None
    size = offsets.end.value
    if access.mask is None:
        return _Tile(base.src, size, None)
    compare = defining_op(access.mask)
    if not isinstance(compare, arith.CmpIOp) or compare.predicate is not arith.CmpIPredicate.slt:
        return None
    count = defining_op(compare.rhs)
    if defining_op(compare.lhs) != offsets or not isinstance(count, tt.SplatOp):
        return None
    return _Tile(base.src, size, count.src)


def _signal_between(load: tt.LoadOp, put: ir.Operation) -> ir.Operation | None:
    """An operation that may signal a peer, between a load and a put of one block."""
    op = load.next_op
    while op != put:
        local = op.is_memory_effect_free and not len(op.regions)
        if not local and not isinstance(op, tt.StoreOp | tt.LoadOp | ditron.PutmemOp):
            return op
        op = op.next_op
    return None


def _is_within(nbytes: ir.Value, tile: _Tile) -> bool:
    """Whether ``nbytes`` is at most the size of a tile."""
    itemsize = tile.base.type.pointee_type.width // 8
    known = constant_int(nbytes)
    if known is not None:
        return tile.count is None and known <= tile.size * itemsize
    product = nbytes
    while isinstance(op := defining_op(product), arith.ExtSIOp):
        product = op.in_
    if not isinstance(op, arith.MulIOp) or tile.count is None:
        return False
    a, b = _before_extension(op.lhs), _before_extension(op.rhs)
    return (a, constant_int(b)) == (tile.count, itemsize) or (b, constant_int(a)) == (tile.count, itemsize)


def _before_extension(value: ir.Value) -> ir.Value:
    op = defining_op(value)
    return op.in_ if isinstance(op, arith.ExtSIOp) else value


def _is_written(kernel: ir.Operation, root: ir.Value) -> bool:
    use = argument_effects(kernel)[root.arg_number]
    return use.writes or use.remote


def _check_no_other_use(accesses: ProgramAccesses, launch: ditron.LaunchOp, index: int) -> None:
    """The buffers that the program passes as this argument must be its own, and used for nothing else.

    Raises MatchFailure.
    """
    buffers = {access.region.root for access in accesses.all if _is_argument(access, launch, index)}
    for access in accesses.all:
        if access.region.root not in buffers:
            continue
        if not isinstance(access.region.root, ir.OpResult):
            raise MatchFailure("the staging buffer is an argument, which the caller may read", launch)
        if not _is_argument(access, launch, index):
            raise MatchFailure("another operation uses the staging buffer", access.op)


def _is_argument(access: BufferAccess, launch: ditron.LaunchOp, index: int) -> bool:
    """Whether an access is by argument ``index`` of a launch of the same kernel."""
    op = access.op
    return isinstance(op, ditron.LaunchOp) and op.kernel == launch.kernel and access.operand == index + len(op.grid)
