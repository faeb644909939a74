"""Drop copies within a GPU: read the source in place, or write to the destination at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.argument_assumptions import alignment, is_dense, parameter_alignment
from ditron_compiler.analysis.buffer_effects import Access, Accesses, Region, kernel_of, region
from ditron_compiler.analysis.copy_forwarding import Kept, Turn, destination_for_writer, source_for_readers
from ditron_compiler.analysis.polynomial import NUM_RANKS, RANK, Dimension, Poly
from ditron_compiler.analysis.staging_buffers import put_from_source
from ditron_compiler.ir.dialects import arith, ditron, scf
from ditron_compiler.ir.dialects.enums import PREDICATES
from ditron_compiler.ir.host_builders import HostBuilder, programs
from ditron_compiler.ir.matchers import defining_op
from ditron_compiler.ir.pass_base import Pass

__all__ = ["EliminateCopies"]


@dataclass(frozen=True)
class EliminateCopies(Pass):
    """Drop copies within a GPU: read the source in place, or write to the destination at once.

    A copy within a GPU is a kernel: it costs bandwidth, and it needs an SM, which programs that wait may all hold. It
    goes away in two ways.

    *The source for the readers*: everything that reads what was copied reads the source instead. So the own shard is
    read in place, and a staging buffer before a push disappears. When of a loop over chunks only the first turn reads
    what was copied, that turn is taken out of the loop first.

    *The destination for the writer*: the one operation that wrote the source writes to the destination instead. So a
    result is not copied out of scratch memory.

    Inside kernels, a tile that is loaded, stored to memory of the program and put to a peer from there is put from
    where it was loaded.

    All need that nobody else, here or at a peer, touches the memory in between, and that memory which goes away was
    only a way station: not the caller's, not read before the copy is made (memory lives across calls). A launch is
    given a pointer and takes strides and alignment for granted. The alignment has to be known (``ditron.facts`` has
    what is known of arguments). Where the strides are not known to be the same, the program decides when it runs: it
    copies if they differ (``ditron.stride``). A tensor that the program writes overlaps none of its others (each call
    looks), and a kernel touches only the parts that it is given. A copy that stays is remarked, with the reason.

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
        for program in hosts if len(hosts) == 1 else []:  # who else launches a kernel must be known
            self._put_in_place(program)
        for program in hosts:
            kept: dict[ir.Operation, list[Kept]] = {}
            while (copy := _next_copy(program, kept)) is not None:
                reasons = self._eliminate(program, copy)
                if reasons is not None:
                    kept[copy] = reasons
            for copy, reasons in kept.items():
                if not copy.is_valid:  # it went with another copy, later
                    continue
                self.count("copies kept")
                copy.emit_remark(
                    "this copy stays: " + "; ".join(reason.why for reason in reasons),
                    [(reason.op, "here") for reason in reasons if reason.op is not None and reason.op.is_valid],
                )

    def _put_in_place(self, program: ir.Operation) -> None:
        """Drop staging memory inside the kernels of a program."""
        seen: set[tuple[str, int]] = set()
        for access in (accesses := Accesses(program)).all:
            if access.op.name != "ditron.launch":
                continue
            parameter = access.op.kernel.value, access.operand - len(access.op.grid)
            if parameter in seen:
                continue
            seen.add(parameter)
            try:
                if puts := put_from_source(accesses, access.op, access.operand):
                    self.count("puts whose source is sent in place", puts)
            except Kept as kept:
                access.op.emit_remark(
                    f"a kernel's copy to staging memory stays: {kept.why}",
                    [(kept.op, "here")] if kept.op is not None else None,
                )

    def _eliminate(self, program: ir.Operation, copy: ir.Operation) -> list[Kept] | None:
        """Drop a copy, or say why not."""
        reasons = []
        accesses = Accesses(program)
        try:
            _read_source(copy, source_for_readers(accesses, copy))
            self.count("copies whose source is read in place")
            return None
        except Turn as turn:
            _take_out_first_turn(turn.loop)
            self.count("first turns taken out of their loop")
            return self._eliminate(program, copy)
        except Kept as kept:
            reasons.append(kept)
        try:
            _write_destination(copy, destination_for_writer(accesses, copy))
            self.count("copies whose destination is written at once")
            return None
        except Kept as kept:
            return [*reasons, kept]


