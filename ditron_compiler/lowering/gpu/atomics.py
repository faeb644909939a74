"""Atomic accesses: Triton's own operations where it has them, calls of the device library elsewhere."""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis import divergence as gpu_checks
from ditron_compiler.ir.dialects.enums import keyword, number
from ditron_compiler.lowering.gpu.lowering import Lowering, LoweringError, element_of, is_tensor, with_element

__all__ = [
    "compare_and_swap",
    "lower_atomic_add",
    "lower_atomic_cas",
    "lower_ld",
    "lower_multimem_ld_reduce",
    "lower_multimem_red",
    "lower_multimem_st",
    "lower_red",
    "lower_st",
]

# Triton's enumerations: MemSemantic, MemSyncScope, RMWOp.
_SEMANTIC = {"relaxed": 1, "acquire": 2, "release": 3, "acq_rel": 4}
_SCOPE = {"gpu": 1, "node": 3, "world": 3}
_RMW = {"add": 4, "fadd": 5, "max": 6, "min": 7}
_MOST_THREADS = 1024  # of a program, on both vendors


def _order(op: ir.Operation) -> tuple[str, str]:
    return keyword(op.attributes["scope"]), keyword(op.attributes["semantic"])


def _attributes(lowering: Lowering, scope: str, semantic: str, **more: int) -> dict[str, ir.Attribute]:
    numbers = {"sem": _SEMANTIC[semantic], "scope": _SCOPE[scope], **more}
    return {name: ir.IntegerAttr.get(lowering.i32, number) for name, number in numbers.items()}


def _width(type_: ir.Type) -> int:
    text = str(element_of(type_))
    return int(text.removeprefix("bf").removeprefix("f").removeprefix("i"))


def _update(lowering: Lowering, op: ir.Operation, build) -> ir.Value:
    """``build()``, between the barriers that make the thread's order the program's."""
    _, semantic = _order(op)
    if semantic in ("release", "acq_rel"):
        lowering.call("ditron_sync_threads", [], lowering.i32)
    old = build()
    if semantic in ("acquire", "acq_rel"):
        lowering.call("ditron_sync_threads", [], lowering.i32)
        lowering.acquired()
    return old


def _rmw(lowering: Lowering, op: ir.Operation, kind: str) -> ir.Value:
    pointer, value = op.operands
    if kind == "add" and not ir.IntegerType.isinstance(element_of(value.type)):
        kind = "fadd"
    scope, semantic = _order(op)
    mask = lowering.constant(1, lowering.i1, value.type)
    return _update(
        lowering,
        op,
        lambda: lowering.make(
            "tt.atomic_rmw",
            [pointer, value, mask],
            value.type,
            _attributes(lowering, scope, semantic, atomic_rmw_op=_RMW[kind]),
        ),
    )


def lower_atomic_add(lowering: Lowering, op: ir.Operation) -> None:
    lowering.replace(_rmw(lowering, op, "add"))


def lower_red(lowering: Lowering, op: ir.Operation) -> None:
    _rmw(lowering, op, keyword(op.attributes["op"]))
    lowering.replace()


def compare_and_swap(
    lowering: Lowering, pointer: ir.Value, compare: ir.Value, value: ir.Value, *, scope: str, semantic: str
) -> ir.Value:
    """Triton's compare-and-swap; on a scalar pointer its result is the same in every thread."""
    if scope == "gpu" or lowering.gpu.has_system_cas:
        return lowering.make(
            "tt.atomic_cas", [pointer, compare, value], value.type, _attributes(lowering, scope, semantic)
        )
    if is_tensor(value.type):
        raise LoweringError(
            f"expected a scalar pointer or scope gpu on {lowering.gpu.name}, got a tensor of pointers "
            f"with scope {scope}; Triton's compare and swap reaches only the GPU there"
        )
    # Element 0 of a tensor with at least as many elements as a program has threads swaps; a sum hands the old value
    # round.
    indices = ir.RankedTensorType.get([_MOST_THREADS], lowering.i32)
    bounds = {"start": ir.IntegerAttr.get(lowering.i32, 0), "end": ir.IntegerAttr.get(lowering.i32, _MOST_THREADS)}
    index = lowering.make("tt.make_range", [], indices, bounds)
    olds = lowering.call(
        f"ditron_cas_at_b{_width(value.type)}",
        [*(lowering.splat(v, indices) for v in (pointer, compare, value)), index],
        with_element(indices, value.type),
    )
    return _sum(lowering, olds)


