"""Memory-order analysis: where fences and quiets are missing in a kernel, on every path.

A forward dataflow analysis. Its lattice is in ``memory_order_lattice``: what may be unordered or incomplete; the
transfer functions are in ``memory_order_transfer``. States are joined where paths meet, and loops are iterated to a
fixpoint, with values of earlier iterations renamed. Where an operation needs an order that may be missing, it is
recorded, and the analysis continues as if it were there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ditron_compiler import ir
from ditron_compiler.analysis.memory_order_lattice import WAITED, MemoryOrderState
from ditron_compiler.analysis.memory_order_transfer import MissingOrder, TransferFunctions
from ditron_compiler.analysis.signal_updates import PreviousIteration
from ditron_compiler.analysis.slicing import is_defined_in, is_invariant
from ditron_compiler.ir.dialects import scf, tt


def missing_orders(function: tt.FuncOp, at_end: bool) -> list[MissingOrder]:
    """Every fence and quiet that is missing in ``function``; with ``at_end`` also at its end, if it is a kernel."""
    missing: list[MissingOrder] = []
    transfer = TransferFunctions(function, at_end)
    if transfer.communicates:
        MemoryOrderAnalysis(transfer).region(function.body, MemoryOrderState(), missing)
    return missing


class MemoryOrderAnalysis:
    """Propagates states through regions. What is missing is added to the list ``missing``, unless that is None."""

    def __init__(self, transfer: TransferFunctions):
        self._transfer = transfer
        self._operations = _with_ancestors(transfer.relevant)
        self._loops: dict[tuple[ir.Operation, frozenset], tuple[MemoryOrderState, list[MissingOrder]]] = {}

    def region(
        self, region: ir.Region, entry: MemoryOrderState, missing: list[MissingOrder] | None
    ) -> MemoryOrderState:
        """The state at the end of a region."""
        blocks = list(region)
        if len(blocks) == 1:
            return self._block(blocks[0], entry.copy(), missing)
        before = {block: MemoryOrderState() for block in blocks} | {blocks[0]: entry.copy()}

        def rename(key: Any) -> Any:  # a block other than the entry may be executed again, with other values
            return key if not isinstance(key, ir.Value) or _is_defined_in_entry(key, region) else None

        changed = True
        while changed:
            changed = False
            for block in blocks:
                after = self._block(block, before[block].copy(), None)
                for successor in block.successors:
                    changed |= before[successor].join(after.renamed(rename))
        end = MemoryOrderState()
        for block in blocks:
            after = self._block(block, before[block].copy(), missing)
            if not block.successors:
                end.join(after)
        return end

    def _block(self, block: ir.Block, state: MemoryOrderState, missing: list[MissingOrder] | None) -> MemoryOrderState:
        for op in self._operations.get(block, ()):
            if isinstance(op, (scf.ForOp, scf.WhileOp)):
                state = self._loop(op, state, missing)
            elif isinstance(op, scf.IfOp):
                state = self._if(op, state, missing)
            else:
                self._transfer.transfer(op, state, missing)
        return state

    def _if(self, op: scf.IfOp, state: MemoryOrderState, missing: list[MissingOrder] | None) -> MemoryOrderState:
        after = MemoryOrderState() if all(len(region) for region in op.regions) else state.copy()
        for region in op.regions:
            if len(region):
                after.join(self.region(region, state, missing).renamed(_leaving(op)))
        return after

    def _loop(self, op: ir.Operation, state: MemoryOrderState, missing: list[MissingOrder] | None) -> MemoryOrderState:
        key = op, state.frozen()
        if key not in self._loops:  # a nested loop is entered with the same state many times
            self._loops[key] = self._enter(op, state.copy())
        after, found = self._loops[key]
        if missing is not None:
            missing += found
        return after.copy()

    def _enter(self, op: ir.Operation, state: MemoryOrderState) -> tuple[MemoryOrderState, list[MissingOrder]]:
        """The state after a loop, and what is missing in it, or in front of it if that suffices for all iterations."""
        inside: list[MissingOrder] = []
        after = self._fixpoint(op, state, inside)
        if inside:
            own: list[MissingOrder] = []
            self._fixpoint(op, state.only(WAITED), own)
            if not own:  # all pending effects are from before the loop
                strongest = min(inside, key=lambda missing: missing.what == "fence")
                before: list[MissingOrder] = []
                self._transfer.order(strongest.what, strongest.pending, strongest.needed_by, state, before, place=op)
                inside.clear()
                after = self._fixpoint(op, state, inside)
                inside = before + inside
        return after, inside

    def _fixpoint(self, op: ir.Operation, entry: MemoryOrderState, missing: list[MissingOrder]) -> MemoryOrderState:
        """The state after a loop, by iteration of its body."""
        around = entry.copy()
        while around.join(self._iteration(op, around, None)):
            pass
        after = self._iteration(op, around, missing).renamed(_leaving(op))
        after.join(entry)  # without any iteration
        return after

    def _iteration(
        self, op: ir.Operation, state: MemoryOrderState, missing: list[MissingOrder] | None
    ) -> MemoryOrderState:
        """The state before the next iteration, or after either region of an ``scf.while``."""
        after = MemoryOrderState()
        for region in op.regions:
            state = self.region(region, state, missing).renamed(_next_iteration(op))
            after.join(state)
        return after


def _with_ancestors(operations: Iterable[ir.Operation]) -> dict[ir.Block, list[ir.Operation]]:
    """``operations`` and all that they are nested in, by block, in order."""
    wanted: set[ir.Operation] = set()
    for op in operations:
        while op not in wanted and not isinstance(op, tt.FuncOp):
            wanted.add(op)
            op = op.parent
    blocks = {op.block for op in wanted}
    return {block: [op for op in block if op in wanted] for block in blocks}


def _is_defined_in_entry(value: ir.Value, region: ir.Region) -> bool:
    """Whether ``value`` is defined outside of ``region`` or in its entry block, and so once per execution."""
    block = value.owner.block if isinstance(value, ir.OpResult) else value.owner
    while block.region != region:
        if block.owner is None or block.owner.block is None:
            return True
        block = block.owner.block
    return block == region.blocks[0]


def _leaving(op: ir.Operation) -> Callable[[Any], Any]:
    """Renames for the state after ``op``: values defined in its regions have no name there."""

    def rename(key: Any) -> Any:
        value = key.value if isinstance(key, PreviousIteration) else key
        return None if value is not None and is_defined_in(value, op) else key

    return rename


def _next_iteration(loop: ir.Operation) -> Callable[[Any], Any]:
    """Renames for the state before the next iteration of ``loop``."""

    def rename(key: Any) -> Any:
        if isinstance(key, PreviousIteration):
            return key if key.loop == loop else None
        return key if key is None or is_invariant(key, loop) else PreviousIteration(key, loop)

    return rename
