"""A script that runs again does not compile its kernels again: the machine code comes from the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import paths
import pytest

ROOT = paths.ROOT

# Runs an example with the code generator saying when it is asked.
COUNTING = """
import sys
from ditron_compiler.lowering.sim import jit

optimise = jit.optimise
def counted(text):
    print("code generated")
    return optimise(text)
jit.optimise = counted

from ditron import sim
sys.exit(sim.run_script(sys.argv[1], sys.argv[2:], ranks=2))
"""


def run(cache: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, *words],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "DITRON_CACHE_DIR": str(cache)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_second_run_does_not_compile(tmp_path):
    first = run(tmp_path, "examples/ring.py")
    assert first.count("code generated") == 1  # once for both ranks
    objects = {path: path.stat().st_mtime_ns for path in (tmp_path / "sim").iterdir()}
    assert len(objects) == 1
    second = run(tmp_path, "examples/ring.py")
    assert "code generated" not in second and "PASS" in second
    assert objects == {path: path.stat().st_mtime_ns for path in (tmp_path / "sim").iterdir()}


@pytest.mark.parametrize(
    "damage",
    [lambda code: b"", lambda code: code[: len(code) // 2], lambda code: code[:100] + b"?" + code[101:]],
    ids=["empty", "cut", "changed"],
)
def test_damaged_cache_is_not_trusted(tmp_path, damage):
    """As a full disk leaves a file, or a copy of the cache that was cut short."""
    run(tmp_path, "examples/ring.py")
    (path,) = (tmp_path / "sim").iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    again = run(tmp_path, "examples/ring.py")
    assert "PASS" in again and "code generated" in again
    assert path.read_bytes() == whole
