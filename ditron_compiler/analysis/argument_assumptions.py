"""What a host program may assume of its arguments: the module's attribute ``ditron.assumptions``, set by the trace.

    {ag_gemm = {a = {align = 16 : i64, dims = array<i64: 1, 16>, dense}}}

In program ``ag_gemm`` the address of tensor ``a`` is divisible by 16, its second size too, and the tensor is contiguous
in row-major order. What is not listed is not assumed.
"""

from __future__ import annotations

from math import gcd

from ditron_compiler import ir
from ditron_compiler.analysis.host_expressions import Dimension
from ditron_compiler.analysis.linear import Polynomial

__all__ = ["ASSUMPTIONS", "alignment", "is_contiguous", "parameter_alignment"]

ASSUMPTIONS = "ditron.assumptions"
_MAX_ALIGNMENT = 16  # bytes: no access is wider


def _assumption(argument: ir.Value, name: str) -> ir.Attribute | None:
    """One assumption on an argument of a program; None where there is none."""
    program = argument.owner.owner
    label = ir.StringAttr(list(program.arg_names)[argument.arg_number]).value
    found = program.parent.attributes.get(ASSUMPTIONS)
    for key in (ir.StringAttr(program.sym_name).value, label, name):
        found = dict(found.items()).get(key) if found is not None else None
    return found


def is_contiguous(argument: ir.Value) -> bool:
    """Whether an argument is contiguous in row-major order."""
    return _assumption(argument, "dense") is not None


def alignment(root: ir.Value, offset: Polynomial, itemsize: int) -> int:
    """What divides the address of the element of ``root`` at ``offset``, in bytes; at most 16."""
    if isinstance(root, ir.OpResult):
        address = _MAX_ALIGNMENT
    else:
        known = _assumption(root, "align")
        address = known.value if known is not None else 1
    return gcd(address, _divisor(offset) * itemsize, _MAX_ALIGNMENT)


def _divisor(polynomial: Polynomial) -> int:
    """A number that divides a polynomial."""
    result = 0
    for monomial, coefficient in polynomial.terms.items():
        term = abs(coefficient)
        for symbol in monomial:
            if isinstance(symbol, Dimension) and (dims := _assumption(symbol.buffer, "dims")) is not None:
                term *= list(dims)[symbol.index]
        result = gcd(result, term)
    return result


def parameter_alignment(kernel: ir.Operation, index: int) -> int:
    """What a kernel assumes to divide the address that it is given."""
    attributes = kernel.attributes.get("arg_attrs")
    if attributes is None:
        return 1
    known = dict(list(attributes)[index].items()).get("tt.divisibility")
    return known.value if known is not None else 1
