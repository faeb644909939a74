"""Signals that streams wait for by memory operations in CUDA graphs, as what they wait for is the same in each call."""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis.own_counts import uses_of
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.ir.dialects.ditron import Cmp
from ditron_compiler.ir.matchers import constant_int

__all__ = ["fixed_waits"]


def fixed_waits(program: ditron.ProgramOp) -> frozenset[str]:
    """The labels of allocations whose signals streams wait for, and always for a constant, to be it or at least it."""
    found: set[str] = set()
    operations: list[ir.Operation] = []
    program.walk(operations.append, ir.WalkOrder.PRE_ORDER)
    for alloc in operations:
        if isinstance(alloc, ditron.AllocOp):
            waits = [op for op, _ in uses_of(alloc.result) if isinstance(op, ditron.SignalWaitOp)]
            if waits and all(op.cmp in (Cmp.GE, Cmp.EQ) and constant_int(op.value) is not None for op in waits):
                found.add(ir.StringAttr(alloc.label).value)
    return frozenset(found)
