"""Integer values of the dialect's enumerations, as the device libraries take them."""
from __future__ import annotations

import re

from ditron_compiler import ir

__all__ = ["CASES", "keyword", "number"]

# In the order of dialect/IR/DitronEnums.td, which the integer values follow.
CASES = {
    "team": ("group", "node", "world"),
    "scope": ("gpu", "node", "world"),
    "semantic": ("relaxed", "acquire", "release", "acq_rel"),
    "signal_op": ("set", "add"),
    "reduce_op": ("add", "min", "max"),
    "cmp": ("eq", "ne", "gt", "ge", "lt", "le"),
    "granularity": ("thread", "warp", "block"),
    "swizzle_mode": ("gather", "scatter"),
    "shfl_mode": ("idx", "up", "down", "bfly"),
}


def keyword(attribute: ir.Attribute) -> str:
    """``"node"`` of ``#ditron.scope<node>``."""
    return re.search(r"(\w+)>?$", str(attribute)).group(1)


def number(attribute: ir.Attribute) -> int:
    """The integer value of ``#ditron.scope<node>``: 1."""
    enum, case = re.match(r"#ditron(?:\.|<)(\w+)\s*<(\w+)>", str(attribute)).groups()
    return CASES[enum].index(case)
