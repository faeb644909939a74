"""Enumerations: the dialect's, as keywords and as the integers that the device libraries take, and arith's."""

from __future__ import annotations

import re

from ditron_compiler import ir
from ditron_compiler.ir.dialects import _ditron_enum_gen as ods

__all__ = ["PREDICATES", "keyword", "number", "predicate"]

#: What ``arith.cmpi`` compares by, as it numbers them.
PREDICATES = {"eq": 0, "ne": 1, "slt": 2, "sle": 3, "sgt": 4, "sge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}
_NAMES = {number: name for name, number in PREDICATES.items()}


def _parts(attribute: ir.Attribute) -> tuple[str, str]:
    """``("signal_op", "add")`` of ``#ditron.signal_op<add>`` or ``#ditron<signal_op<add>>``."""
    return re.match(r"#ditron[.<](\w+)\s*<(\w+)>", str(attribute)).groups()


def keyword(attribute: ir.Attribute) -> str:
    """``"node"`` of ``#ditron.scope<node>``."""
    return _parts(attribute)[1]


def number(attribute: ir.Attribute) -> int:
    """The value in the ODS of ``#ditron.scope<node>``: 1."""
    mnemonic, case = _parts(attribute)
    enum = getattr(ods, "".join(word.capitalize() for word in mnemonic.split("_")))
    return next(int(member) for member in enum if str(member) == case)


def predicate(op: ir.Operation) -> str:
    """``"slt"`` of an ``arith.cmpi slt``."""
    return _NAMES[ir.IntegerAttr(op.attributes["predicate"]).value]
