"""Op interfaces and traits of the ditron dialect, as the ODS declares them and Python asks."""

import pytest

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, ditron, scf

DEVICE_OPS = """
module {
  "tt.func"() <{sym_name = "f", function_type = (!tt.ptr<i64>, !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i32>, i32, i64, i32) -> ()}> ({
  ^bb0(%sig: !tt.ptr<i64>, %dst: !tt.ptr<f32>, %src: !tt.ptr<f32>, %cell: !tt.ptr<i32>, %rank: i32, %n: i64, %v: i32):
    ditron.putmem_signal %dst, %src, %n, %sig add %n on %rank nbi : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
    ditron.putmem %dst, %src, %n on %rank : !tt.ptr<f32>, !tt.ptr<f32>
    ditron.getmem %dst, %src, %n on %rank nbi granularity warp : !tt.ptr<f32>, !tt.ptr<f32>
    ditron.notify %sig set %n on %rank scope world : !tt.ptr<i64>
    ditron.signal_op %sig add %n on %rank : !tt.ptr<i64>
    %t = ditron.wait %sig[%rank] gt %n scope gpu semantic relaxed : !tt.ptr<i64>
    %s = ditron.signal_wait_until %sig eq %n : !tt.ptr<i64>
    %f = ditron.signal_fetch %sig semantic relaxed : !tt.ptr<i64>
    ditron.ll_put %sig, %src, %n, %n on %rank protocol ll128 : !tt.ptr<i64>, !tt.ptr<f32>
    %u = ditron.ll_get %dst, %sig, %n, %n : !tt.ptr<f32>, !tt.ptr<i64>
    %l = ditron.ld %cell scope node semantic acquire : !tt.ptr<i32>
    ditron.st %cell, %v semantic release : !tt.ptr<i32>
    %a = ditron.atomic_add %cell, %v semantic acq_rel : !tt.ptr<i32>
    %c = ditron.atomic_cas %cell, %v, %v : !tt.ptr<i32>
    ditron.red %cell max %v : !tt.ptr<i32>
    ditron.fence
    ditron.quiet
    ditron.barrier_all
    ditron.barrier team node
    ditron.sync_all
    ditron.sync_threads
    %id = ditron.thread_id
    %threads = ditron.num_threads
    %warp = ditron.warp_id
    %lane = ditron.lane_id
    %other = ditron.shfl idx %v, %lane : i32
    %mc = ditron.multicast_ptr %cell : !tt.ptr<i32>
    %sum = ditron.multimem_ld_reduce add %mc : !tt.ptr<i32>
    ditron.multimem_st %mc, %sum : !tt.ptr<i32>
    ditron.multimem_red %mc add %sum : !tt.ptr<i32>
    "tt.return"() : () -> ()
  }) : () -> ()
}
"""


