"""Typed classes of the cf dialect."""

from ._cf_ops_gen import *  # noqa: F403
