"""The imports between the modules of packages, read from their source; what runs against layers, and cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    """Module ``source`` imports ``target``, a module of the tree or the name of another package's."""

    source: str
    target: str
    only_types: bool = False  # under ``if TYPE_CHECKING``

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


def modules(root: Path, packages: Sequence[str]) -> dict[str, Path]:
    """The file of each module of the packages below ``root``, by dotted name."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(root: Path, packages: Sequence[str]) -> list[Import]:
    """Every import, those in functions too. ``from package import module`` is one of the module."""
    known = modules(root, packages)
    return [edge for name, path in known.items() for edge in _imports_of(name, path, known)]


def _imports_of(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[Import]:
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text())
    typed = {inner for node in ast.walk(tree) if _is_type_checking(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            targets = [inner if (inner := f"{base}.{alias.name}") in known else base for alias in node.names]
        else:
            continue
        for target in targets:
            if target != name:
                yield Import(name, target, node in typed)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def against_layers(edges: Sequence[Import], layers: Sequence[Sequence[str]]) -> list[Import]:
    """The imports of a module in a higher layer, or in another room of the same one.

    A room is a module or a package with all inside; ``layers`` begins with the lowest. A module belongs to the room
    with the longest name that it begins with.
    """
    level = {room: number for number, rooms in enumerate(layers) for room in rooms}

    def room_of(module: str) -> str | None:
        rooms = [room for room in level if module == room or module.startswith(room + ".")]
        return max(rooms, key=len, default=None)

    found = []
    for edge in edges:
        source, target = room_of(edge.source), room_of(edge.target)
        if source is None or target is None or source == target:
            continue
        if level[target] >= level[source]:
            found.append(edge)
    return found


def cycles(edges: Sequence[Import]) -> list[list[str]]:
    """The strongly connected components of more than one module, by imports that are executed (Tarjan)."""
    graph: dict[str, list[str]] = {}
    for edge in edges:
        graph.setdefault(edge.source, [])
        if not edge.only_types:
            graph[edge.source].append(edge.target)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph.get(name, ()):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                found.append(sorted(component))

    for name in list(graph):
        if name not in index:
            visit(name)
    return sorted(found)
