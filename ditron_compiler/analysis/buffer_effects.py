"""Which parts of which buffers the operations of a host program read and write, on this rank and on peers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from ditron_compiler import ir
from ditron_compiler.analysis.host_expressions import (
    NUM_RANKS,
    RANK,
    Remainder,
    at_least,
    dimension,
    expression,
    never_equal,
    remainder,
)
from ditron_compiler.analysis.kernel_effects import ArgumentEffects, argument_effects
from ditron_compiler.analysis.linear import Polynomial, Substitution
from ditron_compiler.ir.dialects import ditron, tt
from ditron_compiler.ir.matchers import defining_op

__all__ = ["BufferAccess", "BufferRegion", "ProgramAccesses", "buffer_region", "kernel_of"]


@dataclass(frozen=True)
class BufferRegion:
    """A rectangular part of a root, an argument or an allocation: offset and size along each of its dimensions."""

    root: ir.Value
    offsets: tuple[Polynomial, ...]
    sizes: tuple[Polynomial, ...]

    def is_disjoint(self, other: BufferRegion) -> bool:
        """Whether the two do not overlap, on any rank; False when that is not known."""
        if self.root != other.root:
            return True
        dimensions = zip(self.offsets, self.sizes, other.offsets, other.sizes, strict=True)
        return any(_intervals_disjoint(*dimension) for dimension in dimensions)

    def contains(self, other: BufferRegion) -> bool:
        """Whether ``other`` lies within this; False when that is not known."""
        return self.root == other.root and all(
            a == b and m == n or at_least(b - a, 0) and at_least(a + m - b - n, 0)
            for a, m, b, n in zip(self.offsets, self.sizes, other.offsets, other.sizes, strict=True)
        )

    def replace(self, symbol: Hashable, new: Polynomial) -> BufferRegion:
        """This for another value of a symbol."""
        return self.substitute(lambda other: new if other == symbol else None)

    def substitute(self, substitution: Substitution) -> BufferRegion:
        return replace(
            self,
            offsets=tuple(offset.substitute(substitution) for offset in self.offsets),
            sizes=tuple(size.substitute(substitution) for size in self.sizes),
        )


def _intervals_disjoint(a: Polynomial, m: Polynomial, b: Polynomial, n: Polynomial) -> bool:
    """Whether ``[a, a + m)`` and ``[b, b + n)`` do not overlap."""
    if at_least(b - a - m, 0) or at_least(a - b - n, 0):
        return True
    if m != n:
        return False
    chunks = a.divided_by(m), b.divided_by(m)  # the numbers of chunks of this size
    return None not in chunks and never_equal(*chunks)


def buffer_region(buffer: ir.Value) -> BufferRegion:
    """The part of its root that a buffer is."""
    op = defining_op(buffer)
    if not isinstance(op, ditron.SliceOp):
        sizes = tuple(dimension(buffer, i) for i in range(buffer.type.rank))
        return BufferRegion(buffer, (Polynomial.constant(0),) * len(sizes), sizes)
    source = buffer_region(op.source)
    dropped = len(source.sizes) - op.source.type.rank  # by slices before: of size 1
    offsets = [expression(offset) for offset in op.mixed_offsets]
    sizes = tuple(expression(size) for size in op.mixed_sizes)
    begin = tuple(a + b for a, b in zip(source.offsets[dropped:], offsets, strict=True))
    return BufferRegion(source.root, source.offsets[:dropped] + begin, source.sizes[:dropped] + sizes)


@dataclass(frozen=True)
class BufferAccess:
    """A read or write of a part of a buffer by an operation.

    Attributes:
        operand: the number of the operation's operand, the buffer or a descriptor of it. peer: the rank whose memory it
            is, None for this rank's, "any" when that is not known.
    """

    op: ir.Operation
    operand: int
    region: BufferRegion
    reads: bool
    writes: bool
    peer: Polynomial | Literal["any"] | None = None

    @property
    def by_descriptor(self) -> bool:
        """Whether it is by a tensor descriptor, which has the buffer's address and sizes in it."""
        return not isinstance(self.op.operands[self.operand].type, ditron.BufferType)

    def substitute(self, substitution: Substitution) -> BufferAccess:
        peer = self.peer.substitute(substitution) if isinstance(self.peer, Polynomial) else self.peer
        return replace(self, region=self.region.substitute(substitution), peer=peer)

    def by_peers(self) -> BufferRegion | None:
        """The part of *this* rank's memory that peers access when they execute this; None when that is not known.

        A peer that names rank ``(peer + distance) % num_ranks`` is, seen from that rank, ``(rank - distance) %
        num_ranks``.
        """
        target = self.peer
        if not isinstance(target, Polynomial):
            return None
        if target == Polynomial.symbol(RANK):
            return self.region
        modulo = next(target.symbols, None)
        if not isinstance(modulo, Remainder) or target != Polynomial.symbol(modulo):
            return None
        distance = modulo.dividend - Polynomial.symbol(RANK)
        if modulo.divisor != Polynomial.symbol(NUM_RANKS) or _depends_on_rank(distance):
            return None
        return self.region.replace(RANK, remainder(Polynomial.symbol(RANK) - distance, modulo.divisor))


