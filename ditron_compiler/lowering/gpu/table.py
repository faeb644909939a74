"""The table of the GPU lowering: the call that each operation becomes, on both vendors alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.ir.type_propagation import propagate_type
from ditron_compiler.lowering.gpu import atomics
from ditron_compiler.lowering.gpu.builder import Lowering, LoweringError, element_of, is_tensor
from ditron_compiler.lowering.gpu.pointers import divisibility, rebase, translate_each

__all__ = ["TABLE", "WAIT_ARGUMENTS", "Row", "protocol", "signal_wait_until", "translate", "wait"]

Lower = Callable[[Lowering, ir.Operation], None]
#: The arguments of the packet functions.
PUT_ARGUMENTS = ("packets", "src", "nbytes", "epoch", "rank")
GET_ARGUMENTS = ("dst", "packets", "nbytes", "epoch")
#: The arguments of the device library's wait functions.
WAIT_ARGUMENTS = ("signal", "count", "value", "cmp", "scope", "semantic")


@dataclass(frozen=True)
class Row:
    """How one operation is lowered, and whether it publishes what TMA has stored (a predicate on the operation)."""

    lower: Lower
    publishes: Callable[[ir.Operation], bool] = lambda op: False


def call(symbol: str, *arguments: str, pure: bool = False, acquires: bool = False) -> Lower:
    """A call of ``symbol``.

    Each argument is ``"ctx"``, or the ODS name of an operand or of an attribute, passed as its integer value.
    """

    def lower(lowering: Lowering, op: ir.Operation) -> None:
        operands = [argument(lowering, op, name) for name in arguments]
        result = op.result.type if op.results else lowering.i32
        value = lowering.call(symbol, operands, result, pure=pure)
        if acquires:
            lowering.acquired()
        lowering.replace(*([value] if op.results else []))

    return lower


def argument(lowering: Lowering, op: ir.Operation, name: str) -> ir.Value:
    """An argument of a call: see :func:`call`."""
    if name == "ctx":
        return lowering.ctx
    value = getattr(op, name)
    return value if isinstance(value, ir.Value) else lowering.constant(int(value), lowering.i32)


def wait(
    lowering: Lowering, op: ir.Operation, arguments: Iterable[str], build: Callable[[list[ir.Value]], ir.Value]
) -> None:
    """``build`` makes the call that waits, of ``arguments``; its result is the token."""
    token = build([argument(lowering, op, name) for name in arguments])
    token = lowering.acquired(token)
    lowering.replace(token)
    propagate_type([token], lowering.i32)  # also where control flow carries it


def _wait(lowering: Lowering, op: ir.Operation) -> None:
    wait(
        lowering,
        op,
        WAIT_ARGUMENTS,
        lambda operands: lowering.call("ditron_wait", operands, lowering.i32, divisibility=lowering.aligned),
    )


def protocol(lowering: Lowering, op: ir.Operation) -> str:
    """``"ll"`` or ``"ll128"``; a message takes the same memory in both, so both ends may fall back to ll."""
    name = str(op.protocol)
    if name == "ll128" and not lowering.gpu.whole_lines:
        op.emit_remark(f"protocol ll is used on {lowering.gpu.name}: only NVLink keeps ll128's 128-byte stores whole")
        return "ll"
    return name


def _ll_put(lowering: Lowering, op: ir.Operation) -> None:
    call(f"ditron_{protocol(lowering, op)}_put", "ctx", *PUT_ARGUMENTS)(lowering, op)


def _ll_get(lowering: Lowering, op: ir.Operation) -> None:
    symbol = f"ditron_{protocol(lowering, op)}_get"
    wait(
        lowering,
        op,
        GET_ARGUMENTS,
        lambda operands: lowering.call(symbol, operands, lowering.i32, divisibility=lowering.aligned),
    )


def _consume_token(lowering: Lowering, op: ir.Operation) -> None:
    """The token is 0 and divisible by 16: adding it makes a value depend on the wait and keeps its alignment."""
    value, token = op.value, op.token
    element = element_of(value.type)

    def add(base: ir.Value) -> ir.Value:
        return lowering.make(tt.AddPtrOp.OPERATION_NAME, [base, lowering.splat(token, base.type)], base.type)

    if str(element).startswith("!tt.ptr"):
        try:
            lowering.replace(rebase(lowering, value, add))
        except MatchFailure:
            lowering.replace(add(value))
    elif ir.IntegerType.isinstance(element):
        width = ir.IntegerType(element).width
        resize = arith.ExtSIOp if width > 32 else arith.TruncIOp
        offset = token if width == 32 else lowering.make(resize.OPERATION_NAME, [token], element)
        lowering.replace(
            lowering.make(arith.AddIOp.OPERATION_NAME, [value, lowering.splat(offset, value.type)], value.type)
        )
    elif str(element).startswith("!tt.tensordesc"):
        raise LoweringError(
            "expected a pointer or an integer, got a tensor descriptor; consume the token on a coordinate of the access"
        )
    else:
        lowering.replace(value)  # a float is loaded data already


def translate(lowering: Lowering, op: ir.Operation, build: Callable[[ir.Value, ir.Attribute | None], ir.Value]) -> None:
    """``build`` translates the scalar base, given its alignment attribute, so that Triton still sees the alignment."""
    try:
        lowering.replace(rebase(lowering, op.ptr, lambda base: build(base, divisibility(base))))
    except MatchFailure:
        name = op.name.removeprefix("ditron.")
        raise LoweringError(
            "expected pointers computed from one scalar pointer within this iteration, got a "
            "tensor of pointers that was loaded or is carried by a loop; "
            f"apply {name} to the scalar pointer, then add the offsets"
        ) from None


def _translate(symbol: str, *arguments: str) -> Lower:
    """Translation to another heap, by a call of ``symbol``."""

    def lower(lowering: Lowering, op: ir.Operation) -> None:
        rest = [argument(lowering, op, name) for name in arguments]
        translate(
            lowering,
            op,
            lambda base, aligned: lowering.call(
                symbol, [lowering.ctx, base, *rest], base.type, pure=True, divisibility=aligned
            ),
        )

    return lower


def _symm_at(lowering: Lowering, op: ditron.SymmAtOp) -> None:
    if not is_tensor(op.rank.type):
        _translate("ditron_symm_at", "rank")(lowering, op)
        return

    def build(symbol: str, operands: list[ir.Value], result: ir.Type, aligned: ir.Attribute | None) -> ir.Value:
        return lowering.call(f"ditron_{symbol}", operands, result, pure=True, divisibility=aligned)

    translate_each(lowering, op, build)


def signal_wait_until(lowering: Lowering, op: ir.Operation, build: Callable[[list[ir.Value]], ir.Value]) -> None:
    """``build`` makes the call that waits, of the signal, the value and the comparison."""
    build([argument(lowering, op, name) for name in ("signal", "value", "cmp")])
    lowering.acquired()
    if not op.result.has_uses:
        lowering.op.erase()
        return
    # Threads that read a growing signal one after the other see different values. One read by Triton's scalar
    # atomic is the same for all; a swap of -1 by -1 changes nothing.
    none = lowering.constant(-1, lowering.i64)
    lowering.replace(
        atomics.compare_and_swap(
            lowering, op.signal, none, none, scope=ditron.Scope.World, semantic=ditron.Semantic.Relaxed
        )
    )


def _signal_wait_until(lowering: Lowering, op: ir.Operation) -> None:
    signal_wait_until(lowering, op, lambda operands: lowering.call("ditron_signal_wait_until", operands, lowering.i32))


def _shfl(lowering: Lowering, op: ir.Operation) -> None:
    value = op.value
    as_int = lowering.bitcast(value, lowering.i32) if str(value.type) == "f32" else value
    result = lowering.call(f"ditron_shfl_{as_int.type}", [as_int, op.lane, argument(lowering, op, "mode")], as_int.type)
    lowering.replace(lowering.bitcast(result, value.type))


def _ballot(lowering: Lowering, op: ir.Operation) -> None:
    predicate = lowering.make(arith.ExtUIOp.OPERATION_NAME, list(op.operands), lowering.i32)
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
        tt.ExternElementwiseOp.OPERATION_NAME,
        operands,
        result,
        library | {"pure": ir.BoolAttr.get("pure" in op.attributes)},
    )
    lowering.replace(*([value] if len(op.results) else []))


def _always(op: ir.Operation) -> bool:
    return True


def _releases(op: ditron.MemoryOrderOpInterface) -> bool:
    return op.releases


def _nothing(lowering: Lowering, op: ir.Operation) -> None:
    lowering.replace()


def _quiet(lowering: Lowering, op: ditron.QuietOp) -> None:
    """Nothing at the end of a kernel for signals that its end completes: a relaxed wait before it stays relaxed."""
    if lowering.gpu.ends_complete and ditron.SIGNALS_AT_END in op.attributes:
        lowering.replace()
    else:
        call("ditron_quiet", acquires=True)(lowering, op)


def _expect(lowering: Lowering, op: ditron.ExpectOp) -> None:
    if op.condition is None:
        raise LoweringError("expected a condition: only the simulator draws one, in timing-only mode")
    lowering.replace(op.condition)


TABLE: dict[type, Row] = {
    # who am I: reads of the context, which may be merged and hoisted
    ditron.RankOp: Row(call("ditron_rank", "ctx", "team", pure=True)),
    ditron.NumRanksOp: Row(call("ditron_num_ranks", "ctx", "team", pure=True)),
    ditron.LocalRankOp: Row(lambda low, op: _node_query(low, "ditron_rank")),
    ditron.NumLocalRanksOp: Row(lambda low, op: _node_query(low, "ditron_num_ranks")),
    ditron.NodeOp: Row(call("ditron_node", "ctx", pure=True)),
    # symmetric pointers
    ditron.SymmAtOp: Row(_symm_at),
    ditron.MulticastPtrOp: Row(_translate("ditron_multicast_ptr", "team")),
    # signals
    ditron.WaitOp: Row(_wait),
    ditron.ConsumeTokenOp: Row(_consume_token),
    ditron.NotifyOp: Row(call("ditron_notify", "ctx", "signal", "value", "rank", "op", "scope"), _always),
    ditron.SignalOpOp: Row(call("ditron_signal_op", "ctx", "signal", "value", "rank", "op"), _always),
    ditron.SignalWaitUntilOp: Row(_signal_wait_until),
    ditron.SignalFetchOp: Row(atomics.lower_signal_fetch),
    # data
    ditron.PutmemOp: Row(call("ditron_putmem", "ctx", "dst", "src", "nbytes", "rank", "nbi", "granularity"), _always),
    ditron.GetmemOp: Row(call("ditron_getmem", "ctx", "dst", "src", "nbytes", "rank", "nbi", "granularity"), _always),
    ditron.PutmemSignalOp: Row(
        call(
            "ditron_putmem_signal", "ctx", "dst", "src", "nbytes", "signal", "value", "rank", "op", "nbi", "granularity"
        ),
        _always,
    ),
    ditron.LLPutOp: Row(_ll_put, _always),
    ditron.LLGetOp: Row(_ll_get),
    ditron.FenceOp: Row(call("ditron_fence", acquires=True), _always),  # a relaxed wait before it becomes an acquire
    ditron.QuietOp: Row(_quiet, lambda op: ditron.SIGNALS_AT_END not in op.attributes),  # signals publish by themselves
    ditron.BarrierAllOp: Row(call("ditron_barrier_all", "ctx", acquires=True), _always),
    ditron.BarrierOp: Row(call("ditron_barrier", "ctx", "team", acquires=True), _always),
    ditron.SyncAllOp: Row(call("ditron_sync_all", "ctx", "team", acquires=True), _always),
    # atomics
    ditron.LdOp: Row(atomics.lower_ld),
    ditron.StOp: Row(atomics.lower_st, _releases),
    ditron.AtomicAddOp: Row(atomics.lower_atomic_add, _releases),
    ditron.AtomicCasOp: Row(atomics.lower_atomic_cas, _releases),
    ditron.RedOp: Row(atomics.lower_red, _releases),
    ditron.MultimemLdReduceOp: Row(atomics.lower_multimem_ld_reduce),
    ditron.MultimemStOp: Row(atomics.lower_multimem_st),
    ditron.MultimemRedOp: Row(atomics.lower_multimem_red),
    # threads
    ditron.ThreadIdOp: Row(call("ditron_thread_id", pure=True)),
    ditron.NumThreadsOp: Row(call("ditron_num_threads", pure=True)),
    ditron.LaneIdOp: Row(call("ditron_lane_id", pure=True)),
    ditron.WarpIdOp: Row(call("ditron_warp_id", pure=True)),
    ditron.SyncThreadsOp: Row(call("ditron_sync_threads")),
    ditron.ShflOp: Row(_shfl),
    ditron.BallotOp: Row(_ballot),
    ditron.SpendOp: Row(_nothing),
    ditron.ExpectOp: Row(_expect),
    ditron.ExternCallOp: Row(_extern_call),
}


def _node_query(lowering: Lowering, symbol: str) -> None:
    """local_rank and num_local_ranks are rank and num_ranks of the team ``node``."""
    node = lowering.constant(int(ditron.Team.Node), lowering.i32)
    lowering.replace(lowering.call(symbol, [lowering.ctx, node], lowering.i32, pure=True))