def _next_copy(program: ir.Operation, seen: dict[ir.Operation, list[Kept]]) -> ir.Operation | None:
    """The first copy that has not been looked at."""
    found: list[ir.Operation] = []
    program.walk(lambda op: found.append(op) if op.name == "ditron.copy" else None, ir.WalkOrder.PRE_ORDER)
    return next((op for op in found if op not in seen and _UNTIL not in op.attributes), None)


# A copy that is made only where strides differ.
_UNTIL = "ditron.strides_differ"


def _read_source(copy: ir.Operation, readers: list[Access]) -> None:
    target = region(copy.dst)
    new = [(reader, _part(copy, reader, target)) for reader in readers]
    _replace(copy, new, HostBuilder(copy))


def _write_destination(copy: ir.Operation, writer: Access) -> None:
    if writer.op.name != "ditron.launch" and copy.dst.type.rank != writer.op.operands[writer.operand].type.rank:
        raise Kept("the writer takes another number of dimensions", writer.op)
    for end in (copy.src, copy.dst):
        _hoist(end, writer.op)
    _replace(copy, [(writer, copy.dst)], HostBuilder(writer.op))


def _part(copy: ir.Operation, reader: Access, target: Region) -> ir.Value:
    """What the reader reads, of the copy's source."""
    operand = reader.op.operands[reader.operand]
    if reader.region == target:
        if reader.op.name != "ditron.launch" and operand.type.rank != copy.src.type.rank:
            raise Kept("it is read with another number of dimensions", reader.op)
        return copy.src
    build = HostBuilder(reader.op)
    rank = copy.src.type.rank
    offsets = [a - b for a, b in zip(reader.region.offsets, target.offsets, strict=True)][-rank:]
    sizes = reader.region.sizes[-rank:]
    numbers = [_number(build, poly, reader.op) for poly in (*offsets, *sizes)]
    return build.make(ditron.SliceOp, copy.src, numbers[:rank], numbers[rank:], drop=rank - operand.type.rank).result


def _number(build: HostBuilder, poly: Poly, reader: ir.Operation) -> int | ir.Value:
    """A polynomial as a number of the program."""
    if poly.value is not None:
        return poly.value
    total: ir.Value | None = None
    for product, factor in poly.terms:
        term = build.number(factor)
        for atom in product:
            if isinstance(atom, Dimension):
                value = build.make(ditron.DimOp, atom.buffer, atom.index).result
            elif atom in (RANK, NUM_RANKS):
                value = build.rank() if atom == RANK else build.num_ranks()
            elif isinstance(atom, ir.Value) and str(atom.type) == "i64":
                value = atom
            else:
                raise Kept("a part of it is read that is not said by an expression", reader)
            term = build.multiply(term, value)
        total = term if total is None else build.add(total, term)
    return total


def _replace(copy: ir.Operation, uses: list[tuple[Access, ir.Value]], build: HostBuilder) -> None:
    """Give each operation the buffer that it is to use, and drop the copy; at run time where strides decide."""
    launches = [access.op for access, _ in uses if access.op.name == "ditron.launch"]
    for access, buffer in uses:
        if access.op.name == "ditron.launch":
            _check_alignment(access.op, access.operand, buffer)
    same = _same_strides(build, copy) if launches else True
    for access, buffer in uses:
        if same is True or access.op.name != "ditron.launch":
            access.op.operands[access.operand] = buffer
            continue
        branch = _branch(HostBuilder(access.op), same)
        inside = access.op.clone(ip=ir.InsertionPoint(branch.then_block.operations[0]))
        inside.operands[access.operand] = buffer
        access.op.move_before(branch.else_block.operations[0])
    if same is True:
        copy.erase()
        return
    copy.attributes[_UNTIL] = ir.UnitAttr.get(context=copy.context)
    copy.emit_remark("this copy is made only when the strides of its source and its destination differ")
    branch = _branch(HostBuilder(copy), same)
    copy.move_before(branch.else_block.operations[0])


