"""Typed classes and enumerations of the ditron dialect."""

from ._ditron_enum_gen import *  # noqa: F403
from ._ditron_ops_gen import *  # noqa: F403
