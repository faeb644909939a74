"""Whether the source of a copy can replace its destination, or the destination what was written to the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.buffer_effects import BufferAccess, BufferRegion, ProgramAccesses, buffer_region
from ditron_compiler.analysis.dependence import enclosing_loops
from ditron_compiler.analysis.host_expressions import Interval, at_least, expression
from ditron_compiler.analysis.linear import Polynomial
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.ir.dialects import ditron, scf
from ditron_compiler.ir.matchers import constant_int, defining_op

__all__ = ["NeedsPeeling", "destination_for_writer", "source_for_readers"]


@dataclass
class NeedsPeeling(Exception):
    """Only the first iteration of ``loop`` reads what was copied: it has to be peeled."""

    loop: scf.ForOp


def source_for_readers(accesses: ProgramAccesses, copy: ditron.CopyOp) -> list[BufferAccess]:
    """The reads of the destination of ``copy``, if all may read its source instead.

    Raises MatchFailure, or NeedsPeeling.
    """
    source, target = buffer_region(copy.src), buffer_region(copy.dst)
    name = _name(target.root)
    if not isinstance(target.root, ir.OpResult):
        raise MatchFailure(f"'{name}' is an argument, which the caller reads after the program")
    readers: list[BufferAccess] = []
    for access in _other_accesses(accesses, copy, target):
        if access.peer is not None:
            raise MatchFailure(f"peers {'write' if access.writes else 'read'} the destination in '{name}'", access.op)
        if access.writes:
            raise MatchFailure(f"another operation writes the destination in '{name}'", access.op)
        if not _is_after(copy, access.op):
            raise MatchFailure(f"'{name}' is read where the copy does not dominate", access.op)
        if access.by_descriptor:
            raise MatchFailure(
                f"'{name}' is read by a tensor descriptor, whose strides are those of '{name}'", access.op
            )
        if not target.contains(access.region):
            if loop := _reading_in_first_iteration(access, copy, target):
                raise NeedsPeeling(loop)
            raise MatchFailure(f"a read of '{name}' covers more than the copy wrote", access.op)
        readers.append(access)
    _check_source_unchanged(accesses, copy, source, readers)
    return readers


def destination_for_writer(accesses: ProgramAccesses, copy: ditron.CopyOp) -> BufferAccess:
    """The one write of the source of ``copy``, if it may write to the destination instead. Raises MatchFailure."""
    source, target = buffer_region(copy.src), buffer_region(copy.dst)
    name, target_name = _name(source.root), _name(target.root)
    if not isinstance(source.root, ir.OpResult):
        raise MatchFailure(f"'{name}' is an argument, which the program has not written")
    writers = []
    for access in _other_accesses(accesses, copy, source):
        if access.peer is not None:
            raise MatchFailure(f"peers {'write' if access.writes else 'read'} '{name}'", access.op)
        if access.reads:
            raise MatchFailure(f"another operation reads '{name}'", access.op)
        writers.append(access)
    if len(writers) != 1:
        raise MatchFailure(f"{len(writers)} operations write '{name}'", writers[0].op if writers else None)
    (writer,) = writers
    if writer.by_descriptor:
        raise MatchFailure(
            f"'{name}' is written by a tensor descriptor, whose strides are those of '{name}'", writer.op
        )
    if writer.op.block != copy.block or not writer.op.is_before_in_block(copy):
        raise MatchFailure(f"'{name}' is not written before the copy in the same block", writer.op)
    if writer.region != source:
        raise MatchFailure(f"the part of '{name}' that is written is not the part that is copied", writer.op)
    if writer.op.stream != copy.stream:
        raise MatchFailure(f"'{name}' is written on another stream", writer.op)
    if isinstance(writer.op, ditron.LaunchOp) and source.root.owner.zeroed:
        raise MatchFailure(f"'{name}' is zero-initialized, and the kernel may not overwrite all of it", writer.op)
    order = accesses.order
    for access in _other_accesses(accesses, copy, target):
        between = order[writer.op] <= order[access.op] < order[copy]
        if between or access.peer is not None:
            raise MatchFailure(f"the destination in '{target_name}' is accessed before the copy", access.op)
        if access.op.stream != copy.stream and (sync := _synchronization(writer.op, copy)) is not None:
            raise MatchFailure(
                f"the destination in '{target_name}' is accessed on another stream, which is awaited only right before "
                "the copy",
                sync,
            )
    return writer


def _synchronization(first: ir.Operation, last: ir.Operation) -> ir.Operation | None:
    """An operation that waits for another stream or a peer, between two operations of a block."""
    op = first.next_op
    while op != last:
        if op.regions or isinstance(op, ditron.AwaitOp | ditron.SignalWaitOp | ditron.StreamBarrierOp):
            return op
        op = op.next_op
    return None


def _other_accesses(accesses: ProgramAccesses, copy: ir.Operation, part: BufferRegion) -> Iterator[BufferAccess]:
    """The accesses of ``part`` of this rank's memory by other operations than ``copy``, on this rank or by peers."""
    in_loop = bool(enclosing_loops(copy))
    for access in accesses.all:
        if access.op == copy or access.region.root != part.root:
            continue
        accessed = access.region if access.peer is None else access.by_peers()
        # Regions that are disjoint in one iteration may overlap across two.
        if accessed is None or in_loop or not accessed.is_disjoint(part):
            yield access


