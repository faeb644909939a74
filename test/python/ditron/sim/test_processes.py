"""Simulated ranks in processes that are not theirs: forks, and test runners."""

from __future__ import annotations

import os
import subprocess
import sys

import paths
import pytest

import ditron

FORKS = """
import os
import torch
import triton.language as tl
import ditron

@ditron.jit
def bump(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), 1.0)

def main():
    ditron.init()
    x = torch.zeros(16)
    bump[(1,)](x, N=16)
    child = os.fork()
    if child == 0:
        try:
            bump[(1,)](x, N=16)
        except ditron.DitronError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    bump[(1,)](x, N=16)

ditron.sim.run(main, ranks=2)
print("the parent goes on")
"""


def test_a_launch_in_a_fork_of_a_rank_is_an_error(tmp_path):
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
    result = subprocess.run([sys.executable, script], env=environment, text=True, capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "rank 0 forked this process" in result.stdout and "rank 1 forked this process" in result.stdout
    assert result.stdout.endswith("the parent goes on\n")


def test_init_does_not_run_the_test_runner_again():
    with pytest.raises(
        ditron.DitronError, match=r"(?s)runs the calling script once per rank.*ditron.sim.run\(function, ranks=[2N]\)"
    ):
        ditron.init(sim=2)
