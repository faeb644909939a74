"""Put a kernel's tiles into the order in which their data arrives, or is waited for."""

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
    """Reorder the tiles of kernels whose author did not.

    In a kernel without `ditron.swizzle`, the pass looks for the division that makes a tile index of the program's
    number (or of the counter of a loop over tiles), and for who depends on the owner of the tile: a wait, by the
    signals it waits for, makes the order *gather*; a send (`notify`, `putmem`, `putmem_signal`, `symm_at`,
    `signal_op`), by its rank or its signal, makes it *scatter*. The owner shows the sharded dimension: of
    `tile * block / shard` it is `shard * num_ranks` rows in tiles of `block`, of `tile / shard` as many tiles, and a
    tile that is itself the rank of a send is one of `num_ranks`.

    The author's word goes first: `mode` of the pass (pipelines `swizzled-gather` and `swizzled-scatter`), or
    `ditron.swizzle_mode = #ditron.swizzle_mode<gather>` on the kernel, says which of the two is wanted where both are
    found; `dl.swizzle` in the kernel says everything.

    What the pass cannot prove it leaves alone, and a remark says why: when a program's work depends on its number
    otherwise than by the tile, when the order depends on the own rank already, when there are two sharded dimensions,
    when a tile index is made otherwise than by that division: mirrored, ``tiles - 1 - tile``, or as a remainder.
    How many programs are launched is known at run time only, so the kernel looks whether they take all tiles, and
    keeps its own order if not.

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
        %m = arith.select %all_tiles_are_taken, %there, %plain
    """

    name: ClassVar[str] = "insert-swizzle"
    mode: str = option("auto", "gather, scatter, or auto: the one that is found", one_of=("auto", "gather", "scatter"))

    def run(self, op: ir.Operation) -> None:
        for function in [f for f in functions(op) if "ditron.kernel" in f.attributes]:
            try:
                self._reorder(function)
            except NotFound as why:
                (why.at or function).emit_remark(f"tiles keep their order: {why}")
                self.count("kernels left alone")

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
        user.emit_remark(f"tiles come in {wanted} order, because their owners are what this operation depends on")
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
            "this send and a wait depend on the owner of a tile, and ask for different orders; say which "
            "by mode=gather or mode=scatter",
            next(iter(found["scatter"].values())),
        )
    return "gather" if found["gather"] else "scatter"


def _agree(found: dict[Shards, ir.Operation]) -> tuple[Shards, ir.Operation]:
    """The one sharded dimension that all operations mean."""
    (first, user), *others = found.items()
    for other, at in others:
        if other != first:
            raise NotFound(
                "this operation and another one depend on different tile indices, or on differently sharded ones", at
            )
    return first, user


def _has_order(op: ir.Operation) -> bool:
    """Whether the author has put the tiles of a wait or a send in order: by this rank's number."""
    value = op.operands[0] if op.name in _WAITS else op.operands[-1] if op.name in _SENDS else None
    return value is not None and depends_on_rank(value)


def _nothing(ours: list[ir.Operation]) -> NotFound:
    by_hand = next(filter(_has_order, ours), None)
    if by_hand is not None:
        return NotFound("the order depends on the own rank already", by_hand)
    for op in ours:
        for value, is_rank in (*_waited(op), *_sent(op)):
            if (made_by := other_index(value, is_rank)) is not None:
                return NotFound(
                    f"the owner of a tile is computed from this '{made_by.name}', and only the place in "
                    "the line of tiles and its quotient are taken for a tile index: make it by "
                    "program_id // others, or call dl.swizzle",
                    made_by,
                )
    return NotFound("no wait and no send depends on the owner of a tile, rank = tile * block // rows_per_rank")


def _insert(mode: str, shards: Shards, line: Line) -> None:
    """Put the swizzle behind what makes the tile index, for all who use it."""
    tile = shards.tile
    i32 = ir.IntegerType.get_signless(32, context=tile.context)
    block = 1 if shards.block is None else constant_int(shards.block)
    if tile.type != i32:
        raise NotFound(f"the tile index is an {tile.type}, and orders are computed in i32", shards.origin)
    if block is None or block < 1:
        raise NotFound("the rows of a tile are not a positive constant", shards.origin)
    # Of a place in the line, the branch that computes with it is reordered.
    here = shards.others is not None or defining_op(tile) is not None and tile.owner.block == shards.at.block
    place = ir.InsertionPoint.after(tile.owner) if here else ir.InsertionPoint.at_block_begin(shards.at.block)
    for value in (shards.shard, line.end):
        if value is not None and (value.type != i32 or not available(value, place.ref_operation)):
            raise NotFound(
                "the rows of a rank, or the number of tiles, are computed behind the tile index: compute "
                "them before it",
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
