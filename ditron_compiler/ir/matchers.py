"""What a value is, by the operation that defines it: constants, casts between integers, arguments of kernels."""

from __future__ import annotations

from ditron_compiler import ir

__all__ = [
    "INTEGER_CASTS",
    "constant_int",
    "defining_op",
    "is_function_argument",
    "strip_index_casts",
    "strip_integer_casts",
]

#: Operations that give an integer another width.
INTEGER_CASTS = ("arith.extsi", "arith.extui", "arith.trunci")
_INDEX_BITS = 32


def defining_op(value: ir.Value) -> ir.Operation | None:
    """The operation whose result ``value`` is; None for a block argument."""
    return value.owner if isinstance(value, ir.OpResult) else None


def constant_int(value: ir.Value) -> int | None:
    """The integer of an ``arith.constant``, or of each element of a splat; None for any other value."""
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if ir.DenseElementsAttr.isinstance(attribute):
        dense = ir.DenseElementsAttr(attribute)
        attribute = dense.get_splat_value() if dense.is_splat else attribute
    return ir.IntegerAttr(attribute).value if ir.IntegerAttr.isinstance(attribute) else None


def strip_integer_casts(value: ir.Value) -> ir.Value:
    """``value`` before casts between integer widths. Only for numbers that fit in any: of ranks and of programs."""
    while (op := defining_op(value)) is not None and op.name in INTEGER_CASTS:
        value = op.operands[0]
    return value


def strip_index_casts(value: ir.Value) -> ir.Value:
    """``value`` before casts that no index is changed by: those between widths of 32 bits or more."""

    def holds_indices(integer: ir.Value) -> bool:
        return ir.IntegerType.isinstance(integer.type) and ir.IntegerType(integer.type).width >= _INDEX_BITS

    while (
        (op := defining_op(value)) is not None
        and op.name in INTEGER_CASTS
        and holds_indices(value)
        and holds_indices(op.operands[0])
    ):
        value = op.operands[0]
    return value


def is_function_argument(value: ir.Value) -> bool:
    """Whether ``value`` is an argument of a ``tt.func``, as opposed to one of a block inside."""
    if isinstance(value, ir.OpResult):
        return False
    function = value.owner.owner
    return function is not None and function.name == "tt.func" and value.owner == function.regions[0].blocks[0]
