"""Accesses that leave one symmetric tensor for another one, on the own rank and on a peer."""
import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron import sim


@ditron.jit
def write_own(x, flags, index):
    tl.store(x + index, 1)  # own


@ditron.jit
def write_peer(x, flags, index):
    tl.store(dl.symm_at(x, 1 - dl.rank()) + index, 1)  # peer's


@ditron.jit
def read_peer(x, flags, index):
    tl.store(flags, tl.load(dl.symm_at(x, 1 - dl.rank()) + index))  # read


def _call(kernel, index, elements=64):
    def main():
        ditron.init()
        view = sim.current_world()
        x = view.alloc((2, elements // 2), torch.int64, name="x")
        flags = view.alloc((64,), torch.int64, name="flags")
        view.barrier()
        if view.rank == 0:
            kernel[(1,)](x, flags, index)
        view.barrier()
        return x.flatten().tolist()

    return sim.run(main, 2)


@pytest.mark.parametrize("kernel, line", [(write_own, "# own"), (write_peer, "# peer's"), (read_peer, "# read")])
def test_one_tensor_too_far(kernel, line):
    found = _call(kernel, 63)
    assert kernel is read_peer or found[kernel is write_peer][63] == 1
    # 64 elements are 512 bytes, then come 256 of nothing, then the next tensor.
    with pytest.raises(ditron.SimulationError) as caught:
        _call(kernel, 64 + 32 + 2)
    assert caught.value.kind == "bounds"
    assert "of 8 bytes goes past the end of `x`, to flags[2]: it has 512 bytes" in str(caught.value)
    with open(__file__) as source:
        number = next(n for n, text in enumerate(source, 1) if text.rstrip().endswith(line))
    assert caught.value.location.startswith(f"{__file__}:{number}:")


def test_before_the_beginning():
    @ditron.jit
    def write_flags(x, flags, index):
        tl.store(flags + index, 1)

    _call(write_flags, 0)
    with pytest.raises(ditron.SimulationError, match=r"goes before the beginning of `flags`, to x\[1, 31\]"):
        _call(write_flags, -33)
