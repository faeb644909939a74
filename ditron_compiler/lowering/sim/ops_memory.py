"""tt.load, tt.store, the atomics: done at their place in the program, element by element.

A scalar access is a tile access with the empty shape, so there is one path.
"""

from __future__ import annotations

from ditron_compiler import ir

from . import abi
from .elementwise import int_attribute
from .function import FunctionLowering, Unsupported, lowers
from .memory import check, from_i64, guarded, load_element, store_element, to_i64, zero
from .nest import Nest
from .recording import STORE, VOLATILE, record
from .steps import step
from .tiles import Tile
from .types import Elem


class Access:
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

    def elements(self, nest: Nest) -> list[ir.Value | None]:
        if not self.vectorises():
            self.fn.b.scalar_only += 1
        return [None if t is None else nest.element(t) for t in self.tiles]

    def vectorises(self) -> bool:
        """Whether neighbours are neighbours in memory too, or at least as large as what a CPU can gather."""
        return not self.shape or self.pointee.bytes >= 4 or step(self.tiles[0], len(self.shape) - 1) in (0, 1)

    def check(self, is_store: bool, mask: int, volatile: bool = False) -> None:
        """Have the machine look at where the access goes; `mask` is the number of the operand that is the mask."""
        address, keep = self.tiles[0], self.tiles[mask]

        def emit(nest: Nest) -> tuple[ir.Value, ir.Value | None]:
            return nest.element(address), None if keep is None else nest.element(keep)

        where = self.fn.where(self.op)
        check(self.fn, self.shape, emit, self.pointee, is_store, where)
        if self.fn.state.races:
            flags = STORE * is_store + VOLATILE * volatile
            record(self.fn, self.shape, emit, self.pointee, flags, where, *self._runs(address, keep))

    def _runs(self, address: Tile, mask: Tile | None) -> tuple[int | None, bool]:
        """Along which dimension neighbours are neighbours in memory, and whether under one mask."""
        for dim in reversed(range(len(self.shape))):
            if self.shape[dim] > 1 and step(address, dim) == 1:
                return dim, mask is None or step(mask, dim) == 0
        return None, False

    def finish(self, emit, elem: Elem | None = None) -> None:
        """Run `emit(nest, elements) -> value` over the shape; the values, of type `elem`, are the op's result."""
        fn, op = self.fn, self.op
        keep = elem is not None and not self.scalar
        buffer = fn.new_buffer(self.shape, elem) if keep else None
        with fn.nest(self.shape) as nest:
            value = emit(nest, self.elements(nest))
            if buffer is not None:
                nest.store(buffer, value)
        if elem is not None:
            fn.set(op, value if buffer is None else buffer)


@lowers("tt.load")
def _load(fn: FunctionLowering, op: ir.Operation) -> None:
    ptr, mask, other = [*op.operands, None, None][:3]
    access = Access(fn, op, [ptr, mask, other])
    elem = access.pointee
    volatile = "isVolatile" in op.attributes and ir.BoolAttr(op.attributes["isVolatile"]).value
    access.check(is_store=False, mask=1, volatile=volatile)

    def emit(nest, values):
        b, (address, keep, default) = nest.b, values
        if keep is not None and default is None:
            default = zero(b, elem)
        return guarded(b, keep, lambda: load_element(b, address, elem), default, elem.carrier)

    access.finish(emit, elem)


@lowers("tt.store")
def _store(fn: FunctionLowering, op: ir.Operation) -> None:
    ptr, value, mask = [*op.operands, None][:3]
    access = Access(fn, op, [ptr, value, mask])
    elem = access.pointee
    access.check(is_store=True, mask=2)

    def emit(nest, values):
        b, (address, value, keep) = nest.b, values
        guarded(b, keep, lambda: store_element(b, value, address, elem))

    access.finish(emit)


def abi_dtype(elem: Elem, op: ir.Operation) -> int:
    if elem.abi_dtype is None:
        raise Unsupported(op, f"the simulator has no atomic access of type {elem.name}; use a 32- or 64-bit type")
    return elem.abi_dtype


@lowers("tt.atomic_rmw")
def _atomic_rmw(fn: FunctionLowering, op: ir.Operation) -> None:
    kind = int_attribute(op, "atomic_rmw_op")
    access = Access(fn, op, [*op.operands, None][:3])
    elem = access.pointee
    dtype = abi_dtype(elem, op)
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
    access = Access(fn, op, list(op.operands))
    elem = access.pointee
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


