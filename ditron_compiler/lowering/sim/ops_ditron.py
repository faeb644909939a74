"""The ditron device operations as calls of the machine's ABI.

A program is one thread here, so there is nothing for a barrier of threads to do, and since nothing moves across a call,
a token only has to exist: it has no run-time form.
"""

from __future__ import annotations

from collections.abc import Callable

from ditron_compiler import ir
from ditron_compiler.analysis.costs import FLOATS

from . import abi
from .function import FunctionLowering, Unsupported, lowers
from .memory import from_i64, to_i64
from .ops_memory import TileAccess, abi_dtype
from .ops_program import text_address
from .provenance import argument_of
from .tiles import DescriptorValue, ElementwiseTile, ReindexedTile, SplatTile, Tile


def _enum(fn: FunctionLowering, op: ir.Operation, name: str, enum: str, default: str) -> ir.Value:
    return fn.i32(abi.enum_value(op, name, enum, default))


def _team(fn, op):
    return _enum(fn, op, "team", "team", "group")


def _scope(fn, op, default="gpu"):
    return _enum(fn, op, "scope", "scope", default)


def _semantic(fn, op, default="relaxed"):
    return _enum(fn, op, "semantic", "semantic", default)


def _signal_op(fn, op):
    return _enum(fn, op, "op", "signal_op", "set")


def _cmp(fn, op):
    return _enum(fn, op, "cmp", "cmp", "ge")


def _protocol(fn, op):
    return _enum(fn, op, "protocol", "protocol", "ll")


def _how(fn, op):
    return fn.i32(int("nbi" in op.attributes) + 2 * (FLOATS in op.attributes))


def _scalars(fn: FunctionLowering, op: ir.Operation) -> list[ir.Value]:
    return [fn.scalar(v) for v in op.operands]


# --- who am I ---------------------------------------------------------------------------------------------------


@lowers("ditron.rank", "ditron.num_ranks")
def _rank(fn, op):
    fn.set(op, *fn.call(f"ditron_sim_{op.name[7:]}", [_team(fn, op)], ("i32",)))


@lowers("ditron.local_rank", "ditron.num_local_ranks", "ditron.node")
def _place(fn, op):
    fn.set(op, *fn.call(f"ditron_sim_{op.name[7:]}", [], ("i32",)))


@lowers("ditron.thread_id", "ditron.lane_id", "ditron.warp_id")
def _first_thread(fn, op):
    fn.set(op, fn.i32(0))


@lowers("ditron.num_threads")
def _num_threads(fn, op):
    fn.set(op, fn.i32(1))


@lowers("ditron.sync_threads")
def _sync_threads(fn, op):
    pass


@lowers("ditron.spend")
def _spend(fn, op):
    cost, amount = _enum(fn, op, "cost", "cost", "dot16"), fn.scalar(op.amount)
    if not op.place:
        fn.call("ditron_sim_spend", [cost, amount, fn.b.op("llvm.mlir.zero", "!llvm.ptr")])
        return
    where, *indices = (fn.env[value] for value in op.place)
    if isinstance(where, DescriptorValue):
        where = where.address(fn.b, indices)
    with fn.nest() as nest:
        first = nest.element(where, (0,) * len(where.shape)) if isinstance(where, Tile) else where
        fn.call("ditron_sim_spend", [cost, amount, first])


@lowers("ditron.expect")
def _expect(fn, op):
    if op.condition is not None:
        fn.set(op, fn.env[op.condition])
        return
    probability = fn.b.constant("f64", ir.FloatAttr(op.attributes["probability"]).value)
    drawn = fn.call("ditron_sim_draw", [probability, fn.i32(int("uniform" in op.attributes)), fn.where(op)], ("i32",))
    fn.set(op, fn.b.op("arith.trunci", "i1", *drawn))


@lowers("ditron.shfl")
def _shfl(fn, op):
    fn.set(op, fn.scalar(op.operands[0]))


@lowers("ditron.ballot")
def _ballot(fn, op):
    fn.set(op, fn.b.op("arith.extui", "i64", fn.scalar(op.operands[0])))


