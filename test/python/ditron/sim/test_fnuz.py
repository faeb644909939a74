"""AMD's formats of fp8, f8E4M3FNUZ and f8E5M2FNUZ: the same numbers and the same bits as torch's."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron

DTYPES = [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


@ditron.jit
def widen(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at).to(tl.float32))


@ditron.jit
def narrow(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at).to(y.dtype.element_ty))


def call(kernel, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    def main():
        ditron.init()
        y = torch.zeros(x.shape, dtype=dtype)
        kernel[(1,)](x, y, N=x.numel())
        return y

    return ditron.sim.run(main, ranks=1)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_values_are_read(dtype):
    x = torch.arange(256).to(torch.uint8).view(dtype)
    assert torch.equal(call(widen, x, torch.float32).nan_to_num(-1e9), x.float().nan_to_num(-1e9))


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_rounded_as_torch_does(dtype):
    largest = torch.finfo(dtype).max
    exact = torch.arange(256).to(torch.uint8).view(dtype).float().nan_to_num(0.0)
    x = torch.cat([torch.randn(1024 - 256) * 2.0 ** torch.randint(-18, 7, (768,)), exact])
    x = x.clamp(-largest, largest)
    assert torch.equal(call(narrow, x, dtype).view(torch.uint8), x.to(dtype).view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_too_large_is_the_largest(dtype):
    x = torch.tensor([1e6, -1e6, float("nan"), -0.0])
    got = call(narrow, x, dtype)
    largest = torch.finfo(dtype).max
    assert got.float().tolist()[:2] == [largest, -largest]
    assert got.view(torch.uint8).tolist()[2:] == [0x80, 0]
