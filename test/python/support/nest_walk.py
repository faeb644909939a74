"""Blockings by walking: which tiles a loop nest loads, counted one after the other, and every blocking of a small chain.

Nothing of ditron.cost_model: a chain is ``products`` [(left, right, result)] of names, ``dims`` {name: loops} and
``extents``. Fast memory has one tile of each tensor; the last product asks for what it needs, and the one before is
computed again when it asks for a part of an intermediate that is not there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence


class Walk:
    """Runs a chain in blocks. ``loads``: times that a tile of a tensor was brought, by tensor and the tile's place."""

    def __init__(self, products, dims, trips, order):
        self.products, self.dims, self.trips = products, dims, trips
        self.order = [loop for loop in order if trips[loop] > 1]  # a loop of one iteration is none
        self.loads: dict[str, dict[tuple, int]] = {name: {} for name in dims}
        self.in_use: dict[str, tuple] = {}
        self.there: dict[str, dict[str, int]] = {}  # by intermediate: the place of the part that fast memory has
        self.computed = 0  # tiles of all products
        self.run(len(products) - 1, {})

    def fixed_loops(self, number: int) -> list[str]:
        """The loops of an intermediate of which one iteration at a time is in fast memory: outside of all sums."""
        left, right, result = self.products[number]
        found = []
        for loop in self.order:
            if loop in self.dims[result]:
                found.append(loop)
            elif loop in self.dims[left] or loop in self.dims[right]:
                break
        return found

    def run(self, number: int, at: Mapping[str, int]) -> None:
        left, right, result = self.products[number]
        own = [loop for loop in self.order if loop in self.dims[left] + self.dims[right] and loop not in at]
        for place in itertools.product(*(range(self.trips[loop]) for loop in own)):
            now = {**at, **dict(zip(own, place, strict=True))}
            self.computed += 1
            if number > 0:
                fixed = {loop: now[loop] for loop in self.fixed_loops(number - 1)}
                if self.there.get(left) != fixed:
                    self.there[left] = fixed
                    self.run(number - 1, fixed)
            moved = [right] if number else [left, right]
            if number == len(self.products) - 1:
                moved.append(result)
            for name in moved:
                tile = tuple(now.get(loop, 0) for loop in self.dims[name])
                if self.in_use.get(name) != tile:
                    self.in_use[name] = tile
                    self.loads[name][tile] = self.loads[name].get(tile, 0) + 1


def elements(loads: Mapping[tuple, int], dims: Sequence[str], tiles: Mapping[str, int], extents) -> int:
    """Elements of all loaded tiles; those at the end of a loop are smaller."""
    return sum(
        times
        * math.prod(min(extents[d], (at + 1) * tiles[d]) - at * tiles[d] for d, at in zip(dims, place, strict=True))
        for place, times in loads.items()
    )


def held(walk: Walk, tiles: Mapping[str, int], itemsize: Mapping[str, int], extents, resident=()) -> int:
    """Bytes of the tiles of all tensors, and of intermediates what is there at a time."""
    total = 0
    for name, dims in walk.dims.items():
        if name in resident:
            continue
        whole: list[str] = []
        for number, (_, _, result) in enumerate(walk.products[:-1]):
            if result == name:
                whole = [d for d in dims if d not in walk.fixed_loops(number)]
        total += itemsize[name] * math.prod(extents[d] if d in whole and walk.trips[d] > 1 else tiles[d] for d in dims)
    return total


def every_blocking(extents: Mapping[str, int], products, dims) -> Iterator[tuple[tuple, dict, Walk]]:
    """All orders of all integer tile sizes; of orders that differ by loops of one iteration, one."""
    walks: dict[tuple, Walk] = {}
    seen: set[tuple] = set()
    for order in itertools.permutations(extents):
        for sizes in itertools.product(*(range(1, extent + 1) for extent in extents.values())):
            tiles = dict(zip(extents, sizes, strict=True))
            trips = {loop: math.ceil(extents[loop] / tiles[loop]) for loop in extents}
            key = (tuple(loop for loop in order if trips[loop] > 1), tuple(trips.values()))
            if (key[0], sizes) in seen:
                continue
            seen.add((key[0], sizes))
            if key not in walks:
                walks[key] = Walk(products, dims, trips, order)
            yield order, tiles, walks[key]
