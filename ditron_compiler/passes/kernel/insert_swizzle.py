"""Reorder a kernel's tiles by when their data arrives, or when others wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.tile_index import Line, available, line_of
from ditron_compiler.analysis.tile_mapping import NotFound, Shards, depends_on_rank, other_index, owners
from ditron_compiler.ir.dialects.enums import PREDICATES, keyword
from ditron_compiler.ir.matchers import constant_int, defining_op
from ditron_compiler.ir.pass_base import Pass, option

__all__ = ["InsertSwizzle"]

_WAITS = ("ditron.wait", "ditron.signal_wait_until")
# Operation -> the operand that is a signal; the last one is the rank.
_SENDS = {
    "ditron.notify": 0,
    "ditron.signal_op": 0,
    "ditron.putmem_signal": 3,
    "ditron.putmem": None,
    "ditron.symm_at": None,
}


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
        %theirs = "tt.addptr"(%sig, %owner)
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
            except NotFound as why:
                (why.at or function).emit_remark(f"tile order unchanged: {why}")
                self.count("kernels not reordered")

    def _reorder(self, function: ir.Operation) -> None:
        ours = [op for op in operations(function) if op.name.startswith("ditron.")]
        if any(op.name == "ditron.swizzle" for op in ours):
            return
        mode = self.mode
        if "ditron.swizzle_mode" in function.attributes:
            mode = keyword(function.attributes["ditron.swizzle_mode"])
        for divided in (True, False):  # without other dimensions, programs are numbered as tiles are
            found = {"gather": _owners_of(ours, _waited, divided), "scatter": _owners_of(ours, _sent, divided)}
            wanted = _decide(found) if mode == "auto" else mode
            if found[wanted]:
                break
        else:
            raise _nothing(ours)
        shards, user = _agree(found[wanted])
        _insert(wanted, shards, line_of(shards))
        user.emit_remark(f"tiles reordered for {wanted}: this operation depends on their owners")
        self.count("kernels reordered")


def _waited(op: ir.Operation) -> Iterator[tuple[ir.Value, bool]]:
    """What says for whom ``op`` waits; True with a rank."""
    if op.name in _WAITS:
        yield op.operands[0], False


def _sent(op: ir.Operation) -> Iterator[tuple[ir.Value, bool]]:
    """What says to whom ``op`` sends; True with a rank."""
    if op.name in _SENDS:
        yield op.operands[-1], True
        if (signal := _SENDS[op.name]) is not None:
            yield op.operands[signal], False


def _owners_of(ours: list[ir.Operation], asked: Callable, divided: bool) -> dict[Shards, ir.Operation]:
    """The owners of tiles that ``asked`` operands depend on, each with an operation that does."""
    found: dict[Shards, ir.Operation] = {}
    for op in ours:
        if _has_order(op):
            continue
        for value, is_rank in asked(op):
            for shards in owners(value, op, is_rank, divided):
                found.setdefault(shards, op)
    return found


def _decide(found: dict[str, dict[Shards, ir.Operation]]) -> str:
    """The mode that waits or sends ask for."""
    if found["gather"] and found["scatter"]:
        raise NotFound(
            "this send and a wait both depend on the owner of a tile, and want different orders; choose by "
            "mode=gather or mode=scatter",
            next(iter(found["scatter"].values())),
        )
    return "gather" if found["gather"] else "scatter"


def _agree(found: dict[Shards, ir.Operation]) -> tuple[Shards, ir.Operation]:
    """The one sharded dimension that all operations mean."""
    (first, user), *others = found.items()
    for other, at in others:
        if other != first:
            raise NotFound(
                "this operation and another one depend on different tile indices, or on different shardings", at
            )
    return first, user


def _has_order(op: ir.Operation) -> bool:
    """Whether the author has put the tiles of a wait or a send in order: by this rank's number."""
    value = op.operands[0] if op.name in _WAITS else op.operands[-1] if op.name in _SENDS else None
    return value is not None and depends_on_rank(value)


def _nothing(ours: list[ir.Operation]) -> NotFound:
    by_hand = next(filter(_has_order, ours), None)
    if by_hand is not None:
        return NotFound("the tile order already depends on this rank", by_hand)
    for op in ours:
        for value, is_rank in (*_waited(op), *_sent(op)):
            if (made_by := other_index(value, is_rank)) is not None:
                return NotFound(
                    f"the owner of a tile is computed from this '{made_by.name}', but only the linearized tile "
                    "index and its quotients are known as tile indices: compute it by program_id // tiles of "
                    "the other dimensions, or call dl.swizzle",
                    made_by,
                )
    return NotFound("no wait and no send depends on the owner of a tile, rank = tile * block // rows_per_rank")


def _insert(mode: str, shards: Shards, line: Line) -> None:
    """Put the swizzle behind what makes the tile index, for all who use it."""
    tile = shards.tile
    i32 = ir.IntegerType.get_signless(32, context=tile.context)
    block = 1 if shards.block is None else constant_int(shards.block)
    if tile.type != i32:
        raise NotFound(f"the tile index is an {tile.type}, but swizzles are computed in i32", shards.origin)
    if block is None or block < 1:
        raise NotFound("the rows of a tile are not a positive constant", shards.origin)
    # Of a place in the line, the branch that computes with it is reordered.
    here = shards.others is not None or defining_op(tile) is not None and tile.owner.block == shards.at.block
    place = ir.InsertionPoint.after(tile.owner) if here else ir.InsertionPoint.at_block_begin(shards.at.block)
    for value in (shards.shard, line.end):
        if value is not None and (value.type != i32 or not available(value, place.ref_operation)):
            raise NotFound(
                "the rows of a rank, or the number of tiles, are computed after the tile index: compute them before it",
                shards.origin,
            )

    with shards.at.location, place:

        def make(name: str, *operands: ir.Value, type: ir.Type = i32, **attributes: ir.Attribute) -> ir.Value:
            return ir.Operation.create(name, results=[type], operands=list(operands), attributes=attributes).result

        def number(value: int) -> ir.Value:
            return make("arith.constant", value=ir.IntegerAttr.get(i32, value))

        def compare(predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
            attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), PREDICATES[predicate])
            return make("arith.cmpi", a, b, type=ir.IntegerType.get_signless(1), predicate=attribute)

        size = make("ditron.num_ranks")
        if shards.shard is not None:
            size = make("arith.muli", shards.shard, size)
        block_value = number(block)
        there = make(
            "ditron.swizzle", tile, size, block_value, mode=ir.Attribute.parse(f"#ditron.swizzle_mode<{mode}>")
        )
        # All tiles of all ranks must be taken, or others than before would be.
        needed = make("arith.divsi", make("arith.addi", size, number(block - 1)), block_value)
        if shards.others is not None:
            needed = make("arith.muli", needed, shards.others)
        programs = make("tt.get_num_programs", axis=ir.IntegerAttr.get(i32, line.axis))
        if line.steps is None:
            taken = make("arith.subi", programs, number(line.first))
            if line.end is not None:
                taken = make("arith.minsi", taken, line.end)
            all_taken = compare("eq", needed, taken)
        else:
            all_taken = compare("eq", needed, line.end)
            if line.steps:
                enough = compare("sge", programs, number(line.steps))
                all_taken = make("arith.andi", all_taken, enough, type=all_taken.type)
        result = make("arith.select", all_taken, there, tile)
    reached = [
        use.owner
        for use in tile.uses
        if use.owner not in (there.owner, result.owner) and (shards.others is not None or shards.reaches(use))
    ]
    for op in reached:
        op.replace_uses_of_with(tile, result)
