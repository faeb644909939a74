"""Operators of ``torch.library`` for CUDA tensors under fake CUDA: registered before, and compiled."""

import pytest
import torch
import triton
import triton.language as tl

import ditron

N = 300


@triton.jit
def _scale(x, o, n, factor, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) * factor, i < n)


def _scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    assert x.is_cuda
    o = torch.empty_like(x, memory_format=torch.contiguous_format)
    _scale[(3,)](x.contiguous(), o, N, factor, B=128)
    return o


before = torch.library.custom_op("ditron_before::scaled", _scaled, mutates_args=(), device_types="cuda")
_library = torch.library.Library("ditron_before", "FRAGMENT")
_library.define("plain.one(Tensor x, float factor) -> Tensor")
_library.impl("plain.one", _scaled, "CUDA")


def test_operators_that_were_registered_before():
    """A package is imported first, and fake CUDA begins later; afterwards its operators are for CUDA again."""
    x = torch.randn(N)
    operators = (before, torch.ops.ditron_before.plain.one)
    for _ in range(2):
        with ditron.sim.triton(as_cuda=True):
            assert all(torch.equal(operator(x, 3.0), x * 3) for operator in operators)
        for operator in operators:
            with pytest.raises(NotImplementedError, match="'CPU' backend"):
                operator(x, 3.0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_fake_kernels(backend):
    """torch.compile calls an operator's fake kernel with tensors that report CUDA, and it makes one on their device."""
    with ditron.sim.triton(as_cuda=True):
        name = f"ditron_test::scaled_{backend}"
        operator = torch.library.custom_op(name, _scaled, mutates_args=(), device_types="cuda")
        operator.register_fake(lambda x, factor: x.new_empty(x.shape) + torch.empty_like(x, device=x.device))
        operator.register_autograd(lambda ctx, grad: (operator(grad, 2.0), None))
        x = torch.randn(N, device="cuda", requires_grad=True)
        y = torch.compile(lambda x: operator(x, 2.0) + 1, backend=backend)(x)
        y.sum().backward()
        assert torch.equal(y, x * 2 + 1) and torch.equal(x.grad, torch.full((N,), 2.0))
