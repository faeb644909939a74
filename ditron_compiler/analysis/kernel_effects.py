"""Kernel effects: how a kernel accesses the memory of its arguments ("may"; unknown operations may do anything)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.call_graph import is_pointer_like, only_prefetches, pointer_operands
from ditron_compiler.ir.dialects import ditron, scf, tt


@dataclass(frozen=True)
class ArgumentEffects:
    """Whether an argument's memory is read or written, and whether that is on other ranks too (``remote``)."""

    reads: bool = False
    writes: bool = False
    remote: bool = False

    def __or__(self, other: ArgumentEffects) -> ArgumentEffects:
        return ArgumentEffects(self.reads | other.reads, self.writes | other.writes, self.remote | other.remote)


_READ, _WRITE, _REMOTE = ArgumentEffects(reads=True), ArgumentEffects(writes=True), ArgumentEffects(remote=True)
_ANY = ArgumentEffects(True, True, True)
_NO_ACCESS = (scf.YieldOp, scf.ForOp, scf.IfOp, scf.WhileOp, scf.ConditionOp, tt.FuncOp, tt.ReturnOp)


def argument_effects(function: tt.FuncOp) -> tuple[ArgumentEffects, ...]:
    """The effects on each argument of a ``tt.func``."""
    effects = dict.fromkeys(function.arguments, ArgumentEffects())
    unknown = ArgumentEffects()  # on objects that are not known, and so on any

    def visit(op: ir.Operation) -> None:
        nonlocal unknown
        for pointer, effect in _accesses(op):
            for origin in underlying_objects(pointer):
                here = effect if origin.rank is None else effect | _REMOTE
                if origin.root in effects:
                    effects[origin.root] |= here
                else:
                    unknown |= here

    function.walk(visit)
    return tuple(effect | unknown for effect in effects.values())


def _accesses(op: ir.Operation) -> Iterator[tuple[ir.Value, ArgumentEffects]]:
    """The pointers that ``op`` accesses memory through, and how."""
    if isinstance(op, _NO_ACCESS) or _is_pointer_arithmetic(op) or only_prefetches(op):
        return
    if isinstance(op, (tt.LoadOp, ditron.LdOp)):
        yield op.ptr, _READ
    elif isinstance(op, tt.DescriptorLoadOp):
        yield op.desc, _READ
    elif isinstance(op, (tt.StoreOp, ditron.StOp)):
        yield op.ptr, _WRITE
    elif isinstance(op, tt.DescriptorStoreOp):
        yield op.desc, _WRITE
    elif isinstance(op, ditron.SignalReadOpInterface):
        yield op.signal, _READ
    elif isinstance(op, (ditron.MemoryTransferOpInterface, ditron.SignalUpdateOpInterface)):
        if isinstance(op, ditron.MemoryTransferOpInterface):
            yield op.remote, _REMOTE | (_WRITE if op.is_put else _READ)
            yield op.local, _READ if op.is_put else _WRITE
        if isinstance(op, ditron.SignalUpdateOpInterface):
            yield op.signal, _REMOTE | _WRITE
    elif isinstance(op, ditron.LLPutOp):
        yield op.packets, _REMOTE | _WRITE
        yield op.src, _READ
    elif isinstance(op, ditron.LLGetOp):
        yield op.packets, _READ
        yield op.dst, _WRITE
    else:
        for pointer in pointer_operands(op):
            yield pointer, _ANY


def _is_pointer_arithmetic(op: ir.Operation) -> bool:
    """Whether ``op`` makes pointers and does not access memory."""
    return op.is_memory_effect_free and any(is_pointer_like(result.type) for result in op.results)
