"""The stride of a lazy tile's values along a dimension: it tells contiguous accesses from scattered ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .tiles import ContiguousPointers, ElementwiseTile, RangeTile, ReindexedTile, SplatTile, Tile, TileBuffer

_SAME = ("arith.extsi", "arith.extui", "arith.trunci", "tt.bitcast", "arith.bitcast")
_REMAINDERS = ("arith.remsi", "arith.remui")
_QUOTIENTS = ("arith.divsi", "arith.divui")
_BOUNDS = ("arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui")


@dataclass(frozen=True)
class Assumption:
    """That neighbours along `dim` of `tile` are `step` apart: so it is, if its last and first element are that far."""

    tile: Tile
    dim: int
    step: int


@dataclass
class Steps:
    """Differences between neighbouring elements; of `assumed` it has still to be seen that they hold, when asked for.

    ``offsets % n`` has the step of ``offsets`` unless it wraps, ``offsets // n`` is constant unless it does not, and
    ``tl.minimum(offsets, n)`` has it unless it is cut: all three only go up between such jumps, so both ends tell.
    """

    guess: bool = False
    assumed: list[Assumption] = field(default_factory=list)
    _known: dict[tuple[Tile, int], int | None] = field(default_factory=dict)

    def of(self, tile: Tile, dim: int) -> int | None:
        """The difference between neighbours along `dim`, if it is one known integer; pointers count elements.

        0 means that the elements along `dim` are equal.
        """
        key = (tile, dim)
        if key not in self._known:
            rule = _RULES.get(type(tile))
            self._known[key] = None  # while it is looked for: a guess looks along the other dimensions
            self._known[key] = 0 if tile.shape[dim] == 1 else rule(self, tile, dim) if rule else None
        return self._known[key]

    def _view(self, tile: ReindexedTile, dim: int) -> int | None:
        if not tile.moves:
            return None
        # Where does the index along `dim` go? Strings stand for indices; a constant is a dimension of one element.
        names = tuple(f"i{k}" for k in range(len(tile.shape)))
        where = tile.index(None, names)
        if names[dim] not in where:
            return 0
        return self.of(tile.source, where.index(names[dim]))

    def _mapped(self, tile: ElementwiseTile, dim: int) -> int | None:
        steps = [self.of(t, dim) for t in tile.inputs]
        if None in steps:
            return None
        if not any(steps):
            return 0
        if tile.name in ("arith.addi", "tt.addptr"):
            return steps[0] + steps[1]
        if tile.name == "arith.subi":
            return steps[0] - steps[1]
        if tile.name in _SAME:
            return steps[0]
        if tile.name == "arith.select":
            return steps[1] if steps[0] == 0 and steps[1] == steps[2] else None
        if tile.name == "arith.muli":
            for which, other in ((0, 1), (1, 0)):
                factor = tile.inputs[other]
                if steps[other] == 0 and isinstance(factor, SplatTile) and factor.number is not None:
                    return steps[which] * int(factor.number)
        return self._assume(tile, dim, steps) if self.guess else None

    def _assume(self, tile: ElementwiseTile, dim: int, steps: list[int]) -> int | None:
        if tile.name in _REMAINDERS and steps[1] == 0:
            step = steps[0]
        elif tile.name in _QUOTIENTS and steps[1] == 0:
            step = 0
        elif tile.name in _BOUNDS and 0 in steps:
            step = sum(steps)
        else:
            return None
        # One comparison has to hold for all of its rows.
        if any(n > 1 and d != dim and self.of(tile, d) != 0 for d, n in enumerate(tile.shape)):
            return None
        self.assumed.append(Assumption(tile, dim, step))
        return step


_RULES: dict[type[Tile], Callable[[Steps, Tile, int], int | None]] = {
    SplatTile: lambda steps, tile, dim: 0,
    RangeTile: lambda steps, tile, dim: 1,
    ReindexedTile: Steps._view,
    ElementwiseTile: Steps._mapped,
    ContiguousPointers: lambda steps, tile, dim: 1 if dim == tile.dim else steps.of(tile.source, dim),
    TileBuffer: lambda steps, tile, dim: None if tile.lazy is None else steps.of(tile.lazy, dim),
}


def step(tile: Tile, dim: int) -> int | None:
    """The difference between neighbouring elements along `dim`, if it is one known integer (Steps.of)."""
    return Steps().of(tile, dim)
