"""Addresses of the GPU lowering: translation to another heap, on the scalar base, with its alignment as an attribute.

An opaque call makes Triton's axis analysis forget how pointers are aligned and contiguous; on the scalar base, where an
attribute restores the alignment, nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable

from ditron_compiler import ir
from ditron_compiler.analysis import divisibility as _divisibility
from ditron_compiler.analysis import rebasing
from ditron_compiler.lowering.gpu.builder import Lowering

__all__ = ["divisibility", "rebase"]


def rebase(lowering: Lowering, pointer: ir.Value, change: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """``pointer`` with ``change`` applied to its scalar base, at the current operation."""
    return rebasing.rebase(pointer, change, lowering.make)


def divisibility(pointer: ir.Value) -> ir.Attribute | None:
    """The attribute that says how a scalar pointer is aligned, in the form that operations carry; None when unknown."""
    known = min(_divisibility.divisibility(pointer), 16)  # no access is wider
    return ir.Attribute.parse(f"dense<{known}> : tensor<1xi32>", pointer.context) if known > 1 else None
