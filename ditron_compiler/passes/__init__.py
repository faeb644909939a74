"""The registry of Python passes: every pass by name, imported when a pipeline first names it."""

from __future__ import annotations

import importlib
import importlib.util
import re

#: Pass name -> "module:Class". The one place to add a pass to.
PASSES = {
    "raise-primitives": "ditron_compiler.passes.raise_primitives:RaisePrimitives",
    "lower-swizzle": "ditron_compiler.lowering.swizzle:LowerSwizzle",
    "lower-to-nvidia": "ditron_compiler.lowering.nvidia:LowerToNvidia",
    "lower-to-amd": "ditron_compiler.lowering.amd:LowerToAMD",
    "lower-to-sim": "ditron_compiler.lowering.sim.lower_to_sim:LowerToSim",
    "mark-loops": "ditron_compiler.lowering.sim.mark_loops:MarkLoops",
}


def load(name: str) -> type:
    """The class of a pass; LookupError if there is none of that name."""
    if name not in PASSES:
        raise LookupError(f"no Python pass '{name}'; there are {', '.join(sorted(PASSES))}")
    module, _, attribute = PASSES[name].partition(":")
    cls = getattr(importlib.import_module(module), attribute)
    if cls.name != name:
        raise TypeError(f"{PASSES[name]} is listed as '{name}' but names itself '{cls.name}'")
    return cls


def register_named(text: str) -> None:
    """Register the passes whose names occur in ``text`` (a pipeline, a command line)."""
    for word in set(re.findall(r"[\w.-]+", text)):
        name = word.lstrip("-")
        if name in PASSES:
            load(name).register()


def register_all() -> None:
    """Register every pass."""
    for name in PASSES:
        load(name).register()
