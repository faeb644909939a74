"""Bookkeeping of offsets."""

import random

import pytest

from ditron.distributed.ranges import ALIGNMENT, RangeAllocator, Ranges


def offsets(ranges: Ranges) -> set[int]:
    return {offset for start, end in ranges.all for offset in range(start, end)}


def test_ranges_are_a_set():
    """Against Python's set, with random additions and removals."""
    rng = random.Random(7)
    for _ in range(50):
        ranges, model = Ranges(), set()
        for _ in range(60):
            start = rng.randrange(40)
            new = set(range(start, start + rng.randrange(1, 8)))
            if not new & model:
                ranges.add(min(new), max(new) + 1)
                model |= new
            elif new <= model:
                assert ranges.holds(min(new), max(new) + 1)
                ranges.remove(min(new), max(new) + 1)
                model -= new
            else:
                assert not ranges.holds(min(new), max(new) + 1)
                with pytest.raises(KeyError):
                    ranges.remove(min(new), max(new) + 1)
            assert offsets(ranges) == model
            assert all(a[1] < b[0] for a, b in zip(ranges.all, ranges.all[1:], strict=False))


def test_common_ranges():
    rng = random.Random(3)
    for _ in range(100):
        sets = []
        for _ in range(3):
            ranges = Ranges()
            for start in range(0, 60, 6):
                if rng.random() < 0.7:
                    first = start + rng.randrange(3)
                    ranges.add(first, first + rng.randrange(1, 4))
            sets.append(ranges)
        assert offsets(Ranges.common(sets)) == set.intersection(*map(offsets, sets))


def test_allocator():
    ranges = RangeAllocator(10, 4 * ALIGNMENT)  # the first offset is aligned
    first, second, third = (ranges.allocate(1) for _ in range(3))
    assert (first, second, third) == (256, 512, 768)
    assert ranges.allocate(1) is None and ranges.largest == 0
    ranges.free(second)
    with pytest.raises(KeyError):
        ranges.free(second)
    assert ranges.allocate(257) is None and ranges.allocate(256) == 512


def test_allocator_over_several_ranges():
    """Ranges that touch are one; one in which something is allocated cannot be taken away."""
    ranges = RangeAllocator()
    assert ranges.allocate(1) is None
    ranges.extend(0, 1024)
    ranges.extend(4096, 5120)
    ranges.extend(1024, 2048)
    a = ranges.allocate(1500)
    assert (a, ranges.largest) == (0, 1024)
    b = ranges.allocate(600)
    assert b == 4096 and not ranges.is_free(4096, 5120) and not ranges.is_free(1024, 2048)
    with pytest.raises(KeyError):
        ranges.shrink(1024, 2048)
    ranges.free(a)
    ranges.shrink(1024, 2048)
    assert ranges.largest == 1024 and ranges.is_free(0, 1024)
