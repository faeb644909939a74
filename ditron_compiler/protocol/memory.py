"""Abstract memory, without contents: pointers, and the bytes of an access.

A pointer is an integer: which rank's memory, which buffer, and how many bytes from its beginning. Pointer arithmetic is
integer arithmetic, for single pointers and for tiles of them. The offset is counted from the middle of a buffer's
range, so that a negative index is recognised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "NULL",
    "HeapBuffer",
    "Span",
    "address",
    "copied_to",
    "common",
    "describe",
    "is_remote",
    "merged",
    "overlap",
    "parts",
    "runs",
    "with_rank",
]

NULL = 0
_OFFSET_BITS, _ROOT_BITS = 36, 16
_RANK_SHIFT = _OFFSET_BITS + _ROOT_BITS
_MIDDLE = 1 << (_OFFSET_BITS - 1)

#: First byte and the one after the last, in the order of addresses: an array [runs, 2].
Span = np.ndarray


@dataclass(frozen=True)
class HeapBuffer:
    """A buffer: one per rank, at the same place on each when it is symmetric.

    Attributes:
        name: for reports. nbytes, itemsize: of the buffer and its elements. shape: in elements, for reports.
        symmetric: whether other ranks reach it. zeroed: whether it begins as zeros; else reading what nobody has
            written is a mistake, unless ``given``: it holds what the caller gave. integer: its elements are integers.
        initial: its bytes at first, where they are known and not zeros; of a buffer of one rank.
    """

    number: int
    name: str
    nbytes: int
    itemsize: int
    shape: tuple[int, ...] = ()
    symmetric: bool = False
    zeroed: bool = False
    given: bool = True
    integer: bool = False
    initial: np.ndarray | None = field(default=None, compare=False, repr=False)


def address(rank: int, root: int, offset: int = 0) -> int:
    """The pointer to byte ``offset`` of a buffer on a rank."""
    return (rank + 1) << _RANK_SHIFT | root << _OFFSET_BITS | (_MIDDLE + offset)


def parts(pointer: int) -> tuple[int, int, int]:
    """Rank, number of the buffer, byte offset. Rank -1: no pointer at all."""
    low = pointer & ((1 << _OFFSET_BITS) - 1)
    return (pointer >> _RANK_SHIFT) - 1, pointer >> _OFFSET_BITS & ((1 << _ROOT_BITS) - 1), low - _MIDDLE


def with_rank(pointer: Any, rank: Any) -> Any:
    """The same place on another rank; of a pointer or a tile of them, on a rank or a tile of them."""
    return pointer & ((1 << _RANK_SHIFT) - 1) | (rank + 1) << _RANK_SHIFT


def is_remote(pointers: Any, rank: int) -> bool:
    """Whether any of ``pointers`` leads to memory of another rank than ``rank``."""
    return bool(np.any(pointers >> _RANK_SHIFT != rank + 1))


def runs(pointers: Any, mask: Any, itemsize: int) -> Span:
    """The bytes that ``pointers`` (one or a tile) access where ``mask`` allows it."""
    if isinstance(pointers, (int, np.integer)):
        kept = [[pointers, pointers + itemsize]] if mask is True or np.any(mask) else []
        return np.array(kept, dtype=np.int64).reshape(-1, 2)
    if mask is not True and mask is not None:
        pointers, mask = np.broadcast_arrays(pointers, mask)
        flat = pointers[np.asarray(mask, dtype=bool)]
    else:
        flat = pointers.reshape(-1)
    if not flat.size:
        return np.empty((0, 2), dtype=np.int64)
    breaks = np.flatnonzero(flat[1:] - flat[:-1] != itemsize) + 1
    if not breaks.size:
        return np.array([[flat[0], flat[-1] + itemsize]], dtype=np.int64)
    starts = flat[np.concatenate(([0], breaks))]
    ends = flat[np.concatenate((breaks - 1, [flat.size - 1]))] + itemsize
    return merged(np.stack((starts, ends), axis=1))


def merged(span: Span) -> Span:
    """The same bytes in the order of addresses, in as few runs as possible."""
    if len(span) <= 1:
        return span
    span = span[np.argsort(span[:, 0], kind="stable")]
    reach = np.maximum.accumulate(span[:, 1])
    first = np.concatenate(([True], span[1:, 0] > reach[:-1]))
    starts = span[first, 0]
    return np.stack((starts, reach[np.concatenate((np.flatnonzero(first)[1:] - 1, [len(span) - 1]))]), axis=1)


def common(a: Span, b: Span) -> Span:
    """The bytes that are in both, of which each is as :func:`merged` gives it."""
    kept = [
        [max(low, first), min(high, last)]
        for low, high in a.tolist()
        for first, last in b.tolist()
        if low < last and first < high
    ]
    return np.array(kept, dtype=np.int64).reshape(-1, 2)


def copied_to(source: Span, target: Span, part: Span) -> Span:
    """The bytes of ``target`` that a copy writes from ``part`` of ``source``, byte by byte in the order of both."""
    found = []
    for low, high in common(source, part).tolist():
        run = int(np.searchsorted(source[:, 0], low, side="right")) - 1
        at = int(np.diff(source[:run]).sum()) + low - int(source[run, 0])  # bytes copied before this run
        before = 0
        for first, last in target.tolist():
            begin, end = max(at, before), min(at + high - low, before + last - first)
            if begin < end:
                found.append([first + begin - before, first + end - before])
            before += last - first
    return merged(np.array(found, dtype=np.int64).reshape(-1, 2))


def overlap(a: Span, b: Span, but_same: bool = True) -> bool:
    """Whether some byte is in both, unless they are the same and ``but_same`` does not count."""
    union = merged(np.concatenate((a, b)))
    return not (but_same and np.array_equal(a, b)) and bool(np.diff(union).sum() < np.diff(a).sum() + np.diff(b).sum())


def describe(root: HeapBuffer, offset: int) -> str:
    """``data[1, 31]`` of a byte offset."""
    index, at = [], offset // max(root.itemsize, 1)
    for extent in reversed(root.shape or (root.nbytes // max(root.itemsize, 1),)):
        index.append(at % extent if extent and len(index) + 1 < len(root.shape or (1,)) else at)
        at //= max(extent, 1)
    return f"{root.name}[{', '.join(map(str, reversed(index)))}]"