# --- symmetric pointers -----------------------------------------------------------------------------------------


@lowers("ditron.symm_at")
def _symm_at(fn, op):
    ranks = fn.env[op.rank]
    if not isinstance(ranks, Tile):
        _translate(fn, op, "ditron_sim_symm_at", fn.scalar(op.rank))
        return
    pointers, where = fn.env[op.ptr], fn.where(op)
    each = ElementwiseTile(
        pointers.elem,
        lambda b, v: fn.call("ditron_sim_symm_at", [v[0], v[1], where], ("!llvm.ptr",))[0],
        (pointers, ranks),
        0,
    )
    fn.set(op, fn.materialize(each))


@lowers("ditron.multicast_ptr")
def _multicast_ptr(fn, op):
    _translate(fn, op, "ditron_sim_multicast_ptr", _team(fn, op))


def _translate(fn: FunctionLowering, op: ir.Operation, symbol: str, argument: ir.Value) -> None:
    where = fn.where(op)

    def call(pointer: ir.Value) -> ir.Value:
        return fn.call(symbol, [pointer, argument, where], ("!llvm.ptr",))[0]

    pointer = fn.env[op.operands[0]]
    if not isinstance(pointer, Tile):
        fn.set(op, call(pointer))
        return
    moved = _rebased(pointer, call)
    if moved is not None:
        fn.set(op, moved)
        return
    translated = ElementwiseTile(pointer.elem, lambda b, v: call(v[0]), (pointer,), 0)
    fn.set(op, fn.materialize(translated))


def _rebased(tile: Tile, call: Callable[[ir.Value], ir.Value]) -> Tile | None:
    """A tile of `base + offsets` with the base translated, which is one call and not one per element."""
    if isinstance(tile, SplatTile):
        return SplatTile(tile.shape, tile.elem, call(tile.value))
    if isinstance(tile, ReindexedTile):
        source = _rebased(tile.source, call)
        return None if source is None else ReindexedTile(tile.shape, source, tile.index, tile.moves)
    if isinstance(tile, ElementwiseTile) and tile.name == "tt.addptr":
        base = _rebased(tile.inputs[0], call)
        return None if base is None else ElementwiseTile(tile.elem, tile.emit, (base, tile.inputs[1]), 0, tile.name)
    return None


def _check_origins(fn: FunctionLowering, op: ir.Operation, *pointers: int, bytes: ir.Value) -> None:
    """Before `op`: check that the bytes that these operands point to are in the tensors that they are made from."""
    what = op.name[7:]
    for pointer in (op.operands[number] for number in pointers):
        argument = argument_of(pointer, fn.function)
        if argument is not None and fn.state.checks != "none":
            operands = [fn.scalar(pointer), bytes, fn.i32(argument), text_address(fn, what), fn.where(op)]
            fn.call("ditron_sim_check_origin", operands)


def _signal_bytes(fn: FunctionLowering) -> ir.Value:
    return fn.b.constant("i64", 8)


# --- signals ----------------------------------------------------------------------------------------------------


@lowers("ditron.wait")
def _wait(fn, op):
    signals = fn.b.resize(fn.scalar(op.operands[1]), 32, 64, signed=True)
    _check_origins(fn, op, 0, bytes=fn.b.binary("arith.muli", signals, _signal_bytes(fn), "i64"))
    order = [_cmp(fn, op), _scope(fn, op, "node"), _semantic(fn, op, "acquire")]
    fn.call("ditron_sim_wait", [*_scalars(fn, op), *order, fn.where(op)])
    fn.set(op, None)


@lowers("ditron.consume_token")
def _consume_token(fn, op):
    fn.set(op, fn.env[op.operands[0]])


@lowers("ditron.notify")
def _notify(fn, op):
    _check_origins(fn, op, 0, bytes=_signal_bytes(fn))
    fn.call("ditron_sim_notify", [*_scalars(fn, op), _signal_op(fn, op), _scope(fn, op, "node"), fn.where(op)])


