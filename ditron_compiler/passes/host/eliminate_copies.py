"""Remove copies within a GPU: read the source in place, or write to the destination directly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.argument_assumptions import alignment, is_contiguous, parameter_alignment
from ditron_compiler.analysis.buffer_effects import (
    BufferAccess,
    BufferRegion,
    ProgramAccesses,
    buffer_region,
    kernel_of,
)
from ditron_compiler.analysis.copy_forwarding import NeedsPeeling, destination_for_writer, source_for_readers
from ditron_compiler.analysis.host_expressions import NUM_RANKS, RANK, Dimension
from ditron_compiler.analysis.linear import Polynomial
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.analysis.staging_buffers import staged_puts
from ditron_compiler.ir.dialects import arith, ditron, scf
from ditron_compiler.ir.host_builders import HostBuilder, programs
from ditron_compiler.ir.matchers import defining_op
from ditron_compiler.ir.pass_base import Pass

__all__ = ["EliminateCopies"]


@dataclass(frozen=True)
class EliminateCopies(Pass):
    """Remove copies within a GPU: read the source in place, or write to the destination directly.

    A copy within a GPU is a kernel: it costs bandwidth, and it needs an SM, which spinning programs may all occupy. It
    is removed in one of two ways.

    *The readers read the source*: everything that reads what was copied reads the source instead. So the own shard is
    read in place, and a staging buffer before a push disappears. When only the first iteration of a loop over chunks
    reads what was copied, that iteration is peeled first.

    *The writer writes the destination*: the one operation that wrote the source writes to the destination instead. So a
    result is not copied out of scratch memory.

    Inside kernels, a tile that is loaded, stored to a staging buffer and put to a peer from there is put from where it
    was loaded.

    All require that nothing else, on this rank or a peer, accesses the memory in between, and that a buffer which goes
    away is only a staging buffer: no argument, and not read before the copy (memory lives across calls). A launch
    passes a pointer, and the kernel assumes strides and alignment. The alignment has to be known
    (``ditron.assumptions`` has what is known of arguments). Where the strides are not known to be equal, the program
    decides at run time: it copies if they differ (``ditron.stride``). It is assumed that a tensor which the program
    writes overlaps no other argument (each call checks), and that a kernel accesses only the parts that it is passed.
    A copy that is kept has a remark with the reason.

    Before::

        ditron.copy %a to %own : <?x?xbf16> to <?x?xbf16, symmetric>
        scf.for %step = %c1 to %num_ranks step %c1 : i64 {
          ditron.rank_copy %own to %own on %peer : <?x?xbf16, symmetric> to <?x?xbf16, symmetric>
        }

    After::

        scf.for %step = %c1 to %num_ranks step %c1 : i64 {
          ditron.rank_copy %a to %own on %peer : <?x?xbf16> to <?x?xbf16, symmetric>
        }
    """

    name: ClassVar[str] = "eliminate-copies"

    def run(self, op: ir.Operation) -> None:
        hosts = list(programs(op))
        for program in hosts if len(hosts) == 1 else []:  # all launches of a kernel must be known
            self._put_in_place(program)
        for program in hosts:
            kept: dict[ir.Operation, list[MatchFailure]] = {}
            while (copy := _next_copy(program, kept)) is not None:
                failures = self._eliminate(program, copy)
                if failures is not None:
                    kept[copy] = failures
            for copy, failures in kept.items():
                if not copy.is_valid:  # removed with another copy, later
                    continue
                self.count("copies kept")
                copy.emit_remark(
                    "copy kept: " + "; ".join(failure.reason for failure in failures),
                    [(failure.op, "here") for failure in failures if failure.op is not None and failure.op.is_valid],
                )

    def _put_in_place(self, program: ditron.ProgramOp) -> None:
        """Remove staging buffers inside the kernels of a program."""
        seen: set[tuple[str, int]] = set()
        for access in (accesses := ProgramAccesses(program)).all:
            if not isinstance(access.op, ditron.LaunchOp):
                continue
            parameter = access.op.kernel.value, access.operand - len(access.op.grid)
            if parameter in seen:
                continue
            seen.add(parameter)
            try:
                staged = staged_puts(accesses, access.op, access.operand)
            except MatchFailure as failure:
                access.op.emit_remark(
                    f"a kernel's copy to a staging buffer kept: {failure.reason}",
                    [(failure.op, "here")] if failure.op is not None else None,
                )
                continue
            for one in staged:
                one.put.operands[1] = one.source
            for store in {one.store for one in staged}:
                store.erase()
            if staged:
                self.count("puts whose source is read in place", len(staged))

    def _eliminate(self, program: ditron.ProgramOp, copy: ditron.CopyOp) -> list[MatchFailure] | None:
        """Remove a copy; otherwise why neither way applies."""
        failures = []
        accesses = ProgramAccesses(program)
        try:
            _read_source(copy, source_for_readers(accesses, copy))
            self.count("copies whose source is read in place")
            return None
        except NeedsPeeling as peeling:
            _peel_first_iteration(peeling.loop)
            self.count("first iterations peeled")
            return self._eliminate(program, copy)
        except MatchFailure as failure:
            failures.append(failure)
        try:
            _write_destination(copy, destination_for_writer(accesses, copy))
            self.count("copies whose destination is written directly")
            return None
        except MatchFailure as failure:
            return [*failures, failure]


def _next_copy(program: ditron.ProgramOp, kept: dict[ir.Operation, list[MatchFailure]]) -> ditron.CopyOp | None:
    """The first copy that was not yet tried."""
    found: list[ditron.CopyOp] = []
    program.walk(lambda op: found.append(op) if isinstance(op, ditron.CopyOp) else None, ir.WalkOrder.PRE_ORDER)
    return next((op for op in found if op not in kept and _CONDITIONAL not in op.attributes), None)


#: Attribute of a copy that is executed only where strides differ.
_CONDITIONAL = "ditron.strides_differ"


def _read_source(copy: ditron.CopyOp, readers: list[BufferAccess]) -> None:
    target = buffer_region(copy.dst)
    new = [(reader, _source_part(copy, reader, target)) for reader in readers]
    _replace(copy, new, HostBuilder(copy))


def _write_destination(copy: ditron.CopyOp, writer: BufferAccess) -> None:
    is_launch = isinstance(writer.op, ditron.LaunchOp)
    if not is_launch and copy.dst.type.rank != writer.op.operands[writer.operand].type.rank:
        raise MatchFailure("the writer takes a buffer with another number of dimensions", writer.op)
    for end in (copy.src, copy.dst):
        _hoist(end, writer.op)
    _replace(copy, [(writer, copy.dst)], HostBuilder(writer.op))


def _source_part(copy: ditron.CopyOp, reader: BufferAccess, target: BufferRegion) -> ir.Value:
    """The slice of the copy's source that the reader reads."""
    operand = reader.op.operands[reader.operand]
    if reader.region == target:
        if not isinstance(reader.op, ditron.LaunchOp) and operand.type.rank != copy.src.type.rank:
            raise MatchFailure("it is read with another number of dimensions", reader.op)
        return copy.src
    build = HostBuilder(reader.op)
    rank = copy.src.type.rank
    offsets = [a - b for a, b in zip(reader.region.offsets, target.offsets, strict=True)][-rank:]
    sizes = reader.region.sizes[-rank:]
    numbers = [_materialize(build, polynomial, reader.op) for polynomial in (*offsets, *sizes)]
    return build.make(ditron.SliceOp, copy.src, numbers[:rank], numbers[rank:], drop=rank - operand.type.rank).result


