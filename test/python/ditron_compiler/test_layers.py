"""Imports go one way: dialect <- ir <- analysis <- passes, lowering, host, protocol <- pipeline, frontend, tools <- ditron."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import import_graph
import paths
import pytest

PACKAGES = ("ditron_compiler", "ditron")

#: From the lowest up. The rooms of one layer do not import each other.
LAYERS = (
    ("ditron_compiler._core", "ditron_compiler.errors", "ditron_compiler.knobs", "ditron_compiler.runtime_files"),
    ("ditron_compiler.versions", "ditron_compiler.source_location", "ditron_compiler.ir"),
    ("ditron_compiler.analysis",),
    ("ditron_compiler.passes", "ditron_compiler.lowering", "ditron_compiler.host"),
    ("ditron_compiler.protocol", "ditron_compiler.instrumentation"),
    ("ditron_compiler.pass_registry",),
    ("ditron_compiler.pipeline",),
    ("ditron_compiler.frontend", "ditron_compiler.sim_compiler"),
    ("ditron_compiler.tools",),
    ("ditron",),
)


@pytest.fixture(scope="module")
def edges():
    return import_graph.imports(paths.ROOT, PACKAGES)


def test_no_import_runs_back(edges):
    assert not list(map(str, import_graph.against_layers(edges, LAYERS)))


def test_every_module_has_a_layer():
    rooms = [room for layer in LAYERS for room in layer]
    others = {
        name
        for name in import_graph.modules(paths.ROOT, PACKAGES)
        if name != "ditron_compiler" and not any(name == room or name.startswith(room + ".") for room in rooms)
    }
    assert not others


def test_no_import_cycle(edges):
    assert not import_graph.cycles(edges)


def test_test_files_have_names_of_their_own():
    """pytest imports them by their base names."""
    names = [path.name for path in (paths.ROOT / "test" / "python").rglob("test_*.py")]
    assert not {name for name in names if names.count(name) > 1}


def test_only_the_frontend_imports_triton(edges):
    found = [edge for edge in edges if edge.target.split(".")[0] == "triton"]
    assert any(edge.source.startswith("ditron_compiler.frontend.") for edge in found)
    others = [edge for edge in found if edge.source.startswith("ditron_compiler.")]
    others = [str(edge) for edge in others if not edge.source.startswith("ditron_compiler.frontend.")]
    assert not others


# --- the checker itself, on a small tree --------------------------------------------------------------------------------

TREE = {
    "lib/__init__.py": "",
    "lib/ir/__init__.py": "",
    "lib/ir/ops.py": "import os\n",
    "lib/analysis/__init__.py": "",
    "lib/analysis/alias.py": "from lib.ir import ops\n",
    "lib/passes/__init__.py": "from lib.analysis import alias\n",
    "lib/lowering/__init__.py": "from ..analysis.alias import x\n",
}
TREE_LAYERS = (("lib.ir",), ("lib.analysis",), ("lib.passes", "lib.lowering"))


def tree(root: Path, changes: Mapping[str, str]) -> list[import_graph.Import]:
    for name, text in {**TREE, **changes}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return import_graph.imports(root, ["lib"])


def test_a_layered_tree_is_clean(tmp_path):
    edges = tree(tmp_path, {})
    assert ("lib.lowering", "lib.analysis.alias", False) in edges
    assert not import_graph.against_layers(edges, TREE_LAYERS) and not import_graph.cycles(edges)


@pytest.mark.parametrize(
    "file, text, expected",
    [
        ("lib/ir/ops.py", "from lib.analysis import alias\n", "lib.ir.ops -> lib.analysis.alias"),
        ("lib/ir/ops.py", "def f():\n    import lib.passes\n", "lib.ir.ops -> lib.passes"),
        ("lib/ir/ops.py", "from ..analysis.alias import x\n", "lib.ir.ops -> lib.analysis.alias"),
        (
            "lib/ir/ops.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lib import lowering\n",
            "lib.ir.ops -> lib.lowering",
        ),
        ("lib/passes/hoist.py", "from lib import lowering\n", "lib.passes.hoist -> lib.lowering"),
    ],
)
def test_an_import_that_runs_back_is_found(tmp_path, file, text, expected):
    found = import_graph.against_layers(tree(tmp_path, {file: text}), TREE_LAYERS)
    assert [str(edge) for edge in found] == [expected]


def test_a_cycle_is_found(tmp_path):
    changes = {
        "lib/ir/a.py": "def f():\n    from lib.ir import b\n",
        "lib/ir/b.py": "from . import c\n",
        "lib/ir/c.py": "import lib.ir.a\n",
    }
    assert import_graph.cycles(tree(tmp_path, changes)) == [["lib.ir.a", "lib.ir.b", "lib.ir.c"]]


def test_an_import_for_types_closes_no_cycle(tmp_path):
    changes = {
        "lib/ir/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lib.ir import b\n",
        "lib/ir/b.py": "from lib.ir import a\n",
    }
    assert not import_graph.cycles(tree(tmp_path, changes))
