"""Chains of tensor expressions: products as einsum writes them, each one's result the left operand of the next."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from string import ascii_uppercase

from ditron_compiler.errors import DitronError

__all__ = ["Chain", "Product", "chain", "rank_loop"]


@dataclass(frozen=True)
class Product:
    """A product of two tensors, summed over the loops that its result has not."""

    inputs: tuple[str, str]
    result: str
    loops: frozenset[str]


@dataclass(frozen=True)
class Chain:
    """Products, the extents of their loops, and of each tensor its loops and the bytes of an element."""

    products: tuple[Product, ...]
    extents: Mapping[str, int]
    loops_of: Mapping[str, tuple[str, ...]]
    itemsize: Mapping[str, int]

    @property
    def loops(self) -> tuple[str, ...]:
        """All loops, in the order in which they appear."""
        return tuple(self.extents)

    @property
    def result(self) -> str:
        """What the last product computes."""
        return self.products[-1].result

    @property
    def intermediates(self) -> tuple[str, ...]:
        """Results that the next product takes: they stay in fast memory."""
        return tuple(product.result for product in self.products[:-1])

    @property
    def operands(self) -> tuple[str, ...]:
        """Tensors that are read from slow memory."""
        return tuple(name for name in self.loops_of if name != self.result and name not in self.intermediates)

    def nbytes(self, tensor: str) -> int:
        """Bytes of a whole tensor."""
        return self.itemsize[tensor] * math.prod(self.extents[loop] for loop in self.loops_of[tensor])

    def flops(self, product: Product) -> int:
        """Operations of a product: a multiplication and an addition each."""
        return 2 * math.prod(self.extents[loop] for loop in product.loops)

    def divided(self, loop: str, ranks: int) -> Chain:
        """The part of a rank, which runs ``1 / ranks`` of a loop."""
        self.require_divisible(loop, ranks)
        return replace(self, extents=dict(self.extents) | {loop: self.extents[loop] // ranks})

    def sharded(self, loop: str, ranks: int) -> Chain:
        """A loop over ``ranks`` shards, and a loop within a shard: the first says whose shard is in use."""
        self.require_divisible(loop, ranks)
        outer = rank_loop(loop)
        extents: dict[str, int] = {}
        for name, extent in self.extents.items():
            extents |= {outer: ranks, loop: extent // ranks} if name == loop else {name: extent}

        def split(loops: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(part for name in loops for part in ((outer, name) if name == loop else (name,)))

        products = tuple(replace(p, loops=p.loops | {outer} if loop in p.loops else p.loops) for p in self.products)
        return replace(
            self, products=products, extents=extents, loops_of={name: split(of) for name, of in self.loops_of.items()}
        )

    def require_divisible(self, loop: str, ranks: int) -> None:
        """Raise DitronError unless a loop has as many iterations on every rank."""
        if loop not in self.extents:
            raise DitronError(f"the chain has no loop {loop!r}: it has {', '.join(self.loops)}")
        if self.extents[loop] % ranks:
            raise DitronError(f"loop {loop} of {self.extents[loop]} has no {ranks} equal shards: pad it to a multiple")

    def __str__(self) -> str:
        def written(tensor: str) -> str:
            return f"{tensor}[{', '.join(self.loops_of[tensor])}]"

        products = (f"{written(p.result)} += {written(p.inputs[0])} * {written(p.inputs[1])}" for p in self.products)
        extents = ", ".join(f"{loop} = {extent}" for loop, extent in self.extents.items())
        return "; ".join(products) + f" with {extents}"


def rank_loop(loop: str) -> str:
    """The name of the loop over the shards of a loop."""
    return f"rank({loop})"


def chain(*expressions: str, itemsize: int | Mapping[str, int] = 2, **extents: int) -> Chain:
    """A chain of products, as ``chain("mk,kl->ml", "ml,ln->mn", m=1024, k=64, l=1024, n=64)``.

    Tensors are named in the order in which they appear: A, B -> C for the first product, C, D -> E for the second.
    What is computed element by element between products (a softmax, an activation) moves nothing and is left out.

    Args:
        expressions: each ``inputs->result`` with a letter for each loop; every one's left input is the result before.
        itemsize: bytes of an element, of all tensors or by tensor (others: 2).
        extents: of each loop.

    Raises DitronError for an expression, an extent or an itemsize that cannot be.
    """
    if not expressions:
        raise DitronError('a chain has at least one product, as chain("mk,kn->mn", m=..., k=..., n=...)')
    names = iter(ascii_uppercase)
    loops_of: dict[str, tuple[str, ...]] = {}
    products: list[Product] = []
    for expression in expressions:
        match = re.fullmatch(r"([a-z]+),([a-z]+)->([a-z]+)", expression.replace(" ", ""))
        if match is None or any(len(set(part)) != len(part) for part in match.groups()):
            raise DitronError(f"expected a product as 'mk,kn->mn', each loop once in a tensor, got {expression!r}")
        left, right, result = (tuple(part) for part in match.groups())
        if unknown := set(result) - set(left) - set(right):
            raise DitronError(f"{expression!r}: the inputs have no loop {min(unknown)}")
        if products and left != loops_of[products[-1].result]:
            before = "".join(loops_of[products[-1].result])
            raise DitronError(f"{expression!r}: the left input must be the result before, {before}")
        inputs = (products[-1].result if products else next(names), next(names))
        product = Product(inputs, next(names), frozenset(left + right))
        loops_of |= {inputs[0]: left, inputs[1]: right, product.result: result}
        products.append(product)
    loops = list(dict.fromkeys(loop for of in loops_of.values() for loop in of))
    for loop in [*loops, *extents]:
        extent = extents.get(loop)
        if extent is None or loop not in loops:
            raise DitronError(f"expected the extents of {', '.join(loops)}, got {', '.join(extents) or 'none'}")
        if type(extent) is not int or extent < 1:
            raise DitronError(f"the extent of loop {loop} must be an integer from 1 on, got {extent!r}")
    return Chain(tuple(products), {loop: extents[loop] for loop in loops}, loops_of, _itemsizes(itemsize, loops_of))


def _itemsizes(itemsize: int | Mapping[str, int], tensors: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    given = itemsize if isinstance(itemsize, Mapping) else dict.fromkeys(tensors, itemsize)
    for name, size in given.items():
        if name not in tensors:
            raise DitronError(f"the chain has no tensor {name!r}: it has {', '.join(tensors)}")
        if type(size) is not int or size < 1:
            raise DitronError(f"the bytes of an element of {name} must be an integer from 1 on, got {size!r}")
    return {name: given.get(name, 2) for name in tensors}
