"""Enumerations: the dialect's, as keywords and as the integers that the device libraries take, and arith's.

A typed op gives members: ``op.scope`` is ``ditron.Scope.Node``; its ``str`` is the keyword, its ``int`` the integer.
The functions here are for attributes that are not an op's of ours.
"""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith

__all__ = ["PREDICATES", "keyword", "number", "predicate"]

#: What ``arith.cmpi`` compares by, as it numbers them.
PREDICATES = {str(member): int(member) for member in arith.CmpIPredicate}


def keyword(attribute: ir.Attribute) -> str:
    """``"node"`` of ``#ditron.scope<node>``."""
    return str(attribute.value)


def number(attribute: ir.Attribute) -> int:
    """The value in the ODS of ``#ditron.scope<node>``: 1."""
    return int(attribute.value)


def predicate(op: ir.Operation) -> str:
    """``"slt"`` of an ``arith.cmpi slt``."""
    return str(op.predicate)
