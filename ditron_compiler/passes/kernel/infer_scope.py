"""Infer the scope of notifies, waits and atomics from their rank or pointer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.alias import UnderlyingObject, may_alias, underlying_objects
from ditron_compiler.analysis.call_graph import OPAQUE, functions, operations, pointers
from ditron_compiler.analysis.rank_variance import Place, is_other, place
from ditron_compiler.ir.dialects.enums import keyword
from ditron_compiler.ir.matchers import is_function_argument
from ditron_compiler.ir.pass_base import Pass

__all__ = ["InferScope"]

_SCOPES = ("gpu", "node", "world")
# How far an update of a signal comes from, and whether another rank makes it wherever there are several.
_Update = tuple[int, bool]
# Operation -> its operands that are the signal and the rank.
_UPDATES = {"ditron.notify": (0, 2), "ditron.signal_op": (0, 2), "ditron.putmem_signal": (3, 5)}
_AWAITS = ("ditron.wait", "ditron.signal_wait_until")
_ATOMICS = ("ditron.ld", "ditron.st", "ditron.red", "ditron.atomic_add", "ditron.atomic_cas")


@dataclass(frozen=True)
class InferScope(Pass):
    """Infer the scope of each notify, wait and atomic.

    A ``notify`` gets the scope of its target rank: ``gpu`` for this rank; ``node`` for ranks on this node, which are
    ``node * num_local_ranks + x`` with x a local rank, and those under a condition ``rank / num_local_ranks == node``;
    ``world`` for all others. An explicit ``gpu`` is kept unless the rank is known to be another one. A notify is
    narrowed to ``gpu`` only if this kernel waits for the signal, since a wait by a stream is outside of that scope, and
    not if the signal may be accessed elsewhere: on other ranks through ``symm_at`` (which then access this rank's), in
    a function that the kernel calls, or by a wait through a pointer to an unknown object. If the kernel waits for the
    signal through ``symm_at``, the notify needs ``node``.

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
            found = [o for o in operations(function) if o.name.startswith("ditron.") or o.name in OPAQUE]
            looked = _Looked.of(found)
            updates: dict[ir.Value, set[_Update]] = {}
            for o in found:
                self._update(o, updates, looked)
            for o in found:
                if o.name == "ditron.wait":
                    self._wait(
                        o, set().union(*(updates.get(origin.root, ()) for origin in underlying_objects(o.operands[0])))
                    )
                if o.name in ("ditron.wait", *_ATOMICS) and any(
                    _is_far(it, o) for it in underlying_objects(o.operands[0])
                ):
                    self._widen(o, Place.NODE, "the pointer is to another rank's memory")

    def _update(self, op: ir.Operation, updates: dict[ir.Value, set[_Update]], looked: _Looked) -> None:
        """Set the scope of a notify; note in ``updates`` how far updates of its signals come from."""
        if op.name not in _UPDATES:
            return
        signal, rank = (op.operands[index] for index in _UPDATES[op.name])
        far, certain = place(rank, op), is_other(rank)
        if op.name == "ditron.notify":
            roots = {origin.root for origin in underlying_objects(signal)}
            if far == Place.SELF and _may_meet(roots, looked.from_afar):
                far = Place.NODE
                self._widen(op, far, "other ranks wait for the signal")
            elif _scope(op) == Place.SELF != far:
                if certain:
                    self._widen(op, far, "the signal is on another rank")
                else:
                    far = Place.SELF  # an explicit annotation
            else:
                if far == Place.SELF and not (roots & looked.here and not _may_meet(roots, looked.elsewhere)):
                    far = min(_scope(op), Place.NODE)
                self._set(op, far)
        for origin in underlying_objects(signal):
            updates.setdefault(origin.root, set()).add((far, certain))

    def _wait(self, op: ir.Operation, updates: set[_Update]) -> None:
        wanted = max((far for far, _ in updates), default=Place.SELF)
        if _scope(op) > Place.SELF or any(certain for _, certain in updates):
            self._widen(op, wanted, "other ranks update these signals in this kernel")

    def _widen(self, op: ir.Operation, wanted: int, why: str) -> None:
        given = _scope(op)
        if given >= wanted:
            return
        if given == Place.SELF:
            op.emit_warning(
                f"scope 'gpu' of '{op.name}' is too narrow, because {why}: widened to '{_SCOPES[wanted]}'; "
                f'write scope="{_SCOPES[wanted]}"'
            )
        self._set(op, wanted)

    def _set(self, op: ir.Operation, wanted: int) -> None:
        given = _scope(op)
        if given != wanted:
            op.attributes["scope"] = ir.Attribute.parse(f"#ditron.scope<{_SCOPES[wanted]}>", op.context)
            self.count("scopes widened" if wanted > given else "scopes narrowed")


@dataclass(frozen=True)
class _Looked:
    """Where a kernel looks at signals: what those come from that it waits for here, which are this rank's; that it
    waits for on other ranks; and that it may look at on other ranks or in a function that it calls.
    """

    here: set[ir.Value]
    from_afar: set[ir.Value]
    elsewhere: set[ir.Value]

    @staticmethod
    def of(found: list[ir.Operation]) -> _Looked:
        looked = _Looked(set(), set(), set())
        for op in found:
            if op.name in _AWAITS:
                for origin in underlying_objects(op.operands[0]):
                    (looked.from_afar if _is_far(origin, op) else looked.here).add(origin.root)
                    if not is_function_argument(origin.root):  # loaded, it may be another rank's
                        looked.elsewhere.add(origin.root)
            elif op.name in OPAQUE:
                looked.elsewhere.update(
                    origin.root for operand in pointers(op) for origin in underlying_objects(operand)
                )
            elif (
                op.name == "ditron.multicast_ptr"
                or op.name == "ditron.symm_at"
                and (place(op.operands[1], op) != Place.SELF)
            ):
                looked.elsewhere.update(origin.root for origin in underlying_objects(op.operands[0]))
        return looked


def _may_meet(roots: set[ir.Value], others: set[ir.Value]) -> bool:
    return any(may_alias(root, others) for root in roots)


def _is_far(origin: UnderlyingObject, at: ir.Operation) -> bool:
    return origin.rank is not None and place(origin.rank, at) != Place.SELF


def _scope(op: ir.Operation) -> int:
    return _SCOPES.index(keyword(op.attributes["scope"]))
