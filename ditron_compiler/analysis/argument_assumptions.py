"""What a host program may rely on about its arguments: the module's attribute ``ditron.facts``, which a trace writes.

    {ag_gemm = {a = {align = 16 : i64, dims = array<i64: 1, 16>, dense}}}

says that in program ``ag_gemm`` the address of tensor ``a`` is divisible by 16, its second size too, and that its
elements lie row by row without gaps. What is not said is not known.
"""

from __future__ import annotations

from math import gcd

from ditron_compiler import ir
from ditron_compiler.analysis.polynomial import Dimension, Poly

__all__ = ["FACTS", "alignment", "is_dense", "parameter_alignment"]

FACTS = "ditron.facts"
_MOST = 16  # nothing asks for more


def _fact(argument: ir.Value, name: str) -> ir.Attribute | None:
    """One fact about an argument of a program."""
    program = argument.owner.owner
    label = ir.StringAttr(list(program.attributes["arg_names"])[argument.arg_number]).value
    known = program.parent.attributes.get(FACTS)
    for key in (ir.StringAttr(program.attributes["sym_name"]).value, label, name):
        known = dict(known.items()).get(key) if known is not None else None
    return known


def is_dense(argument: ir.Value) -> bool:
    """Whether an argument's elements lie row by row without gaps."""
    return _fact(argument, "dense") is not None


def alignment(root: ir.Value, offset: Poly, itemsize: int) -> int:
    """What divides the address of the element of ``root`` at ``offset``, in bytes; at most 16."""
    if isinstance(root, ir.OpResult):
        address = _MOST
    else:
        known = _fact(root, "align")
        address = known.value if known is not None else 1
    return gcd(address, _divisor(offset) * itemsize, _MOST)


def _divisor(poly: Poly) -> int:
    """A number that divides a polynomial."""
    result = 0
    for product, factor in poly.terms:
        term = abs(factor)
        for atom in product:
            if isinstance(atom, Dimension) and (dims := _fact(atom.buffer, "dims")) is not None:
                term *= list(dims)[atom.index]
        result = gcd(result, term)
    return result


def parameter_alignment(kernel: ir.Operation, index: int) -> int:
    """What a kernel takes for granted to divide the address that it is given."""
    attributes = kernel.attributes.get("arg_attrs")
    if attributes is None:
        return 1
    known = dict(list(attributes)[index].items()).get("tt.divisibility")
    return known.value if known is not None else 1
