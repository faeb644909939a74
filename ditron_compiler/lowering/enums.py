"""Enumeration attributes of the dialect, as keywords and as the integers that the device libraries take."""
from __future__ import annotations

import re

from ditron_compiler import ir
from ditron_compiler.ir.dialects import _ditron_enum_gen as ods

__all__ = ["keyword", "number"]


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