def _check_source_unchanged(
    accesses: ProgramAccesses, copy: ir.Operation, source: BufferRegion, readers: list[BufferAccess]
) -> None:
    """The source must not be overwritten before the readers have read it. Raises MatchFailure."""
    order, name = accesses.order, _name(source.root)
    last = max((order[reader.op] for reader in readers), default=order[copy])
    for access in _other_accesses(accesses, copy, source):
        if not access.writes:
            continue
        if access.peer is not None:
            if (signal := _signal_to_peers(accesses, order[copy], last)) is not None:
                raise MatchFailure(f"peers write '{name}', and may be signaled before its last read", signal)
            continue
        at = order[access.op]
        in_same_loop = any(loop.is_ancestor(access.op) for loop in enclosing_loops(copy))
        if order[copy] < at <= last or in_same_loop and at > order[copy]:
            raise MatchFailure(f"'{name}' is overwritten before its last read", access.op)
        if (at > last or in_same_loop) and any(reader.op.stream != access.op.stream for reader in readers):
            raise MatchFailure(f"'{name}' is overwritten on another stream, which waits for the copy only", access.op)


def _signal_to_peers(accesses: ProgramAccesses, first: int, last: int) -> ir.Operation | None:
    """An operation that may let peers proceed, between two points of the program."""
    for op, at in accesses.order.items():
        if first < at < last:
            remote = isinstance(op, ditron.LaunchOp) and any(use.remote for use in accesses.argument_effects(op))
            if remote or isinstance(op, ditron.SignalWriteOp | ditron.StreamBarrierOp):
                return op
    return None


def _reading_in_first_iteration(access: BufferAccess, copy: ir.Operation, target: BufferRegion) -> scf.ForOp | None:
    """The loop after ``copy`` whose first iteration reads within the target, and whose others read none of it."""
    for loop in enclosing_loops(access.op):
        if loop.block != copy.block or len(loop.initArgs) or constant_int(loop.step) != 1:
            continue
        index, low, high = loop.induction_variable, expression(loop.lowerBound), expression(loop.upperBound)
        first = access.region.replace(index, low)
        rest = access.region.replace(index, Polynomial.symbol(Interval(low + 1, high - 1)))
        if at_least(high - low, 1) and target.contains(first) and rest.is_disjoint(target):
            return loop
    return None


def _is_after(copy: ir.Operation, op: ir.Operation) -> bool:
    """Whether ``op`` follows ``copy`` in its block, or is nested in an operation that does."""
    while op is not None and op.block != copy.block:
        op = op.parent
    return op is not None and copy.is_before_in_block(op)


def _name(root: ir.Value) -> str:
    """The name that the program gives an argument or an allocation."""
    op = defining_op(root)
    if op is not None:
        return ir.StringAttr(op.label).value
    return ir.StringAttr(list(root.owner.owner.arg_names)[root.arg_number]).value
