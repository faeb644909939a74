"""Atomic accesses: Triton's own operations where it has them, calls of the device library elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from ditron_compiler import ir
from ditron_compiler.analysis.divergence import divergent_control
from ditron_compiler.ir.dialects import ditron, tt
from ditron_compiler.lowering.gpu.builder import Lowering, LoweringError, element_of, is_tensor, with_element

__all__ = [
    "compare_and_swap",
    "lower_atomic_add",
    "lower_atomic_cas",
    "lower_ld",
    "lower_multimem_ld_reduce",
    "lower_multimem_red",
    "lower_multimem_st",
    "lower_red",
    "lower_signal_fetch",
    "lower_st",
]

_SEMANTIC = {
    ditron.Semantic.Relaxed: tt.MemSemantic.RELAXED,
    ditron.Semantic.Acquire: tt.MemSemantic.ACQUIRE,
    ditron.Semantic.Release: tt.MemSemantic.RELEASE,
    ditron.Semantic.AcqRel: tt.MemSemantic.ACQUIRE_RELEASE,
}
_SCOPE = {
    ditron.Scope.GPU: tt.MemSyncScope.GPU,
    ditron.Scope.Node: tt.MemSyncScope.SYSTEM,
    ditron.Scope.World: tt.MemSyncScope.SYSTEM,
}
_MAX_THREADS = 1024  # of a program, on both vendors


def _attributes(
    lowering: Lowering, scope: ditron.Scope, semantic: ditron.Semantic, **more: int
) -> dict[str, ir.Attribute]:
    numbers = {"sem": _SEMANTIC[semantic], "scope": _SCOPE[scope], **more}
    return {name: ir.IntegerAttr.get(lowering.i32, int(number)) for name, number in numbers.items()}


def _width(type_: ir.Type) -> int:
    text = str(element_of(type_))
    return int(text.removeprefix("bf").removeprefix("f").removeprefix("i"))


def _update(lowering: Lowering, op: ditron.AtomicOpInterface, build: Callable[[], ir.Value]) -> ir.Value:
    """``build()``, between the barriers that extend the order of one thread to the program."""
    if op.releases:
        lowering.call("ditron_sync_threads", [], lowering.i32)
    old = build()
    if op.acquires:
        lowering.call("ditron_sync_threads", [], lowering.i32)
        lowering.acquired()
    return old


def _rmw(lowering: Lowering, op: ditron.AtomicAddOp | ditron.RedOp, kind: tt.RMWOp) -> ir.Value:
    value = op.value
    if kind is tt.RMWOp.ADD and not ir.IntegerType.isinstance(element_of(value.type)):
        kind = tt.RMWOp.FADD
    mask = lowering.constant(1, lowering.i1, value.type)
    return _update(
        lowering,
        op,
        lambda: lowering.make(
            tt.AtomicRMWOp.OPERATION_NAME,
            [op.ptr, value, mask],
            value.type,
            _attributes(lowering, op.scope, op.semantic, atomic_rmw_op=kind),
        ),
    )


def lower_atomic_add(lowering: Lowering, op: ir.Operation) -> None:
    lowering.replace(_rmw(lowering, op, tt.RMWOp.ADD))


def lower_red(lowering: Lowering, op: ir.Operation) -> None:
    _rmw(lowering, op, tt.RMWOp[str(op.op).upper()])
    lowering.replace()


def compare_and_swap(
    lowering: Lowering,
    pointer: ir.Value,
    compare: ir.Value,
    value: ir.Value,
    *,
    scope: ditron.Scope,
    semantic: ditron.Semantic,
) -> ir.Value:
    """Triton's compare-and-swap; on a scalar pointer its result is the same in every thread."""
    if scope is ditron.Scope.GPU or lowering.gpu.has_system_cas:
        return lowering.make(
            tt.AtomicCASOp.OPERATION_NAME, [pointer, compare, value], value.type, _attributes(lowering, scope, semantic)
        )
    if is_tensor(value.type):
        raise LoweringError(
            f"expected a scalar pointer or scope gpu on {lowering.gpu.name}, got a tensor of pointers "
            f"with scope {scope}; Triton's compare and swap reaches only the GPU there"
        )
    # Element 0 of a tensor with at least as many elements as a program has threads swaps; a sum broadcasts the old
    # value to all threads.
    indices = ir.RankedTensorType.get([_MAX_THREADS], lowering.i32)
    bounds = {"start": ir.IntegerAttr.get(lowering.i32, 0), "end": ir.IntegerAttr.get(lowering.i32, _MAX_THREADS)}
    index = lowering.make(tt.MakeRangeOp.OPERATION_NAME, [], indices, bounds)
    olds = lowering.call(
        f"ditron_cas_at_b{_width(value.type)}",
        [*(lowering.splat(v, indices) for v in (pointer, compare, value)), index],
        with_element(indices, value.type),
    )
    with lowering.location, lowering.place:
        return tt.sum_of_axis(olds)  # the same in every thread


