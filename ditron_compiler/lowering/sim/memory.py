"""Elements in the user's memory: one load, one store, one access under a mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ditron_compiler import ir

from .abi import ARGUMENT_SHIFT, STORE, VOLATILE
from .builder import Builder
from .provenance import argument_of
from .rounding import from_bits, to_bits
from .types import Elem

if TYPE_CHECKING:
    from .function import FunctionLowering
    from .nest import LoopNest


def load_element(b: Builder, address: ir.Value, elem: Elem) -> ir.Value:
    """Load a carrier of `elem`."""
    value = b.load(address, elem.memory)
    if elem.name == "i1":
        return b.cmpi("ne", value, b.constant("i8", 0))
    if elem.name == "f16":
        return b.op("arith.extf", "f32", value)
    return from_bits(b, value, elem) if elem.narrow else value


def store_element(b: Builder, value: ir.Value, address: ir.Value, elem: Elem) -> None:
    """Store a carrier of `elem`, which already is a value of that type."""
    if elem.name == "i1":
        value = b.op("arith.extui", "i8", value)
    elif elem.name == "f16":
        value = b.op("arith.truncf", "f16", value)
    elif elem.narrow:
        value = to_bits(b, value, elem)
    b.store(value, address)


def to_i64(b: Builder, value: ir.Value, elem: Elem) -> ir.Value:
    """The carrier's bits in an i64, as the ABI takes values (integers sign-extended)."""
    bits = to_bits(b, value, elem)
    return b.resize(bits, elem.bits, 64, signed=elem.kind == "int" and elem.name != "i1")


def from_i64(b: Builder, bits: ir.Value, elem: Elem) -> ir.Value:
    """The carrier of an `elem` whose bits are the low ones of an i64."""
    return from_bits(b, b.resize(bits, 64, elem.bits), elem)


def guarded(
    b: Builder,
    mask: ir.Value | None,
    then: Callable[[], ir.Value | None],
    other: ir.Value | None = None,
    type: str = "",
) -> ir.Value | None:
    """`then()` where `mask` holds, else `other`; without a mask, always. No `other`: `then` has no result."""
    if mask is None:
        return then()
    results = [] if other is None else [type]
    op = b.create("scf.if", results, [mask], regions=2)
    keep = b.ip
    b.at_end(b.block(op.regions[0]))
    value = then()
    b.create("scf.yield", [], [] if other is None else [value])
    if other is not None:
        b.at_end(b.block(op.regions[1]))
        b.create("scf.yield", [], [other])
    b.ip = keep
    return op.results[0] if results else None


def zero(b: Builder, elem: Elem) -> ir.Value:
    """A carrier whose bits are all zero."""
    if elem.kind == "ptr":
        return b.op("llvm.mlir.zero", "!llvm.ptr")
    return b.constant(elem.carrier, 0 if elem.kind == "int" else 0.0)


def access_flags(fn: FunctionLowering, pointer: ir.Value, is_store: bool, volatile: bool = False) -> int:
    """The flags of an access by `pointer` for the machine (`runtime/sim/abi/abi.h`)."""
    argument = argument_of(pointer, fn.function)
    return STORE * is_store | VOLATILE * volatile | (0 if argument is None else argument + 1) << ARGUMENT_SHIFT


def check_range(fn: FunctionLowering, elem: Elem, flags: int, where: ir.Value) -> Callable[[ir.Value], None]:
    """For `check`: check an element of an ordinary access; `flags` is of `access_flags`."""

    def call(address: ir.Value) -> None:
        fn.call("ditron_sim_check_range", [address, fn.b.constant("i64", elem.bytes), fn.i32(flags), where])

    return call


def check(
    fn: FunctionLowering,
    shape: tuple[int, ...],
    emit: Callable[[LoopNest], tuple[ir.Value, ir.Value | None]],
    call: Callable[[ir.Value], None],
    every: bool = False,
) -> None:
    """Before an access of tile `shape`: let the machine check its lowest and its highest address.

    `emit(nest)` gives an element's address and mask; `call(address)` has the machine check one. Two calls for a tile
    find most accesses out of bounds at little cost; the pass option `checks` may ask for none, or, as `every` does, for
    one per element.
    """
    b = fn.b
    if fn.state.checks == "none":
        return
    if every or fn.state.checks == "all" or all(n == 1 for n in shape):
        with fn.nest(shape) as nest:
            address, mask = emit(nest)
            guarded(b, mask, lambda: call(address))
        return
    last = (1 << 64) - 1
    ends = [b.constant("i64", last), b.constant("i64", 0)]
    with fn.nest() as nest:
        opened = 0
        idx = []
        for size in shape:
            if size == 1:
                idx.append(0)
                continue
            index, *ends = nest.carry(size, ends, ["i64", "i64"], vectorise=True)
            idx.append(index)
            opened += 1
        nest.idx = tuple(idx)
        address, mask = emit(nest)
        bits = b.op("llvm.ptrtoint", "i64", address)
        low, high = bits, bits
        if mask is not None:
            low = b.select(mask, bits, b.constant("i64", last), "i64")
            high = b.select(mask, bits, b.constant("i64", 0), "i64")
        ends = [b.binary("arith.minui", ends[0], low, "i64"), b.binary("arith.maxui", ends[1], high, "i64")]
        for _ in range(opened):
            ends = nest.close(ends)
    some = b.cmpi("ule", *ends)
    guarded(b, some, lambda: [call(b.op("llvm.inttoptr", "!llvm.ptr", end)) for end in ends] and None)
