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
import warnings
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
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
    "lower-to-nvidia": "ditron_compiler.lowering.gpu.nvidia:LowerToNvidia",
    "lower-to-amd": "ditron_compiler.lowering.gpu.amd:LowerToAMD",
    "lower-to-sim": "ditron_compiler.lowering.sim.lower_to_sim:LowerToSim",
    "mark-loops": "ditron_compiler.lowering.sim.mark_loops:MarkLoops",
}


#: The group of entry points by which other packages add passes.
ENTRY_POINTS = "ditron.passes"


@cache
def installed() -> dict[str, EntryPoint]:
    """The passes of other packages, by name. A name of ours is not theirs to take."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in PASSES or found.setdefault(point.name, point).value != point.value:
            raise ImportError(
                f"two packages have a pass '{point.name}': {point.value} and "
                f"{PASSES.get(point.name) or found[point.name].value}: rename one"
            )
    return found


def load(name: str) -> type:
    """The class of a pass.

    LookupError if there is none of that name; ImportError if it is another package's and that does not load.
    """
    if name in PASSES:
        return _load(name, PASSES[name])
    if name not in installed():
        raise LookupError(f"no Python pass '{name}'; there are {', '.join(names())}{similar(name, names())}")
    point = installed()[name]
    try:
        return _load(name, point.value)
    except Exception as error:  # whatever it does when it is imported
        package = f"package {point.dist.name}" if point.dist is not None else "another package"
        raise ImportError(
            f"pass '{name}' of {package} ({point.value}) does not load: {type(error).__name__}: {error}"
        ) from error


def names() -> list[str]:
    """The names of all passes in Python."""
    return sorted({*PASSES, *installed()})


def source(name: str) -> bytes:
    """The file of a pass that is neither ours nor MLIR's; empty for those."""
    from ditron_compiler.ir.pass_base import Pass

    if name in PASSES:
        return b""
    if not _core._registered_passes_contain(name) and name in installed():
        load(name).register()
    classes = Pass.__subclasses__()
    for cls in classes:
        classes += cls.__subclasses__()
        if cls.name == name and (file := inspect.getsourcefile(cls)):
            return Path(file).read_bytes()
    return b""


def similar(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for what is spelled nearly as ``name``; empty when nothing is."""
    import difflib

    near = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _load(name: str, where: str) -> type:
    module, _, attribute = where.partition(":")
    cls = getattr(importlib.import_module(module), attribute)
    if cls.name != name:
        raise TypeError(f"{where} is listed as '{name}' but names itself '{cls.name}'")
    return cls


def load_file(path: str | Path) -> list[type]:
    """Register the passes that a Python file defines, and return them; ValueError if it defines none."""
    from ditron_compiler.ir.pass_base import Pass

    path = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or not path.is_file():
        raise ValueError(f"{path} is not a Python file")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [
        cls
        for cls in vars(module).values()
        if inspect.isclass(cls) and issubclass(cls, Pass) and cls.__module__ == path.stem
    ]
    if not found:
        raise ValueError(f"{path} defines no pass: expected a subclass of ditron_compiler.ir.pass_base.Pass")
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


def register_all() -> dict[str, type]:
    """Register every pass, and return them by name: ours, then those of other packages.

    Of the latter, those that do not load are left out, with a warning.
    """
    found: dict[str, type] = {}
    for name in [*PASSES, *installed()]:
        try:
            found[name] = load(name)
        except ImportError as error:
            if name in PASSES:
                raise
            warnings.warn(f"left out: {error}", stacklevel=2)
        else:
            found[name].register()
    return found