def _sum(lowering: Lowering, tensor: ir.Value) -> ir.Value:
    """The sum of a one-dimensional tensor of integers, the same in every thread."""
    element = element_of(tensor.type)
    reduce = ir.Operation.create(
        "tt.reduce",
        results=[element],
        operands=[tensor],
        regions=1,
        loc=lowering.location,
        ip=lowering.place,
        attributes={"axis": ir.IntegerAttr.get(lowering.i32, 0)},
    )
    block = reduce.regions[0].blocks.append(element, element)
    with lowering.location, ir.InsertionPoint(block):
        total = ir.Operation.create("arith.addi", results=[element], operands=list(block.arguments)).results[0]
        ir.Operation.create("tt.reduce.return", operands=[total])
    return reduce.results[0]


def lower_atomic_cas(lowering: Lowering, op: ir.Operation) -> None:
    scope, semantic = _order(op)
    lowering.replace(
        _update(lowering, op, lambda: compare_and_swap(lowering, *op.operands, scope=scope, semantic=semantic))
    )


def _enums(lowering: Lowering, op: ir.Operation, shape_of: ir.Type) -> list[ir.Value]:
    return [lowering.constant(number(op.attributes[name]), lowering.i32, shape_of) for name in ("scope", "semantic")]


def lower_ld(lowering: Lowering, op: ir.Operation) -> None:
    pointer, result = op.operands[0], op.results[0].type
    width = _width(result)
    bits = with_element(result, ir.IntegerType.get_signless(width))
    value = lowering.call(f"ditron_ld_b{width}", [pointer, *_enums(lowering, op, result)], bits)
    if gpu_checks.acquires(op):
        lowering.acquired()
    lowering.replace(lowering.bitcast(value, element_of(result)))


def lower_st(lowering: Lowering, op: ir.Operation) -> None:
    """A scalar is stored once by the program; each thread stores what depends on its own number."""
    pointer, value = op.operands
    width = _width(value.type)
    bits = lowering.bitcast(value, ir.IntegerType.get_signless(width))
    varying = lowering.varying
    own = pointer in varying or value in varying or gpu_checks.under_varying_control(op, varying) is not None
    symbol = f"ditron_st_b{width}" if is_tensor(value.type) or own else f"ditron_st_once_b{width}"
    if is_tensor(value.type) and gpu_checks.releases(op):
        lowering.call("ditron_sync_threads", [], lowering.i32)
    lowering.call(symbol, [pointer, bits, *_enums(lowering, op, value.type)], with_element(value.type, lowering.i32))
    lowering.replace()


def _multimem(lowering: Lowering, op: ir.Operation) -> tuple[str, ir.Type, ir.Value]:
    """The suffix of the device functions, the type in which they take an element, and the operation as a number."""
    pointee = element_of(op.results[0].type if len(op.results) else op.operands[1].type)
    name = str(pointee)
    as_bits = ir.IntegerType.get_signless(16) if name in ("f16", "bf16") else pointee
    kind = number(op.attributes["op"]) if "op" in op.attributes else 0  # a store has none
    return name, as_bits, lowering.constant(kind, lowering.i32, op.operands[0].type)


def lower_multimem_ld_reduce(lowering: Lowering, op: ir.Operation) -> None:
    name, bits, kind = _multimem(lowering, op)
    result = op.results[0].type
    value = lowering.call(f"ditron_multimem_ld_reduce_{name}", [op.operands[0], kind], with_element(result, bits))
    lowering.replace(lowering.bitcast(value, element_of(result)))


def lower_multimem_st(lowering: Lowering, op: ir.Operation) -> None:
    name, bits, _ = _multimem(lowering, op)
    pointer, value = op.operands
    suffix = "b16" if name in ("f16", "bf16") else name
    lowering.call(
        f"ditron_multimem_st_{suffix}", [pointer, lowering.bitcast(value, bits)], with_element(value.type, lowering.i32)
    )
    lowering.replace()


def lower_multimem_red(lowering: Lowering, op: ir.Operation) -> None:
    name, bits, kind = _multimem(lowering, op)
    pointer, value = op.operands
    if name in ("f16", "bf16") and keyword(op.attributes["op"]) != "add":
        raise LoweringError(
            f"expected i32 or i64 under {keyword(op.attributes['op'])}, got {name}; PTX's multimem.red "
            "can only add 16-bit floats"
        )
    lowering.call(
        f"ditron_multimem_red_{name}",
        [pointer, lowering.bitcast(value, bits), kind],
        with_element(value.type, lowering.i32),
    )
    lowering.replace()
