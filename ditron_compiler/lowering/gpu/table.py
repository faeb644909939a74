"""The table of the GPU lowering: which operation becomes which call, on both vendors alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis import divergence as gpu_checks
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.analysis.slicing import retype
from ditron_compiler.ir.dialects.enums import keyword, number
from ditron_compiler.lowering.gpu import atomics
from ditron_compiler.lowering.gpu.lowering import Lowering, LoweringError, element_of, is_tensor
from ditron_compiler.lowering.gpu.pointers import divisibility, rebase

__all__ = ["TABLE", "WAIT_ENUMS", "Row", "protocol", "signal_wait_until", "translate", "wait"]

Lower = Callable[[Lowering, ir.Operation], None]
WAIT_ENUMS = ("cmp", "scope", "semantic")


@dataclass(frozen=True)
class Row:
    """How one operation is lowered, and whether it publishes what TMA has stored (asked of the operation)."""

    lower: Lower
    publishes: Callable[[ir.Operation], bool] = lambda op: False


def call(symbol: str, *arguments: str, pure: bool = False, acquires: bool = False) -> Lower:
    """A call of ``symbol``.

    Each argument is ``"ctx"``; ``"#n"``, the n-th operand; or the name of an attribute, passed as its integer value.
    """

    def lower(lowering: Lowering, op: ir.Operation) -> None:
        operands = [_argument(lowering, op, argument) for argument in arguments]
        result = op.results[0].type if len(op.results) else lowering.i32
        value = lowering.call(symbol, operands, result, pure=pure)
        if acquires:
            lowering.acquired()
        lowering.replace(*([value] if len(op.results) else []))

    return lower


def _argument(lowering: Lowering, op: ir.Operation, name: str) -> ir.Value:
    if name == "ctx":
        return lowering.ctx
    if name.startswith("#"):
        return op.operands[int(name[1:])]
    value = name in op.attributes if name == "nbi" else number(op.attributes[name])
    return lowering.constant(value, lowering.i32)


def wait(
    lowering: Lowering, op: ir.Operation, enums: Iterable[str], build: Callable[[list[ir.Value]], ir.Value]
) -> None:
    """``build`` makes the call that waits, of the operands and of ``enums``; its result is the token."""
    token = build([*op.operands, *(_argument(lowering, op, enum) for enum in enums)])
    token = lowering.acquired(token)
    lowering.replace(token)
    retype([token], lowering.i32)  # wherever control flow carries it


def _wait(lowering: Lowering, op: ir.Operation) -> None:
    wait(
        lowering,
        op,
        WAIT_ENUMS,
        lambda operands: lowering.call("ditron_wait", operands, lowering.i32, divisibility=lowering.aligned),
    )


def protocol(lowering: Lowering, op: ir.Operation) -> str:
    """``"ll"`` or ``"ll128"``; a message takes the same memory by both, so both ends may change over."""
    name = keyword(op.attributes["protocol"])
    if name == "ll128" and not lowering.gpu.whole_lines:
        op.emit_remark(f"protocol ll is used on {lowering.gpu.name}: only NVLink keeps ll128's 128-byte stores whole")
        return "ll"
    return name


def _ll_put(lowering: Lowering, op: ir.Operation) -> None:
    call(f"ditron_{protocol(lowering, op)}_put", "ctx", *(f"#{i}" for i in range(5)))(lowering, op)


def _ll_get(lowering: Lowering, op: ir.Operation) -> None:
    symbol = f"ditron_{protocol(lowering, op)}_get"
    wait(
        lowering, op, (), lambda operands: lowering.call(symbol, operands, lowering.i32, divisibility=lowering.aligned)
    )


def _consume_token(lowering: Lowering, op: ir.Operation) -> None:
    """The token is 0 and divisible by 16: adding it ties a pointer or an index to the wait and keeps its alignment."""
    value, token = op.operands
    element = element_of(value.type)

    def add(base: ir.Value) -> ir.Value:
        return lowering.make("tt.addptr", [base, lowering.splat(token, base.type)], base.type)

    if str(element).startswith("!tt.ptr"):
        try:
            lowering.replace(rebase(lowering, value, add))
        except MatchFailure:
            lowering.replace(add(value))
    elif ir.IntegerType.isinstance(element):
        width = ir.IntegerType(element).width
        resize = "arith.extsi" if width > 32 else "arith.trunci"
        zero = token if width == 32 else lowering.make(resize, [token], element)
        lowering.replace(lowering.make("arith.addi", [value, lowering.splat(zero, value.type)], value.type))
    elif str(element).startswith("!tt.tensordesc"):
        raise LoweringError(
            "expected a pointer or an integer, got a tensor descriptor; consume the token on a coordinate of the access"
        )
    else:
        lowering.replace(value)  # a float was loaded already: nothing of it can move


def translate(lowering: Lowering, op: ir.Operation, build: Callable[[ir.Value, ir.Attribute | None], ir.Value]) -> None:
    """``build`` makes the address in another heap, of the scalar base so that Triton still sees how pointers are
    aligned, and of the attribute that says it."""
    try:
        lowering.replace(rebase(lowering, op.operands[0], lambda base: build(base, divisibility(base))))
    except MatchFailure:
        name = op.name.removeprefix("ditron.")
        raise LoweringError(
            "expected pointers computed from one scalar pointer within this iteration, got a "
            "tensor of pointers that was loaded or is carried by a loop; "
            f"apply {name} to the scalar pointer, then add the offsets"
        ) from None


def _translate(symbol: str, *arguments: str) -> Lower:
    """An address in another heap, by a call of ``symbol``."""

    def lower(lowering: Lowering, op: ir.Operation) -> None:
        rest = [_argument(lowering, op, argument) for argument in arguments]
        translate(
            lowering,
            op,
            lambda base, aligned: lowering.call(
                symbol, [lowering.ctx, base, *rest], base.type, pure=True, divisibility=aligned
            ),
        )

    return lower


def signal_wait_until(lowering: Lowering, op: ir.Operation, build: Callable[[list[ir.Value]], ir.Value]) -> None:
    """``build`` makes the call that waits, of the signal, the value and the comparison."""
    pointer, value = op.operands
    compare = _argument(lowering, op, "cmp")
    build([pointer, value, compare])
    lowering.acquired()
    if not op.results[0].has_uses:
        lowering.op.erase()
        return
    # Threads that read a growing signal one after the other see different values. One read by Triton's scalar
    # atomic is the same for all; a swap of -1 by -1 changes nothing.
    none = lowering.constant(-1, lowering.i64)
    lowering.replace(atomics.compare_and_swap(lowering, pointer, none, none, scope="world", semantic="relaxed"))


def _signal_wait_until(lowering: Lowering, op: ir.Operation) -> None:
    signal_wait_until(lowering, op, lambda operands: lowering.call("ditron_signal_wait_until", operands, lowering.i32))


def _shfl(lowering: Lowering, op: ir.Operation) -> None:
    value, lane = op.operands
    as_int = lowering.bitcast(value, lowering.i32) if str(value.type) == "f32" else value
    result = lowering.call(f"ditron_shfl_{as_int.type}", [as_int, lane, _argument(lowering, op, "mode")], as_int.type)
    lowering.replace(lowering.bitcast(result, value.type))


def _ballot(lowering: Lowering, op: ir.Operation) -> None:
    predicate = lowering.make("arith.extui", [op.operands[0]], lowering.i32)
    lowering.replace(lowering.call("ditron_ballot", [predicate], lowering.i64))


def _extern_call(lowering: Lowering, op: ir.Operation) -> None:
    """The user's own function; one without a result must return an i32, which nobody reads."""
    if len(op.results) > 1:
        raise LoweringError(
            f"expected at most one result, got {len(op.results)}; Triton's calls of device functions have one"
        )
    types = [operand.type for operand in op.operands if is_tensor(operand.type)]
    result = op.results[0].type if len(op.results) else lowering.i32
    if types and not is_tensor(result):
        result = ir.RankedTensorType.get(ir.RankedTensorType(types[0]).shape, result)
    operands = [lowering.splat(operand, types[0]) if types else operand for operand in op.operands]
    library = {name: op.attributes.get(name) or ir.StringAttr.get("") for name in ("symbol", "libname", "libpath")}
    value = lowering.make(
        "tt.extern_elementwise", operands, result, library | {"pure": ir.BoolAttr.get("pure" in op.attributes)}
    )
    lowering.replace(*([value] if len(op.results) else []))


