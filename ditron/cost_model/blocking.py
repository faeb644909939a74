"""Blockings of a chain of products: an order of block loops, tile sizes, what they move, and the one that moves least.

For an order, the volume is a formula of how many tiles each loop has (``nest.py``), never less for more tiles, and the
memory is a formula of the tile sizes, never less for larger ones. So the least volume over all integer tile sizes is
found without trying them all:

 - of the tiles by which a loop has ``t`` iterations only the smallest, ``ceil(extent / t)``, is looked at, which leaves
   less than ``2 * sqrt(extent)`` of them;
 - a loop in which nothing is moved again has the smallest tile there is, or one tile;
 - of the last loop the largest tile that fits is a quotient, since the memory is linear in it.

What is left to try are the tiles of the loops, but one, in which something is moved again: of m for two products in the
order m, l, k, n. That is an exact formula over few candidates, and no single expression, which Lagrange's multipliers
give for real tile sizes alone: rounded, these need not be the best ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from ditron.cost_model.chain import Chain
from ditron.cost_model.nest import Nest, nest, nests
from ditron.cost_model.tiling import Tiling, footprint, tiles_of
from ditron_compiler.errors import DitronError

__all__ = ["Blocking", "block", "optimal_blocking"]


@dataclass(frozen=True)
class Blocking:
    """A chain in blocks, and what that moves between slow and fast memory.

    Attributes:
        order: the block loops, outermost first. tiles: iterations of a loop in one block.
        passes: by tensor, how often all of it is moved.
        volume: bytes moved, by tensor. footprint: bytes of fast memory. repeated: how often each product is computed.
    """

    chain: Chain
    order: tuple[str, ...]
    tiles: Mapping[str, int]
    passes: Mapping[str, int]
    volume: Mapping[str, int]
    footprint: int
    repeated: tuple[int, ...]

    @property
    def moved(self) -> int:
        """Bytes of all tensors."""
        return sum(self.volume.values())

    @property
    def flops(self) -> int:
        """Operations of all products, with what is computed again."""
        return sum(n * self.chain.flops(p) for n, p in zip(self.repeated, self.chain.products, strict=True))

    def __str__(self) -> str:
        tiles = ", ".join(f"{loop} {self.tiles[loop]}" for loop in self.order)
        volume = ", ".join(f"{name} {_mb(nbytes)}" for name, nbytes in self.volume.items())
        return f"order and tiles {tiles}: {_mb(self.moved)} moved ({volume}) with {_mb(self.footprint)} of fast memory"


def _mb(nbytes: float) -> str:
    return f"{nbytes / 2**20:.4g} MB" if nbytes >= 2**18 else f"{nbytes / 2**10:.4g} KB"


def block(
    chain: Chain,
    order: Sequence[str],
    tiles: Mapping[str, int],
    *,
    moved: Collection[str] | None = None,
    resident: Collection[str] = (),
    reads_sums: bool = False,
) -> Blocking:
    """What an order of loops, outermost first, and tile sizes move.

    Args:
        order: each loop once, as ``"mlkn"``. tiles: of each loop.
        moved: the tensors that count; default all but intermediates.
        resident: tensors that lie in fast memory already and take none of it.
        reads_sums: whether partial sums of the result are read, added to and written, which is two moves instead of one
            each time after the first, and not added to in slow memory (``red``, TMA's reduce-add).

    Raises DitronError for an order or tiles that cannot be.
    """
    _require_order(chain, order)
    for loop in chain.loops:
        if type(tiles.get(loop)) is not int or tiles[loop] < 1:
            raise DitronError(f"the tile of loop {loop} must be an integer from 1 on, got {tiles.get(loop)!r}")
    trips = {loop: tiles_of(chain.extents[loop], tiles[loop]) for loop in chain.loops}
    one = nest(chain, tuple(order), frozenset(loop for loop in chain.loops if trips[loop] == 1))
    passes = {name: math.prod(trips[loop] for loop in one.again[name]) for name in _counted(chain, moved)}
    if reads_sums and chain.result in passes:
        passes[chain.result] = 2 * passes[chain.result] - 1
    return Blocking(
        chain,
        tuple(order),
        {loop: tiles[loop] for loop in chain.loops},
        passes,
        {name: times * chain.nbytes(name) for name, times in passes.items()},
        footprint(chain, one, tiles, resident),
        tuple(math.prod(trips[loop] for loop in loops) for loops in one.repeated),
    )


def optimal_blocking(
    chain: Chain,
    capacity: int | None,
    *,
    order: Sequence[str] | None = None,
    multiple_of: int | Mapping[str, int] = 1,
    moved: Collection[str] | None = None,
    resident: Collection[str] = (),
    reads_sums: bool = False,
    recompute: bool = True,
    steps: Sequence[str] = (),
) -> Blocking:
    """The blocking that moves the fewest bytes with ``capacity`` bytes of fast memory (None: without end).

    It is the least over all orders and all integer tile sizes, for nests as this package has them: fast memory has one
    tile of each tensor at a time, which is moved when another one is in use, and intermediates are never moved. Of
    several such blockings it is one that computes least again, and of these one that needs least memory.

    Args:
        order: of all loops, outermost first, instead of the best one.
        multiple_of: of what the tiles are multiples, for all loops or by loop (others: 1).
        moved, resident, reads_sums: as of :func:`block`.
        recompute: whether intermediates may be computed more than once.
        steps: loops that are outermost, one iteration at a time: what follows each other, as forward and backward.

    Raises DitronError where the capacity does not hold the smallest tiles.

        pair = cost_model.chain("mk,kl->ml", "ml,ln->mn", m=4096, k=128, l=4096, n=128)
        print(cost_model.optimal_blocking(pair, 227 << 10))
    """
    if capacity is not None and (type(capacity) is not int or capacity < 1):
        raise DitronError(f"a capacity must be an integer of bytes from 1 on, or None, got {capacity!r}")
    _require_order(chain, order or chain.loops)
    units = _units(chain, multiple_of)
    units |= dict.fromkeys(_steps(chain, steps, order), 1)
    counted = _counted(chain, moved)
    every = nests(chain, counted, tuple(steps)) if order is None else _of_order(chain, order, steps)
    tilings = [
        Tiling(chain, one, units, counted, frozenset(resident), reads_sums, capacity, steps)
        for one in every
        if recompute or not any(one.repeated)  # where these loops have one iteration, it is another nest
    ]
    bounds = sorted((bound, number) for number, one in enumerate(tilings) if (bound := one.bound()) is not None)
    best: tuple[tuple[int, ...], Blocking] | None = None
    for bound, number in bounds:
        if best is not None and bound > best[1].moved:
            break
        tiles, one = tilings[number].best(), tilings[number].nest
        whole = tuple(order or (*one.order, *(loop for loop in chain.loops if loop in one.trivial)))
        found = block(chain, whole, tiles, moved=counted, resident=resident, reads_sums=reads_sums)
        key = (found.moved, found.flops, found.footprint)
        if best is None or key < best[0]:
            best = key, found
    if best is None:
        shape = ", ".join(f"{loop} {tile}" for loop, tile in units.items())
        least = min(
            block(chain, one, units, moved=counted, resident=resident).footprint
            for one in (permutations(chain.loops) if order is None else [order])
            if list(one[: len(steps)]) == list(steps)
        )
        raise DitronError(
            f"{capacity} bytes of fast memory do not hold the smallest tiles ({shape}), which take {least}: "
            "divide the chain, or make multiple_of smaller"
        )
    return best[1]


def _require_order(chain: Chain, order: Sequence[str]) -> None:
    if sorted(order) != sorted(chain.loops):
        raise DitronError(f"expected each of the loops {', '.join(chain.loops)} once, outermost first, got {order!r}")


def _counted(chain: Chain, moved: Collection[str] | None) -> tuple[str, ...]:
    every = (*chain.operands, chain.result)
    for name in moved or ():
        if name not in every:
            raise DitronError(f"{name!r} is not moved by the chain: it moves {', '.join(every)}")
    return tuple(name for name in every if moved is None or name in moved)


def _units(chain: Chain, multiple_of: int | Mapping[str, int]) -> dict[str, int]:
    given = multiple_of if isinstance(multiple_of, Mapping) else dict.fromkeys(chain.loops, multiple_of)
    for loop, unit in given.items():
        if loop not in chain.extents:
            raise DitronError(f"multiple_of: the chain has no loop {loop!r}: it has {', '.join(chain.loops)}")
        if type(unit) is not int or unit < 1:
            raise DitronError(f"multiple_of: {loop}: expected an integer from 1 on, got {unit!r}")
    return {loop: given.get(loop, 1) for loop in chain.loops}


def _steps(chain: Chain, steps: Sequence[str], order: Sequence[str] | None) -> Sequence[str]:
    for loop in steps:
        if loop not in chain.extents:
            raise DitronError(f"steps: the chain has no loop {loop!r}: it has {', '.join(chain.loops)}")
    if order is not None and list(order[: len(steps)]) != list(steps):
        raise DitronError(f"steps are the outermost loops: expected an order that begins with {', '.join(steps)}")
    return steps


def _of_order(chain: Chain, order: Sequence[str], steps: Collection[str]) -> Iterator[Nest]:
    """The nests of an order, by which loops have one tile."""
    loops = [loop for loop in chain.loops if loop not in steps]
    for bits in range(1 << len(loops)):
        yield nest(chain, tuple(order), {loop for n, loop in enumerate(loops) if bits >> n & 1})
