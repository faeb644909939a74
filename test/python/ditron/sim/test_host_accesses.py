"""Accesses of host code, as race detection sees them."""

from __future__ import annotations

import pytest
import torch

import ditron
from ditron import sim


def test_operators_that_call_functions_read_their_arguments():
    """As torch.cond; a stream is writing the argument."""

    def main():
        view, x = sim.current_world(), torch.zeros(64)
        view.stream("a").fill(x, 1, name="x")
        return torch.cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (x,)).tolist()

    with pytest.raises(ditron.RaceError, match=r"race on x\[0\] of rank 0: nothing orders .*a read by host code"):
        sim.run(main, 1, races=True)