def _materialize(build: HostBuilder, polynomial: Polynomial, reader: ir.Operation) -> int | ir.Value:
    """A polynomial as a number of the program."""
    if polynomial.value is not None:
        return polynomial.value
    total: ir.Value | None = None
    for monomial, coefficient in polynomial.terms.items():
        term = build.number(coefficient)
        for symbol in monomial:
            if isinstance(symbol, Dimension):
                value = build.make(ditron.DimOp, symbol.buffer, symbol.index).result
            elif symbol in (RANK, NUM_RANKS):
                value = build.rank() if symbol == RANK else build.num_ranks()
            elif isinstance(symbol, ir.Value) and str(symbol.type) == "i64":
                value = symbol
            else:
                raise MatchFailure("the part that is read has no expression that can be computed there", reader)
            term = build.multiply(term, value)
        total = term if total is None else build.add(total, term)
    return total


def _replace(copy: ditron.CopyOp, uses: list[tuple[BufferAccess, ir.Value]], build: HostBuilder) -> None:
    """Give each operation its new buffer, and remove the copy; at run time where that depends on strides."""
    launches = [(access, buffer) for access, buffer in uses if isinstance(access.op, ditron.LaunchOp)]
    for access, buffer in launches:
        _check_alignment(access.op, access.operand, buffer)
    same = _same_strides(build, copy) if launches else True
    for access, buffer in uses:
        if same is True or not isinstance(access.op, ditron.LaunchOp):
            access.op.operands[access.operand] = buffer
            continue
        branch = _empty_if(HostBuilder(access.op), same)
        inside = access.op.clone(ip=ir.InsertionPoint(branch.then_block.operations[0]))
        inside.operands[access.operand] = buffer
        access.op.move_before(branch.else_block.operations[0])
    if same is True:
        copy.erase()
        return
    copy.attributes[_CONDITIONAL] = ir.UnitAttr.get(context=copy.context)
    copy.emit_remark("this copy is executed only when the strides of its source and its destination differ")
    branch = _empty_if(HostBuilder(copy), same)
    copy.move_before(branch.else_block.operations[0])


