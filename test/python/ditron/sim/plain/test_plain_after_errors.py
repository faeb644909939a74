"""A script of one rank that catches what a plain kernel did wrong goes on, as test suites do."""

import warnings

import pytest
import torch
import triton
import triton.language as tl

import ditron
from ditron import sim


@triton.jit
def double(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) * 2)  # right when B is n


@triton.jit
def read_all(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i), i < n)  # reads beyond


@triton.jit
def hang(flag):
    while tl.atomic_add(flag, 0) == 0:
        pass


def test_the_next_launch_works():
    def main():
        x, out, flag = torch.ones(16), torch.zeros(16), torch.zeros(1, dtype=torch.int32)
        for _ in range(2):
            with pytest.raises(ditron.SimulationError, match="past the end of `out`"):
                double[(1,)](x, out, 16, B=32)
            with pytest.raises(ditron.DeadlockError, match=r"flag\[0\] = 0"):
                hang[(1,)](flag)
        double[(1,)](x, out, 16, B=16)
        return out.tolist()

    assert sim.run(main, 1) == [[2.0] * 16]
    assert sim.run(main, 1, races=False) == [[2.0] * 16]


def test_what_nobody_catches_ends_the_run():
    def main():
        double[(1,)](torch.ones(16), torch.zeros(16), 16, B=32)

    with pytest.raises(ditron.SimulationError, match="past the end of `out`") as caught:
        sim.run(main, 1, seed=4)
    assert caught.value.seed == 4
    assert any(entry.name == "main" for entry in caught.traceback), "the launch is shown"


def test_with_symmetric_memory_nothing_goes_on():
    """It lies in the machine that has failed."""

    def main():
        ditron.init()
        x = ditron.symm_zeros(16, dtype=torch.float32)
        with pytest.raises(ditron.SimulationError, match="past the end of `out`"):
            double[(1,)](x, torch.zeros(16), 16, B=32)
        with pytest.raises(ditron.SimulationError, match="the simulation has ended"):
            double[(1,)](x, torch.zeros(16), 16, B=16)

    with pytest.raises(ditron.SimulationError, match="past the end of `out`"):
        sim.run(main, 1)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_warning_that_is_an_error_comes_from_the_launch(ranks):
    def main():
        x, out = torch.arange(16.0), torch.zeros(16)
        if sim.current_world().rank == 0:  # the first that reads there is told
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with pytest.raises(UserWarning, match="past the end of `x`"):
                    read_all[(1,)](x, out, 16, B=32)
        double[(1,)](x, out, 16, B=16)
        return out[5].item()

    assert sim.run(main, ranks) == [10.0] * ranks
