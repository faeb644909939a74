"""Typed classes of the func dialect; FuncOp takes a name and a type, CallOp a callee."""

from __future__ import annotations

from ... import ir
from .._registry import register_operation
from ._func_ops_gen import *  # noqa: F403
from ._func_ops_gen import CallOp as _CallOp
from ._func_ops_gen import FuncOp as _FuncOp
from ._func_ops_gen import _Dialect


@register_operation(_Dialect, replace=True)
class FuncOp(_FuncOp):
    """``FuncOp(name, type)``: type is a FunctionType or (inputs, results); without a body until add_entry_block()."""

    def __init__(self, name: str, type, *, visibility: str | None = None, loc=None, ip=None):
        if not isinstance(type, ir.Type):
            inputs, results = type
            type = ir.FunctionType.get(inputs, results)
        super().__init__(name, ir.TypeAttr.get(type), sym_visibility=visibility, loc=loc, ip=ip)

    @property
    def type(self) -> ir.FunctionType:
        return self.attributes["function_type"].value

    @property
    def is_external(self) -> bool:
        return len(self.regions[0].blocks) == 0

    @property
    def entry_block(self) -> ir.Block:
        if self.is_external:
            raise IndexError("an external function has no body")
        return self.regions[0].blocks[0]

    @property
    def arguments(self):
        return self.entry_block.arguments

    def add_entry_block(self) -> ir.Block:
        """Makes the first block, with the function's arguments."""
        if not self.is_external:
            raise IndexError("the function has an entry block already")
        return ir.Block.create_at_start(self.regions[0], self.type.inputs)


@register_operation(_Dialect, replace=True)
class CallOp(_CallOp):
    """``CallOp(func_op, arguments)`` or ``CallOp(result_types, callee, arguments)``."""

    def __init__(self, callee_or_results, callee_or_arguments, arguments=None, *, loc=None, ip=None):
        if isinstance(callee_or_results, FuncOp):
            function = callee_or_results
            results, callee, arguments = function.type.results, function.sym_name.value, callee_or_arguments
        else:
            results, callee = callee_or_results, callee_or_arguments
        if isinstance(callee, str):
            callee = ir.FlatSymbolRefAttr.get(callee)
        super().__init__(results, callee, arguments or [], loc=loc, ip=ip)
