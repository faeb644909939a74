"""docs/tutorials/write-a-pass.md does what it says: its three files make a tested pass, in under 40 lines of code."""

import re
import subprocess
import sys
from pathlib import Path

import paths
import pytest

ROOT = paths.ROOT
PAGE = (ROOT / "docs" / "tutorials" / "write-a-pass.md").read_text()
BIN = Path(sys.executable).parent


def files() -> dict[str, str]:
    """Name -> text of the blocks that begin with the name of their file."""
    blocks = re.findall(r"^```\w+\n((?:#|//) (\S+)\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return {name: text for text, name in blocks}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "Inputs").mkdir()
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    config = (
        (ROOT / "test" / "lit" / "lit.cfg.py")
        .read_text()
        .replace("Path(config.test_source_root).resolve().parents[1]", f"Path({str(ROOT)!r})")
    )
    (tmp_path / "lit.cfg.py").write_text(config.replace('str(root / "build" / "lit")', repr(str(tmp_path / "out"))))
    return tmp_path


def lit(folder):
    return subprocess.run([BIN / "lit", "-v", folder], capture_output=True, text=True, timeout=120)


def test_under_forty_lines():
    assert set(files()) == {
        "Inputs/drop_double_fences.py",
        "drop-double-fences.mlir",
        "Inputs/test_drop_double_fences.py",
    }
    code = [line for line in files()["Inputs/drop_double_fences.py"].splitlines() if line.strip()]
    assert len(code) < 40


def test_its_test_passes(folder):
    done = lit(folder)
    assert done.returncode == 0 and re.search(r"Passed\s*: 1", done.stdout), done.stdout


def test_its_test_can_fail(folder):
    path = folder / "Inputs" / "drop_double_fences.py"
    path.write_text(path.read_text().replace("fence.erase()", "pass"))
    assert lit(folder).returncode != 0


def run_pytest(folder):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder / "Inputs"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_its_execution_test_passes(folder):
    done = run_pytest(folder)
    assert done.returncode == 0, done.stdout


def test_its_execution_test_can_fail(folder):
    path = folder / "Inputs" / "drop_double_fences.py"
    path.write_text(path.read_text().replace("if isinstance(fence.prev_op, ditron.FenceOp):", "if True:"))
    done = run_pytest(folder)
    assert done.returncode == 1 and "race on" in done.stdout


def test_statistics_as_shown(folder):
    done = subprocess.run(
        [
            BIN / "ditron-opt",
            "--load=Inputs/drop_double_fences.py",
            "--drop-double-fences",
            "--mlir-pass-statistics",
            "drop-double-fences.mlir",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    shown = re.search(r"^\$ ditron-opt.*?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
    assert shown in done.stderr