@lowers("ditron.signal_op")
def _signal(fn, op):
    _check_origins(fn, op, 0, bytes=_signal_bytes(fn))
    fn.call("ditron_sim_signal_op", [*_scalars(fn, op), _signal_op(fn, op), fn.where(op)])


@lowers("ditron.signal_wait_until")
def _signal_wait_until(fn, op):
    _check_origins(fn, op, 0, bytes=_signal_bytes(fn))
    fn.set(op, *fn.call("ditron_sim_signal_wait_until", [*_scalars(fn, op), _cmp(fn, op), fn.where(op)], ("i64",)))


@lowers("ditron.signal_fetch")
def _signal_fetch(fn, op):
    _check_origins(fn, op, 0, bytes=_signal_bytes(fn))
    operands = [fn.scalar(op.signal), fn.i32(8), fn.i32(int(op.scope)), fn.i32(int(op.semantic)), fn.where(op)]
    fn.set(op, *fn.call("ditron_sim_ld", operands, ("i64",)))


# --- data and order ---------------------------------------------------------------------------------------------


def _check_bytes(fn: FunctionLowering, op: ir.Operation, pointer: int = 0) -> None:
    """A count that the language could not check, being no constant: whole elements of what ``pointer`` points to."""
    elem = fn.type_of(op.operands[pointer], op).elem.pointee
    if elem.bytes > 1:
        name = text_address(fn, f"an {elem.name}" if elem.name[0] in "if" else f"a {elem.name}")
        fn.call("ditron_sim_check_bytes", [fn.scalar(op.operands[2]), fn.i32(elem.bytes), name, fn.where(op)])


@lowers("ditron.putmem", "ditron.getmem")
def _move(fn, op):
    _check_bytes(fn, op)
    _check_origins(fn, op, 0, 1, bytes=fn.scalar(op.operands[2]))
    fn.call(f"ditron_sim_{op.name[7:]}", [*_scalars(fn, op), _how(fn, op), fn.where(op)])


@lowers("ditron.putmem_signal")
def _putmem_signal(fn, op):
    _check_bytes(fn, op)
    _check_origins(fn, op, 0, 1, bytes=fn.scalar(op.operands[2]))
    _check_origins(fn, op, 3, bytes=_signal_bytes(fn))
    fn.call("ditron_sim_putmem_signal", [*_scalars(fn, op), _signal_op(fn, op), _how(fn, op), fn.where(op)])


@lowers("ditron.ll_put")
def _ll_put(fn, op):
    _check_bytes(fn, op, 1)
    _check_origins(fn, op, 0, 1, bytes=fn.scalar(op.operands[2]))
    fn.call("ditron_sim_ll_put", [*_scalars(fn, op), _protocol(fn, op), fn.where(op)])


@lowers("ditron.ll_get")
def _ll_get(fn, op):
    _check_bytes(fn, op)
    _check_origins(fn, op, 0, 1, bytes=fn.scalar(op.operands[2]))
    fn.call("ditron_sim_ll_get", [*_scalars(fn, op), _protocol(fn, op), fn.where(op)])
    fn.set(op, None)


@lowers("ditron.fence", "ditron.quiet", "ditron.barrier_all")
def _order(fn, op):
    fn.call(f"ditron_sim_{op.name[7:]}", [fn.where(op)])


@lowers("ditron.barrier", "ditron.sync_all")
def _barrier(fn, op):
    fn.call(f"ditron_sim_{op.name[7:]}", [_team(fn, op), fn.where(op)])


# --- atomics with scope and semantic ----------------------------------------------------------------------------


@lowers("ditron.ld")
def _ld(fn, op):
    access = TileAccess(fn, op, list(op.operands))
    access.check_origin("ld")
    elem = access.pointee
    tail = [fn.i32(elem.bytes), _scope(fn, op), _semantic(fn, op), fn.where(op)]
    load = "ditron_sim_ld" if access.scalar else "ditron_sim_ld_element"

    def before(_: TileAccess) -> None:
        if not access.scalar:
            fn.call("ditron_sim_ld_tensor", [fn.where(op)])

    access.finish(lambda nest, v: from_i64(fn.b, fn.call(load, [v[0], *tail], ("i64",))[0], elem), elem, before)


