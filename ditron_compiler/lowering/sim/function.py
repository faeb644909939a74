"""Lowering of one function: what each value was lowered to, and the walk over the operations.

An operation is handled by its row in ELEMENTWISE (elementwise.py) or by a function registered with `@lowers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from ditron_compiler import ir
from ditron_compiler.ir.locations import LocationTable
from ditron_compiler.lowering.sim.non_terminating import may_repeat

from .abi import MAY_REPEAT
from .analysis import Analysis
from .builder import Builder
from .elementwise import ELEMENTWISE, ElementwiseLowering, emit_elementwise
from .independence import is_private
from .nest import LoopNest
from .tiles import MAX_DEPTH, DescriptorValue, ElementwiseTile, SplatTile, Tile, TileBuffer
from .types import Elem, Shaped, UnsupportedType, parse_type

Lowered = ir.Value | Tile | DescriptorValue | None
Handler = Callable[["FunctionLowering", ir.Operation], None]
HANDLERS: dict[str, Handler] = {}
GRID = ["i32"] * 6  # the last arguments of every function: pid0, pid1, pid2, n0, n1, n2
STACK_BYTES = 48 << 20  # of the 64 MiB of a fiber's stack
WORTH_A_BUFFER = 4.0  # float operations that one store and its loads may save per element


def lowers(*names: str) -> Callable[[Handler], Handler]:
    """Register the decorated function for the operations `names`."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


class Unsupported(Exception):
    """The simulator cannot run `op`; the text says why and what to do."""

    def __init__(self, op: ir.Operation, text: str):
        super().__init__(text)
        self.op = op


@dataclass
class ModuleState:
    """What the functions of one module share."""

    locations: LocationTable = field(default_factory=LocationTable)
    declared: dict[str, tuple[list[ir.Type], list[ir.Type]]] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    strings: dict[str, str] = field(default_factory=dict)
    types: dict[str, ir.Type] = field(default_factory=dict)
    checks: str = "ends"
    races: bool = False


def new_function(b: Builder, before: ir.Operation, name: str, inputs, outputs, private: bool) -> ir.Operation:
    """Create a `func.func` without a body before the operation `before`."""
    type = ir.FunctionType.get([b.type(t) for t in inputs], [b.type(t) for t in outputs])
    attrs = {"sym_name": ir.StringAttr.get(name), "function_type": ir.TypeAttr.get(type)}
    if private:
        attrs["sym_visibility"] = ir.StringAttr.get("private")
    return ir.Operation.create(
        "func.func", attributes=attrs, regions=1, loc=before.location, ip=ir.InsertionPoint(before)
    )


