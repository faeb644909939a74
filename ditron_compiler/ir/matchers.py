"""What a value is, by the operation that defines it: constants, casts, queries of the group, arguments of kernels."""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, ditron, tt

__all__ = [
    "INTEGER_CASTS",
    "constant_int",
    "defining_op",
    "is_function_argument",
    "is_query",
    "strip_index_casts",
    "strip_integer_casts",
]

#: Operations that give an integer another width.
INTEGER_CASTS = (arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp)
_INDEX_BITS = 32


def defining_op(value: ir.Value) -> ir.Operation | None:
    """The operation whose result ``value`` is; None for a block argument."""
    return value.owner if isinstance(value, ir.OpResult) else None


def constant_int(value: ir.Value) -> int | None:
    """The integer of an ``arith.constant``, or of each element of a splat; None for any other value."""
    op = defining_op(value)
    if not isinstance(op, arith.ConstantOp):
        return None
    attribute = op.value
    if ir.DenseElementsAttr.isinstance(attribute):
        dense = ir.DenseElementsAttr(attribute)
        attribute = dense.get_splat_value() if dense.is_splat else attribute
    return ir.IntegerAttr(attribute).value if ir.IntegerAttr.isinstance(attribute) else None


def strip_integer_casts(value: ir.Value) -> ir.Value:
    """``value`` before casts between integer widths. Only for numbers that fit in any: of ranks and of programs."""
    while isinstance(op := defining_op(value), INTEGER_CASTS):
        value = op.in_
    return value


def strip_index_casts(value: ir.Value) -> ir.Value:
    """``value`` before casts that no index is changed by: those between widths of 32 bits or more."""

    def holds_indices(integer: ir.Value) -> bool:
        return ir.IntegerType.isinstance(integer.type) and ir.IntegerType(integer.type).width >= _INDEX_BITS

    while isinstance(op := defining_op(value), INTEGER_CASTS) and holds_indices(value) and holds_indices(op.in_):
        value = op.in_
    return value


def is_query(value: ir.Value, query: type[ir.OpView]) -> bool:
    """Whether ``value`` is the result of a ``query`` of the whole group: ``ditron.RankOp``, ``NumRanksOp`` ..."""
    op = defining_op(strip_integer_casts(value))
    return isinstance(op, query) and getattr(op, "team", ditron.Team.Group) is ditron.Team.Group


def is_function_argument(value: ir.Value) -> bool:
    """Whether ``value`` is an argument of a ``tt.func``, as opposed to one of a block inside."""
    if isinstance(value, ir.OpResult):
        return False
    function = value.owner.owner
    return isinstance(function, tt.FuncOp) and value.owner == function.entry_block
