"""How often a loop nest moves each tensor into fast memory: Chimera's three insights, for an order of loops.

Fast memory has one tile of each tensor. A tile is moved when another one of its tensor is in use. So

1. a loop that a tensor has not moves nothing of it by itself;
2. but outside of a loop that does, it moves all of it again;
3. loops of one product alone are not loops of the next one, and a result that the next one takes is never moved.

A loop of one iteration is no loop: *trivial* loops are left out of an order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations

from ditron.cost_model.chain import Chain

__all__ = ["Nest", "nest", "nests"]

#: Products (their loops, and those of their inputs and result), and all loops: what nests depend on, but for extents.
Shape = tuple[tuple[tuple[frozenset[str], tuple[tuple[str, frozenset[str]], ...]], ...], tuple[str, ...]]


@dataclass(frozen=True)
class Nest:
    """What an order of the loops that are not trivial makes of a chain.

    Attributes:
        again: by tensor, the loops in each iteration of which it is moved again.
        whole: by intermediate, the loops of which fast memory has all iterations, since a sum outside of them goes on.
        repeated: by number of a product, the loops in each iteration of which it is computed again.
    """

    order: tuple[str, ...]
    trivial: frozenset[str]
    again: Mapping[str, frozenset[str]]
    whole: Mapping[str, frozenset[str]]
    repeated: tuple[frozenset[str], ...]


def nest(chain: Chain, order: tuple[str, ...], trivial: Collection[str] = ()) -> Nest:
    """The nest of an order, outermost loop first; trivial loops may be in it."""
    return _nest(_shape(chain), tuple(loop for loop in order if loop not in trivial), frozenset(trivial))


def nests(chain: Chain, moved: Collection[str], steps: tuple[str, ...] = ()) -> Iterator[Nest]:
    """The nests that can be optimal where what is ``moved`` counts: of those that differ by nothing else, the first.

    Loops of ``steps`` are outermost, and never trivial.
    """
    yield from _distinct(_shape(chain), frozenset(moved), steps)


def _shape(chain: Chain) -> Shape:
    products = tuple(
        (p.loops, tuple((name, frozenset(chain.loops_of[name])) for name in (*p.inputs, p.result)))
        for p in chain.products
    )
    return products, chain.loops


def _nest(shape: Shape, order: tuple[str, ...], trivial: frozenset[str]) -> Nest:
    at = {loop: number for number, loop in enumerate(order)}
    again: dict[str, frozenset[str]] = {}
    whole: dict[str, frozenset[str]] = {}
    repeated: list[frozenset[str]] = []
    visible: frozenset[str] = frozenset()  # the loops around the product behind
    products = shape[0]
    for number in range(len(products) - 1, -1, -1):
        loops, tensors = products[number]
        own = loops - trivial
        repeats: frozenset[str] = frozenset()
        if number < len(products) - 1:
            result, dims = tensors[2]
            sums = [at[loop] for loop in own - dims]
            outside = {loop for loop in dims & own if at[loop] < min(sums, default=len(order))}
            whole[result] = dims - trivial - outside
            # where another tile of the result is needed, the one in fast memory is lost, and later computed again
            repeats = frozenset(x for x in visible - own if any(at[x] < at[y] for y in outside))
        repeated.append(repeats)
        visible = own | repeats
        for name, dims in tensors[0 if number == 0 else 1 : 3 if number == len(products) - 1 else 2]:
            innermost = max((at[loop] for loop in dims & own), default=-1)
            again[name] = frozenset(loop for loop in visible - dims if at[loop] < innermost)
    return Nest(order, trivial, again, whole, tuple(reversed(repeated)))


@lru_cache(maxsize=256)
def _distinct(shape: Shape, moved: frozenset[str], steps: tuple[str, ...]) -> tuple[Nest, ...]:
    found: list[Nest] = []
    loops = [loop for loop in shape[1] if loop not in steps]
    for count in range(len(loops), -1, -1):
        for trivial in combinations(loops, count):
            rest = [loop for loop in loops if loop not in trivial]
            kept: list[Nest] = []
            for order in permutations(rest):
                one = _nest(shape, (*steps, *order), frozenset(trivial))
                if not any(_at_most(other, one, moved) for other in kept):
                    kept = [other for other in kept if not _at_most(one, other, moved)] + [one]
            found += kept
    return tuple(found)


def _at_most(one: Nest, other: Nest, moved: frozenset[str]) -> bool:
    """Whether a nest with the same trivial loops moves, keeps and computes no more, whatever the tiles are."""
    return (
        all(one.again[name] <= other.again[name] for name in moved)
        and all(one.whole[name] <= other.whole[name] for name in one.whole)
        and all(a <= b for a, b in zip(one.repeated, other.repeated, strict=True))
    )
