"""Fixtures of the tests of fake CUDA, which `make test-fake-cuda` runs."""

import pytest

import ditron


@pytest.fixture
def fake_cuda():
    """CPU tensors report to be CUDA tensors."""
    with ditron.sim.triton(as_cuda=True):
        yield
