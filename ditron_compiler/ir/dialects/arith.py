"""Typed classes of the arith dialect; `constant` and `ConstantOp` also take Python numbers.

The predicate of a comparison is a member of its enumeration.
"""

from __future__ import annotations

from ... import ir
from .._registry import register_operation
from ._arith_enum_gen import *  # noqa: F403
from ._arith_enum_gen import CmpFPredicate, CmpIPredicate
from ._arith_ops_gen import *  # noqa: F403
from ._arith_ops_gen import CmpFOp as _CmpFOp
from ._arith_ops_gen import CmpIOp as _CmpIOp
from ._arith_ops_gen import ConstantOp as _ConstantOp
from ._arith_ops_gen import _Dialect


@register_operation(_Dialect, replace=True)
class ConstantOp(_ConstantOp):
    """``ConstantOp(result_type, value)``: the value is an attribute or a number; for a tensor, a splat."""

    def __init__(self, result: ir.Type, value, *, loc=None, ip=None):
        super().__init__(_attribute(result, value), results=[result], loc=loc, ip=ip)

    @property
    def type(self) -> ir.Type:
        return self.result.type

    @property
    def literal_value(self) -> int | float:
        """The Python number of a scalar constant; ValueError for others."""
        if not isinstance(self.value, (ir.IntegerAttr, ir.FloatAttr)):
            raise ValueError(f"only integer and float constants have a literal value, got {self.value}")
        return self.value.value


@register_operation(_Dialect, replace=True)
class CmpIOp(_CmpIOp):
    @property
    def predicate(self) -> CmpIPredicate:
        return CmpIPredicate(self.attributes["predicate"].value)


@register_operation(_Dialect, replace=True)
class CmpFOp(_CmpFOp):
    @property
    def predicate(self) -> CmpFPredicate:
        return CmpFPredicate(self.attributes["predicate"].value)


def _attribute(result: ir.Type, value) -> ir.Attribute:
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(result, ir.ShapedType):
        return ir.DenseElementsAttr.get_splat(result, value)
    if isinstance(result, ir.FloatType):
        return ir.FloatAttr.get(result, value)
    return ir.IntegerAttr.get(result, value)


def constant(result: ir.Type, value, *, loc=None, ip=None) -> ir.Value:
    """The value of a new ``arith.constant``."""
    return ConstantOp(result, value, loc=loc, ip=ip).result
