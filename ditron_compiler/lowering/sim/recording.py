"""Telling the machine of every byte that an access touches, in runs: what the search for races lives on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ditron_compiler import ir

from .memory import guarded
from .types import Elem

if TYPE_CHECKING:
    from .function import FunctionLowering
    from .nest import Nest

STORE, VOLATILE = 1, 2
_NONE = (1 << 64) - 1


def record(
    fn: FunctionLowering,
    shape: tuple[int, ...],
    emit: Callable[[Nest], tuple[ir.Value, ir.Value | None]],
    elem: Elem,
    flags: int,
    where: ir.Value,
    axis: int | None = None,
    steady: bool = False,
) -> None:
    """Before an access of tile `shape`: one call per run of neighbouring elements along `axis` (default: the last).

    `emit(nest)` gives an element's address and mask. `steady`: along `axis` each address follows its neighbour and the
    mask is the same, so nothing has to be looked at. Else lowest, highest and number of the addresses tell whether they
    are a run; elements that are not one get a call each.
    """
    b = fn.b

    def call(address: ir.Value, nbytes: ir.Value) -> None:
        fn.call("ditron_sim_record", [address, nbytes, fn.i32(flags), where])

    one = b.constant("i64", elem.bytes)
    if all(n == 1 for n in shape):
        with fn.nest(shape) as nest:
            address, mask = emit(nest)
            guarded(b, mask, lambda: call(address, one))
        return
    axis = max(d for d, n in enumerate(shape) if n > 1) if axis is None else axis
    size = shape[axis]
    with fn.nest() as nest:
        idx = [0 if d == axis else nest.loop(n) for d, n in enumerate(shape)]
        if steady:
            nest.idx = tuple(idx)
            address, mask = emit(nest)
            guarded(b, mask, lambda: call(address, b.constant("i64", size * elem.bytes)))
            return
        inits = [b.constant("i64", value) for value in (_NONE, 0, 0, 0)]
        idx[axis], *carried = nest.carry(size, inits, ["i64"] * 4, vectorise=True)
        nest.idx = tuple(idx)
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
        some = b.cmpi("ule", low, high)
        guarded(
            b, b.binary("arith.andi", run, some, "i1"), lambda: call(b.op("llvm.inttoptr", "!llvm.ptr", low), span)
        )
        stop = b.select(run, b.constant("i64", 0), b.constant("i64", size), "i64")
        idx[axis] = nest.carry(size, [], [], stop=stop)[0]
        nest.idx = tuple(idx)
        address, mask = emit(nest)
        b.scalar_only += 1
        guarded(b, mask, lambda: call(address, one))