def _empty_if(build: HostBuilder, condition: ir.Value) -> scf.IfOp:
    """An ``if`` with an empty block on either side."""
    branch = build.make(scf.IfOp, condition, has_else=True)
    for block in (branch.then_block, branch.else_block):
        scf.YieldOp([], loc=build.loc, ip=ir.InsertionPoint(block))
    return branch


def _same_strides(build: HostBuilder, copy: ditron.CopyOp) -> ir.Value | bool:
    """Whether the source and the destination have the same strides: True, or the condition that tells at run time."""
    differing = []
    rank, dynamic = copy.src.type.rank, ir.ShapedType.get_dynamic_size()
    for i in range(rank):
        sizes = copy.src.type.shape[i], copy.dst.type.shape[i]
        if 1 not in sizes and (dynamic in sizes or sizes[0] > 1) and _stride(copy.src, i) != _stride(copy.dst, i):
            differing.append(i)
    condition: ir.Value | bool = True
    for i in differing:
        strides = [build.make(ditron.StrideOp, end, i).result for end in (copy.src, copy.dst)]
        equal = build.make(arith.CmpIOp, arith.CmpIPredicate.eq, *strides).result
        condition = equal if condition is True else build.make(arith.AndIOp, condition, equal).result
    return condition


@dataclass(frozen=True)
class _Stride:
    """A stride of an argument: a symbol."""

    buffer: ir.Value
    index: int


def _stride(buffer: ir.Value, index: int) -> Polynomial:
    """The stride of a buffer along a dimension, in elements."""
    whole = buffer_region(buffer)
    index += len(whole.sizes) - buffer.type.rank
    return _stride_of_root(whole.root, index)


def _stride_of_root(root: ir.Value, index: int) -> Polynomial:
    if not isinstance(root, ir.OpResult) and not is_contiguous(root):
        return Polynomial.symbol(_Stride(root, index))
    product = Polynomial.constant(1)
    for size in buffer_region(root).sizes[index + 1 :]:
        product *= size
    return product


def _check_alignment(launch: ditron.LaunchOp, operand: int, buffer: ir.Value) -> None:
    """Raises MatchFailure when the kernel assumes a larger alignment than is known of ``buffer``."""
    needed = parameter_alignment(kernel_of(launch), operand - len(launch.grid))
    part = buffer_region(buffer)
    offset = Polynomial.constant(0)
    for index, first in enumerate(part.offsets):
        offset += first * _stride_of_root(part.root, index)
    if alignment(part.root, offset, _itemsize(buffer.type.element_type)) % needed:
        raise MatchFailure(f"the kernel assumes that the address is divisible by {needed}", launch)


def _itemsize(kind: ir.Type) -> int:
    return max(kind.width // 8, 1)


def _hoist(value: ir.Value, before: ir.Operation) -> None:
    """Move the operations of the block of ``before`` that compute ``value`` to before it. Raises MatchFailure."""
    op = defining_op(value)
    if op is None or op.block != before.block or op.is_before_in_block(before):
        return
    movable = isinstance(op, ditron.SliceOp | ditron.DimOp | ditron.StrideOp | ditron.AllocOp)
    if not movable and not op.is_memory_effect_free:
        raise MatchFailure("the destination cannot be computed before the source is written", op)
    for operand in op.operands:
        _hoist(operand, before)
    op.move_before(before)


def _peel_first_iteration(loop: scf.ForOp) -> None:
    """Move the first iteration of a loop, which has at least one, to before it."""
    block = loop.body
    at = ir.InsertionPoint(loop)
    mapping = {loop.induction_variable: loop.lowerBound}
    for op in list(block.operations)[:-1]:
        clone = op.clone(ip=at, mapping=mapping)
        mapping |= dict(zip(op.results, clone.results, strict=True))
    one = arith.ConstantOp(loop.lowerBound.type, 1, loc=loop.location, ip=at).result
    loop.operands[0] = arith.AddIOp(loop.lowerBound, one, loc=loop.location, ip=at).result
