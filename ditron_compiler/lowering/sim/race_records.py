"""Reports of every byte that an access touches to the machine, as contiguous runs, for race detection."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from ditron_compiler import ir
from ditron_compiler.lowering.sim.memory import guarded
from ditron_compiler.lowering.sim.types import Elem

if TYPE_CHECKING:
    from ditron_compiler.lowering.sim.function import FunctionLowering
    from ditron_compiler.lowering.sim.nest import LoopNest

_HIGHEST = (1 << 64) - 1
_WORD = Elem("i64", "int", 64)


def record(
    fn: FunctionLowering,
    shape: tuple[int, ...],
    emit: Callable[[LoopNest], tuple[ir.Value, ir.Value | None]],
    elem: Elem,
    flags: int,
    where: ir.Value,
    axis: int | None = None,
    steady: bool = False,
) -> None:
    """Before an access of tile `shape`: one call with its runs of neighbours along `axis` (default: the last).

    `emit(nest)` gives an element's address and mask, `flags` is of `access_flags`. `steady`: along `axis` each address
    follows its neighbour and the mask is the same, so nothing has to be computed. Else lowest, highest and number of
    the addresses tell whether they are a run; elements that are not one get a call each.
    """
    b = fn.b
    none, one = b.constant("i64", 0), b.constant("i64", elem.bytes)

    def call(address: ir.Value) -> None:
        fn.call("ditron_sim_record", [address, one, fn.i32(flags), where])

    if all(n == 1 for n in shape):
        with fn.nest(shape) as nest:
            address, mask = emit(nest)
            guarded(b, mask, lambda: call(address))
        return
    axis = max(d for d, n in enumerate(shape) if n > 1) if axis is None else axis
    size = shape[axis]
    others = [1 if d == axis else n for d, n in enumerate(shape)]
    runs = fn.new_buffer((*others, 2), _WORD)
    with fn.nest() as nest:
        outer = [nest.loop(n) for n in others]
        if steady:
            nest.idx = tuple(outer)
            address, keep = emit(nest)
            start, nbytes = b.op("llvm.ptrtoint", "i64", address), b.constant("i64", size * elem.bytes)
        else:
            start, nbytes, keep, scattered = _run(fn, nest, outer, axis, size, emit, one)
        nest.store(runs, start, (*outer, 0))
        nest.store(runs, nbytes if keep is None else b.select(keep, nbytes, none, "i64"), (*outer, 1))
        if not steady:
            stop = b.select(scattered, b.constant("i64", size), none, "i64")
            index = nest.carry(size, [], [], stop=stop)[0]
            nest.idx = (*outer[:axis], index, *outer[axis + 1 :])
            address, mask = emit(nest)
            b.scalar_only += 1
            guarded(b, mask, lambda: call(address))
    fn.call("ditron_sim_record_runs", [runs.address, b.constant("i64", prod(others)), fn.i32(flags), where])


def _run(
    fn: FunctionLowering,
    nest: LoopNest,
    outer: list,
    axis: int,
    size: int,
    emit: Callable[[LoopNest], tuple[ir.Value, ir.Value | None]],
    one: ir.Value,
) -> list[ir.Value]:
    """Where the elements along `axis` start, how many bytes they span; whether they are a run, or elements apart."""
    b = fn.b
    inits = [b.constant("i64", value) for value in (_HIGHEST, 0, 0, 0)]
    index, *carried = nest.carry(size, inits, ["i64"] * 4, vectorise=True)
    nest.idx = (*outer[:axis], index, *outer[axis + 1 :])
    address, mask = emit(nest)
    bits = b.op("llvm.ptrtoint", "i64", address)
    values = [bits, bits, b.constant("i64", 1), bits]
    if mask is not None:
        values = [b.select(mask, v, init, "i64") for v, init in zip(values, inits, strict=True)]
    kinds = ("arith.minui", "arith.maxui", "arith.addi", "arith.addi")
    low, high, count, total = nest.close(
        [b.binary(kind, a, v, "i64") for kind, a, v in zip(kinds, carried, values, strict=True)]
    )
    # Twice the sum tells {0, 0, 2} from {0, 1, 2}.
    span = b.binary("arith.addi", b.binary("arith.subi", high, low, "i64"), one, "i64")
    full = b.cmpi("eq", span, b.binary("arith.muli", count, one, "i64"))
    ends = b.binary("arith.muli", count, b.binary("arith.addi", low, high, "i64"), "i64")
    even = b.cmpi("eq", ends, b.binary("arith.addi", total, total, "i64"))
    run = b.binary("arith.andi", full, even, "i1")
    some, no = b.cmpi("ule", low, high), b.constant("i1", 0)
    return [low, span, b.select(run, some, no, "i1"), b.select(run, no, some, "i1")]
