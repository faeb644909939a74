"""tt.load, tt.store, the atomics: executed in program order, element by element.

A scalar access is a tile access with the empty shape, so there is one path.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import reduce

from ditron_compiler import ir
from ditron_compiler.lowering.sim.race_records import record

from . import abi
from .elementwise import int_attribute
from .function import FunctionLowering, Unsupported, lowers
from .memory import access_flags, check, check_range, from_i64, guarded, load_element, store_element, to_i64, zero
from .nest import LoopNest
from .ops_program import text_address
from .provenance import argument_of
from .steps import Assumption, Steps, step
from .tiles import ContiguousPointers, Tile
from .types import Elem


class TileAccess:
    """The operands of a memory operation as tiles of one shape (`()` for a scalar one)."""

    def __init__(self, fn: FunctionLowering, op: ir.Operation, values: list[ir.Value | None]):
        type = fn.type_of(values[0], op)
        self.fn, self.op = fn, op
        self.scalar = type.shape is None
        self.shape = type.shape or ()
        self.pointee: Elem = type.elem.pointee
        self.tiles: list[Tile | None] = []
        for value in values:
            elem = None if value is None else fn.type_of(value, op).elem
            self.tiles.append(None if value is None else fn.tile_or_splat(value, self.shape, elem))

    def elements(self, nest: LoopNest) -> list[ir.Value | None]:
        if not self.vectorises():
            self.fn.b.scalar_only += 1
        return [None if t is None else nest.element(t) for t in self.tiles]

    def vectorises(self) -> bool:
        """Whether neighbouring elements are contiguous in memory, or large enough for a CPU to gather."""
        return not self.shape or self.pointee.bytes >= 4 or step(self.tiles[0], len(self.shape) - 1) in (0, 1)

    def check(self, is_store: bool, mask: int, volatile: bool = False) -> None:
        """Have the machine check the addresses of the access; `mask` is the number of the operand that is the mask."""
        address, keep = self.tiles[0], self.tiles[mask]

        def emit(nest: LoopNest) -> tuple[ir.Value, ir.Value | None]:
            return nest.element(address), None if keep is None else nest.element(keep)

        where, flags = self.fn.where(self.op), access_flags(self.fn, self.op.operands[0], is_store, volatile)
        check(self.fn, self.shape, emit, check_range(self.fn, self.pointee, flags, where))
        if self.fn.state.races:
            record(self.fn, self.shape, emit, self.pointee, flags, where, *self._runs(address, keep))

    def check_origin(self, what: str, mask: int | None = None) -> None:
        """The same for an access that the machine makes, called `what`: it checks all but whose memory that is."""
        address, keep = self.tiles[0], None if mask is None else self.tiles[mask]
        argument = argument_of(self.op.operands[0], self.fn.function)
        if argument is None:
            return
        rest = [self.fn.b.constant("i64", self.pointee.bytes), self.fn.i32(argument), text_address(self.fn, what)]
        rest.append(self.fn.where(self.op))

        def emit(nest: LoopNest) -> tuple[ir.Value, ir.Value | None]:
            return nest.element(address), None if keep is None else nest.element(keep)

        def call(at: ir.Value) -> None:
            self.fn.call("ditron_sim_check_origin", [at, *rest])

        check(self.fn, self.shape, emit, call, every=self.fn.state.races)

    def _runs(self, address: Tile, mask: Tile | None) -> tuple[int | None, bool]:
        """The dimension along which elements are contiguous in memory, and whether the mask is uniform along it."""
        for dim in reversed(range(len(self.shape))):
            if self.shape[dim] > 1 and step(address, dim) == 1:
                return dim, mask is None or step(mask, dim) == 0
        return None, False

    def finish(self, emit, elem: Elem | None = None, before: Callable[[TileAccess], None] | None = None) -> None:
        """Run `emit(nest, elements) -> value` over the shape; the values, of type `elem`, are the op's result.

        `before(access)` comes first. An access whose neighbours may be neighbours in memory, which shows only when it
        runs, is written twice, once for that case.
        """
        fn, op = self.fn, self.op
        keep = elem is not None and not self.scalar
        buffer = fn.new_buffer(self.shape, elem) if keep else None

        def run(access: TileAccess) -> ir.Value | None:
            if before is not None:
                before(access)
            with fn.nest(access.shape) as nest:
                value = emit(nest, access.elements(nest))
                if buffer is not None:
                    nest.store(buffer, value)
            return value

        value = self._one_of(run) if before is not None and self.shape else run(self)
        if elem is not None:
            fn.set(op, value if buffer is None else buffer)

    def _one_of(self, run: Callable[[TileAccess], ir.Value | None]) -> ir.Value | None:
        """`run(self)`, or where it may turn out that the innermost dimension is contiguous, a choice of two."""
        dim = max((d for d, n in enumerate(self.shape) if n > 1), default=0)
        steps = Steps(guess=True)
        if steps.of(self.tiles[0], dim) != 1 or not steps.assumed:
            return run(self)
        b = self.fn.b
        op = b.create("scf.if", [], [self._all_hold(steps.assumed)], regions=2)
        keep = b.ip
        contiguous = copy(self)
        contiguous.tiles = [ContiguousPointers(self.tiles[0], dim), *self.tiles[1:]]
        for region, access in zip(op.regions, (contiguous, self), strict=True):
            b.at_end(b.block(region))
            run(access)
            b.create("scf.yield", [], [])
        b.ip = keep
        return None

    def _all_hold(self, assumed: list[Assumption]) -> ir.Value:
        """Whether all of them do."""
        b, conditions = self.fn.b, []
        with self.fn.nest() as nest:
            for a in assumed:
                size, bits = a.tile.shape[a.dim], a.tile.elem.bits
                ends = [tuple(at if d == a.dim else 0 for d in range(len(a.tile.shape))) for at in (0, size - 1)]
                first, last = (b.resize(nest.element(a.tile, end), bits, 64) for end in ends)
                far = b.binary("arith.subi", last, first, "i64")
                conditions.append(b.cmpi("eq", far, b.constant("i64", a.step * (size - 1))))
        return reduce(lambda one, two: b.binary("arith.andi", one, two, "i1"), conditions)


@lowers("tt.load")
def _load(fn: FunctionLowering, op: ir.Operation) -> None:
    ptr, mask, other = [*op.operands, None, None][:3]
    access = TileAccess(fn, op, [ptr, mask, other])
    elem = access.pointee
    volatile = "isVolatile" in op.attributes and ir.BoolAttr(op.attributes["isVolatile"]).value

    def emit(nest, values):
        b, (address, keep, default) = nest.b, values
        if keep is not None and default is None:
            default = zero(b, elem)
        return guarded(b, keep, lambda: load_element(b, address, elem), default, elem.carrier)

    access.finish(emit, elem, lambda access: access.check(is_store=False, mask=1, volatile=volatile))


@lowers("tt.store")
def _store(fn: FunctionLowering, op: ir.Operation) -> None:
    ptr, value, mask = [*op.operands, None][:3]
    access = TileAccess(fn, op, [ptr, value, mask])
    elem = access.pointee

    def emit(nest, values):
        b, (address, value, keep) = nest.b, values
        guarded(b, keep, lambda: store_element(b, value, address, elem))

    access.finish(emit, before=lambda access: access.check(is_store=True, mask=2))


def abi_dtype(elem: Elem, op: ir.Operation) -> int:
    if elem.abi_dtype is None:
        raise Unsupported(op, f"the simulator has no atomic access of type {elem.name}; use a 32- or 64-bit type")
    return elem.abi_dtype


@lowers("tt.atomic_rmw")
def _atomic_rmw(fn: FunctionLowering, op: ir.Operation) -> None:
    kind = int_attribute(op, "atomic_rmw_op")
    access = TileAccess(fn, op, [*op.operands, None][:3])
    elem = access.pointee
    dtype = abi_dtype(elem, op)
    access.check_origin("an atomic", mask=2)
    if kind in (abi.RMW_UMAX, abi.RMW_UMIN):
        dtype = abi.UNSIGNED_DTYPE.get(dtype, dtype)
    ordering = order(fn, op)
    where = fn.where(op)

    def emit(nest, values):
        address, value, mask = values
        b = nest.b
        operands = [address, to_i64(b, value, elem), fn.i32(kind), fn.i32(dtype), *ordering, where]
        return guarded(
            b,
            mask,
            lambda: from_i64(b, fn.call("ditron_sim_atomic_rmw", operands, ("i64",))[0], elem),
            zero(b, elem),
            elem.carrier,
        )

    access.finish(emit, elem)


@lowers("tt.atomic_cas")
def _atomic_cas(fn: FunctionLowering, op: ir.Operation) -> None:
    access = TileAccess(fn, op, list(op.operands))
    elem = access.pointee
    access.check_origin("an atomic")
    ordering, where = order(fn, op), fn.where(op)

    def emit(nest, values):
        address, *pair = values
        b = nest.b
        bits = [to_i64(b, v, elem) for v in pair]
        operands = [address, *bits, fn.i32(elem.bytes), *ordering, where]
        return from_i64(b, fn.call("ditron_sim_atomic_cas", operands, ("i64",))[0], elem)

    access.finish(emit, elem)


def order(fn: FunctionLowering, op: ir.Operation) -> list[ir.Value]:
    scope = abi.TRITON_SCOPE[int_attribute(op, "scope", 1)]
    semantic = abi.TRITON_SEMANTIC[int_attribute(op, "sem", 4)]
    return [fn.i32(scope), fn.i32(semantic)]
