"""Infer the scope of notifies, waits and atomics from their rank or pointer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.alias import UnderlyingObject, may_alias, underlying_objects
from ditron_compiler.analysis.call_graph import OPAQUE, functions, operations, pointer_operands
from ditron_compiler.analysis.rank_scope import is_other_rank, rank_scope
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.ir.dialects.ditron import Scope
from ditron_compiler.ir.matchers import is_function_argument
from ditron_compiler.ir.pass_base import Pass

__all__ = ["InferScope"]

_PUTS = (ditron.PutmemOp, ditron.PutmemSignalOp)
# The scope that an update of a signal needs, and whether the signal is on another rank for certain.
_Update = tuple[Scope, bool]


@dataclass(frozen=True)
class InferScope(Pass):
    """Infer the scope of each notify, wait and atomic.

    A ``notify`` gets the scope of its target rank: ``gpu`` for this rank; ``node`` for ranks on this node, which are
    ``node * num_local_ranks + x`` with x a local rank, and those under a condition ``rank / num_local_ranks == node``;
    ``world`` for all others. An explicit ``gpu`` is kept unless the rank is known to be another one. A notify is
    narrowed to ``gpu`` only if this kernel reads the signal, since a wait by a stream is outside of that scope, not if
    the kernel puts to other nodes, as a NIC that reads what is put is outside, too, and not if the signal may be
    accessed elsewhere: on other ranks through ``symm_at`` (which then access this rank's), in a
    function that the kernel calls, or through a pointer to an unknown object. If the kernel reads the signal through
    ``symm_at``, the notify needs ``node``.

    A ``wait`` is widened to the scope of the kernel's own updates of the same signals, and never narrowed: other
    kernels may update them too. A wait or atomic through ``symm_at`` to another rank is widened from ``gpu`` to
    ``node``, which is as far as ``symm_at`` reaches.

    Widening an explicit ``gpu`` emits a warning, since that scope was too narrow.

    Before::

        ditron.notify %sig set %epoch on %right : !tt.ptr<i64>
        %there = ditron.symm_at %cell on %right : !tt.ptr<i32>
        ditron.red %there add %one : !tt.ptr<i32>

    After::

        ditron.notify %sig set %epoch on %right scope world : !tt.ptr<i64>
        %there = ditron.symm_at %cell on %right : !tt.ptr<i32>
        ditron.red %there add %one scope node : !tt.ptr<i32>
    """

    name: ClassVar[str] = "infer-scope"

    def run(self, op: ir.Operation) -> None:
        for function in functions(op):
            every = operations(function)
            accesses = _SignalAccesses.of(every)
            updates: dict[ir.Value, set[_Update]] = {}
            for o in every:
                if isinstance(o, ditron.SignalUpdateOpInterface):
                    self._update(o, updates, accesses)
            for o in every:
                if isinstance(o, ditron.WaitOp):
                    self._wait(o, set().union(*(updates.get(it.root, ()) for it in underlying_objects(o.signal))))
                    pointer = o.signal
                elif isinstance(o, ditron.AtomicOpInterface):
                    pointer = o.ptr
                else:
                    continue
                if any(_is_remote(it, o) for it in underlying_objects(pointer)):
                    self._widen(o, Scope.Node, "the pointer is to another rank's memory")

    def _update(
        self,
        op: ditron.SignalUpdateOpInterface,
        updates: dict[ir.Value, set[_Update]],
        accesses: _SignalAccesses,
    ) -> None:
        """Set the scope of a notify; add to ``updates`` what the update needs, by the object of its signal."""
        needed, is_other = rank_scope(op.rank, op), is_other_rank(op.rank)
        if isinstance(op, ditron.NotifyOp):
            roots = {origin.root for origin in underlying_objects(op.signal)}
            if needed is Scope.GPU and _may_overlap(roots, accesses.remote_reads):
                needed = Scope.Node
                self._widen(op, needed, "other ranks read the signal")
            elif op.scope is Scope.GPU and needed is not Scope.GPU:
                if is_other:
                    self._widen(op, needed, "the signal is on another rank")
                else:
                    needed = Scope.GPU  # an explicit annotation
            else:
                is_read_here = roots & accesses.reads and not _may_overlap(roots, accesses.elsewhere)
                if needed is Scope.GPU and (accesses.by_nics or not is_read_here):
                    needed = min(op.scope, Scope.Node)
                self._set(op, needed)
        for origin in underlying_objects(op.signal):
            updates.setdefault(origin.root, set()).add((needed, is_other))

    def _wait(self, op: ditron.WaitOp, updates: set[_Update]) -> None:
        needed = max((scope for scope, _ in updates), default=Scope.GPU)
        if op.scope is not Scope.GPU or any(is_other for _, is_other in updates):
            self._widen(op, needed, "other ranks update these signals in this kernel")

    def _widen(self, op: ditron.MemoryOrderOpInterface, needed: Scope, why: str) -> None:
        if op.scope >= needed:
            return
        if op.scope is Scope.GPU:
            op.emit_warning(
                f"scope 'gpu' of '{op.name}' is too narrow, because {why}: widened to '{needed!s}'; "
                f'write scope="{needed!s}"'
            )
        self._set(op, needed)

    def _set(self, op: ditron.MemoryOrderOpInterface, needed: Scope) -> None:
        given = op.scope
        if given is not needed:
            op.scope = needed
            self.count("scopes widened" if needed > given else "scopes narrowed")


@dataclass(frozen=True)
class _SignalAccesses:
    """The objects whose signals a kernel reads on this rank, and on other ranks; and those that may be accessed
    elsewhere: on other ranks, through a pointer that was loaded, or in a function that the kernel calls. ``by_nics``:
    whether it puts to ranks that may be on other nodes.
    """

    reads: set[ir.Value]
    remote_reads: set[ir.Value]
    elsewhere: set[ir.Value]
    by_nics: bool

    @staticmethod
    def of(operations: list[ir.Operation]) -> _SignalAccesses:
        by_nics = any(isinstance(op, _PUTS) and rank_scope(op.rank, op) is Scope.World for op in operations)
        accesses = _SignalAccesses(set(), set(), set(), by_nics)
        for op in operations:
            if isinstance(op, ditron.SignalReadOpInterface):
                for origin in underlying_objects(op.signal):
                    (accesses.remote_reads if _is_remote(origin, op) else accesses.reads).add(origin.root)
                    if not is_function_argument(origin.root):  # loaded, perhaps another rank's
                        accesses.elsewhere.add(origin.root)
            elif isinstance(op, OPAQUE):
                accesses.elsewhere.update(
                    origin.root for operand in pointer_operands(op) for origin in underlying_objects(operand)
                )
            elif isinstance(op, ditron.MulticastPtrOp) or (
                isinstance(op, ditron.SymmAtOp) and rank_scope(op.rank, op) is not Scope.GPU
            ):
                accesses.elsewhere.update(origin.root for origin in underlying_objects(op.ptr))
        return accesses


def _may_overlap(roots: set[ir.Value], others: set[ir.Value]) -> bool:
    return any(may_alias(root, others) for root in roots)


def _is_remote(origin: UnderlyingObject, at: ir.Operation) -> bool:
    return origin.rank is not None and rank_scope(origin.rank, at) is not Scope.GPU
