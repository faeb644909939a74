"""Divergence: which values may differ between the threads of a program, and which control flow depends on them.

A forward "may" analysis on the lattice uniform < divergent: a value that is not divergent is the same in all threads.
Loaded values count as uniform, since all threads of a program load them alike.
"""

from __future__ import annotations

from collections.abc import Iterable

from ditron_compiler import ir
from ditron_compiler.ir.dialects import ditron, scf, tt


def divergent_values(function: tt.FuncOp, operations: Iterable[ir.Operation]) -> set[ir.Value]:
    """The values of ``function`` that may depend on the thread; ``operations`` are all of its ``ditron`` operations."""
    divergent: set[ir.Value] = set()
    if not any(isinstance(op, ditron.ThreadDependent) for op in operations):
        return divergent

    def add_arguments(blocks: Iterable[ir.Block]) -> None:
        for block in blocks:
            divergent.update(block.arguments)

    def transfer(op: ir.Operation) -> None:
        if not isinstance(op, ditron.ThreadDependent) and not any(operand in divergent for operand in op.operands):
            return
        divergent.update(op.results)
        for region in op.regions:
            add_arguments(region)
        if isinstance(op, (scf.YieldOp, scf.ConditionOp)):  # results of the parent, and iteration arguments
            divergent.update(op.parent.results)
            for region in op.parent.regions:
                add_arguments(region)
        # A divergent branch also decides which values later blocks receive from elsewhere.
        add_arguments(_reachable(op.successors))

    before = -1
    while len(divergent) != before:  # to a fixpoint, for values that loops carry
        before = len(divergent)
        function.walk(transfer, ir.WalkOrder.PRE_ORDER)
    return divergent


def divergent_control(op: ir.Operation, divergent: set[ir.Value]) -> ir.Operation | None:
    """The innermost operation that makes the control flow at ``op`` divergent; None if all threads reach it alike.

    That is an ancestor with a divergent condition or trip count, or a branch before ``op``, as of an early return.
    """
    while divergent and not isinstance(op, tt.FuncOp):
        branch = _divergent_branch(op.block, divergent) if len(list(op.block.region)) > 1 else None
        if branch is not None:
            return branch
        op = op.parent
        if op is None:
            return None
        if any(operand in divergent for operand in control_operands(op)):
            return op
    return None


def control_operands(op: ir.Operation) -> Iterable[ir.Value]:
    """The values that decide whether, or how often, the regions of ``op`` are executed."""
    if isinstance(op, scf.IfOp):
        return [op.condition]
    if isinstance(op, scf.ForOp):
        return [op.lowerBound, op.upperBound, op.step]
    if isinstance(op, scf.WhileOp):
        return [op.before_block.terminator.condition]
    return []


def _divergent_branch(block: ir.Block, divergent: set[ir.Value]) -> ir.Operation | None:
    """A divergent branch of the region of ``block`` after which some threads reach ``block`` and others may not."""
    for other in block.region:
        branch = other.terminator
        if branch is None or len(branch.successors) < 2 or not any(operand in divergent for operand in branch.operands):
            continue
        if block in _reachable(branch.successors) and any(
            not end.successors for end in _reachable(branch.successors, avoiding=block)
        ):
            return branch
    return None


def _reachable(blocks: Iterable[ir.Block], avoiding: ir.Block | None = None) -> set[ir.Block]:
    """``blocks``, and the blocks that control flow reaches from them without passing through ``avoiding``."""
    found: set[ir.Block] = set()
    worklist = list(blocks)
    while worklist:
        block = worklist.pop()
        if block not in found and block != avoiding:
            found.add(block)
            worklist += block.successors
    return found
