"""``machine``: a GPU that is not there."""

from fake_cuda import machine

__all__ = ["machine"]