def _depends_on_rank(polynomial: Polynomial) -> bool:
    return any(
        symbol == RANK or isinstance(symbol, Remainder) and _depends_on_rank(symbol.dividend)
        for symbol in polynomial.symbols
    )


def kernel_of(launch: ditron.LaunchOp) -> tt.FuncOp:
    """The ``tt.func`` that an operation launches."""
    module = launch
    while module.parent is not None:
        module = module.parent
    return next(
        op
        for op in module.regions[0].blocks[0].operations
        if isinstance(op, tt.FuncOp) and ir.StringAttr(op.sym_name).value == launch.kernel.value
    )


class ProgramAccesses:
    """All accesses of a host program, in program order."""

    def __init__(self, program: ir.Operation):
        self.program = program
        self._uses: dict[str, tuple[ArgumentEffects, ...]] = {}

    @cached_property
    def all(self) -> list[BufferAccess]:
        found: list[BufferAccess] = []
        self.program.walk(lambda op: found.extend(self.of(op)), ir.WalkOrder.PRE_ORDER)
        return found

    @cached_property
    def order(self) -> dict[ir.Operation, int]:
        """The number of each operation in program order."""
        operations: list[ir.Operation] = []
        self.program.walk(operations.append, ir.WalkOrder.PRE_ORDER)
        return {op: number for number, op in enumerate(operations)}

    def of(self, op: ir.Operation) -> list[BufferAccess]:
        """The accesses of one operation."""
        accesses = _ACCESSES.get(type(op))
        return list(accesses(self, op)) if accesses is not None else []

    def _copy(self, op: ditron.CopyOp) -> Iterator[BufferAccess]:
        yield BufferAccess(op, 0, buffer_region(op.src), True, False)
        yield BufferAccess(op, 1, buffer_region(op.dst), False, True)

    def _rank_copy(self, op: ditron.RankCopyOp) -> Iterator[BufferAccess]:
        peer = expression(op.peer)
        yield BufferAccess(op, 0, buffer_region(op.src), True, False, peer if op.pull else None)
        yield BufferAccess(op, 1, buffer_region(op.dst), False, True, None if op.pull else peer)

    def _fill(self, op: ditron.FillOp) -> Iterator[BufferAccess]:
        yield BufferAccess(op, 0, buffer_region(op.dst), False, True)

    def _call(self, op: ditron.CallOp) -> Iterator[BufferAccess]:
        reads = len(op.reads)
        for number, buffer in enumerate([*op.reads, *op.writes]):
            yield BufferAccess(op, number, buffer_region(buffer), number < reads, number >= reads)

    def _all_gather(self, op: ditron.AllGatherOp) -> Iterator[BufferAccess]:
        yield BufferAccess(op, 0, buffer_region(op.src), True, False)
        yield BufferAccess(op, 1, buffer_region(op.dst), True, True)
        yield BufferAccess(op, 1, buffer_region(op.dst), True, True, "any")

    def _launch(self, op: ditron.LaunchOp) -> Iterator[BufferAccess]:
        first = len(op.grid)
        for index, (argument, use) in enumerate(zip(op.args, self.argument_effects(op), strict=True)):
            descriptor = defining_op(argument)
            buffer = descriptor.source if isinstance(descriptor, ditron.TensorDescriptorOp) else argument
            if isinstance(buffer.type, ditron.BufferType):
                yield BufferAccess(op, first + index, buffer_region(buffer), use.reads, use.writes)
                if use.remote:
                    yield BufferAccess(op, first + index, buffer_region(buffer), True, True, "any")

    def argument_effects(self, launch: ditron.LaunchOp) -> tuple[ArgumentEffects, ...]:
        """What the kernel of a launch does with each argument."""
        symbol = launch.kernel.value
        if symbol not in self._uses:
            self._uses[symbol] = argument_effects(kernel_of(launch))
        return self._uses[symbol][: len(launch.args)]


_ACCESSES: dict[type, Callable[[ProgramAccesses, ir.Operation], Iterator[BufferAccess]]] = {
    ditron.CopyOp: ProgramAccesses._copy,
    ditron.RankCopyOp: ProgramAccesses._rank_copy,
    ditron.FillOp: ProgramAccesses._fill,
    ditron.AllGatherOp: ProgramAccesses._all_gather,
    ditron.LaunchOp: ProgramAccesses._launch,
    ditron.CallOp: ProgramAccesses._call,
}
