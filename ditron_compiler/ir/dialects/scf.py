"""Typed classes of the scf dialect; ForOp, IfOp and WhileOp make their blocks."""

from __future__ import annotations

from collections.abc import Sequence

from ... import ir
from .._registry import register_operation
from ._ods_common import get_op_result_or_value, get_op_results_or_values
from ._scf_ops_gen import *  # noqa: F403
from ._scf_ops_gen import ForOp as _ForOp
from ._scf_ops_gen import IfOp as _IfOp
from ._scf_ops_gen import WhileOp as _WhileOp
from ._scf_ops_gen import (
    _Dialect,
    yield_,  # noqa: F401
)


@register_operation(_Dialect, replace=True)
class ForOp(_ForOp):
    """``ForOp(lower, upper, step, iter_args)`` with an empty body block; the caller adds the yield."""

    def __init__(self, lower, upper, step, iter_args: Sequence[ir.Value] = (), *, loc=None, ip=None):
        values = list(get_op_results_or_values(iter_args))
        types = [value.type for value in values]
        super().__init__(types, lower, upper, step, values, loc=loc, ip=ip)
        induction = get_op_result_or_value(lower).type
        ir.Block.create_at_start(self.regions[0], [induction, *types], arg_locs=[self.location] * (1 + len(types)))

    @property
    def body(self) -> ir.Block:
        return self.regions[0].blocks[0]

    @property
    def induction_variable(self) -> ir.Value:
        return self.body.arguments[0]

    @property
    def inner_iter_args(self) -> list[ir.Value]:
        """The loop-carried values as seen in the body."""
        return self.body.arguments[1:]


@register_operation(_Dialect, replace=True)
class IfOp(_IfOp):
    """``IfOp(condition, result_types, has_else=False)`` with empty blocks; the caller adds the yields."""

    def __init__(self, condition, results: Sequence[ir.Type] = (), *, has_else: bool = False, loc=None, ip=None):
        super().__init__(list(results), condition, loc=loc, ip=ip)
        ir.Block.create_at_start(self.regions[0], [])
        if has_else or results:
            ir.Block.create_at_start(self.regions[1], [])

    @property
    def then_block(self) -> ir.Block:
        return self.regions[0].blocks[0]

    @property
    def else_block(self) -> ir.Block | None:
        """The else block, or None."""
        blocks = self.regions[1].blocks
        return blocks[0] if len(blocks) else None


@register_operation(_Dialect, replace=True)
class WhileOp(_WhileOp):
    """``WhileOp(result_types, inits)`` with empty before and after blocks."""

    def __init__(self, results: Sequence[ir.Type], inits: Sequence[ir.Value], *, loc=None, ip=None):
        values = list(get_op_results_or_values(inits))
        super().__init__(list(results), values, loc=loc, ip=ip)
        ir.Block.create_at_start(self.regions[0], [value.type for value in values])
        ir.Block.create_at_start(self.regions[1], list(results))

    @property
    def before_block(self) -> ir.Block:
        return self.regions[0].blocks[0]

    @property
    def after_block(self) -> ir.Block:
        return self.regions[1].blocks[0]