def _branch(build: HostBuilder, condition: ir.Value) -> ir.Operation:
    """An ``if`` with both sides empty."""
    branch = build.make(scf.IfOp, condition, has_else=True)
    for block in (branch.then_block, branch.else_block):
        scf.YieldOp([], loc=build.loc, ip=ir.InsertionPoint(block))
    return branch


def _same_strides(build: HostBuilder, copy: ir.Operation) -> ir.Value | bool:
    """Whether both ends of a copy have the same strides: True, or what says so when the program runs."""
    differing = []
    rank, dynamic = copy.src.type.rank, ir.ShapedType.get_dynamic_size()
    for i in range(rank):
        sizes = copy.src.type.shape[i], copy.dst.type.shape[i]
        if 1 not in sizes and (dynamic in sizes or sizes[0] > 1) and _stride(copy.src, i) != _stride(copy.dst, i):
            differing.append(i)
    condition: ir.Value | bool = True
    for i in differing:
        strides = [build.make(ditron.StrideOp, end, i).result for end in (copy.src, copy.dst)]
        equal = build.make(arith.CmpIOp, PREDICATES["eq"], *strides).result
        condition = equal if condition is True else build.make(arith.AndIOp, condition, equal).result
    return condition


@dataclass(frozen=True)
class _Stride:
    """A stride of an argument."""

    buffer: ir.Value
    index: int


def _stride(buffer: ir.Value, index: int) -> Poly:
    """The distance of neighbours along a dimension, in elements."""
    whole = region(buffer)
    index += len(whole.sizes) - buffer.type.rank
    return _stride_of(whole.root, index)


def _stride_of(root: ir.Value, index: int) -> Poly:
    if not isinstance(root, ir.OpResult) and not is_dense(root):
        return Poly.atom(_Stride(root, index))
    product = Poly.number(1)
    for size in region(root).sizes[index + 1 :]:
        product *= size
    return product


def _check_alignment(launch: ir.Operation, operand: int, buffer: ir.Value) -> None:
    """Raises Kept when the kernel takes more for granted about the address than is known of ``buffer``."""
    needed = parameter_alignment(kernel_of(launch), operand - len(launch.grid))
    part = region(buffer)
    offset = Poly.number(0)
    for index, first in enumerate(part.offsets):
        offset += first * _stride_of(part.root, index)
    if alignment(part.root, offset, _itemsize(buffer.type.element_type)) % needed:
        raise Kept(f"the kernel takes the address to be divisible by {needed}", launch)


def _itemsize(kind: ir.Type) -> int:
    return max(kind.width // 8, 1)


def _hoist(value: ir.Value, before: ir.Operation) -> None:
    """Move what ``value`` is computed by, in the block of ``before``, to before it. Raises Kept when that cannot be."""
    op = defining_op(value)
    if op is None or op.block != before.block or op.is_before_in_block(before):
        return
    if op.name not in ("ditron.slice", "ditron.dim", "ditron.stride", "ditron.alloc") and not op.is_memory_effect_free:
        raise Kept("the destination is not known before the source is written", op)
    for operand in op.operands:
        _hoist(operand, before)
    op.move_before(before)


def _take_out_first_turn(loop: ir.Operation) -> None:
    """Put the first turn of a loop, which there is, before it."""
    block = loop.regions[0].blocks[0]
    build_at = ir.InsertionPoint(loop)
    mapping = {block.arguments[0]: loop.operands[0]}
    for op in list(block.operations)[:-1]:
        clone = op.clone(ip=build_at, mapping=mapping)
        mapping |= dict(zip(op.results, clone.results, strict=True))
    i64 = loop.operands[0].type
    one = arith.ConstantOp(i64, 1, loc=loop.location, ip=build_at).result
    loop.operands[0] = arith.AddIOp(loop.operands[0], one, loc=loop.location, ip=build_at).result
