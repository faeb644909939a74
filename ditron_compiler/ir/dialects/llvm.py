"""Typed classes and enumerations of the llvm dialect."""

from ._llvm_enum_gen import *  # noqa: F403
from ._llvm_ops_gen import *  # noqa: F403
