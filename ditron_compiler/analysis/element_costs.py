"""What operations on elements cost: sums, conversions, exponentials, reductions, in additions of fp32."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.costs import is_float
from ditron_compiler.ir.dialects import arith, tt
from ditron_compiler.ir.dialects import math as math_dialect
from ditron_compiler.ir.matchers import defining_op

__all__ = ["ElementCost", "element_cost"]

#: Additions beside one function of the special function units: a change of base, a division's correction.
_SPECIAL: dict[type, int] = {
    math_dialect.Exp2Op: 0,
    math_dialect.Log2Op: 0,
    math_dialect.ExpOp: 1,
    math_dialect.LogOp: 1,
    math_dialect.RsqrtOp: 0,
    math_dialect.SqrtOp: 0,
    math_dialect.SinOp: 1,
    math_dialect.CosOp: 1,
    arith.DivFOp: 7,
    tt.ApproxDivFOp: 1,
    tt.PreciseDivFOp: 12,
    tt.PreciseSqrtOp: 8,
    tt.ExternElementwiseOp: 8,
}
_HALF_RATE = (arith.MaximumFOp, arith.MinimumFOp, arith.MaxNumFOp, arith.MinNumFOp, tt.ClampFOp)
_FREE = (arith.ConstantOp, arith.BitcastOp, arith.NegFOp)  # the sign is a part of an operand


@dataclass(frozen=True)
class ElementCost:
    """How many additions, and among these how many instructions of the special function units."""

    vector: int = 0
    special: int = 0

    def __add__(self, other: ElementCost) -> ElementCost:
        return ElementCost(self.vector + other.vector, self.special + other.special)


def element_cost(op: ir.Operation) -> ElementCost:
    """Of one execution of ``op``, on tiles of floats.

    What addresses and masks cost is of vectors of elements, and small beside it. A multiplication whose only use is an
    addition counts nothing: they are one instruction. Nor do the combinations of a reduction's partial sums.
    """
    if isinstance(op, (tt.ReduceOp, tt.ScanOp)):
        combined = (_weight(o) for o in op.regions[0].blocks[0].operations[:-1])
        return ElementCost(sum(combined) * _floats(op.operands[0]))
    count = max((_floats(value) for value in (*op.operands, *op.results)), default=0)
    if not count or _is_part_of_another(op):
        return ElementCost()
    if type(op) in _SPECIAL:
        return ElementCost((1 + _SPECIAL[type(op)]) * count, count)
    return ElementCost(_weight(op) * count)


def _weight(op: ir.Operation) -> int:
    if isinstance(op, _HALF_RATE):
        return 2
    is_arithmetic = op.name.startswith(("arith.", "math.")) or isinstance(op, tt.FpToFpOp)
    return int(is_arithmetic and not isinstance(op, _FREE))


def _floats(value: ir.Value) -> int:
    """The elements of a tile of floats; 0 for other values."""
    is_tile = ir.RankedTensorType.isinstance(value.type) and is_float(value.type)
    return math.prod(ir.RankedTensorType(value.type).shape) if is_tile else 0


def _is_part_of_another(op: ir.Operation) -> bool:
    """Whether it is one instruction with what uses it: a product that is added, or a change of sign."""
    if isinstance(op, arith.SubFOp):
        zero = defining_op(op.lhs)
        return isinstance(zero, arith.ConstantOp) and _is_zero(zero.value)
    if not isinstance(op, arith.MulFOp):
        return False
    uses = list(op.results[0].uses)
    return len(uses) == 1 and isinstance(uses[0].owner, (arith.AddFOp, arith.SubFOp))


def _is_zero(attribute: ir.Attribute) -> bool:
    if ir.DenseElementsAttr.isinstance(attribute):
        dense = ir.DenseElementsAttr(attribute)
        attribute = dense.get_splat_value() if dense.is_splat else attribute
    return ir.FloatAttr.isinstance(attribute) and ir.FloatAttr(attribute).value == 0
