"""The registry of Python passes: every pass by name, imported when a pipeline first names it.

A pass of ours is found by the name of its file: ``merge-waits`` is in ``merge_waits.py``, anywhere in ``passes/``; in
``lowering/`` passes are the files that begin with ``lower_``. A pass of another package is found by an entry point of
the group ``ditron.passes``; in its pyproject.toml:

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

from ditron_compiler import _core
from ditron_compiler.ir.pass_base import Pass

__all__ = [
    "ENTRY_POINTS",
    "installed",
    "load",
    "load_file",
    "module_of",
    "names",
    "own",
    "register_all",
    "register_named",
    "similar",
    "source",
]

#: The group of entry points by which other packages add passes.
ENTRY_POINTS = "ditron.passes"


_PACKAGE = Path(__file__).resolve().parent


@cache
def own() -> dict[str, Path]:
    """The file of each of our own passes, by the pass's name."""
    files = [*_PACKAGE.glob("passes/**/[a-z]*.py"), *_PACKAGE.glob("lowering/**/lower_*.py")]
    found: dict[str, Path] = {}
    for file in sorted(files):
        name = file.stem.replace("_", "-")
        if name in found:
            raise ImportError(f"two files are named as the pass '{name}': {found[name]} and {file}: rename one")
        found[name] = file
    return found


@cache
def installed() -> dict[str, EntryPoint]:
    """The passes of other packages, by name, which must not be that of one of our own."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in own() or found.setdefault(point.name, point).value != point.value:
            other = module_of(point.name) if point.name in own() else found[point.name].value
            raise ImportError(f"two packages have a pass '{point.name}': {point.value} and {other}: rename one")
    return found


def load(name: str) -> type:
    """The class of a pass.

    LookupError if there is none of that name; ImportError if it is another package's and that does not load.
    """
    if name in own():
        return _load_own(name)
    if name not in installed():
        raise LookupError(f"no Python pass '{name}'; there are {', '.join(names())}{similar(name, names())}")
    point = installed()[name]
    try:
        return _load_installed(point)
    except Exception as error:  # whatever it does when it is imported
        package = f"package {point.dist.name}" if point.dist is not None else "another package"
        raise ImportError(
            f"pass '{name}' of {package} ({point.value}) does not load: {type(error).__name__}: {error}"
        ) from error


def names() -> list[str]:
    """The names of all passes in Python."""
    return sorted({*own(), *installed()})


def module_of(name: str) -> str:
    """The module of one of our own passes."""
    return ".".join([_PACKAGE.name, *own()[name].relative_to(_PACKAGE).with_suffix("").parts])


def source(name: str) -> bytes:
    """The file of a pass that is neither ours nor MLIR's; empty for those."""
    if name in own():
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
    """``"; did you mean 'x'?"`` for known names close to ``name``; empty when there are none."""
    import difflib

    near = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _load_own(name: str) -> type:
    module = importlib.import_module(module_of(name))
    for cls in vars(module).values():
        if inspect.isclass(cls) and cls.__module__ == module.__name__ and issubclass(cls, Pass) and cls.name == name:
            return cls
    raise TypeError(
        f"{own()[name]} has no pass named '{name}', as the file is: expected name: ClassVar[str] = \"{name}\""
    )


def _load_installed(point: EntryPoint) -> type:
    module, _, attribute = point.value.partition(":")
    cls = getattr(importlib.import_module(module), attribute)
    if cls.name != point.name:
        raise TypeError(f"{point.value} is listed as '{point.name}' but names itself '{cls.name}'")
    return cls


def load_file(path: str | Path) -> list[type]:
    """Register the passes that a Python file defines, and return them; ValueError if it defines none."""
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
        raise ValueError(f"{path} defines no pass: expected a subclass of ditron_compiler.passes.Pass")
    for cls in found:
        if cls.name in own():
            raise ValueError(
                f"{path}: {cls.__name__} is named '{cls.name}', as one of DITRON's own passes: choose another name"
            )
        cls.register()
    return found


def register_named(text: str) -> None:
    """Register the passes whose names occur in ``text`` (a pipeline, a command line)."""
    for word in set(re.findall(r"[\w.-]+", text)):
        name = word.lstrip("-")
        # Looking for entry points costs milliseconds: only for what can be a pass and is not known.
        if name in own() or ("-" in name and not _core._registered_passes_contain(name) and name in installed()):
            load(name).register()


def register_all() -> dict[str, type]:
    """Register every pass, and return them by name: our own, then those of other packages.

    A pass of another package that does not load is left out, with a warning.
    """
    found: dict[str, type] = {}
    for name in [*own(), *installed()]:
        try:
            found[name] = load(name)
        except ImportError as error:
            if name in own():
                raise
            warnings.warn(f"left out: {error}", stacklevel=2)
        else:
            found[name].register()
    return found
