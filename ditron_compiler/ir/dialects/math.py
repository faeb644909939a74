"""Typed classes of the math dialect."""

from ._math_ops_gen import *  # noqa: F403