@pytest.fixture
def ops():
    """The operations of DEVICE_OPS by mnemonic."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(DEVICE_OPS)
        found = {}
        module.operation.walk(lambda op: found.update({op.name.removeprefix("ditron."): op}))
        yield found


def names(ops, interface) -> set[str]:
    return {name for name, op in ops.items() if isinstance(op, interface)}


@pytest.mark.parametrize(
    "interface, expected",
    [
        (ditron.SignalOpInterface, "putmem_signal notify signal_op wait signal_wait_until signal_fetch"),
        (ditron.SignalUpdateOpInterface, "putmem_signal notify signal_op"),
        (ditron.SignalReadOpInterface, "wait signal_wait_until signal_fetch"),
        (ditron.SignalWaitOpInterface, "wait signal_wait_until"),
        (ditron.RemoteAccessOpInterface, "putmem_signal putmem getmem notify signal_op ll_put"),
        (ditron.MemoryTransferOpInterface, "putmem_signal putmem getmem"),
        (ditron.PacketOpInterface, "ll_put ll_get"),
        (ditron.MemoryOrderOpInterface, "notify wait signal_wait_until signal_fetch ld st atomic_add atomic_cas red"),
        (ditron.AtomicOpInterface, "ld st atomic_add atomic_cas red"),
        (
            ditron.ProgramWide,
            "wait notify signal_wait_until signal_fetch putmem getmem putmem_signal ll_put ll_get fence quiet barrier_all barrier "
            "sync_all sync_threads",
        ),
        (ditron.Spins, "wait signal_wait_until ll_get barrier_all barrier sync_all"),
        (ditron.OrdersMemory, "fence quiet barrier_all barrier"),
        (ditron.CompletesTransfers, "quiet barrier_all barrier"),
        (ditron.ThreadDependent, "thread_id lane_id warp_id shfl"),
        (ditron.RequiresMulticast, "multicast_ptr multimem_ld_reduce multimem_st multimem_red"),
        (ditron.ReturnsToken, "wait ll_get"),
        (ditron.InProgram, ""),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_operations_of_an_interface(ops, interface, expected):
    assert names(ops, interface) == set(expected.split())
    classes = [cls for cls in vars(ditron).values() if isinstance(getattr(cls, "OPERATION_NAME", None), str)]
    of_kernels = {cls for cls in classes if issubclass(cls, interface) and not issubclass(cls, ditron.InProgram)}
    assert {cls.OPERATION_NAME.removeprefix("ditron.") for cls in of_kernels} == set(expected.split()), "add it above"


def test_classes_have_the_interfaces_without_an_operation():
    assert issubclass(ditron.NotifyOp, ditron.SignalUpdateOpInterface)
    assert issubclass(ditron.NotifyOp, ditron.SignalOpInterface)
    assert issubclass(ditron.ShflOp, ditron.ThreadDependent)
    assert issubclass(ditron.LaunchOp, ditron.InProgram)
    assert not issubclass(ditron.FenceOp, ditron.CompletesTransfers)


def test_signal_updates(ops):
    function = ops["tt.func"]
    sig, dst, src, _, rank, n, _ = function.arguments
    for name, does in (("putmem_signal", "add"), ("notify", "set"), ("signal_op", "add")):
        op = ops[name]
        assert (op.signal, op.value, op.rank) == (sig, n, rank)
        assert str(op.signal_op) == does and isinstance(op.signal_op, ditron.SignalOp)
    assert ops["notify"].remote_accesses == [(sig, None)]
    assert ops["putmem_signal"].remote_accesses == [(dst, n), (sig, None)]
    assert ops["notify"].releases and not ops["notify"].acquires
    assert ops["notify"].scope is ditron.Scope.World


def test_signal_waits(ops):
    sig, *_, n, _ = ops["tt.func"].arguments
    wait, until = ops["wait"], ops["signal_wait_until"]
    assert wait.signal == until.signal == sig and wait.value == until.value == n
    assert wait.count == ops["tt.func"].arguments[4] and until.count is None
    assert (wait.cmp, until.cmp) == (ditron.Cmp.GT, ditron.Cmp.EQ)
    assert (wait.scope, wait.semantic, wait.acquires) == (ditron.Scope.GPU, ditron.Semantic.Relaxed, False)
    assert (until.scope, until.semantic, until.acquires) == (ditron.Scope.World, ditron.Semantic.Acquire, True)
    fetch = ops["signal_fetch"]
    assert fetch.signal == sig and fetch.count is None
    assert (fetch.scope, fetch.semantic, fetch.acquires) == (ditron.Scope.World, ditron.Semantic.Relaxed, False)


def test_memory_transfers(ops):
    _, dst, src, _, rank, n, _ = ops["tt.func"].arguments
    for name, nbi, put in (("putmem_signal", True, True), ("putmem", False, True), ("getmem", True, False)):
        op = ops[name]
        assert (op.dst, op.src, op.nbytes, op.rank) == (dst, src, n, rank)
        assert (op.is_nbi, op.is_put) == (nbi, put)
        assert (op.remote, op.local) == ((dst, src) if put else (src, dst))
    assert ops["getmem"].remote_accesses == [(src, n)]
    assert ops["getmem"].granularity is ditron.Granularity.Warp


def test_packets(ops):
    sig, _, _, _, rank, n, _ = ops["tt.func"].arguments
    put, get = ops["ll_put"], ops["ll_get"]
    assert put.packets == get.packets == sig and put.nbytes == n and put.epoch == n and put.rank == rank
    assert (put.protocol, get.protocol) == (ditron.Protocol.LL128, ditron.Protocol.LL)


def test_atomics(ops):
    asked = ("reads_memory", "writes_memory", "is_read_modify_write", "may_decrease", "acquires", "releases")
    does = {name: [getattr(ops[name], question) for question in asked] for name in names(ops, ditron.AtomicOpInterface)}
    assert does == {
        "ld": [True, False, False, False, True, False],
        "st": [False, True, False, True, False, True],
        "atomic_add": [True, True, True, True, True, True],
        "atomic_cas": [True, True, True, True, False, False],
        "red": [False, True, True, False, False, False],
    }
    assert all(ops[name].ptr == ops["tt.func"].arguments[3] for name in does)
    assert ops["red"].op is ditron.ReduceOp.Max


def test_memory_effects_name_the_operand(ops):
    sig, dst, src, *_ = ops["tt.func"].arguments

    def through(op, kind):
        return [value for effect, value in op.memory_effects if effect == kind and value is not None]

    assert through(ops["putmem_signal"], "write") == [dst, sig] and through(ops["putmem_signal"], "read") == [src]
    assert through(ops["wait"], "read") == [sig] and through(ops["wait"], "write") == []
    assert ops["quiet"].memory_effects == [("read", None), ("write", None)]
    assert ops["thread_id"].memory_effects == []


def test_enumeration_attributes_are_members(ops):
    notify = ops["notify"]
    notify.scope = ditron.Scope.Node
    assert notify.scope is ditron.Scope.Node and str(notify.attributes["scope"]) == "#ditron.scope<node>"
    assert notify.attributes["scope"].value is ditron.Scope.Node
    assert str(ditron.EnumAttr.get(ditron.SignalOp.Add)) == "#ditron.signal_op<add>"
    notify.op = ditron.EnumAttr.get(ditron.SignalOp.Add)
    assert notify.signal_op is ditron.SignalOp.Add
    with pytest.raises(ValueError, match="no enumeration of the ditron dialect"):
        ditron.EnumAttr.get(arith.CmpIPredicate.slt)


def test_created_operations_take_members_and_keywords(ops):
    fence = ops["fence"]
    sig, *_, n, _ = ops["tt.func"].arguments
    rank = ops["tt.func"].arguments[4]
    with ir.InsertionPoint(fence):
        made = ditron.NotifyOp(sig, n, rank, scope=ditron.Scope.World, op="add")
        wait = ditron.WaitOp(sig, rank, n, semantic="relaxed", results=[ditron.token_type()])
    assert isinstance(made, ditron.SignalUpdateOpInterface) and made.signal_op is ditron.SignalOp.Add
    assert wait.semantic is ditron.Semantic.Relaxed and wait.cmp is ditron.Cmp.GE
    assert ops["tt.func"].verify()


def test_an_erased_operation_answers_nothing(ops):
    notify = ops["notify"]
    notify.erase()
    assert isinstance(notify, ditron.SignalUpdateOpInterface)
    for question in ("signal", "signal_op", "scope", "releases"):
        with pytest.raises(RuntimeError, match="erased"):
            getattr(notify, question)


def test_other_dialects_have_none():
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse("""
            func.func @f(%n: index, %x: i32) {
              %c = arith.cmpi slt, %x, %x : i32
              scf.for %i = %n to %n step %n { }
              return
            }""")
        found = {}
        module.operation.walk(lambda op: found.update({op.name: op}))
    loop, compare = found["scf.for"], found["arith.cmpi"]
    n, x = found["func.func"].arguments
    assert isinstance(loop, scf.ForOp) and (loop.lowerBound, loop.upperBound, loop.step) == (n, n, n)
    assert list(loop.initArgs) == [] and loop.body.arguments[0] == loop.induction_variable
    assert isinstance(compare, arith.CmpIOp) and compare.lhs == x
    assert compare.predicate is arith.CmpIPredicate.slt and str(compare.predicate) == "slt"
    assert not isinstance(loop, (ditron.ProgramWide, ditron.SignalOpInterface))
