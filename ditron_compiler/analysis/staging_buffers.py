"""Copies inside kernels: a tile that is loaded, and stored to staging memory only to be put to a peer from there."""

from __future__ import annotations

from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.buffer_effects import Access, Accesses, kernel_of
from ditron_compiler.analysis.copy_forwarding import Kept
from ditron_compiler.analysis.kernel_effects import argument_uses
from ditron_compiler.ir.dialects.enums import predicate
from ditron_compiler.ir.matchers import constant_int, defining_op

__all__ = ["put_from_source"]

_PUTS = ("ditron.putmem", "ditron.putmem_signal")  # of which operand 1 is the source


@dataclass(frozen=True)
class _Tile:
    """``base + [0, size)``, as a tensor of pointers; elements from ``count`` on are masked, when there is one."""

    base: ir.Value
    size: int
    count: ir.Value | None


def put_from_source(accesses: Accesses, launch: ir.Operation, operand: int) -> int:
    """Let a kernel put from where it loads, not from the staging memory that it is given as ``operand``.

    Returns how many puts that is about; 0 when the argument is no staging memory. Raises Kept.
    """
    kernel = kernel_of(launch)
    index = operand - len(launch.grid)
    staging = kernel.regions[0].blocks[0].arguments[index]
    stores, puts = _uses(kernel, staging)
    if not stores or not puts:
        return 0
    found = [_source(kernel, store, stores, puts) for store in stores]
    _check_own(accesses, launch, operand, index)
    for put, source in ((put, source) for source, mine in found for put in mine):
        put.operands[1] = source
    for store in stores:
        store.erase()
    return len(puts)


def _uses(kernel: ir.Operation, argument: ir.Value) -> tuple[list[ir.Operation], list[ir.Operation]]:
    """Stores to an argument's memory, and puts from it; none when anything else is done with it."""
    stores, puts, others = [], [], []

    def look(op: ir.Operation) -> None:
        for number, value in enumerate(op.operands):
            if "!tt.ptr" not in str(value.type) or all(origin.root != argument for origin in underlying_objects(value)):
                continue
            if op.name == "tt.store" and number == 0:
                stores.append(op)
            elif op.name in _PUTS and number == 1:
                puts.append(op)
            elif op.name not in ("tt.splat", "tt.addptr"):
                others.append(op)

    kernel.walk(look)
    return ([], []) if others else (stores, puts)


def _source(
    kernel: ir.Operation, store: ir.Operation, stores: list[ir.Operation], puts: list[ir.Operation]
) -> tuple[ir.Value, list[ir.Operation]]:
    """Where the tile comes from that a store puts into staging memory, and the puts that send it."""
    load = defining_op(store.operands[1])
    tile = _tile(store, 2)
    if load is None or load.name != "tt.load" or tile is None or len(stores) != 1:
        raise Kept("what is staged is not one contiguous tile that was loaded", store)
    origin = _tile(load, 1)
    if origin is None or (origin.size, origin.count) != (tile.size, tile.count) and origin.count is not None:
        raise Kept("the tile is not loaded from one contiguous place", load)
    for put in puts:
        sent = put.operands[2]
        if put.operands[1] != tile.base or put.block != store.block or not store.is_before_in_block(put):
            raise Kept("another part of the staging memory is put than is stored just before", put)
        if "nbi" in put.attributes:
            raise Kept("the put goes on after it has returned, and its source may change by then", put)
        if load.block != store.block:
            raise Kept("the tile is loaded in another turn or branch", load)
        if (told := _between(load, put)) is not None:
            raise Kept("peers may be told in between that they may overwrite the tile", told)
        if not _covers(sent, tile):
            raise Kept("more may be put than is stored", put)
    roots = {one.root for one in underlying_objects(origin.base)}
    for root in roots:
        if not isinstance(root, ir.BlockArgument) or _is_written(kernel, root):
            raise Kept("the kernel writes to the memory that the tile is loaded from", load)
    return origin.base, puts


def _tile(access: ir.Operation, mask: int) -> _Tile | None:
    """The tile that a load or a store is of; None when it is not ``base + arange``, masked from some number on."""
    pointers = defining_op(access.operands[0])
    if pointers is None or pointers.name != "tt.addptr":
        return None
    base, offsets = (defining_op(value) for value in pointers.operands)
    if base is None or base.name != "tt.splat" or not _is_range(offsets):
        return None
    size = offsets.attributes["end"].value
    if len(access.operands) <= mask:
        return _Tile(base.operands[0], size, None)
    compare = defining_op(access.operands[mask])
    if compare is None or compare.name != "arith.cmpi" or predicate(compare) != "slt":
        return None
    left, right = (defining_op(value) for value in compare.operands)
    if left != offsets or right is None or right.name != "tt.splat":
        return None
    return _Tile(base.operands[0], size, right.operands[0])


def _is_range(op: ir.Operation | None) -> bool:
    return op is not None and op.name == "tt.make_range" and op.attributes["start"].value == 0


def _between(load: ir.Operation, put: ir.Operation) -> ir.Operation | None:
    """What may tell a peer something, between a load and a put of one block."""
    op = load.next_op
    while op != put:
        silent = op.is_memory_effect_free and not len(op.regions)
        if not silent and op.name not in ("tt.store", "tt.load", "ditron.putmem"):
            return op
        op = op.next_op
    return None


def _covers(nbytes: ir.Value, tile: _Tile) -> bool:
    """Whether not more bytes than those of the tile are meant."""
    size = tile.base.type.pointee_type.width // 8
    known = constant_int(nbytes)
    if known is not None:
        return tile.count is None and known <= tile.size * size
    while (op := defining_op(nbytes)) is not None and op.name == "arith.extsi":
        nbytes = op.operands[0]
    if op is None or op.name != "arith.muli" or tile.count is None:
        return False
    a, b = (_unextended(value) for value in op.operands)
    return (a, constant_int(b)) == (tile.count, size) or (b, constant_int(a)) == (tile.count, size)


def _unextended(value: ir.Value) -> ir.Value:
    op = defining_op(value)
    return op.operands[0] if op is not None and op.name == "arith.extsi" else value


def _is_written(kernel: ir.Operation, root: ir.Value) -> bool:
    use = argument_uses(kernel)[root.arg_number]
    return use.writes or use.remote


def _check_own(accesses: Accesses, launch: ir.Operation, operand: int, index: int) -> None:
    """The memory is the program's, and given to this parameter of this kernel only; the kernel gets nothing else."""
    own = {
        access.region.root
        for access in accesses.all
        if access.op.name == "ditron.launch"
        and access.op.kernel == launch.kernel
        and access.operand == index + len(access.op.grid)
    }
    for access in accesses.all:
        if access.region.root not in own:
            continue
        if not isinstance(access.region.root, ir.OpResult):
            raise Kept("the staging memory is the caller's, who may read it", launch)
        if not _is_this(access, launch, index):
            raise Kept("the staging memory is used by something else, too", access.op)


def _is_this(access: Access, launch: ir.Operation, index: int) -> bool:
    return (
        access.op.name == "ditron.launch"
        and access.op.kernel == launch.kernel
        and (access.operand == index + len(access.op.grid))
    )
