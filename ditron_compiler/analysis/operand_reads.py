"""What loads of products' operands read: which bytes a loop over K streams, and where they begin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.slicing import is_invariant
from ditron_compiler.ir.dialects import arith, scf, tt
from ditron_compiler.ir.matchers import defining_op

__all__ = ["OperandStream", "operand_stream"]

_DIVISIONS = (arith.DivSIOp, arith.DivUIOp, arith.RemSIOp, arith.RemUIOp)


@dataclass(frozen=True)
class OperandStream:
    """A load of a product's operand whose address moves with a loop."""

    load: ir.Operation
    loop: scf.ForOp

    def place(self) -> list[ir.Value]:
        """Where its first block begins, in front of the loop: clones there what the loop computes of that."""
        mapping = {self.loop.induction_variable: self.loop.lowerBound}
        mapping |= dict(zip(self.loop.inner_iter_args, self.loop.initArgs, strict=True))
        at = ir.InsertionPoint(self.loop)
        return [_cloned(value, self.loop, mapping, at) for value in _place(self.load)]


def operand_stream(load: ir.Operation) -> OperandStream | None:
    """What a load of a product's operand streams; None where no single address says it.

    So of gathered rows, of one loop over tiles and K, of what every iteration loads again, and outside of loops.
    """
    loop = load.block.owner
    if isinstance(load, tt.DescriptorGatherOp) or not isinstance(loop, scf.ForOp):
        return None
    where = _place(load)
    inside = [op for value in where for op in _computed_in(value, loop)]
    if any(not op.is_memory_effect_free or len(op.regions) for op in inside):
        return None
    moving = [op for op in inside if not all(is_invariant(value, loop) for value in op.results)]
    if any(isinstance(op, _DIVISIONS) for op in moving) or all(is_invariant(value, loop) for value in where):
        return None
    return OperandStream(load, loop)


def _place(load: ir.Operation) -> list[ir.Value]:
    if isinstance(load, tt.DescriptorLoadOp):
        return list(load.operands)
    return [load.operands[0]]


def _computed_in(value: ir.Value, loop: scf.ForOp) -> Iterator[ir.Operation]:
    """Operations of the loop's body that a value is computed by; not what other iterations do."""
    op = defining_op(value)
    if op is not None and op.block == loop.body:
        yield op
        for operand in op.operands:
            yield from _computed_in(operand, loop)


def _cloned(value: ir.Value, loop: scf.ForOp, mapping: dict, at: ir.InsertionPoint) -> ir.Value:
    """``value`` in the first iteration, computed before the loop."""
    if value in mapping:
        return mapping[value]
    op = defining_op(value)
    if op is None or op.block != loop.body:
        return value
    for operand in op.operands:
        _cloned(operand, loop, mapping, at)
    clone = op.clone(ip=at, mapping=mapping)
    mapping |= dict(zip(op.results, clone.results, strict=True))
    return mapping[value]
