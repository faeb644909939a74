"""Integer division by zero: an error in a scalar; in a tile, an unspecified number, as in lanes that are masked off."""

from __future__ import annotations

from ditron_compiler import ir

from .elementwise import ELEMENTWISE
from .function import FunctionLowering, lowers
from .memory import guarded


@lowers(*(f"arith.{name}" for name in ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui")))
def _divide(fn: FunctionLowering, op: ir.Operation) -> None:
    divisor = fn.env[op.operands[1]]
    if isinstance(divisor, ir.Value) and not _in_a_tile(op) and not _is_nonzero(op.operands[1]):
        zero = fn.b.cmpi("eq", divisor, fn.b.constant(str(divisor.type), 0))
        guarded(fn.b, zero, lambda: fn.call("ditron_sim_zero_divisor", [fn.where(op)]) and None)
    fn.lower_elementwise(op, ELEMENTWISE[op.name])


def _in_a_tile(op: ir.Operation) -> bool:
    """Whether it is in a function of elements, such as tl.reduce's: these may be in lanes that are masked off later."""
    parent = op.parent
    while parent.name.startswith("scf."):
        parent = parent.parent
    return parent.name != "tt.func"


def _is_nonzero(value: ir.Value) -> bool:
    """Whether it is a constant other than zero."""
    owner = value.owner
    return (isinstance(owner, ir.Operation) and owner.name == "arith.constant"
            and ir.IntegerAttr(owner.attributes["value"]).value != 0)  # fmt: skip
