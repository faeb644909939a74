"""Triton's pointer type. Triton's operations have no typed classes: our MLIR carries them without knowing them."""

from ..._core import PointerType

__all__ = ["PointerType"]
