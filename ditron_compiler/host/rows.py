"""A copy between two strided parts of memory, as rows with a pitch: what copy engines move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["PitchedRows", "pitched_rows"]


class PitchedRows(NamedTuple):
    """``height`` rows of ``width`` units; from one row to the next it is ``src_pitch`` and ``dst_pitch`` units."""

    width: int
    height: int
    src_pitch: int
    dst_pitch: int


def pitched_rows(
    shape: Sequence[int], src_strides: Sequence[int], dst_strides: Sequence[int], itemsize: int
) -> PitchedRows | None:
    """Such a copy, in bytes, of parts with strides in elements; None when it is not one of rows at one distance."""
    if 0 in shape:
        return PitchedRows(0, 0, 0, 0)
    # (extent, source stride, destination stride) of each dimension, the innermost last, contiguous ones merged.
    dims: list[tuple[int, int, int]] = []
    for extent, source, destination in zip(shape, src_strides, dst_strides, strict=True):
        if extent == 1:
            continue
        if dims and dims[-1][1:] == (source * extent, destination * extent):
            dims[-1] = (dims[-1][0] * extent, source, destination)
        else:
            dims.append((extent, source, destination))
    if not dims or dims[-1][1:] != (1, 1):
        dims.append((1, 1, 1))
    if len(dims) > 2 or any(stride < 0 for dim in dims for stride in dim):
        return None
    height, source, destination = dims[0] if len(dims) == 2 else (1, 0, 0)
    return PitchedRows(dims[-1][0] * itemsize, height, source * itemsize, destination * itemsize)
