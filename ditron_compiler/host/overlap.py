"""Whether two strided parts of memory overlap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["overlap", "span"]

_MAX_RUNS = 1 << 20  # of a part that is not taken to be contiguous


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last, those between included; 0 when there are none."""
    if 0 in shape:
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def overlap(
    shape: Sequence[int], strides: Sequence[int], others: Sequence[int], other_strides: Sequence[int], distance: int
) -> bool:
    """Whether two parts have an element in common; the second begins ``distance`` elements after the first.

    Strides are not negative. A part of very many contiguous runs is taken to have no gaps.
    """
    first, second = span(shape, strides), span(others, other_strides)
    if not first or not second or distance >= first or -distance >= second:
        return False
    mine, theirs = _contiguous_runs(shape, strides), _contiguous_runs(others, other_strides) + distance
    begun = np.searchsorted(theirs[:, 0], mine[:, 1])  # how many of theirs begin before each of mine ends
    ended = np.searchsorted(theirs[:, 1], mine[:, 0], side="right")  # how many of theirs end before it begins
    return bool((begun > ended).any())


def _contiguous_runs(shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Begin and end of each contiguous run of elements: [runs, 2], ascending."""
    dims = sorted((stride, extent) for extent, stride in zip(shape, strides, strict=True) if extent > 1 and stride)
    run = 1
    while dims and dims[0][0] <= run:
        stride, extent = dims.pop(0)
        run += stride * (extent - 1)
    starts = np.zeros(1, dtype=np.int64)
    for stride, extent in dims:
        if len(starts) * extent > _MAX_RUNS:
            return np.array([[0, span(shape, strides)]])
        starts = np.add.outer(stride * np.arange(extent), starts).ravel()
    starts.sort()
    return np.stack([starts, starts + run], axis=1)
