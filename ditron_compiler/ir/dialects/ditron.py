"""Typed classes and enumerations of the ditron dialect."""

from ... import ir
from ._ditron_enum_gen import *  # noqa: F403
from ._ditron_ops_gen import *  # noqa: F403


def token_type(context=None) -> ir.Type:
    """``!ditron.token``."""
    return ir.Type.parse("!ditron.token", context)
