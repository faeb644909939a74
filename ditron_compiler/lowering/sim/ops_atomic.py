"""tl.atomic_load, tl.atomic_store and tl.atomic_poll (Triton 3.9): each element is one call of the machine."""

from __future__ import annotations

from ditron_compiler import ir

from .function import FunctionLowering, lowers
from .memory import from_i64, guarded, to_i64, zero
from .ops_memory import TileAccess, order
from .types import I1

POLLS = 1000  # of one with a time limit, which has no meaning here: other programs run in between


@lowers("tt.atomic_load")
def _load(fn: FunctionLowering, op: ir.Operation) -> None:
    access = TileAccess(fn, op, [*op.operands, None][:2])
    access.check_origin("ld", mask=1)
    elem, rest = access.pointee, [*order(fn, op), fn.where(op)]

    def emit(nest, values):
        address, mask = values

        def read():
            return from_i64(fn.b, fn.call("ditron_sim_ld", [address, fn.i32(elem.bytes), *rest], ("i64",))[0], elem)

        return guarded(fn.b, mask, read, zero(fn.b, elem), elem.carrier)

    access.finish(emit, elem)


@lowers("tt.atomic_store")
def _store(fn: FunctionLowering, op: ir.Operation) -> None:
    access = TileAccess(fn, op, [*op.operands, None][:3])
    access.check_origin("st", mask=2)
    elem, rest = access.pointee, [*order(fn, op), fn.where(op)]

    def emit(nest, values):
        address, value, mask = values
        bits = to_i64(fn.b, value, elem)
        guarded(fn.b, mask, lambda: fn.call("ditron_sim_st", [address, bits, fn.i32(elem.bytes), *rest]) and None)

    access.finish(emit)


@lowers("tt.atomic_poll")
def _poll(fn: FunctionLowering, op: ir.Operation) -> None:
    timed = len(op.operands) > 2
    access = TileAccess(fn, op, list(op.operands)[:2])
    access.check_origin("ld")
    elem, rest = access.pointee, [*order(fn, op), fn.where(op, repeats=not timed)]
    b = fn.b

    def emit(nest, values):
        address, expected = values
        loop = b.create("scf.while", ["i64", "i64"], [b.constant("i64", 1)], regions=2)
        keep = b.ip
        b.at_end(b.block(loop.regions[0], ["i64"]))
        (count,) = loop.regions[0].blocks[0].arguments
        bits = fn.call("ditron_sim_ld", [address, fn.i32(elem.bytes), *rest], ("i64",))[0]
        again = b.cmpi("ne", from_i64(b, bits, elem), expected)
        if timed:
            again = b.binary("arith.andi", again, b.cmpi("ult", count, b.constant("i64", POLLS)), "i1")
        more = b.binary("arith.addi", count, b.constant("i64", 1), "i64")
        b.create("scf.condition", [], [again, more, bits])
        b.at_end(b.block(loop.regions[1], ["i64", "i64"]))
        b.create("scf.yield", [], [next(iter(loop.regions[1].blocks[0].arguments))])
        b.ip = keep
        b.scalar_only += 1
        return b.cmpi("eq", from_i64(b, loop.results[1], elem), expected)

    access.finish(emit, I1)
