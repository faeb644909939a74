"""Which parts of which memory the operations of a host program read and write, here and at peers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from ditron_compiler import ir
from ditron_compiler.analysis.kernel_effects import ArgumentUse, argument_uses
from ditron_compiler.analysis.polynomial import (
    NUM_RANKS,
    RANK,
    Poly,
    Remainder,
    at_least,
    dimension,
    expression,
    never_equal,
    remainder,
)
from ditron_compiler.ir.dialects import ditron  # noqa: F401 - the typed classes
from ditron_compiler.ir.matchers import defining_op

__all__ = ["Access", "Accesses", "Region", "Rename", "kernel_of", "region"]


Rename = Callable[[Hashable], Poly | None]


@dataclass(frozen=True)
class Region:
    """A rectangular part of a root, an argument or an allocation: offset and size along each of its dimensions."""

    root: ir.Value
    offsets: tuple[Poly, ...]
    sizes: tuple[Poly, ...]

    def is_disjoint(self, other: Region) -> bool:
        """Whether the two have nothing in common, on any rank; False when that is not known."""
        return self.root != other.root or any(_apart(*self._along(i), *other._along(i)) for i in range(len(self.sizes)))

    def _along(self, i: int) -> tuple[Poly, Poly]:
        return self.offsets[i], self.sizes[i]

    def contains(self, other: Region) -> bool:
        """Whether all of ``other`` is in this; False when that is not known."""
        return self.root == other.root and all(
            a == b and m == n or at_least(b - a, 0) and at_least(a + m - b - n, 0)
            for a, m, b, n in zip(self.offsets, self.sizes, other.offsets, other.sizes, strict=True)
        )

    def replace(self, atom: Hashable, new: Poly) -> Region:
        """This for another value of an atom."""
        return self.renamed(lambda a: new if a == atom else None)

    def renamed(self, new: Rename) -> Region:
        """This with other atoms, of which ``new`` knows."""
        return replace(
            self,
            offsets=tuple(offset.replace(new) for offset in self.offsets),
            sizes=tuple(size.replace(new) for size in self.sizes),
        )


def _apart(a: Poly, m: Poly, b: Poly, n: Poly) -> bool:
    """Whether ``[a, a + m)`` and ``[b, b + n)`` have nothing in common."""
    if at_least(b - a - m, 0) or at_least(a - b - n, 0):
        return True
    if m != n:
        return False
    chunks = a.divided_by(m), b.divided_by(m)  # numbers of chunks of this size
    return None not in chunks and never_equal(*chunks)


def region(buffer: ir.Value) -> Region:
    """The part of memory that a buffer is."""
    op = defining_op(buffer)
    if op is None or op.name != "ditron.slice":
        sizes = tuple(dimension(buffer, i) for i in range(buffer.type.rank))
        return Region(buffer, (Poly.number(0),) * len(sizes), sizes)
    source = region(op.source)
    dropped = len(source.sizes) - op.source.type.rank  # by slices before: of size 1
    offsets = [expression(offset) for offset in op.mixed_offsets]
    sizes = tuple(expression(size) for size in op.mixed_sizes)
    begin = tuple(a + b for a, b in zip(source.offsets[dropped:], offsets, strict=True))
    return Region(source.root, source.offsets[:dropped] + begin, source.sizes[:dropped] + sizes)


@dataclass(frozen=True)
class Access:
    """What an operation does to a part of memory.

    Attributes:
        op, operand: who, and which of its operands. peer: the rank whose memory it is, None for this rank's, "any"
            when that is not known.
    """

    op: ir.Operation
    operand: int
    region: Region
    reads: bool
    writes: bool
    peer: Poly | Literal["any"] | None = None

    def renamed(self, new: Rename) -> Access:
        """This with other atoms, of which ``new`` knows."""
        peer = self.peer.replace(new) if isinstance(self.peer, Poly) else self.peer
        return replace(self, region=self.region.renamed(new), peer=peer)

    def from_peers(self) -> Region | None:
        """The part of *this* rank's memory that peers touch when they execute this; None when that is not known.

        A peer that names rank ``(peer + distance) % num_ranks`` is, seen from that rank, ``(rank - distance) %
        num_ranks``.
        """
        target = self.peer
        if not isinstance(target, Poly):
            return None
        products = [product for product, _ in target.terms]
        if target == Poly.atom(RANK):
            return self.region
        if len(products) != 1 or len(products[0]) != 1 or not isinstance(products[0][0], Remainder):
            return None
        modulo = products[0][0]
        distance = modulo.dividend - Poly.atom(RANK)
        if modulo.divisor != Poly.atom(NUM_RANKS) or _mentions_rank(distance) or target != Poly.atom(modulo):
            return None
        return self.region.replace(RANK, remainder(Poly.atom(RANK) - distance, modulo.divisor))


def _mentions_rank(poly: Poly) -> bool:
    return any(
        atom == RANK or isinstance(atom, Remainder) and _mentions_rank(atom.dividend)
        for product, _ in poly.terms
        for atom in product
    )


def kernel_of(launch: ir.Operation) -> ir.Operation:
    """The ``tt.func`` that an operation launches."""
    module = launch
    while module.parent is not None:
        module = module.parent
    return next(
        op
        for op in module.regions[0].blocks[0].operations
        if op.name == "tt.func" and ir.StringAttr(op.attributes["sym_name"]).value == launch.kernel.value
    )


class Accesses:
    """All accesses of a program, in the order of the text."""

    def __init__(self, program: ir.Operation):
        self.program = program
        self._uses: dict[str, tuple[ArgumentUse, ...]] = {}

    @cached_property
    def all(self) -> list[Access]:
        found: list[Access] = []
        self.program.walk(lambda op: found.extend(self.of(op)), ir.WalkOrder.PRE_ORDER)
        return found

    @cached_property
    def order(self) -> dict[ir.Operation, int]:
        """Where in the text an operation stands."""
        operations: list[ir.Operation] = []
        self.program.walk(operations.append, ir.WalkOrder.PRE_ORDER)
        return {op: number for number, op in enumerate(operations)}

    def of(self, op: ir.Operation) -> list[Access]:
        """The accesses of one operation."""
        return list(_ACCESSES[op.name](self, op)) if op.name in _ACCESSES else []

    def _copy(self, op: ir.Operation) -> Iterator[Access]:
        yield Access(op, 0, region(op.src), True, False)
        yield Access(op, 1, region(op.dst), False, True)

    def _rank_copy(self, op: ir.Operation) -> Iterator[Access]:
        peer = expression(op.peer)
        yield Access(op, 0, region(op.src), True, False, peer if op.pull else None)
        yield Access(op, 1, region(op.dst), False, True, None if op.pull else peer)

    def _fill(self, op: ir.Operation) -> Iterator[Access]:
        yield Access(op, 0, region(op.dst), False, True)

    def _all_gather(self, op: ir.Operation) -> Iterator[Access]:
        yield Access(op, 0, region(op.src), True, False)
        yield Access(op, 1, region(op.dst), True, True)
        yield Access(op, 1, region(op.dst), True, True, "any")

    def _launch(self, op: ir.Operation) -> Iterator[Access]:
        first = len(op.grid)
        for index, (argument, use) in enumerate(zip(op.args, self.kernel(op), strict=True)):
            if isinstance(argument.type, ditron.BufferType):
                yield Access(op, first + index, region(argument), use.reads, use.writes)
                if use.remote:
                    yield Access(op, first + index, region(argument), True, True, "any")

    def kernel(self, launch: ir.Operation) -> tuple[ArgumentUse, ...]:
        """What the kernel of a launch does with each argument."""
        symbol = launch.kernel.value
        if symbol not in self._uses:
            self._uses[symbol] = argument_uses(kernel_of(launch))
        return self._uses[symbol][: len(launch.args)]


_ACCESSES = {
    "ditron.copy": Accesses._copy,
    "ditron.rank_copy": Accesses._rank_copy,
    "ditron.fill": Accesses._fill,
    "ditron.all_gather": Accesses._all_gather,
    "ditron.launch": Accesses._launch,
}
