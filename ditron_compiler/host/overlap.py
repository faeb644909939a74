"""Whether two rectangular parts of memory have a place in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["overlap", "span"]

_MOST_RUNS = 1 << 20  # of a part that are looked at one by one


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Places from the first element to the end of the last; 0 when there are none."""
    if 0 in shape:
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def overlap(
    shape: Sequence[int], strides: Sequence[int], others: Sequence[int], their_strides: Sequence[int], distance: int
) -> bool:
    """Whether an element of the one part lies where one of the other does, which begins ``distance`` places later.

    Strides are not negative. Parts of very many runs of elements are taken to have no gaps.
    """
    first, second = span(shape, strides), span(others, their_strides)
    if not first or not second or distance >= first or -distance >= second:
        return False
    mine, theirs = _runs(shape, strides), _runs(others, their_strides) + distance
    after = np.searchsorted(theirs[:, 0], mine[:, 1])  # of theirs, those that begin before each of mine ends
    before = np.searchsorted(theirs[:, 1], mine[:, 0], side="right")  # those that end before it begins
    return bool((after > before).any())


def _runs(shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Begin and end of each run of elements that lie together: [runs, 2], ascending."""
    dims = sorted((stride, extent) for extent, stride in zip(shape, strides, strict=True) if extent > 1 and stride)
    run = 1
    while dims and dims[0][0] <= run:
        stride, extent = dims.pop(0)
        run += stride * (extent - 1)
    starts = np.zeros(1, dtype=np.int64)
    for stride, extent in dims:
        if len(starts) * extent > _MOST_RUNS:
            return np.array([[0, span(shape, strides)]])
        starts = np.add.outer(stride * np.arange(extent), starts).ravel()
    starts.sort()
    return np.stack([starts, starts + run], axis=1)