@lowers("ditron.st")
def _st(fn, op):
    access = TileAccess(fn, op, list(op.operands))
    access.check_origin("st")
    elem = access.pointee
    tail = [fn.i32(elem.bytes), _scope(fn, op), _semantic(fn, op), fn.where(op)]
    access.finish(lambda nest, v: fn.call("ditron_sim_st", [v[0], to_i64(fn.b, v[1], elem), *tail]))


@lowers("ditron.atomic_add", "ditron.red")
def _rmw(fn, op):
    access = TileAccess(fn, op, list(op.operands))
    access.check_origin("an atomic")
    elem = access.pointee
    how = ("add", "min", "max")[abi.enum_value(op, "op", "reduce_op", "add")] if op.name == "ditron.red" else "add"
    add = abi.RMW_FADD if elem.kind == "float" else abi.RMW_ADD
    kind = {"add": add, "min": abi.RMW_MIN, "max": abi.RMW_MAX}[how]
    tail = [fn.i32(kind), fn.i32(abi_dtype(elem, op)), _scope(fn, op), _semantic(fn, op), fn.where(op)]

    def emit(nest, v):
        old = fn.call("ditron_sim_atomic_rmw", [v[0], to_i64(fn.b, v[1], elem), *tail], ("i64",))[0]
        return from_i64(fn.b, old, elem) if op.results else None

    access.finish(emit, elem if op.results else None)


@lowers("ditron.atomic_cas")
def _cas(fn, op):
    access = TileAccess(fn, op, list(op.operands))
    access.check_origin("an atomic")
    elem = access.pointee
    tail = [fn.i32(elem.bytes), _scope(fn, op), _semantic(fn, op), fn.where(op)]

    def emit(nest, v):
        bits = [to_i64(fn.b, x, elem) for x in v[1:]]
        return from_i64(fn.b, fn.call("ditron_sim_atomic_cas", [v[0], *bits, *tail], ("i64",))[0], elem)

    access.finish(emit, elem)


# --- NVLink SHARP -----------------------------------------------------------------------------------------------


@lowers("ditron.multimem_ld_reduce")
def _multimem_ld_reduce(fn, op):
    access = TileAccess(fn, op, list(op.operands))
    access.check_origin(op.name[7:])
    elem = access.pointee
    tail = [_enum(fn, op, "op", "reduce_op", "add"), fn.i32(abi_dtype(elem, op)), fn.where(op)]
    symbol = "ditron_sim_multimem_ld_reduce"
    access.finish(lambda nest, v: from_i64(fn.b, fn.call(symbol, [v[0], *tail], ("i64",))[0], elem), elem)


@lowers("ditron.multimem_st", "ditron.multimem_red")
def _multimem_write(fn, op):
    access = TileAccess(fn, op, list(op.operands))
    access.check_origin(op.name[7:])
    elem = access.pointee
    how = [_enum(fn, op, "op", "reduce_op", "add")] if op.name == "ditron.multimem_red" else []
    tail = [*how, fn.i32(abi_dtype(elem, op)), fn.where(op)]
    access.finish(lambda nest, v: fn.call(f"ditron_sim_{op.name[7:]}", [v[0], to_i64(fn.b, v[1], elem), *tail]))


# --- unsupported ---------------------------------------------------------------------------------------------------


@lowers("ditron.swizzle")
def _swizzle(fn, op):
    raise Unsupported(op, "expected 'ditron.swizzle' to be gone by now: run lower-swizzle before lower-to-sim")


@lowers("ditron.extern_call")
def _extern_call(fn, op):
    symbol = ir.StringAttr(op.attributes["symbol"]).value
    raise Unsupported(
        op, f"the simulator cannot call the device function '{symbol}': guard the call, or write it in Triton"
    )
