"""The registry of Python passes: every pass by name, imported when a pipeline first names it.

A pass of another package is found by an entry point of the group ``ditron.passes``; in its pyproject.toml:

    [project.entry-points."ditron.passes"]
    count-waits = "my_passes.count_waits:CountWaits"
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from .. import _core

#: Pass name -> "module:Class". The one place to add a pass of ours to.
PASSES = {
    "raise-primitives": "ditron_compiler.passes.raise_primitives:RaisePrimitives",
    "insert-swizzle": "ditron_compiler.passes.insert_swizzle:InsertSwizzle",
    "hoist-symm-at": "ditron_compiler.passes.hoist_symm_at:HoistSymmAt",
    "merge-waits": "ditron_compiler.passes.merge_waits:MergeWaits",
    "ll-protocol": "ditron_compiler.passes.ll_protocol:LLProtocol",
    "infer-scope": "ditron_compiler.passes.infer_scope:InferScope",
    "insert-fences": "ditron_compiler.passes.insert_fences:InsertFences",
    "lower-nonatomic-sync": "ditron_compiler.passes.lower_nonatomic_sync:LowerNonatomicSync",
    "decompose-all-at-once": "ditron_compiler.passes.decompose_all_at_once:DecomposeAllAtOnce",
    "decompose-ring": "ditron_compiler.passes.decompose_ring:DecomposeRing",
    "assign-streams": "ditron_compiler.passes.assign_streams:AssignStreams",
    "eliminate-copies": "ditron_compiler.passes.eliminate_copies:EliminateCopies",
    "lower-swizzle": "ditron_compiler.lowering.swizzle:LowerSwizzle",
    "lower-to-nvidia": "ditron_compiler.lowering.nvidia:LowerToNvidia",
    "lower-to-amd": "ditron_compiler.lowering.amd:LowerToAMD",
    "lower-to-sim": "ditron_compiler.lowering.sim.lower_to_sim:LowerToSim",
    "mark-loops": "ditron_compiler.lowering.sim.mark_loops:MarkLoops",
}


#: The group of entry points by which other packages add passes.
ENTRY_POINTS = "ditron.passes"


@cache
def installed() -> dict[str, str]:
    """The passes of other packages, by entry point: name -> "module:Class". A name of ours is not theirs to take."""
    found: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in PASSES or found.setdefault(point.name, point.value) != point.value:
            raise ImportError(f"two packages have a pass '{point.name}': {point.value} and "
                              f"{PASSES.get(point.name) or found[point.name]}: rename one")
    return found


def load(name: str) -> type:
    """The class of a pass; LookupError if there is none of that name."""
    where = PASSES.get(name) or installed().get(name)
    if where is None:
        raise LookupError(f"no Python pass '{name}'; there are {', '.join(sorted(PASSES | installed()))}")
    module, _, attribute = where.partition(":")
    cls = getattr(importlib.import_module(module), attribute)
    if cls.name != name:
        raise TypeError(f"{where} is listed as '{name}' but names itself '{cls.name}'")
    return cls


def load_file(path: str | Path) -> list[type]:
    """Register the passes that a Python file defines, and return them; ValueError if it defines none."""
    from .base import Pass

    path = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or not path.is_file():
        raise ValueError(f"{path} is not a Python file")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [cls for cls in vars(module).values() if inspect.isclass(cls) and issubclass(cls, Pass)
             and cls.__module__ == path.stem]
    if not found:
        raise ValueError(f"{path} defines no pass: expected a subclass of ditron_compiler.passes.base.Pass")
    for cls in found:
        if cls.name in PASSES:
            raise ValueError(f"{path}: {cls.__name__} is named '{cls.name}', as a pass of ours is: choose another name")
        cls.register()
    return found


def register_named(text: str) -> None:
    """Register the passes whose names occur in ``text`` (a pipeline, a command line)."""
    for word in set(re.findall(r"[\w.-]+", text)):
        name = word.lstrip("-")
        # Looking for entry points costs milliseconds: only for what can be a pass and is not known.
        if name in PASSES or ("-" in name and not _core._registered_passes_contain(name) and name in installed()):
            load(name).register()


def register_all() -> None:
    """Register every pass, those of other packages too."""
    for name in PASSES | installed():
        load(name).register()
