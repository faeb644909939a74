"""Widths, shapes and constants of IR values."""

from __future__ import annotations

import re

from ditron_compiler import ir

__all__ = ["bits_of", "bits_of_name", "constant", "element_of", "integer", "itemsize", "shape_of"]


def shape_of(kind: ir.Type) -> tuple[int, ...]:
    """Extents of a tensor; empty for a scalar."""
    return tuple(ir.RankedTensorType(kind).shape) if ir.RankedTensorType.isinstance(kind) else ()


def element_of(kind: ir.Type) -> ir.Type:
    return ir.RankedTensorType(kind).element_type if ir.RankedTensorType.isinstance(kind) else kind


def bits_of_name(element: str, default: int) -> int:
    """Width of a type that is spelled ``bf16``, ``i32`` or ``f8E4M3FN``; the default for what has no number."""
    found = re.match(r"[a-z]+(\d+)", element)
    return int(found[1]) if found else default


def bits_of(kind: ir.Type) -> int:
    """Width of the elements; 64 for what has none (index, pointers)."""
    text = str(element_of(kind))
    return bits_of_name(text, 64) if text[:1] in "ifb" else 64


def itemsize(kind: ir.Type) -> int:
    """Bytes of what a pointer, or a tile of them, points to."""
    text = str(element_of(kind))
    inner = text[len("!tt.ptr<") :].split(",")[0].rstrip(">") if text.startswith("!tt.ptr<") else text
    if inner.startswith("tensor") or inner.startswith("!"):
        return 8
    return max(bits_of_name(inner, 64) // 8, 1)


def integer(op: ir.Operation, name: str, default: int = 0) -> int:
    """An integer attribute."""
    return ir.IntegerAttr(op.attributes[name]).value if name in op.attributes else default


def constant(op: ir.Operation) -> object:
    """The value of ``arith.constant``: an integer, a truth value, a list of integers, or None for what is neither."""
    value = op.attributes["value"]
    if ir.DenseElementsAttr.isinstance(value):
        dense = ir.DenseElementsAttr(value)
        if not ir.DenseIntElementsAttr.isinstance(value):
            return None
        if dense.is_splat:
            return _plain(dense.get_splat_value(), bits_of(op.results[0].type))
        return [_plain(item, 64) for item in dense]
    return _plain(value, bits_of(op.results[0].type))


def _plain(value: object, bits: int) -> object:
    if isinstance(value, ir.Attribute):
        if not ir.IntegerAttr.isinstance(value):
            return None
        value = ir.IntegerAttr(value).value
    return bool(value) if bits == 1 else int(value)
