"""Which offsets of a heap are in use. Deterministic, so that ranks that ask alike are answered alike."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from functools import reduce

__all__ = ["ALIGNMENT", "RangeAllocator", "Ranges", "round_up"]

# What cudaMalloc gives, and more than any vector access or TMA descriptor asks for.
ALIGNMENT = 256


def round_up(value: int, multiple: int) -> int:
    """The next multiple from ``value`` on."""
    return -(-value // multiple) * multiple


class Ranges:
    """A set of offsets as disjoint ranges ``[start, end)``, ascending; those that touch are one.

    >>> ranges = Ranges([(0, 4), (8, 12)])
    >>> ranges.add(4, 8)
    >>> ranges.remove(2, 3)
    >>> ranges.all
    [(0, 2), (3, 12)]
    """

    def __init__(self, ranges: Iterable[Sequence[int]] = ()):
        self.all: list[tuple[int, int]] = []
        for start, end in ranges:
            self.add(start, end)

    @property
    def largest(self) -> int:
        """Length of the largest range."""
        return max((end - start for start, end in self.all), default=0)

    def add(self, start: int, end: int) -> None:
        """Add offsets of which none is there."""
        at = bisect.bisect(self.all, (start, end))
        if at < len(self.all) and self.all[at][0] == end:
            end = self.all.pop(at)[1]
        if at and self.all[at - 1][1] == start:
            at -= 1
            start = self.all.pop(at)[0]
        if start < end:
            self.all.insert(at, (start, end))

    def remove(self, start: int, end: int) -> None:
        """Remove offsets that are all there. Raises KeyError when they are not."""
        at = bisect.bisect(self.all, (start + 1,)) - 1
        if at < 0 or not self.all[at][0] <= start < end <= self.all[at][1]:
            raise KeyError((start, end))
        first, last = self.all.pop(at)
        self.all[at:at] = [part for part in ((first, start), (end, last)) if part[0] < part[1]]

    def holds(self, start: int, end: int) -> bool:
        """Whether all these offsets are there."""
        at = bisect.bisect(self.all, (start + 1,)) - 1
        return at >= 0 and self.all[at][0] <= start and end <= self.all[at][1]

    def first_fit(self, nbytes: int) -> int | None:
        """The lowest start of ``nbytes`` offsets that follow each other."""
        return next((start for start, end in self.all if end - start >= nbytes), None)

    @staticmethod
    def common(sets: Iterable[Ranges]) -> Ranges:
        """The offsets that all the sets have."""
        return reduce(Ranges._and, sets)

    def _and(self, other: Ranges) -> Ranges:
        both = ((max(a, c), min(b, d)) for a, b in self.all for c, d in other.all)
        return Ranges((start, end) for start, end in both if start < end)


class RangeAllocator:
    """First fit over ``[start, end)``, and over what :meth:`extend` adds.

    >>> ranges = RangeAllocator(0, 1024)
    >>> a, b = ranges.allocate(100), ranges.allocate(100)
    >>> ranges.free(a)
    >>> (a, b, ranges.allocate(10))
    (0, 256, 0)
    """

    def __init__(self, start: int = 0, end: int = 0):
        start = round_up(start, ALIGNMENT)
        self._free = Ranges([(start, end)] if start < end else [])
        self._used: dict[int, int] = {}

    @property
    def largest(self) -> int:
        """Bytes of the largest free range."""
        return self._free.largest

    def allocate(self, nbytes: int) -> int | None:
        """Offset of ``nbytes`` fresh bytes, aligned to :data:`ALIGNMENT`; None when there is no room."""
        size = max(round_up(nbytes, ALIGNMENT), ALIGNMENT)
        start = self._free.first_fit(size)
        if start is not None:
            self._free.remove(start, start + size)
            self._used[start] = size
        return start

    def free(self, offset: int) -> None:
        """Give back what :meth:`allocate` gave. Raises KeyError for an offset that is not in use."""
        self._free.add(offset, offset + self._used.pop(offset))

    def is_free(self, start: int, end: int) -> bool:
        """Whether nothing is allocated in ``[start, end)``."""
        return self._free.holds(start, end)

    def extend(self, start: int, end: int) -> None:
        """Add a range."""
        self._free.add(start, end)

    def shrink(self, start: int, end: int) -> None:
        """Take away a range in which nothing is allocated. Raises KeyError when something is."""
        self._free.remove(start, end)
