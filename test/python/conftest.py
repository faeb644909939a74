"""Fixtures of several files."""

import pytest

import ditron


@pytest.fixture
def posing():
    """CPU tensors say that they are CUDA tensors."""
    with ditron.sim.triton(as_cuda=True):
        yield
