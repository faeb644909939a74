"""Mutants of a script and of a host program, given to ``ditron check``; ``make fuzz`` gives it 500."""

from __future__ import annotations

import subprocess
import sys

import paths


def test_no_mutant_crashes_the_check():
    done = subprocess.run(
        [sys.executable, paths.ROOT / "test" / "fuzz", "--small", "--count", "40", "--jobs", "2"],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0 and "40 mutants: " in done.stdout, done.stdout + done.stderr
