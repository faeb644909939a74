"""docs/api.md is what the docstrings say, and everything that is exported has one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types

import paths
import pytest

SCRIPT = paths.ROOT / "docs" / "generate_api.py"
PAGE = paths.ROOT / "docs" / "api.md"


@pytest.fixture
def generator():
    spec = importlib.util.spec_from_file_location("generate_api", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_not_stale_and_no_docstring_is_missing():
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_check_finds_a_stale_page(generator, tmp_path, monkeypatch, capsys):
    stale = tmp_path / "api.md"
    stale.write_text(PAGE.read_text().replace("symmetric", "shared", 1))
    monkeypatch.setattr(generator, "PAGE", stale)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--check"])
    assert generator.main() == 1
    assert "stale" in capsys.readouterr().err


def test_missing_docstrings_are_found(generator, tmp_path, monkeypatch, capsys):
    room = types.ModuleType("a_room", "A room.")
    exec(
        "def told():\n    'Told.'\n"
        "def untold(): ...\n"
        "class Base:\n    'A base.'\n    def method(self): ...\n    def _own(self): ...\n"
        "class Derived(Base):\n    def method(self):\n        'Here.'\n"
        "NUMBER = 3\n__all__ = ['told', 'untold', 'Base', 'Derived', 'NUMBER']\n",
        room.__dict__,
    )
    monkeypatch.setitem(sys.modules, "a_room", room)
    monkeypatch.setattr(generator, "ROOMS", {"a_room": "import a_room"})
    assert sorted(generator.undocumented()) == ["a_room.Base.method", "a_room.Derived", "a_room.untold"]
    monkeypatch.setattr(generator, "PAGE", tmp_path / "api.md")
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    assert generator.main() == 1
    assert "a_room.untold has no docstring" in capsys.readouterr().err


def test_everything_exported_is_on_the_page(generator):
    text = PAGE.read_text()
    for room in generator.ROOMS:
        for name, value in generator.exported(room):
            assert f"| `{name}` |" in text
            if generator._is_code(value):
                assert f"\n### {room}.{name}\n" in text
    assert " at 0x" not in text and "_semantic" not in text


def test_docstrings_become_markdown(generator):
    text = generator._text(
        "First line of :func:`x`, ``code``.\n\nArgs:\n    a: one. b: two,\n        continued.\n    c: three.\n\n"
        "Returns that.\n\n    call(a,\n         b)\n\nThe end."
    )
    assert text == [
        "First line of `x`, `code`.",
        "",
        "Args:",
        "",
        "- a: one. b: two,",
        "  continued.",
        "- c: three.",
        "",
        "Returns that.",
        "",
        "```py",
        "call(a,",
        "     b)",
        "```",
        "",
        "The end.",
    ]
