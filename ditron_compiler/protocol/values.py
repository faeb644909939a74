"""The values of the abstract machine: integers, arrays of them, and UNKNOWN.

A tile of integers is an array whose extents may be 1 where they would repeat, or a plain integer where all elements are
the same: splat and broadcast cost nothing. Floats, and whatever was loaded, are :data:`UNKNOWN`; so is all that is made
of it. A pointer is an integer too, see :mod:`.memory`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "UNKNOWN",
    "Anywhere",
    "BlockDescriptor",
    "expand",
    "extui",
    "any_unknown",
    "offset",
    "reshaped",
    "sdiv",
    "select",
    "shrui",
    "smax",
    "smin",
    "srem",
    "transposed",
    "trunc",
    "udiv",
    "ult",
    "umax",
    "umin",
    "urem",
]


class _Unknown:
    """The result of every operator on it is itself."""

    __array_ufunc__ = None  # numpy leaves the operators to us

    def _same(self, *_: Any) -> _Unknown:
        return self

    for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"):
        locals()[f"__{_name}__"] = locals()[f"__r{_name}__"] = _same
    for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "getitem"):
        locals()[f"__{_name}__"] = _same
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("an unknown value has no truth value")

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()


class Anywhere(_Unknown):
    """An address, or a tile of them, that is not known but for the buffer: ``base`` points into it."""

    def __init__(self, base: int):
        self.base = base

    def __repr__(self) -> str:
        return "ANYWHERE"


def _scalar(*values: Any) -> bool:
    return all(isinstance(value, (int, np.integer)) for value in values)


def any_unknown(*values: Any) -> bool:
    """Whether any of them is UNKNOWN, or an address :class:`Anywhere`."""
    for value in values:  # called for every access: a generator would take twice as long
        if isinstance(value, _Unknown):
            return True
    return False


def offset(pointer: Any, index: Any, size: int) -> Any:
    """The address of an element, or a tile of them; by an unknown index, anywhere in the same buffer."""
    if isinstance(pointer, _Unknown):
        return pointer
    if isinstance(index, _Unknown):
        first = pointer if isinstance(pointer, (int, np.integer)) else pointer.flat[0]
        same = isinstance(pointer, (int, np.integer)) or bool((pointer >> 36 == first >> 36).all())
        return Anywhere(int(first)) if same else UNKNOWN
    return pointer + index * size


def sdiv(a: Any, b: Any) -> Any:
    """Division as C's: towards zero. By zero: unknown."""
    if any_unknown(a, b) or not np.all(b):
        return UNKNOWN
    if _scalar(a, b):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def srem(a: Any, b: Any) -> Any:
    """Remainder as C's: the sign of the dividend."""
    quotient = sdiv(a, b)
    return UNKNOWN if any_unknown(quotient) else a - quotient * b


def _unsigned(a: Any, bits: int) -> Any:
    # An array of 64-bit numbers stays signed: addresses and indices are not negative.
    return a if bits >= 64 and not isinstance(a, int) else a & ((1 << bits) - 1)


def udiv(a: Any, b: Any, bits: int) -> Any:
    return UNKNOWN if any_unknown(a, b) or not np.all(b) else _unsigned(a, bits) // _unsigned(b, bits)


def urem(a: Any, b: Any, bits: int) -> Any:
    return UNKNOWN if any_unknown(a, b) or not np.all(b) else _unsigned(a, bits) % _unsigned(b, bits)


def ult(a: Any, b: Any, bits: int) -> Any:
    return UNKNOWN if any_unknown(a, b) else _unsigned(a, bits) < _unsigned(b, bits)


def shrui(a: Any, b: Any, bits: int) -> Any:
    return UNKNOWN if any_unknown(a, b) else _unsigned(a, bits) >> b


def smin(a: Any, b: Any) -> Any:
    if any_unknown(a, b):
        return UNKNOWN
    return min(a, b) if _scalar(a, b) else np.minimum(a, b)


def smax(a: Any, b: Any) -> Any:
    if any_unknown(a, b):
        return UNKNOWN
    return max(a, b) if _scalar(a, b) else np.maximum(a, b)


def umin(a: Any, b: Any, bits: int) -> Any:
    return select(ult(a, b, bits), a, b)


def umax(a: Any, b: Any, bits: int) -> Any:
    return select(ult(a, b, bits), b, a)


def select(condition: Any, a: Any, b: Any) -> Any:
    if any_unknown(condition):
        return a if a is b or (_scalar(a, b) and a == b) else UNKNOWN
    if isinstance(condition, (bool, np.bool_, int)):
        return a if condition else b
    return UNKNOWN if any_unknown(a, b) else np.where(condition, a, b)


def trunc(a: Any, bits: int) -> Any:
    """The low bits, as a signed number; of one bit, a truth value."""
    if any_unknown(a):
        return a
    if bits == 1:
        return (a & 1) != 0
    half = 1 << (bits - 1)
    return ((a + half) & ((1 << bits) - 1)) - half


def extui(a: Any, bits: int) -> Any:
    return a if any_unknown(a) else a * 1 if bits == 1 else _unsigned(a, bits)


def expand(a: Any, axis: int) -> Any:
    return np.expand_dims(a, axis) if isinstance(a, np.ndarray) else a


def reshaped(a: Any, source: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(a, source).reshape(shape) if isinstance(a, np.ndarray) else a


def transposed(a: Any, order: tuple[int, ...]) -> Any:
    return np.transpose(a, order) if isinstance(a, np.ndarray) else a


@dataclass(frozen=True)
class BlockDescriptor:
    """A tensor descriptor: accesses to a block at some coordinates are clipped at the tensor's bounds."""

    base: Any
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    block: tuple[int, ...]
    itemsize: int

    def box(self, coordinates: tuple[Any, ...]) -> tuple[Any, Any]:
        """Addresses of the block at ``coordinates``, and which of them are inside the tensor."""
        if any_unknown(self.base, *self.shape, *self.strides, *coordinates):
            return UNKNOWN, True
        address, inside = self.base, True
        for axis, (start, extent, size, stride) in enumerate(
            zip(coordinates, self.block, self.shape, self.strides, strict=True)
        ):
            along = [1] * len(self.block)
            along[axis] = extent
            index = (start + np.arange(extent)).reshape(along)
            address = address + index * (stride * self.itemsize)
            inside = inside & (index >= 0) & (index < size)
        return address, inside
