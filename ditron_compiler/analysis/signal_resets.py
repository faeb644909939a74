"""Signal resets: operations of a kernel that may decrease a signal, after which a wait may no longer hold ("may")."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.call_graph import OPAQUE, pointer_operands
from ditron_compiler.analysis.linear import split_constant
from ditron_compiler.analysis.rank_variance import is_rank_variant
from ditron_compiler.analysis.slicing import backward_slice
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.ir.matchers import constant_int, defining_op, is_function_argument

_POINTER_WRITES = (
    tt.StoreOp,
    tt.AtomicRMWOp,
    tt.AtomicCASOp,
)
_UPDATES_OR_TRANSFERS = (ditron.SignalOpInterface, ditron.MemoryTransferOpInterface, ditron.PacketOpInterface)
_DESCRIPTOR_WRITES = (tt.DescriptorStoreOp, tt.DescriptorScatterOp, tt.DescriptorReduceOp)


@dataclass(frozen=True)
class SignalReset:
    """An operation that may decrease the signals of the objects ``roots``, to symbol plus constant if that is known."""

    op: ir.Operation
    roots: frozenset[ir.Value]
    value: tuple[ir.Value | None, int] | None = None

    def may_invalidate(self, wait: ditron.SignalWaitOpInterface, symbol: ir.Value | None, least: int) -> bool:
        """Whether a signal of ``wait``, which has reached ``symbol + least``, may be less afterwards."""
        symbol = _strip_extensions(symbol)
        if self.value is not None and self.value[1] >= least and self.value[0] == symbol and _is_invariant(symbol):
            return False
        roots = _roots(wait.signal)
        return bool(roots & self.roots) or not all(map(is_function_argument, roots | self.roots))


def signal_resets(operations: list[ir.Operation]) -> list[SignalReset]:
    """What may reset signals; of all operations that set the same signals to the same symbol, the one to the least."""
    found: dict[Hashable, SignalReset] = {}
    for op in operations:
        for pointer in _decreased(op):
            roots = _roots(pointer)
            found.setdefault(roots, SignalReset(op, roots))
        if isinstance(op, ditron.SignalUpdateOpInterface) and op.signal_op is ditron.SignalOp.Set:
            roots, (symbol, offset) = _roots(op.signal), split_constant(op.value)
            reset = SignalReset(op, roots, (_strip_extensions(symbol), offset))
            known = found.setdefault((roots, reset.value[0]), reset)
            if offset < known.value[1]:
                found[roots, reset.value[0]] = reset
    return list(found.values())


def _decreased(op: ir.Operation) -> list[ir.Value]:
    """The pointers through which ``op`` may decrease a signal, to an unknown value."""
    if isinstance(op, (*OPAQUE, tt.PtrToIntOp)):
        return pointer_operands(op)
    if isinstance(op, _POINTER_WRITES):
        return [op.ptr]
    if isinstance(op, _DESCRIPTOR_WRITES):
        return [op.desc]
    if isinstance(op, ditron.AtomicOpInterface):
        return [op.ptr] if op.may_decrease else []
    if isinstance(op, ditron.SignalWaitOpInterface):
        return [op.signal] if op.cmp in (ditron.Cmp.LT, ditron.Cmp.LE) else []  # others decrease it
    if op.name.startswith("ditron.") and not isinstance(op, _UPDATES_OR_TRANSFERS):
        return [value for kind, value in op.memory_effects or () if kind == "write" and value is not None]
    pointers = []
    if isinstance(op, ditron.MemoryTransferOpInterface):
        pointers.append(op.dst)
    if isinstance(op, ditron.SignalUpdateOpInterface) and op.signal_op is ditron.SignalOp.Add:
        known = constant_int(op.value)
        if known is not None and known < 0:
            pointers.append(op.signal)
    return pointers


def _strip_extensions(value: ir.Value | None) -> ir.Value | None:
    """``value`` before it was sign-extended, which is repeated at each use."""
    while value is not None and isinstance(op := defining_op(value), arith.ExtSIOp):
        value = op.in_
    return value


def _is_invariant(symbol: ir.Value | None) -> bool:
    """Whether ``symbol`` is the same on every rank, and in every iteration of every loop."""
    return (
        symbol is None
        or not is_rank_variant(symbol)
        and all(defining_op(value) is not None or is_function_argument(value) for value in backward_slice(symbol))
    )


def _roots(pointer: ir.Value) -> frozenset[ir.Value]:
    return frozenset(origin.root for origin in underlying_objects(pointer))
