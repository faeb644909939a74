"""Build operations of host programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, ditron, scf

__all__ = ["HostBuilder", "programs", "with_stream"]


def programs(module: ir.Operation) -> Iterator[ir.Operation]:
    """The host programs of a module."""
    return (op for op in list(module.regions[0].blocks[0].operations) if op.name == "ditron.program")


def with_stream(op: ir.Operation, stream: ir.Value) -> ir.Operation:
    """Replace an operation without a stream by the same one on ``stream``."""
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
    """Makes operations before ``op``, with its location and on its stream. Numbers are i64 values."""

    def __init__(self, op: ir.Operation):
        self.loc, self.ip, self.stream = op.location, ir.InsertionPoint(op), op.stream
        self.i64 = ir.IntegerType.get_signless(64, context=op.context)

    def make(self, op_class: Callable[..., ir.Operation], *operands: object, **attributes: object) -> ir.Operation:
        """``op_class(*operands, **attributes)`` here."""
        return op_class(*operands, **attributes, loc=self.loc, ip=self.ip)

    def queue(self, op_class: Callable[..., ir.Operation], *operands: object, **attributes: object) -> ir.Operation:
        """The same for an operation that is put on the stream."""
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
        """The sizes of a buffer, those as numbers that its type knows."""
        dynamic = ir.ShapedType.get_dynamic_size()
        return [
            self.make(ditron.DimOp, buffer, i).result if size == dynamic else size
            for i, size in enumerate(buffer.type.shape)
        ]

    def rows(self, buffer: ir.Value, first: ir.Value, sizes: list[int | ir.Value]) -> ir.Value:
        """The part of ``buffer`` of the given sizes that begins at row ``first``."""
        return self.make(ditron.SliceOp, buffer, [first, *[0] * (len(sizes) - 1)], sizes).result

    @contextmanager
    def loop(self, low: ir.Value, high: ir.Value) -> Iterator[ir.Value]:
        """``for index in range(low, high)``: what is made meanwhile is its body."""
        loop = self.make(scf.ForOp, low, high, self.number(1))
        with self._inside(loop.body):
            yield loop.induction_variable

    @contextmanager
    def branch(self, condition: ir.Value) -> Iterator[None]:
        """``if condition``: what is made meanwhile is its body."""
        with self._inside(self.make(scf.IfOp, condition).then_block):
            yield

    @contextmanager
    def _inside(self, block: ir.Block) -> Iterator[None]:
        outside, self.ip = self.ip, ir.InsertionPoint(block)
        yield
        self.make(scf.YieldOp, [])
        self.ip = outside
