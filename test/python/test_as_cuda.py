"""Code that insists on CUDA, on the simulator: what ``ditron.sim.triton(as_cuda=True)`` answers."""
import pytest
import torch
import triton
import triton.language as tl

import ditron

N = 300


@triton.jit
def _double(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) * 2, i < n)


@pytest.fixture
def posing():
    with ditron.sim.triton(as_cuda=True):
        yield


class _View:
    """A package's own stand-in for a tensor: what a kernel needs of one, and the device that its tensor told."""

    def __init__(self, base: torch.Tensor, offset: int):
        self.dtype, self.device, self._ptr = base.dtype, base.device, base.data_ptr() + offset * base.itemsize

    def data_ptr(self) -> int:
        return self._ptr


@pytest.mark.parametrize("as_cuda", [True, False])
def test_what_stands_in_for_tensors(as_cuda):
    with ditron.sim.triton(as_cuda=as_cuda):
        x, o = torch.randn(N), torch.zeros(N)
        _double[(1,)](_View(x, 100), _View(o, 7), 50, B=64)
    assert torch.equal(o[7:57], x[100:150] * 2) and o.count_nonzero() == 50


def test_what_stands_in_for_a_tensor_elsewhere_is_refused():
    away = _View(torch.zeros(N), 0)
    away.device = torch.device("cuda")
    with ditron.sim.triton(), pytest.raises(ditron.DitronError, match="'x' lies on cuda"):
        _double[(1,)](away, torch.zeros(N), 50, B=64)
