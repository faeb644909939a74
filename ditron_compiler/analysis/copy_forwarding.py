"""When the source of a copy can stand for its destination, or its destination for what was written to the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.buffer_effects import Access, Accesses, Region, region
from ditron_compiler.analysis.polynomial import Index, Poly, at_least, expression
from ditron_compiler.ir.matchers import constant_int, defining_op

__all__ = ["Kept", "Turn", "destination_for_writer", "loops_around", "source_for_readers"]


class Kept(Exception):
    """Why a copy stays, and the operation that is the reason, if it is one."""

    def __init__(self, why: str, op: ir.Operation | None = None):
        super().__init__(why)
        self.why, self.op = why, op


@dataclass
class Turn(Exception):
    """Only the first turn of ``loop`` reads what was copied: it has to be taken out of the loop."""

    loop: ir.Operation


def source_for_readers(accesses: Accesses, copy: ir.Operation) -> list[Access]:
    """The reads of what ``copy`` wrote, which may all read its source instead. Raises Kept, or Turn."""
    source, target = region(copy.src), region(copy.dst)
    what = _name(target.root)
    if not isinstance(target.root, ir.OpResult):
        raise Kept(f"'{what}' is the caller's, who reads it after the program", None)
    readers: list[Access] = []
    for access in _others(accesses, copy, target):
        if access.peer is not None:
            raise Kept(f"peers {'write' if access.writes else 'read'} '{what}' there, too", access.op)
        if access.writes:
            raise Kept(f"'{what}' is written there by something else, too", access.op)
        if not _after(copy, access.op):
            raise Kept(f"'{what}' is also read where the copy has not been made", access.op)
        if not target.contains(access.region):
            if loop := _first_turn(access, copy, target):
                raise Turn(loop)
            raise Kept(f"'{what}' is read together with what did not come by this copy", access.op)
        readers.append(access)
    _check_steady(accesses, copy, source, readers)
    return readers


def destination_for_writer(accesses: Accesses, copy: ir.Operation) -> Access:
    """The one write of what ``copy`` reads, which may write to its destination instead. Raises Kept."""
    source, target = region(copy.src), region(copy.dst)
    what, where = _name(source.root), _name(target.root)
    if not isinstance(source.root, ir.OpResult):
        raise Kept(f"'{what}' is the caller's and was not written by the program")
    writers = []
    for access in _others(accesses, copy, source):
        if access.peer is not None:
            raise Kept(f"peers {'write' if access.writes else 'read'} '{what}'", access.op)
        if access.reads:
            raise Kept(f"'{what}' is read by something else, too", access.op)
        writers.append(access)
    if len(writers) != 1:
        raise Kept(f"'{what}' is written by {len(writers)} operations", writers[0].op if writers else None)
    (writer,) = writers
    if writer.op.block != copy.block or not writer.op.is_before_in_block(copy):
        raise Kept(f"'{what}' is not written just before the copy, in the same turn of the same loop", writer.op)
    if writer.region != source:
        raise Kept(f"another part of '{what}' is written than is copied", writer.op)
    if writer.op.stream != copy.stream:
        raise Kept(f"'{what}' is written on another stream", writer.op)
    if writer.op.name == "ditron.launch" and "zeroed" in source.root.owner.attributes:
        raise Kept(f"'{what}' begins as zeros, and the kernel need not overwrite all of them", writer.op)
    order = accesses.order
    for access in _others(accesses, copy, target):
        between = order[writer.op] <= order[access.op] < order[copy]
        if between or access.peer is not None:
            raise Kept(f"'{where}' is used there before the copy", access.op)
        if access.op.stream != copy.stream and (sync := _awaits(writer.op, copy)) is not None:
            raise Kept(f"'{where}' is used there on another stream, which is awaited before the copy only", sync)
    return writer


def _awaits(first: ir.Operation, last: ir.Operation) -> ir.Operation | None:
    """What waits for another stream or a peer, between two operations of a block."""
    op = first.next_op
    while op != last:
        if op.regions or op.name in ("ditron.await", "ditron.signal_wait", "ditron.stream_barrier"):
            return op
        op = op.next_op
    return None


def _others(accesses: Accesses, copy: ir.Operation, part: Region) -> Iterator[Access]:
    """What touches ``part`` of this rank's memory beside ``copy``, here or from peers."""
    in_loop = bool(loops_around(copy))
    for access in accesses.all:
        if access.op == copy or access.region.root != part.root:
            continue
        touched = access.region if access.peer is None else access.from_peers()
        # In a loop, what is apart in one turn may meet in two.
        if touched is None or in_loop or not touched.is_disjoint(part):
            yield access


def _check_steady(accesses: Accesses, copy: ir.Operation, source: Region, readers: list[Access]) -> None:
    """Nothing may overwrite the source before the readers have read."""
    order, what = accesses.order, _name(source.root)
    last = max((order[reader.op] for reader in readers), default=order[copy])
    for access in _others(accesses, copy, source):
        if not access.writes:
            continue
        if access.peer is not None:
            if (told := _tells_peers(accesses, order[copy], last)) is not None:
                raise Kept(f"peers write '{what}', and are told before the last read that they may", told)
            continue
        at = order[access.op]
        again = any(loop.is_ancestor(access.op) for loop in loops_around(copy))
        if order[copy] < at <= last or again and at > order[copy]:
            raise Kept(f"'{what}' is overwritten before the last read", access.op)
        if (at > last or again) and any(reader.op.stream != access.op.stream for reader in readers):
            raise Kept(f"'{what}' is overwritten on another stream, which waits for the copy only", access.op)


def _tells_peers(accesses: Accesses, first: int, last: int) -> ir.Operation | None:
    """What lets peers go on, between two places of the program."""
    for op, at in accesses.order.items():
        if first < at < last:
            remote = op.name == "ditron.launch" and any(use.remote for use in accesses.kernel(op))
            if remote or op.name in ("ditron.signal_write", "ditron.stream_barrier"):
                return op
    return None


def _first_turn(access: Access, copy: ir.Operation, target: Region) -> ir.Operation | None:
    """The loop after ``copy`` of which the first turn reads the target, and no other turn any of it."""
    for loop in loops_around(access.op):
        if loop.block != copy.block or len(loop.operands) != 3 or constant_int(loop.operands[2]) != 1:
            continue
        index, (low, high) = loop.regions[0].blocks[0].arguments[0], map(expression, loop.operands[:2])
        first = access.region.replace(index, low)
        rest = access.region.replace(index, Poly.atom(Index(low + 1, high - 1)))
        if at_least(high - low, 1) and target.contains(first) and rest.is_disjoint(target):
            return loop
    return None


def _after(copy: ir.Operation, op: ir.Operation) -> bool:
    """Whether ``op`` comes after ``copy``, in its block or in something there."""
    while op is not None and op.block != copy.block:
        op = op.parent
    return op is not None and copy.is_before_in_block(op)


def loops_around(op: ir.Operation) -> list[ir.Operation]:
    """The loops that ``op`` is in, the innermost first."""
    found = []
    while (op := op.parent) is not None and op.name != "ditron.program":
        if op.name == "scf.for":
            found.append(op)
    return found


def _name(root: ir.Value) -> str:
    """What the program calls an argument or an allocation."""
    op = defining_op(root)
    if op is not None:
        return ir.StringAttr(op.attributes["label"]).value
    return ir.StringAttr(list(root.owner.owner.attributes["arg_names"])[root.arg_number]).value
