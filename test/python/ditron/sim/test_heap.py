"""The symmetric heap at its end, and tensors that were freed."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron import sim


@ditron.jit
def read(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at))


@ditron.jit
def read_peers(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(dl.symm_at(x, 1 - dl.rank()) + at))


def test_zeros_at_the_end_of_a_full_heap_are_written():
    def main():
        ditron.init()
        almost_all = ditron.symm_empty((1 << 30) - 256, dtype=torch.int8, name="almost_all")
        last = ditron.symm_zeros(1, dtype=torch.int8, name="last")
        almost_all[-16:] = 2
        out = torch.full((16,), 9, dtype=torch.int8)
        read[(1,)](last, out, N=1)
        seen = out[0].item()
        read[(1,)](almost_all[-16:], out, N=16)
        return seen, out.unique().tolist()

    assert sim.run(main, ranks=1, heap_bytes=1 << 30) == [(0, [2])]


@pytest.mark.parametrize("kernel", [read, read_peers])
def test_what_was_freed_is_said_to_be(kernel):
    def main():
        ditron.init()
        x = ditron.symm_zeros(64, dtype=torch.float32, name="x")
        alias = x.view(-1)
        ditron.symm_free(x)
        kernel[(1,)](alias, torch.zeros(16), N=16)

    with pytest.raises(ditron.SimulationError, match=r"at x\[0\], which was freed") as caught:
        sim.run(main, ranks=2)
    assert caught.value.kind == "freed"
