"""Lower synchronization to loads, stores and fences, for links without remote atomics such as PCIe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.call_graph import operations, pointer_operands, reachable_operations
from ditron_compiler.analysis.rank_scope import rank_scope
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.ir.dialects.ditron import Scope, Semantic, SignalOp
from ditron_compiler.ir.pass_base import Pass, PassFailure

__all__ = ["LowerNonatomicSync"]

_TRITON_ATOMICS = (tt.AtomicRMWOp, tt.AtomicCASOp, tt.DescriptorReduceOp)


@dataclass(frozen=True)
class LowerNonatomicSync(Pass):
    """Lower synchronization between GPUs to 64-bit loads, stores and fences.

    PCIe has no atomics between GPUs and guarantees little order. A ``notify`` becomes a fence and one store of the
    signal (``signal_op set``, a relaxed store of scope world, in PTX the same as a volatile store); a ``wait`` becomes
    a loop of relaxed loads of this rank's memory, followed by a fence; a ``putmem_signal`` becomes the put, a fence and
    the store. Each signal has one writer, so no update is lost.

    Whatever needs a read-modify-write on another GPU is an error: ``add``, atomics through ``symm_at`` or of scope node
    or world, also in functions that are called, and NVLink multicast. Synchronization within the GPU (scope gpu, or a
    signal of this rank) is not changed.

    Before::

        ditron.notify %sig set %epoch on %right : !tt.ptr<i64>
        %token = ditron.wait %sig[%c1] ge %epoch : !tt.ptr<i64>

    After::

        ditron.fence
        ditron.signal_op %sig set %epoch on %right : !tt.ptr<i64>
        %token = ditron.wait %sig[%c1] ge %epoch semantic relaxed : !tt.ptr<i64>
        ditron.fence
    """

    name: ClassVar[str] = "lower-nonatomic-sync"

    def run(self, op: ir.Operation) -> None:
        every = operations(op)
        if not all([self._check(o) for o in every]):
            raise PassFailure
        for o in every:
            lower = next((lower for kind, lower in _LOWERINGS.items() if isinstance(o, kind)), None)
            if lower is not None:
                name = o.name.removeprefix("ditron.")
                if lower(o):
                    self.count(f"{name} lowered")

    def _check(self, op: ir.Operation) -> bool:
        """Emit an error if ``op`` needs a read-modify-write on another GPU."""
        reason = _needs_remote_atomic(op)
        if reason is not None:
            op.emit_error(reason)
        return reason is None


def _needs_remote_atomic(op: ir.Operation) -> str | None:
    """Why ``op`` cannot be lowered; None if it can."""
    if isinstance(op, ditron.SignalUpdateOpInterface) and op.signal_op is SignalOp.Add and not _is_within_gpu(op):
        return (
            f"'{op.name} add' needs a read-modify-write on another GPU, which the links of this pipeline do not "
            "support: give each writer its own signal (ptr + rank, or one per writing program), let it set the "
            "epoch, and wait for all of them by the count of dl.wait"
        )
    if _is_atomic_update(op) and not _is_within_gpu(op):
        return (
            f"'{op.name}' is a read-modify-write that may be on another GPU, which the links of this pipeline do "
            "not support: write to a separate cell for each rank with dl.st or dl.notify and combine them at the "
            'receiver; for memory of this GPU write scope="gpu"'
        )
    if isinstance(op, tt.CallOp) and (atomic := _atomic_in_callee(op)) is not None:
        return (
            f"the callee has a '{atomic}', a read-modify-write, and is passed a pointer to another GPU's memory, "
            "where the links of this pipeline do not support it: write to a separate cell for each rank with "
            "dl.st or dl.notify and combine them at the receiver"
        )
    if isinstance(op, ditron.RequiresMulticast):
        return f"'{op.name}' needs NVLink, which this pipeline does not assume: use dl.putmem, or another pipeline"
    return None


def _is_atomic_update(op: ir.Operation) -> bool:
    """Whether ``op`` is a read-modify-write."""
    if isinstance(op, ditron.AtomicOpInterface):
        return op.is_read_modify_write
    return isinstance(op, _TRITON_ATOMICS)


def _atomic_in_callee(call: tt.CallOp) -> str | None:
    """The name of an operation of the callee that may be a read-modify-write on another GPU."""
    if all(origin.rank is None for pointer in pointer_operands(call) for origin in underlying_objects(pointer)):
        return None
    return next((op.name for op in reachable_operations(call) if isinstance(op, (*_TRITON_ATOMICS, tt.CallOp))), None)


def _is_within_gpu(op: ir.Operation) -> bool:
    """Whether an update or atomic accesses memory of this GPU only."""
    if any(origin.rank is not None for origin in underlying_objects(_address(op))):
        return False
    if isinstance(op, _TRITON_ATOMICS):
        return True
    if isinstance(op, (ditron.SignalOpOp, ditron.NotifyOp)) and rank_scope(op.rank, op) is Scope.GPU:
        return True
    return isinstance(op, ditron.MemoryOrderOpInterface) and op.scope is Scope.GPU


def _address(op: ir.Operation) -> ir.Value:
    if isinstance(op, ditron.MemoryTransferOpInterface):
        return op.dst
    if isinstance(op, ditron.SignalUpdateOpInterface):
        return op.signal
    return op.desc if isinstance(op, tt.DescriptorReduceOp) else op.ptr


def _lower_notify(op: ditron.NotifyOp) -> bool:
    if _is_within_gpu(op):
        return False
    with op.location, ir.InsertionPoint(op):
        ditron.FenceOp()
        ditron.SignalOpOp(op.signal, op.value, op.rank, op=op.op)
    op.erase()
    return True


def _lower_putmem_signal(op: ditron.PutmemSignalOp) -> bool:
    with op.location, ir.InsertionPoint(op):
        ditron.PutmemOp(op.dst, op.src, op.nbytes, op.rank, nbi=op.nbi, granularity=op.granularity)
        ditron.FenceOp()
        ditron.SignalOpOp(op.signal, op.value, op.rank, op=op.op)
    op.erase()
    return True


def _lower_wait(op: ditron.WaitOp) -> bool:
    if op.semantic is Semantic.Relaxed or op.scope is Scope.GPU:
        return False
    op.semantic = Semantic.Relaxed
    ditron.FenceOp(loc=op.location, ip=ir.InsertionPoint(op.next_op))
    return True


def _lower_signal_wait_until(op: ditron.SignalWaitUntilOp) -> bool:
    """Not lowered if its result is used: the target reads that by a compare-and-swap, but of this rank's memory."""
    if op.result.has_uses:
        return False
    with op.location, ir.InsertionPoint(op):
        one = arith.constant(ir.IntegerType.get_signless(32), 1)
        ditron.WaitOp(op.signal, one, op.value, cmp=op.cmp, scope=Scope.World, semantic=Semantic.Relaxed)
        ditron.FenceOp()
    op.erase()
    return True


_LOWERINGS = {
    ditron.NotifyOp: _lower_notify,
    ditron.PutmemSignalOp: _lower_putmem_signal,
    ditron.WaitOp: _lower_wait,
    ditron.SignalWaitUntilOp: _lower_signal_wait_until,
}