class FunctionLowering:
    """State of one function; `b` emits, `env` maps each value to what it was lowered to."""

    def __init__(self, function: ir.Operation, state: ModuleState, builder: Builder, grid: list[ir.Value]):
        self.function, self.state, self.b = function, state, builder
        self.grid = grid  # pid0, pid1, pid2, n0, n1, n2
        self.env: dict[ir.Value, Lowered] = {}
        self.analysis = Analysis(function)
        self.buffer_bytes = 0
        self.current = function  # the operation being lowered

    # --- values -------------------------------------------------------------------------------------------------

    def type_of(self, value: ir.Value, op: ir.Operation) -> Shaped:
        try:
            return parse_type(str(value.type))
        except UnsupportedType as error:
            raise Unsupported(op, f"the simulator has no {error}") from None

    def scalar(self, value: ir.Value) -> ir.Value:
        found = self.env[value]
        assert isinstance(found, ir.Value), value
        return found

    def tile(self, value: ir.Value) -> Tile:
        found = self.env[value]
        assert isinstance(found, Tile), value
        return found

    def tile_or_splat(self, value: ir.Value, shape: tuple[int, ...], elem: Elem) -> Tile:
        """A scalar as a tile of `shape`."""
        found = self.env[value]
        return found if isinstance(found, Tile) else SplatTile(shape, elem, found)

    def set(self, op: ir.Operation, *results: Lowered) -> None:
        for result, lowered in zip(op.results, results, strict=True):
            self.env[result] = lowered

    def where(self, op: ir.Operation, repeats: bool = False) -> ir.Value:
        """The location argument of an ABI call; `repeats`: `op` itself is a loop that need not end."""
        # A function that is called may be called in a loop.
        repeats = repeats or is_private(self.function) or may_repeat(op)
        return self.b.constant("i32", self.state.locations.number(op.location) | (MAY_REPEAT if repeats else 0))

    def i32(self, value: int) -> ir.Value:
        return self.b.constant("i32", value)

    def call(self, symbol: str, operands: list[ir.Value], results: tuple[str, ...] = ()) -> list[ir.Value]:
        return list(self.b.call(symbol, operands, results))

    # --- tiles --------------------------------------------------------------------------------------------------

    def nest(self, shape: tuple[int, ...] = ()) -> LoopNest:
        return LoopNest(self.b, shape)

    def new_buffer(self, shape: tuple[int, ...], elem: Elem, lazy: Tile | None = None) -> TileBuffer:
        self.buffer_bytes += prod(shape) * elem.stored_bytes
        if self.buffer_bytes > STACK_BYTES:
            raise Unsupported(
                self.current,
                f"the tiles of one program take more than {STACK_BYTES >> 20} MiB in the simulator: use smaller tiles",
            )
        return TileBuffer(shape, elem, self.b.buffer(prod(shape), elem.stored), lazy)

    def fill(self, buffer: TileBuffer, tile: Tile) -> None:
        """Compute `tile` into `buffer`, here."""
        with self.nest(tile.shape) as nest:
            nest.store(buffer, nest.element(tile))

    def materialize(self, tile: Tile) -> TileBuffer:
        """`tile` in a buffer, computed here unless it is in one already."""
        if isinstance(tile, TileBuffer):
            return tile
        buffer = self.new_buffer(tile.shape, tile.elem, tile)
        self.fill(buffer, tile)
        return buffer

    def materialize_if_cheaper(self, op: ir.Operation, result: ir.Value, tile: Tile) -> Tile:
        """Keep a new tile lazy, or materialize it when recomputing its elements would cost more."""
        if isinstance(tile, (TileBuffer, SplatTile)):
            return tile
        once = tile.size * self.analysis.runs(op)
        again = self.analysis.evaluations(result) - once
        if (
            tile.depth > MAX_DEPTH
            or tile.cost * again > WORTH_A_BUFFER * once
            or self.analysis.feeds_inner_dot(result, op)
        ):
            return self.materialize(tile)
        return tile

    def bind(self, op: ir.Operation, tile: Tile) -> None:
        """The only result of `op` is `tile`."""
        self.set(op, self.materialize_if_cheaper(op, op.results[0], tile))

    # --- the walk -----------------------------------------------------------------------------------------------

    def lower_block(self, block: ir.Block) -> ir.Operation:
        """Lower the operations of `block` but its terminator, which is returned."""
        operations = [view.operation for view in block.operations]
        for op in operations[:-1]:
            self.lower(op)
        return operations[-1]

    def lower(self, op: ir.Operation) -> None:
        self.b.loc, self.current = op.location, op
        handler = HANDLERS.get(op.name)
        if handler is not None:
            handler(self, op)
            return
        row = ELEMENTWISE.get(op.name)
        if row is None:
            raise Unsupported(op, f"the simulator has no lowering of '{op.name}'")
        self.lower_elementwise(op, row)

    def lower_elementwise(self, op: ir.Operation, row: ElementwiseLowering) -> None:
        if len(op.results) != 1:
            raise Unsupported(op, f"the simulator has no lowering of '{op.name}'")
        result = self.type_of(op.results[0], op)
        operands = [self.env[v] for v in op.operands]
        src = tuple(self.type_of(v, op).elem for v in op.operands)
        emit = emit_elementwise(row, op, src, result.elem)
        if result.shape is None:
            self.set(op, emit(self.b, operands))
            return
        # A select may have a scalar condition.
        tiles = tuple(self.tile_or_splat(v, result.shape, e) for v, e in zip(op.operands, src, strict=True))
        if all(isinstance(t, SplatTile) for t in tiles):
            self.set(op, SplatTile(result.shape, result.elem, emit(self.b, [t.value for t in tiles])))
            return
        cost = row.cost + (3.0 if row.rounds and result.elem.narrow else 0.0)
        self.bind(op, ElementwiseTile(result.elem, emit, tiles, cost, op.name))