def _always(op: ir.Operation) -> bool:
    return True


TABLE: dict[str, Row] = {
    # who am I: reads of the context, which may be merged and hoisted
    "rank": Row(call("ditron_rank", "ctx", "team", pure=True)),
    "num_ranks": Row(call("ditron_num_ranks", "ctx", "team", pure=True)),
    "local_rank": Row(lambda low, op: _node_query(low, "ditron_rank")),
    "num_local_ranks": Row(lambda low, op: _node_query(low, "ditron_num_ranks")),
    "node": Row(call("ditron_node", "ctx", pure=True)),
    # symmetric pointers
    "symm_at": Row(_translate("ditron_symm_at", "#1")),
    "multicast_ptr": Row(_translate("ditron_multicast_ptr", "team")),
    # signals
    "wait": Row(_wait),
    "consume_token": Row(_consume_token),
    "notify": Row(call("ditron_notify", "ctx", "#0", "#1", "#2", "op", "scope"), _always),
    "signal_op": Row(call("ditron_signal_op", "ctx", "#0", "#1", "#2", "op"), _always),
    "signal_wait_until": Row(_signal_wait_until),
    # data
    "putmem": Row(call("ditron_putmem", "ctx", "#0", "#1", "#2", "#3", "nbi", "granularity"), _always),
    "getmem": Row(call("ditron_getmem", "ctx", "#0", "#1", "#2", "#3", "nbi", "granularity"), _always),
    "putmem_signal": Row(
        call("ditron_putmem_signal", "ctx", "#0", "#1", "#2", "#3", "#4", "#5", "op", "nbi", "granularity"), _always
    ),
    "ll_put": Row(_ll_put, _always),
    "ll_get": Row(_ll_get),
    "fence": Row(call("ditron_fence", acquires=True), _always),  # also what a relaxed wait before it has seen
    "quiet": Row(call("ditron_quiet", acquires=True), _always),
    "barrier_all": Row(call("ditron_barrier_all", "ctx", acquires=True), _always),
    "barrier": Row(call("ditron_barrier", "ctx", "team", acquires=True), _always),
    "sync_all": Row(call("ditron_sync_all", "ctx", "team", acquires=True), _always),
    # atomics
    "ld": Row(atomics.lower_ld),
    "st": Row(atomics.lower_st, gpu_checks.releases),
    "atomic_add": Row(atomics.lower_atomic_add, gpu_checks.releases),
    "atomic_cas": Row(atomics.lower_atomic_cas, gpu_checks.releases),
    "red": Row(atomics.lower_red, gpu_checks.releases),
    "multimem_ld_reduce": Row(atomics.lower_multimem_ld_reduce),
    "multimem_st": Row(atomics.lower_multimem_st),
    "multimem_red": Row(atomics.lower_multimem_red),
    # threads
    "thread_id": Row(call("ditron_thread_id", pure=True)),
    "num_threads": Row(call("ditron_num_threads", pure=True)),
    "lane_id": Row(call("ditron_lane_id", pure=True)),
    "warp_id": Row(call("ditron_warp_id", pure=True)),
    "sync_threads": Row(call("ditron_sync_threads")),
    "shfl": Row(_shfl),
    "ballot": Row(_ballot),
    "extern_call": Row(_extern_call),
}


def _node_query(lowering: Lowering, symbol: str) -> None:
    """local_rank and num_local_ranks are rank and num_ranks of the team ``node``."""
    node = lowering.constant(1, lowering.i32)
    lowering.replace(lowering.call(symbol, [lowering.ctx, node], lowering.i32, pure=True))