def lower_atomic_cas(lowering: Lowering, op: ir.Operation) -> None:
    lowering.replace(
        _update(
            lowering,
            op,
            lambda: compare_and_swap(lowering, op.ptr, op.cmp, op.value, scope=op.scope, semantic=op.semantic),
        )
    )


def lower_signal_fetch(lowering: Lowering, op: ditron.SignalFetchOp) -> None:
    """A scalar atomic of Triton's, so that all threads see one value; a swap of -1 by -1 changes nothing."""
    none = lowering.constant(-1, lowering.i64)
    lowering.replace(
        _update(
            lowering,
            op,
            lambda: compare_and_swap(lowering, op.signal, none, none, scope=op.scope, semantic=op.semantic),
        )
    )


def _enums(lowering: Lowering, op: ir.Operation, shape_of: ir.Type) -> list[ir.Value]:
    return [lowering.constant(int(member), lowering.i32, shape_of) for member in (op.scope, op.semantic)]


def lower_ld(lowering: Lowering, op: ir.Operation) -> None:
    result = op.result.type
    width = _width(result)
    bits = with_element(result, ir.IntegerType.get_signless(width))
    value = lowering.call(f"ditron_ld_b{width}", [op.ptr, *_enums(lowering, op, result)], bits)
    if op.acquires:
        lowering.acquired()
    lowering.replace(lowering.bitcast(value, element_of(result)))


def lower_st(lowering: Lowering, op: ir.Operation) -> None:
    """A scalar is stored once by the program, or by each thread if it is divergent."""
    pointer, value = op.ptr, op.value
    width = _width(value.type)
    bits = lowering.bitcast(value, ir.IntegerType.get_signless(width))
    divergent = lowering.divergent
    by_thread = pointer in divergent or value in divergent or divergent_control(op, divergent) is not None
    symbol = f"ditron_st_b{width}" if is_tensor(value.type) or by_thread else f"ditron_st_once_b{width}"
    if is_tensor(value.type) and op.releases:
        lowering.call("ditron_sync_threads", [], lowering.i32)
    lowering.call(symbol, [pointer, bits, *_enums(lowering, op, value.type)], with_element(value.type, lowering.i32))
    lowering.replace()


def _multimem(lowering: Lowering, op: ir.Operation) -> tuple[str, ir.Type, ir.Value]:
    """The suffix of the device functions, the type in which they take an element, and the operation as a number."""
    pointee = element_of(op.result.type if isinstance(op, ditron.MultimemLdReduceOp) else op.value.type)
    name = str(pointee)
    as_bits = ir.IntegerType.get_signless(16) if name in ("f16", "bf16") else pointee
    kind = 0 if isinstance(op, ditron.MultimemStOp) else int(op.op)  # a store has none
    return name, as_bits, lowering.constant(kind, lowering.i32, op.ptr.type)


def lower_multimem_ld_reduce(lowering: Lowering, op: ir.Operation) -> None:
    name, bits, kind = _multimem(lowering, op)
    result = op.result.type
    value = lowering.call(f"ditron_multimem_ld_reduce_{name}", [op.ptr, kind], with_element(result, bits))
    lowering.replace(lowering.bitcast(value, element_of(result)))


def lower_multimem_st(lowering: Lowering, op: ir.Operation) -> None:
    name, bits, _ = _multimem(lowering, op)
    value = op.value
    suffix = "b16" if name in ("f16", "bf16") else name
    lowering.call(
        f"ditron_multimem_st_{suffix}", [op.ptr, lowering.bitcast(value, bits)], with_element(value.type, lowering.i32)
    )
    lowering.replace()


def lower_multimem_red(lowering: Lowering, op: ir.Operation) -> None:
    name, bits, kind = _multimem(lowering, op)
    value = op.value
    if name in ("f16", "bf16") and str(op.op) != "add":
        raise LoweringError(
            f"expected i32 or i64 under {op.op}, got {name}; PTX's multimem.red can only add 16-bit floats"
        )
    lowering.call(
        f"ditron_multimem_red_{name}",
        [op.ptr, lowering.bitcast(value, bits), kind],
        with_element(value.type, lowering.i32),
    )
    lowering.replace()
