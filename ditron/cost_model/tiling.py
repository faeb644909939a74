"""The tiles of one loop nest that move least: which of all integer tile sizes are tried, and what memory they need."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ditron.cost_model.chain import Chain
from ditron.cost_model.nest import Nest

__all__ = ["Tiling", "footprint", "tiles_of"]


def tiles_of(extent: int, tile: int) -> int:
    """How many tiles a loop has, the last of which may be smaller."""
    return -(-extent // tile)


def _held(chain: Chain, nest: Nest, resident: Collection[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each tensor in fast memory, the loops of which it has a tile, and those of which it has all iterations."""
    for name, loops in chain.loops_of.items():
        if name not in resident:
            whole = nest.whole.get(name, frozenset())
            yield name, [loop for loop in loops if loop not in whole], [loop for loop in loops if loop in whole]


def footprint(chain: Chain, nest: Nest, tiles: Mapping[str, int], resident: Collection[str]) -> int:
    """Bytes of fast memory that a nest with such tiles needs."""
    return sum(
        chain.itemsize[name]
        * math.prod(tiles[loop] for loop in tiled)
        * math.prod(chain.extents[loop] for loop in whole)
        for name, tiled, whole in _held(chain, nest, resident)
    )


class Tiling:
    """A nest whose tiles are to be chosen, in ``units`` of the smallest ones."""

    def __init__(
        self,
        chain: Chain,
        nest: Nest,
        units: Mapping[str, int],
        counted: Sequence[str],
        resident: Collection[str],
        reads_sums: bool,
        capacity: int | None,
        steps: Collection[str] = (),
    ):
        self.chain, self.nest, self.units, self.capacity = chain, nest, units, capacity
        self.blocks = {loop: tiles_of(chain.extents[loop], units[loop]) for loop in chain.loops}
        self.held = [
            (
                chain.itemsize[name]
                * math.prod(units[loop] for loop in tiled)
                * math.prod(chain.extents[loop] for loop in whole),
                tiled,
            )
            for name, tiled, whole in _held(chain, nest, resident)
        ]
        self.counted = [(chain.nbytes(name), nest.again[name], reads_sums and name == chain.result) for name in counted]
        #: A loop in which nothing is moved again has the smallest tile, or one tile.
        self.smallest = {loop: self.blocks[loop] if loop in nest.trivial else 1 for loop in chain.loops}
        self.often = frozenset[str]().union(*(nest.again[name] for name in counted)) - frozenset(steps)
        self.largest: dict[str, int] = {}

    def bound(self) -> int | None:
        """Bytes that no tiles of the nest fall below; None where not even the smallest fit."""
        if self.capacity is not None and self._memory(self.smallest)[0] > self.capacity:
            return None
        self.largest = {loop: int(self._most(self.smallest, loop)) for loop in self.often}
        return int(self._volume(self.smallest | self.largest))

    def best(self) -> dict[str, int]:
        """The tiles that move least, and of several those that need least memory; after :meth:`bound`."""
        tiles: dict[str, Any] = dict(self.smallest)
        candidates = {loop: _candidates(self.blocks[loop], self.largest[loop]) for loop in self.often}
        free = sorted(self.often, key=lambda loop: (len(candidates[loop]), loop))
        if free:
            last, others = free[-1], free[:-1]
            most = 2 * sum(nbytes for nbytes, _, _ in self.counted) * math.prod(self.blocks[loop] for loop in free)
            kind: Any = np.int64 if most < 2**62 else object
            grids = np.meshgrid(*(np.array(candidates[loop], dtype=kind) for loop in others), indexing="ij")
            tiles |= {loop: grid.ravel() for loop, grid in zip(others, grids, strict=True)}
            largest = np.atleast_1d(self._most(tiles, last) + sum(0 * tiles[loop] for loop in others))
            fits = largest >= 1
            tiles |= {loop: tiles[loop][fits] for loop in others}
            tiles[last] = _smallest(self.blocks[last], largest[fits])
            moved = self._volume(tiles)
            least = np.flatnonzero(moved == moved.min())
            needed = self._memory(tiles)[0] + 0 * tiles[last]
            chosen = int(least[np.argmin(needed[least])])
            tiles |= {loop: tiles[loop][chosen] for loop in free}
        return {loop: self.units[loop] * int(tile) for loop, tile in tiles.items()}

    def _memory(self, tiles: Mapping[str, Any], last: str | None = None) -> tuple[Any, Any]:
        """Bytes without what has a tile of a loop, and bytes of that for each unit of the tile."""
        fixed, linear = 0, 0
        for size, tiled in self.held:
            nbytes = math.prod((tiles[loop] for loop in tiled if loop != last), start=size)
            fixed, linear = (fixed, linear + nbytes) if last in tiled else (fixed + nbytes, linear)
        return fixed, linear

    def _volume(self, tiles: Mapping[str, Any]) -> Any:
        total = 0
        for nbytes, again, reads_sums in self.counted:
            passes = math.prod((tiles_of(self.blocks[loop], tiles[loop]) for loop in again), start=1)
            total = total + nbytes * (2 * passes - 1 if reads_sums else passes)
        return total

    def _most(self, tiles: Mapping[str, Any], last: str) -> Any:
        """The largest tile of a loop that fits beside those of the others; 0 where none does."""
        fixed, linear = self._memory(tiles, last)
        if self.capacity is None:
            return self.blocks[last] + 0 * fixed
        room = self.capacity - fixed
        fits = np.where(linear > 0, room // np.maximum(linear, 1), self.blocks[last])
        return np.where(room >= 0, np.minimum(fits, self.blocks[last]), 0)


def _smallest(blocks: int, tile: Any) -> Any:
    """The smallest tile by which a loop has as many."""
    return -(-blocks // -(-blocks // tile))


def _candidates(blocks: int, most: int) -> list[int]:
    """The smallest tile for each number of tiles that there can be, up to a size."""
    tiles, tile = [], min(blocks, most)
    while tile >= 1:
        tiles.append(int(_smallest(blocks, tile)))
        tile = tiles[-1] - 1
    return tiles
