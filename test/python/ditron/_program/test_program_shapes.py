"""Ranks that call a program with different shapes: the simulator notices, in the first call and in later ones."""

from __future__ import annotations

import pytest
import torch

import ditron
import ditron.host as dh
from ditron import SimulationError


@ditron.program
def exchange(x, out):
    """Memory is for 16 rows at most, so that calls of several sizes share it and allocate nothing."""
    right = (dh.rank() + 1) % dh.num_ranks()
    inbox = dh.symm_empty(16, x.shape[1], dtype=x.dtype, name="inbox")
    dh.barrier()
    dh.rank_copy(x, inbox[: x.shape[0]], right)
    dh.barrier()
    dh.copy(inbox[: x.shape[0]], out)


def call(rows, dtype=torch.float32):
    x, out = torch.full((rows, 2), 1.0 + ditron.rank()).to(dtype), torch.zeros(rows, 2, dtype=dtype)
    exchange(x, out)
    left = (ditron.rank() - 1) % ditron.num_ranks()
    assert torch.equal(out, torch.full((rows, 2), 1.0 + left).to(dtype))


def test_sizes_may_change_from_call_to_call():
    def main():
        ditron.init()
        for rows in (3, 16, 3, 5, 16):
            call(rows)
        if pair := ditron.new_group([2, 0]):  # others make other calls
            with pair:
                call(7)
        call(4)

    for seed in range(3):
        ditron.sim.run(main, ranks=3, seed=seed)


@pytest.mark.parametrize("before", (0, 2))
@pytest.mark.parametrize("rows", ((4, 5), (4, 16)))
def test_different_shapes_are_an_error(before, rows):
    def main():
        ditron.init()
        for _ in range(before):
            call(4)
        call(rows[ditron.rank()])

    message = r"argument 'x' is float32\[\d+, 2\] on rank \d and float32\[\d+, 2\] on rank \d: all ranks call"
    with pytest.raises(SimulationError, match=message):
        ditron.sim.run(main, ranks=2)


def test_different_dtypes_are_an_error():
    def main():
        ditron.init()
        call(4)
        call(4, (torch.float32, torch.int32)[ditron.rank()])

    with pytest.raises(SimulationError, match="(float32|int32).* and (float32|int32)"):
        ditron.sim.run(main, ranks=2)
