"""Reorder a kernel's tiles by when their data arrives, or when others wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.dominance import is_available
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.analysis.tile_index import TileRange, tile_range
from ditron_compiler.analysis.tile_mapping import TileOwner, is_rotated_by_rank, tile_owners, unsupported_tile_index
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.ir.dialects.arith import CmpIPredicate
from ditron_compiler.ir.dialects.ditron import SwizzleMode
from ditron_compiler.ir.matchers import constant_int, defining_op
from ditron_compiler.ir.pass_base import Pass, option

__all__ = ["InsertSwizzle"]

_SENDS = (ditron.SignalUpdateOpInterface, ditron.PutmemOp, ditron.SymmAtOp)


@dataclass(frozen=True)
class InsertSwizzle(Pass):
    """Insert a swizzle of the tile index in kernels that have none.

    In a kernel without `ditron.swizzle`, the pass finds the division that computes a tile index from the linearized
    tile index (the program id, or the induction variable of a loop over tiles), and the operations that depend on the
    rank that owns the tile: a wait, by its signals, makes the order *gather*; a send (`notify`, `putmem`,
    `putmem_signal`, `symm_at`, `signal_op`), by its rank or signal, makes it *scatter*. The sharded dimension follows
    from how the owner is computed: by `tile * block / shard` it has `shard * num_ranks` rows in tiles of `block`, by
    `tile / shard` as many tiles, and if the tile is itself the rank of a send, `num_ranks` tiles.

    An explicit annotation overrides: `mode` of the pass (pipelines `swizzled-gather` and `swizzled-scatter`), or
    `ditron.swizzle_mode = #ditron.swizzle_mode<gather>` on the kernel, chooses where both orders are found; a kernel
    with `dl.swizzle` is not changed.

    A kernel is left unchanged, with a remark that gives the reason, if the work of a program depends on its id in
    another way than by the tile, if the order depends on this rank already, if there are two sharded dimensions, or if
    a tile index is computed in another way, such as ``tiles - 1 - tile`` or a remainder. The number of programs is
    known at run time only, so the kernel compares it, and keeps its order if the programs do not cover all tiles.

    Before::

        %m = arith.divsi %pid, %tiles_n
        %row = arith.muli %m, %c128
        %owner = arith.divsi %row, %rows_per_rank
        %theirs = tt.addptr %sig, %owner
        %token = ditron.wait %theirs[%one] ge %epoch

    After::

        %plain = arith.divsi %pid, %tiles_n
        %size = arith.muli %rows_per_rank, %num_ranks
        %there = ditron.swizzle gather %plain of %size by %c128
        %m = arith.select %covers_all_tiles, %there, %plain
    """

    name: ClassVar[str] = "insert-swizzle"
    mode: str = option("auto", "gather, scatter, or auto: whichever is found", one_of=("auto", "gather", "scatter"))

    def run(self, op: ir.Operation) -> None:
        for function in [f for f in functions(op) if "ditron.kernel" in f.attributes]:
            try:
                self._reorder(function)
            except MatchFailure as failure:
                (failure.op or function).emit_remark(f"tile order unchanged: {failure.reason}")
                self.count("kernels not reordered")

    def _reorder(self, function: tt.FuncOp) -> None:
        every = operations(function)
        if any(isinstance(op, ditron.SwizzleOp) for op in every):
            return
        mode = {"gather": SwizzleMode.Gather, "scatter": SwizzleMode.Scatter}.get(self.mode)
        if "ditron.swizzle_mode" in function.attributes:
            mode = function.attributes["ditron.swizzle_mode"].value
        for quotient in (True, False):  # if there are no other dimensions, the linearized index is the tile index
            found = {
                SwizzleMode.Gather: _owners(every, _awaited, quotient),
                SwizzleMode.Scatter: _owners(every, _sent, quotient),
            }
            wanted = _choose(found) if mode is None else mode
            if found[wanted]:
                break
        else:
            raise _no_owner(every)
        owner, user = _unique(found[wanted])
        _insert(wanted, owner, tile_range(owner))
        user.emit_remark(f"tiles reordered for {wanted!s}: this operation depends on their owners")
        self.count("kernels reordered")


def _awaited(op: ir.Operation) -> Iterator[tuple[ir.Value, bool]]:
    """The operands of a wait that depend on the owner of a tile; True with a rank."""
    if isinstance(op, ditron.SignalWaitOpInterface):
        yield op.signal, False


def _sent(op: ir.Operation) -> Iterator[tuple[ir.Value, bool]]:
    """The operands of a send that depend on the owner of a tile; True with a rank."""
    if isinstance(op, _SENDS):
        yield op.rank, True
        if isinstance(op, ditron.SignalUpdateOpInterface):
            yield op.signal, False


def _owners(operations: list[ir.Operation], operands: Callable, quotient: bool) -> dict[TileOwner, ir.Operation]:
    """The owners of tiles that ``operands`` depend on, each with an operation that does."""
    found: dict[TileOwner, ir.Operation] = {}
    for op in operations:
        for value, is_rank in () if _is_rotated(op) else operands(op):
            for owner in tile_owners(value, op, is_rank, quotient):
                found.setdefault(owner, op)
    return found


def _choose(found: dict[SwizzleMode, dict[TileOwner, ir.Operation]]) -> SwizzleMode:
    """The mode that waits or sends want."""
    if found[SwizzleMode.Gather] and found[SwizzleMode.Scatter]:
        raise MatchFailure(
            "this send and a wait both depend on the owner of a tile, and want different orders; choose by "
            "mode=gather or mode=scatter",
            next(iter(found[SwizzleMode.Scatter].values())),
        )
    return SwizzleMode.Gather if found[SwizzleMode.Gather] else SwizzleMode.Scatter


def _unique(found: dict[TileOwner, ir.Operation]) -> tuple[TileOwner, ir.Operation]:
    """The one owner that all operations depend on."""
    (first, user), *others = found.items()
    for other, op in others:
        if other != first:
            raise MatchFailure(
                "this operation and another one depend on different tile indices, or on different shardings", op
            )
    return first, user


def _is_rotated(op: ir.Operation) -> bool:
    """Whether the kernel orders the tiles of a wait or a send itself, by this rank."""
    if isinstance(op, ditron.SignalWaitOpInterface):
        return is_rotated_by_rank(op.signal)
    return isinstance(op, _SENDS) and is_rotated_by_rank(op.rank)


def _no_owner(operations: list[ir.Operation]) -> MatchFailure:
    rotated = next(filter(_is_rotated, operations), None)
    if rotated is not None:
        return MatchFailure("the tile order already depends on this rank", rotated)
    for op in operations:
        for value, is_rank in (*_awaited(op), *_sent(op)):
            if (unsupported := unsupported_tile_index(value, is_rank)) is not None:
                return MatchFailure(
                    f"the owner of a tile is computed from this '{unsupported.name}', but only the linearized tile "
                    "index and its quotients are known as tile indices: compute it by program_id // tiles of "
                    "the other dimensions, or call dl.swizzle",
                    unsupported,
                )
    return MatchFailure("no wait and no send depends on the owner of a tile, rank = tile * block // rows_per_rank")


def _insert(mode: SwizzleMode, owner: TileOwner, tiles: TileRange) -> None:
    """Insert the swizzle after the definition of the tile index, and replace its uses."""
    tile = owner.tile
    i32 = ir.IntegerType.get_signless(32, context=tile.context)
    block = 1 if owner.block is None else constant_int(owner.block)
    if tile.type != i32:
        raise MatchFailure(f"the tile index is an {tile.type}, but swizzles are computed in i32", owner.anchor)
    if block is None or block < 1:
        raise MatchFailure("the rows of a tile are not a positive constant", owner.anchor)
    # If the tile index is the linearized index, only the branch that computes with it is reordered.
    after = owner.others is not None or defining_op(tile) is not None and tile.owner.block == owner.at.block
    ip = ir.InsertionPoint.after(tile.owner) if after else ir.InsertionPoint.at_block_begin(owner.at.block)
    for value in (owner.shard, tiles.end):
        if value is not None and (value.type != i32 or not is_available(value, ip.ref_operation)):
            raise MatchFailure(
                "the rows of a rank, or the number of tiles, are computed after the tile index: compute them before it",
                owner.anchor,
            )
    with owner.at.location, ip:
        size = ditron.NumRanksOp().result
        if owner.shard is not None:
            size = arith.MulIOp(owner.shard, size).result
        block_size = arith.constant(i32, block)
        swizzled = ditron.SwizzleOp(tile, size, block_size, mode=mode)
        is_complete = _covers_all_tiles(owner, tiles, size, block_size, block)
        selected = arith.SelectOp(is_complete, swizzled.result, tile)
    users = [
        use.owner
        for use in tile.uses
        if use.owner not in (swizzled, selected) and (owner.others is not None or owner.is_reordered(use))
    ]
    for op in users:
        op.replace_uses_of_with(tile, selected.result)


def _covers_all_tiles(owner: TileOwner, tiles: TileRange, size: ir.Value, block_size: ir.Value, block: int) -> ir.Value:
    """Whether the programs compute all tiles of all ranks; if not, a permutation would change which they compute."""
    i32 = size.type

    def constant(value: int) -> ir.Value:
        return arith.constant(i32, value)

    needed = arith.DivSIOp(arith.AddIOp(size, constant(block - 1)).result, block_size).result
    if owner.others is not None:
        needed = arith.MulIOp(needed, owner.others).result
    programs = tt.GetNumProgramsOp(i32, axis=ir.IntegerAttr.get(i32, tiles.axis)).result
    if tiles.stride is None:
        computed = arith.SubIOp(programs, constant(tiles.first)).result
        if tiles.end is not None:
            computed = arith.MinSIOp(computed, tiles.end).result
        return arith.CmpIOp(CmpIPredicate.eq, needed, computed).result
    is_complete = arith.CmpIOp(CmpIPredicate.eq, needed, tiles.end).result
    if tiles.stride:
        enough = arith.CmpIOp(CmpIPredicate.sge, programs, constant(tiles.stride)).result
        is_complete = arith.AndIOp(is_complete, enough).result
    return is_complete
