"""How a recipe changes along a dimension: what tells contiguous accesses from scattered ones."""

from __future__ import annotations

from .tiles import Mapped, Range, Splat, Tile, View

_SAME = ("arith.extsi", "arith.extui", "arith.trunci", "tt.bitcast", "arith.bitcast")


def step(tile: Tile, dim: int, memo: dict[tuple[Tile, int], int | None] | None = None) -> int | None:
    """The difference between neighbouring elements along `dim`, if it is one known integer; pointers count elements.

    0 means that the elements along `dim` are equal.
    """
    memo = {} if memo is None else memo
    key = (tile, dim)
    if key not in memo:
        memo[key] = 0 if tile.shape[dim] == 1 else _step(tile, dim, memo)
    return memo[key]


def _step(tile: Tile, dim: int, memo: dict) -> int | None:
    if isinstance(tile, Splat):
        return 0
    if isinstance(tile, Range):
        return 1
    if isinstance(tile, View):
        return _view_step(tile, dim, memo)
    if isinstance(tile, Mapped):
        return _mapped_step(tile, dim, memo)
    return None


def _view_step(tile: View, dim: int, memo: dict) -> int | None:
    if not tile.moves:
        return None
    # Where does the index along `dim` go? Strings stand for indices; a constant is a dimension of one element.
    names = tuple(f"i{k}" for k in range(len(tile.shape)))
    where = tile.index(None, names)
    if names[dim] not in where:
        return 0
    return step(tile.source, where.index(names[dim]), memo)


def _mapped_step(tile: Mapped, dim: int, memo: dict) -> int | None:
    steps = [step(t, dim, memo) for t in tile.inputs]
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
    if tile.name == "arith.muli":
        for which, other in ((0, 1), (1, 0)):
            factor = tile.inputs[other]
            if steps[other] == 0 and isinstance(factor, Splat) and factor.number is not None:
                return steps[which] * int(factor.number)
    return None


