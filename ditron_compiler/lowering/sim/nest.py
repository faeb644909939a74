"""A loop nest over a tile's index space, and the elements of lazy tiles inside it.

Each element is computed at the outermost loop level at which its index is known (`offs_m[:, None] * stride` once per
row), and once per (tile, index).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol

from ditron_compiler import ir

from .builder import Builder

# Loops that LLVM is to vectorise carry this mark; all others are told not to be (lower_loop_annotations.py). The width
# is given and not left to LLVM: builds of LLVM with assertions end the process when its two cost models disagree about
# the best one. LLVM warns on standard error of a loop with a width that it cannot vectorise, so mark none of those.
WIDTH = 16
MAX_DEPTH = 4  # of the loops over a tile's axes
VECTORISED = f"#llvm.loop_annotation<vectorize = <width = {WIDTH} : i32>>"


class LoopIndex:
    """An i64 index that is not a constant, and the loop level at which it is known."""

    __slots__ = ("value", "level")

    def __init__(self, value: ir.Value, level: int):
        self.value, self.level = value, level


Indices = tuple[LoopIndex | int, ...]


class ElementSource(Protocol):
    """What a nest computes elements of: a tile (tiles.py)."""

    def at(self, nest: LoopNest, idx: Indices) -> ir.Value:
        """Emit the element at `idx`, a carrier value."""


class ElementTarget(Protocol):
    """What a nest stores elements to: a buffer (tiles.py)."""

    def put(self, nest: LoopNest, value: ir.Value, idx: Indices) -> None:
        """Emit the store of the element at `idx`."""


class LoopNest:
    """`with LoopNest(b, shape) as nest:` emits the loops; `nest.idx` is the index; on exit they are closed."""

    def __init__(self, b: Builder, shape: Sequence[int] = ()):
        self.b = b
        self.shape = tuple(shape)
        self.idx: Indices = ()
        self._places: list[ir.InsertionPoint] = []
        self._loops: list[tuple[ir.Operation, ir.Block]] = []
        self._memo: dict[tuple, ir.Value] = {}
        self._index_memo: dict[tuple, LoopIndex | int] = {}
        self._flat: dict[tuple, LoopIndex | int] = {}  # of an index that one loop runs over: by strides, where it is

    def __enter__(self) -> LoopNest:
        self._home = self.b.ip
        self._places.append(self.b.ip)
        self.idx = self.loops(self.shape)
        return self

    def __exit__(self, kind, value, traceback) -> None:
        if kind is None:
            while self._loops:
                self.close()
            self.b.ip = self._home

    # --- loops --------------------------------------------------------------------------------------------------

    def loop(self, size: int) -> LoopIndex | int:
        """Open an inner loop of `size` iterations; one iteration needs none."""
        return 0 if size == 1 else self.carry(size, [], [])[0]

    def loops(self, shape: Sequence[int]) -> Indices:
        """Open loops over `shape`, or one over all of it where they were many: LLVM takes long over deep nests.

        So are those of a sort, whose tile is a cube of two elements to a side.
        """
        if sum(size > 1 for size in shape) <= MAX_DEPTH:
            return tuple(self.loop(size) for size in shape)
        position = self.loop(prod(shape))
        self._innermost = False
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        idx = tuple(self.rem(self.div(position, stride), size) for size, stride in zip(shape, strides, strict=True))
        self._flat[idx, tuple(strides)] = position
        return idx

    def carry(
        self,
        size: int,
        inits: Sequence[ir.Value],
        types: Sequence[str],
        start: int = 0,
        vectorise: bool = False,
        stop: ir.Value | None = None,
        step: int = 1,
    ) -> list:
        """Open an inner loop that carries `inits`; returns [index, *carried]. Close it with `close(values)`.

        `stop`: where it ends, when that is not known before. `step`: by how much the index goes on. `vectorise`: LLVM
        can, although something is carried: an integer minimum, say.
        """
        b = self.b
        end = b.constant("i64", size) if stop is None else stop
        bounds = [b.constant("i64", start), end, b.constant("i64", step)]
        op = b.create("scf.for", types, [*bounds, *inits], regions=1)
        block = b.block(op.regions[0], ["i64", *types])
        self._places[-1] = ir.InsertionPoint(op)
        self._places.append(ir.InsertionPoint(block))
        self._innermost = (vectorise or not inits) and size - start >= WIDTH * step
        self._scalar_before = b.scalar_only
        self._loops.append((op, block))
        b.ip = self._places[-1]
        arguments = list(block.arguments)
        return [LoopIndex(arguments[0], len(self._places) - 1), *arguments[1:]]

    def close(self, values: Sequence[ir.Value] = ()) -> list[ir.Value]:
        """Close the innermost loop; returns what it carried out."""
        b = self.b
        b.create("scf.yield", [], values)
        op, _ = self._loops.pop()
        self._places.pop()
        if self._innermost and b.scalar_only == self._scalar_before:
            op.attributes["llvm.loop_annotation"] = b.attr(VECTORISED)
        self._innermost = False
        # Behind the loop just closed, not before it: what follows may use its results.
        b.ip = ir.InsertionPoint(self._loops[-1][1]) if self._loops else self._home
        self._places[-1] = b.ip
        level = len(self._places) - 1
        self._memo = {k: v for k, v in self._memo.items() if _level(k[1]) <= level}
        self._index_memo = {k: v for k, v in self._index_memo.items() if _level((v,)) <= level}
        return list(op.results)

    # --- elements -----------------------------------------------------------------------------------------------

    def element(self, tile: ElementSource, idx: Indices | None = None) -> ir.Value:
        """The element of `tile` at `idx` (the nest's own index by default), a carrier value."""
        idx = self.idx if idx is None else idx
        key = (tile, idx)
        found = self._memo.get(key)
        if found is None:
            level, scalar_before = _level(idx), self.b.scalar_only
            keep, self.b.ip = self.b.ip, self._places[level]
            found = self._memo[key] = tile.at(self, idx)
            self.b.ip = keep
            if level < len(self._places) - 1:  # it is not in the loop that may be vectorised
                self.b.scalar_only = scalar_before
        return found

    def store(self, buffer: ElementTarget, value: ir.Value, idx: Indices | None = None) -> None:
        """Put `value` in `buffer` at `idx`, here."""
        buffer.put(self, value, self.idx if idx is None else idx)

    def value(self, index: LoopIndex | int) -> ir.Value:
        return self.b.constant("i64", index) if isinstance(index, int) else index.value

    def index_of(self, value: ir.Value, idx: Indices) -> LoopIndex:
        """An i64 computed from elements at `idx`, as an index."""
        return LoopIndex(value, _level(idx))

    def linear(self, idx: Indices, strides: Sequence[int]) -> LoopIndex | int:
        """Sum of idx * stride."""
        flat = self._flat.get((idx, tuple(strides)))
        if flat is not None:
            return flat
        total: LoopIndex | int = 0
        for i, stride in zip(idx, strides, strict=True):
            total = self.add(total, self.mul(i, stride))
        return total

    def add(self, a: LoopIndex | int, b: LoopIndex | int) -> LoopIndex | int:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0:
            return a
        return b if a == 0 else self._index("arith.addi", a, b)

    def mul(self, a: LoopIndex | int, k: int) -> LoopIndex | int:
        if isinstance(a, int):
            return a * k
        return a if k == 1 else self._index("arith.muli", a, k)

    def div(self, a: LoopIndex | int, k: int) -> LoopIndex | int:
        if isinstance(a, int):
            return a // k
        if k & (k - 1) == 0:
            return a if k == 1 else self._index("arith.shrui", a, k.bit_length() - 1)
        return self._index("arith.divui", a, k)

    def rem(self, a: LoopIndex | int, k: int) -> LoopIndex | int:
        if isinstance(a, int):
            return a % k
        if k & (k - 1) == 0:
            return 0 if k == 1 else self._index("arith.andi", a, k - 1)
        return self._index("arith.remui", a, k)

    def sub_from(self, k: int, a: LoopIndex | int) -> LoopIndex | int:
        """k - a."""
        return k - a if isinstance(a, int) else self._index("arith.subi", k, a)

    def _index(self, name: str, a: LoopIndex | int, b: LoopIndex | int) -> LoopIndex:
        key = (name, a, b)
        found = self._index_memo.get(key)
        if found is None:
            level = _level((a, b))
            keep, self.b.ip = self.b.ip, self._places[level]
            found = LoopIndex(self.b.binary(name, self.value(a), self.value(b), "i64"), level)
            self._index_memo[key] = found
            self.b.ip = keep
        return found


def _level(idx: Indices) -> int:
    return max((i.level for i in idx if not isinstance(i, int)), default=0)
