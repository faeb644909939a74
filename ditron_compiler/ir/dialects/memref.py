"""Typed classes of the memref dialect."""

from ._memref_ops_gen import *  # noqa: F403
