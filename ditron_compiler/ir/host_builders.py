"""Build operations of host programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, ditron, scf

__all__ = ["WITH_COPY", "AllGatherBuilder", "HostBuilder", "all_gathers", "programs", "with_stream"]

#: Attribute of a signal write or wait: it orders the copy next to it, and nothing else.
WITH_COPY = "ditron.with_copy"


def programs(module: ir.Operation) -> Iterator[ditron.ProgramOp]:
    """The host programs of a module."""
    return (op for op in list(module.regions[0].blocks[0].operations) if isinstance(op, ditron.ProgramOp))


def all_gathers(module: ir.Operation) -> list[ditron.AllGatherOp]:
    """Every all-gather of a module's programs."""
    found: list[ditron.AllGatherOp] = []
    for program in programs(module):
        program.walk(lambda op: found.append(op) if isinstance(op, ditron.AllGatherOp) else None)
    return found


def with_stream(op: ir.Operation, stream: ir.Value) -> ir.Operation:
    """Replace an operation that has no stream by the same one on ``stream``."""
    attributes = {name: op.attributes[name] for name in op.attributes}
    if "operandSegmentSizes" in attributes:
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(
            [*list(attributes["operandSegmentSizes"])[:-1], 1], context=op.context
        )
    new = ir.Operation.create(
        op.name,
        results=[result.type for result in op.results],
        operands=[*op.operands, stream],
        attributes=attributes,
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    op.replace_all_uses_with(new)
    op.erase()
    return new


class HostBuilder:
    """Creates operations before ``op``, with its location and on its stream. Numbers are i64 values."""

    def __init__(self, op: ir.Operation):
        self.loc, self.ip, self.stream = op.location, ir.InsertionPoint(op), op.stream
        self.i64 = ir.IntegerType.get_signless(64, context=op.context)

    def make(self, op_class: Callable[..., ir.Operation], *operands: object, **attributes: object) -> ir.Operation:
        """Create ``op_class(*operands, **attributes)``."""
        return op_class(*operands, **attributes, loc=self.loc, ip=self.ip)

    def queue(self, op_class: Callable[..., ir.Operation], *operands: object, **attributes: object) -> ir.Operation:
        """Create an operation that is put on the stream."""
        return self.make(op_class, *operands, stream=self.stream, **attributes)

    # --- numbers -------------------------------------------------------------------------------------------------

    def number(self, value: int) -> ir.Value:
        return self.make(arith.ConstantOp, self.i64, value).result

    def rank(self) -> ir.Value:
        return self.make(arith.ExtSIOp, self.i64, self.make(ditron.RankOp).result).result

    def num_ranks(self) -> ir.Value:
        return self.make(arith.ExtSIOp, self.i64, self.make(ditron.NumRanksOp).result).result

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.make(arith.AddIOp, a, b).result

    def subtract(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.make(arith.SubIOp, a, b).result

    def multiply(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.make(arith.MulIOp, a, b).result

    def remainder(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Of numbers that are not negative."""
        return self.make(arith.RemSIOp, a, b).result

    # --- buffers and control flow --------------------------------------------------------------------------------

    def sizes(self, buffer: ir.Value) -> list[int | ir.Value]:
        """The sizes of a buffer; static ones as integers."""
        dynamic = ir.ShapedType.get_dynamic_size()
        return [
            self.make(ditron.DimOp, buffer, i).result if size == dynamic else size
            for i, size in enumerate(buffer.type.shape)
        ]

    def rows(self, buffer: ir.Value, first: ir.Value, sizes: list[int | ir.Value]) -> ir.Value:
        """The slice of ``buffer`` of the given sizes that begins at row ``first``."""
        return self.make(ditron.SliceOp, buffer, [first, *[0] * (len(sizes) - 1)], sizes).result

    @contextmanager
    def loop(self, low: ir.Value, high: ir.Value) -> Iterator[ir.Value]:
        """``for index in range(low, high)``: operations created within the ``with`` are its body."""
        loop = self.make(scf.ForOp, low, high, self.number(1))
        with self._inside(loop.body):
            yield loop.induction_variable

    @contextmanager
    def branch(self, condition: ir.Value) -> Iterator[None]:
        """``if condition``: operations created within the ``with`` are its body."""
        with self._inside(self.make(scf.IfOp, condition).then_block):
            yield

    @contextmanager
    def _inside(self, block: ir.Block) -> Iterator[None]:
        outside, self.ip = self.ip, ir.InsertionPoint(block)
        yield
        self.make(scf.YieldOp, [])
        self.ip = outside


class AllGatherBuilder(HostBuilder):
    """Creates the operations that an all-gather is decomposed into: the copy and the signal of each rank's shard."""

    def __init__(self, op: ditron.AllGatherOp):
        super().__init__(op)
        self.src, self.dst, self.signal, self.epoch = op.src, op.dst, op.signal, op.epoch
        self.own_rank, self.group_size = self.rank(), self.num_ranks()
        self._shard_sizes = self.sizes(self.src)
        rows = self._shard_sizes[0]
        self._shard_rows = self.number(rows) if isinstance(rows, int) else rows
        self.own_shard = self.shard(self.own_rank)

    def shard(self, of_rank: ir.Value) -> ir.Value:
        """The slice of the destination for a rank's shard."""
        return self.rows(self.dst, self.multiply(of_rank, self._shard_rows), self._shard_sizes)

    def copy_own_shard(self) -> None:
        """Copy this rank's shard to the destination, and signal it."""
        self.queue(ditron.CopyOp, self.src, self.own_shard)
        self.signal_shard(self.own_rank, self.own_rank)

    def push(self, src: ir.Value, dst: ir.Value, of_rank: ir.Value, peer: ir.Value) -> None:
        """Copy the shard of ``of_rank`` to ``peer``, and signal it there."""
        self.queue(ditron.RankCopyOp, src, dst, peer)
        self.signal_shard(of_rank, peer)

    def signal_shard(self, of_rank: ir.Value, peer: ir.Value) -> None:
        """Signal at ``peer`` that the shard of ``of_rank``, whose copy was queued last, has arrived."""
        self._with_copy(self.queue(ditron.SignalWriteOp, self.signal, [of_rank], self.epoch, peer))

    def wait_for_shard(self, of_rank: ir.Value) -> None:
        """Wait for the shard of ``of_rank``, whose copy is queued next."""
        self._with_copy(self.queue(ditron.SignalWaitOp, self.signal, [of_rank], self.epoch))

    @staticmethod
    def _with_copy(signal: ir.Operation) -> None:
        """Consumers wait for each shard themselves, so that its signal need order nothing but the copy."""
        signal.attributes[WITH_COPY] = ir.UnitAttr.get(context=signal.context)
