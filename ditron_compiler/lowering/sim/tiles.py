"""What a tile value is while it is lowered: lazy, an expression for its element at an index; or a buffer.

A lazy tile is not computed at its operation. Its expression is emitted inside the loop nest of the operation that needs
the elements (`LoopNest.element`), so a chain of elementwise operations becomes one loop body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from ditron_compiler import ir

from .builder import Builder
from .nest import Indices, LoopNest
from .types import Elem

MAX_DEPTH = 64  # a lazy tile deeper than this is materialized: Python's stack is finite


class Tile:
    """A tile of `shape` whose elements are `elem`; `cost` and `depth` measure its expression."""

    __slots__ = ("shape", "elem", "cost", "depth")

    def __init__(self, shape: tuple[int, ...], elem: Elem, cost: float = 0, depth: int = 0):
        self.shape, self.elem, self.cost, self.depth = shape, elem, cost, depth

    @property
    def size(self) -> int:
        return prod(self.shape)

    def at(self, nest: LoopNest, idx: Indices) -> ir.Value:
        """Emit the element at `idx`, a carrier value."""
        raise NotImplementedError

    def operands(self) -> tuple[Tile, ...]:
        return ()

    def reads(self) -> Iterator[tuple[TileBuffer, bool]]:
        """Buffers that the expression reads, and whether at the same index only."""
        seen: set[tuple[Tile, bool]] = set()
        todo: list[tuple[Tile, bool]] = [(self, True)]
        while todo:
            tile, same_index = todo.pop()
            if (tile, same_index) in seen:
                continue
            seen.add((tile, same_index))
            if isinstance(tile, TileBuffer):
                yield tile, same_index
            todo += [(operand, same_index and isinstance(tile, ElementwiseTile)) for operand in tile.operands()]


class SplatTile(Tile):
    """Every element is the scalar `value`, which is available outside the nest; `number` if it is a constant."""

    __slots__ = ("value", "number")

    def __init__(self, shape, elem, value: ir.Value, number: int | float | None = None):
        super().__init__(shape, elem)
        self.value, self.number = value, number

    def at(self, nest, idx):
        return self.value


class RangeTile(Tile):
    """start, start + 1, ... along the only dimension."""

    __slots__ = ("start",)

    def __init__(self, shape, elem, start: int):
        super().__init__(shape, elem)
        self.start = start

    def at(self, nest, idx):
        b = nest.b
        if isinstance(idx[0], int):
            return b.constant(self.elem.carrier, self.start + idx[0])
        value = b.resize(idx[0].value, 64, self.elem.bits)
        if self.start == 0:
            return value
        return b.binary("arith.addi", value, b.constant(self.elem.carrier, self.start), self.elem.carrier)


class ElementwiseTile(Tile):
    """`emit` of the operands' elements at the same index; `name` is the operation's."""

    __slots__ = ("emit", "inputs", "name")

    def __init__(self, elem, emit: Callable[..., ir.Value], inputs: tuple[Tile, ...], cost: float, name: str = ""):
        super().__init__(inputs[0].shape, elem, cost + sum(t.cost for t in inputs), 1 + max(t.depth for t in inputs))
        self.emit, self.inputs, self.name = emit, inputs, name

    def at(self, nest, idx):
        values = [nest.element(t, idx) for t in self.inputs]
        return self.emit(nest.b, values)

    def operands(self):
        return self.inputs


class ReindexedTile(Tile):
    """The operand's elements under another index: `index(nest, idx)` is the index in the operand.

    `moves` says that it only moves and drops indices or sets them to 0, and so needs no nest.
    """

    __slots__ = ("source", "index", "moves")

    def __init__(self, shape, source: Tile, index: Callable[[LoopNest, Indices], Indices], moves: bool = True):
        super().__init__(shape, source.elem, source.cost, source.depth + 1)
        self.source, self.index, self.moves = source, index, moves

    def at(self, nest, idx):
        return nest.element(self.source, self.index(nest, idx))

    def operands(self):
        return (self.source,)


class ContiguousPointers(Tile):
    """Pointers of `source` that are contiguous along `dim`: only the first is computed."""

    __slots__ = ("source", "dim")

    def __init__(self, source: Tile, dim: int):
        super().__init__(source.shape, source.elem, source.cost, source.depth + 1)
        self.source, self.dim = source, dim

    def at(self, nest, idx):
        first = nest.element(self.source, (*idx[: self.dim], 0, *idx[self.dim + 1 :]))
        return nest.b.gep(first, nest.value(idx[self.dim]), self.elem.pointee.memory)

    def operands(self):
        return (self.source,)


class ComputedTile(Tile):
    """Anything else: `emit(nest, idx)`; it may read any element of `inputs`."""

    __slots__ = ("emit", "inputs")

    def __init__(self, shape, elem, emit: Callable[[LoopNest, Indices], ir.Value], inputs: tuple[Tile, ...], cost=1.0):
        super().__init__(shape, elem, cost + sum(t.cost for t in inputs), 1 + max((t.depth for t in inputs), default=0))
        self.emit, self.inputs = emit, inputs

    def at(self, nest, idx):
        return self.emit(nest, idx)

    def operands(self):
        return self.inputs


class TileBuffer(Tile):
    """A tile that is in memory, row-major, elements as `elem.stored`; `lazy`: what it was computed from."""

    __slots__ = ("address", "strides", "lazy")

    def __init__(self, shape, elem, address: ir.Value, lazy: Tile | None = None):
        super().__init__(shape, elem)
        self.address, self.lazy = address, lazy
        self.strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))

    def slot(self, nest: LoopNest, idx: Indices) -> ir.Value:
        """Address of the element at `idx`."""
        return nest.b.gep(self.address, nest.value(nest.linear(idx, self.strides)), self.elem.stored)

    def at(self, nest, idx):
        value = nest.b.load(self.slot(nest, idx), self.elem.stored)
        return nest.b.op("arith.trunci", "i1", value) if self.elem.name == "i1" else value

    def put(self, nest: LoopNest, value: ir.Value, idx: Indices) -> None:
        """Emit the store of one element."""
        address = self.slot(nest, idx)
        nest.b.store(nest.b.op("arith.extui", "i8", value) if self.elem.name == "i1" else value, address)


class DescriptorValue:
    """A tensor descriptor: a tensor's address, shape and strides as scalars (`shape` i32, `strides` i64, in elements).

    `pad_nan` (i1): outside of it there are NaNs, else zeros.
    """

    __slots__ = ("block", "elem", "base", "shape", "strides", "pad_nan")

    def __init__(self, block: tuple[int, ...], elem: Elem, base, shape, strides, pad_nan):
        self.block, self.elem, self.base = block, elem, base
        self.shape, self.strides, self.pad_nan = tuple(shape), tuple(strides), pad_nan

    def scalars(self) -> list[ir.Value]:
        return [self.base, *self.shape, *self.strides, self.pad_nan]

    def scalar_types(self) -> list[str]:
        return ["!llvm.ptr", *["i32"] * len(self.shape), *["i64"] * len(self.strides), "i1"]

    def address(self, b: Builder, indices: Sequence[ir.Value]) -> ir.Value:
        """Of the element at these indices (i32)."""
        offset = b.constant("i64", 0)
        for index, stride in zip(indices, self.strides, strict=True):
            step = b.binary("arith.muli", b.resize(index, 32, 64), stride, "i64")
            offset = b.binary("arith.addi", offset, step, "i64")
        return b.gep(self.base, offset, self.elem.memory)

    def rebuilt(self, scalars: list[ir.Value]) -> DescriptorValue:
        rank = len(self.shape)
        return DescriptorValue(
            self.block, self.elem, scalars[0], scalars[1 : 1 + rank], scalars[1 + rank : -1], scalars[-1]
        )
