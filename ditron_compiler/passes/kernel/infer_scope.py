"""Infer the scope of notifies, waits and atomics from their rank or pointer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.alias import UnderlyingObject, may_alias, underlying_objects
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.rank_scope import is_other_rank, rank_scope
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.ir.dialects.ditron import Scope
from ditron_compiler.ir.pass_base import Pass

__all__ = ["InferScope"]

# The scope that an update of a signal needs, and whether the signal is on another rank for certain.
_Update = tuple[Scope, bool]


@dataclass(frozen=True)
class InferScope(Pass):
    """Infer the scope of each notify, wait and atomic.

    A ``notify`` gets the scope of its target rank: ``node`` for ranks on this node, which are
    ``node * num_local_ranks + x`` with x a local rank, and those under a condition ``rank / num_local_ranks == node``;
    ``world`` for all others. An explicit ``gpu`` is kept unless the rank is known to be another one, or the kernel
    reads the signal through ``symm_at``, for which it needs ``node``. No notify is narrowed to ``gpu``: a kernel does
    not know whether a stream waits for the signal, too, or a NIC reads what is behind it, which are outside of that
    scope.

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
            remote_reads = _remote_reads(every)
            updates: dict[ir.Value, set[_Update]] = {}
            for o in every:
                if isinstance(o, ditron.SignalUpdateOpInterface):
                    self._update(o, updates, remote_reads)
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
        self, op: ditron.SignalUpdateOpInterface, updates: dict[ir.Value, set[_Update]], remote_reads: set[ir.Value]
    ) -> None:
        """Set the scope of a notify; add to ``updates`` what the update needs, by the object of its signal."""
        needed, is_other = rank_scope(op.rank, op), is_other_rank(op.rank)
        if isinstance(op, ditron.NotifyOp):
            if needed is Scope.GPU and any(may_alias(it.root, remote_reads) for it in underlying_objects(op.signal)):
                needed = Scope.Node
                self._widen(op, needed, "other ranks read the signal")
            elif op.scope is not Scope.GPU:
                needed = max(needed, Scope.Node)
                self._set(op, needed)
            elif is_other:
                self._widen(op, needed, "the signal is on another rank")
            else:
                needed = Scope.GPU  # an explicit annotation
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


def _remote_reads(operations: list[ir.Operation]) -> set[ir.Value]:
    """The objects whose signals a kernel reads on other ranks."""
    return {
        origin.root
        for op in operations
        if isinstance(op, ditron.SignalReadOpInterface)
        for origin in underlying_objects(op.signal)
        if _is_remote(origin, op)
    }


def _is_remote(origin: UnderlyingObject, at: ir.Operation) -> bool:
    return origin.rank is not None and rank_scope(origin.rank, at) is not Scope.GPU
