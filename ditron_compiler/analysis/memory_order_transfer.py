"""The transfer functions of memory-order analysis: what each operation leaves pending, orders, and needs ordered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from ditron_compiler import ir
from ditron_compiler.analysis.alias import may_alias, underlying_objects
from ditron_compiler.analysis.call_graph import OPAQUE, pointer_operands, reachable_operations
from ditron_compiler.analysis.divergence import divergent_control, divergent_values
from ditron_compiler.analysis.memory_order_lattice import (
    DESTINATION,
    FENCED,
    INCOMPLETE,
    LOAD,
    LOCAL_STORE,
    PUBLISHED,
    PUT,
    SIGNAL,
    SOURCE,
    STORE,
    UPDATE,
    WAITED,
    MemoryOrderState,
    PendingEffect,
    first_by_location,
)
from ditron_compiler.analysis.rank_scope import is_other_rank, rank_scope
from ditron_compiler.analysis.signal_updates import SignalUpdate
from ditron_compiler.ir.dialects import ditron, scf, tt
from ditron_compiler.ir.matchers import is_function_argument


@dataclass(frozen=True)
class MissingOrder:
    """A fence or quiet (``what``) that is missing before ``place``: ``needed_by`` relies on order after ``pending``.

    ``place`` is None where it cannot be inserted, because not all threads of the program reach that point.
    """

    place: ir.Operation | None
    what: str
    pending: PendingEffect
    needed_by: ir.Operation


_TILE_STORES = (
    tt.StoreOp,
    tt.DescriptorStoreOp,
    tt.DescriptorScatterOp,
    tt.DescriptorReduceOp,
    tt.AtomicRMWOp,
    tt.AtomicCASOp,
)
_TILE_LOADS = (tt.LoadOp, tt.DescriptorLoadOp, tt.DescriptorGatherOp, ditron.MultimemLdReduceOp)
_DESCRIPTOR_OPS = (
    tt.DescriptorStoreOp,
    tt.DescriptorScatterOp,
    tt.DescriptorReduceOp,
    tt.DescriptorLoadOp,
    tt.DescriptorGatherOp,
)
# Within the program.
_THREAD_OPS = (ditron.BallotOp, ditron.ExpectOp, ditron.ShflOp, ditron.SpendOp, ditron.SyncThreadsOp)
_NO_ACCESS = (ditron.SignalReadOpInterface, *_THREAD_OPS)  # what they order, ``acquires`` says
_RELEVANT = (*_TILE_STORES, *_TILE_LOADS, *OPAQUE, tt.ReturnOp)  # beside all of ditron


def acquires(op: ir.Operation) -> bool:
    """Whether later accesses of the program may rely on what ``op`` has observed."""
    return isinstance(op, ditron.Spins) or isinstance(op, ditron.MemoryOrderOpInterface) and op.acquires


_COMMUNICATES = (ditron.SignalUpdateOpInterface, ditron.MemoryTransferOpInterface, ditron.SyncAllOp)


def _communicates(op: ir.Operation) -> bool:
    """Whether other ranks may rely on what precedes ``op``, a ditron operation."""
    if isinstance(op, ditron.AtomicOpInterface):
        return op.writes_memory
    return isinstance(op, _COMMUNICATES)


@dataclass(frozen=True)
class _Summary:
    """What an operation may do with the pointers that it gets, when its accesses are not visible."""

    stores: bool
    loads: bool
    communicates: bool = False

    @staticmethod
    def of(op: ir.Operation) -> _Summary:
        if not isinstance(op, tt.CallOp):
            unknown = not op.is_memory_effect_free
            communicates = op.name.startswith("ditron.") and not isinstance(op, ditron.ExternCallOp)
            return _Summary(unknown, unknown, unknown and communicates)
        effects = [inner for inner in reachable_operations(op) if not inner.is_memory_effect_free]
        return _Summary(
            any(isinstance(inner, (*_TILE_STORES, *OPAQUE)) for inner in effects),
            any(isinstance(inner, (*_TILE_LOADS, *OPAQUE)) for inner in effects),
            any(isinstance(inner, tt.CallOp) or inner.name.startswith("ditron.") for inner in effects),
        )


class TransferFunctions:
    """The transfer functions of one function. What is missing is added to the list ``missing``, unless that is None."""

    def __init__(self, function: tt.FuncOp, at_end: bool):
        self._at_end = at_end and not function.is_private
        self._summary = cache(_Summary.of)
        self.relevant: list[ir.Operation] = []
        ours: list[ir.Operation] = []
        calls: list[tt.CallOp] = []
        self._is_warp_specialized = False

        def visit(op: ir.Operation) -> None:
            if op.name.startswith("ditron."):
                ours.append(op)
                self.relevant.append(op)
            elif isinstance(op, _RELEVANT):
                self.relevant.append(op)
                if isinstance(op, tt.CallOp):
                    calls.append(op)
            elif isinstance(op, scf.ForOp):
                self._is_warp_specialized |= "tt.warp_specialize" in op.attributes

        function.walk(visit)
        self.communicates = any(map(_communicates, ours)) or any(self._summary(op).communicates for op in calls)
        if not self.communicates:
            return
        signals = [op.signal for op in ours if isinstance(op, ditron.SignalOpInterface)]
        signals += [op.ptr for op in ours if isinstance(op, ditron.LdOp) and op.semantic is ditron.Semantic.Acquire]
        self._signal_objects = {origin.root for signal in signals for origin in underlying_objects(signal)}
        self._divergent = divergent_values(function, ours)

    def transfer(self, op: ir.Operation, state: MemoryOrderState, missing: list[MissingOrder] | None) -> None:
        """Change ``state`` from before ``op`` to after it."""
        if isinstance(op, _TILE_STORES):
            self._store(op, _address(op), state, missing)
        elif isinstance(op, _TILE_LOADS):
            self._load(op, _address(op), state, missing)
        elif isinstance(op, OPAQUE):
            self._opaque(op, state, missing)
        elif isinstance(op, ditron.AtomicOpInterface):
            self._atomic(op, state, missing)
        elif isinstance(op, ditron.RemoteAccessOpInterface):
            self._remote_access(op, state, missing)
        elif isinstance(op, ditron.CompletesTransfers):
            state.drop(FENCED + INCOMPLETE)
        elif isinstance(op, ditron.OrdersMemory):
            state.drop(FENCED)
        elif isinstance(op, ditron.SyncAllOp):
            self._need(op, "quiet", (PUT,), state, missing)
            state.drop((STORE, LOCAL_STORE, LOAD))
        elif isinstance(op, (ditron.MultimemStOp, ditron.MultimemRedOp)):  # on all ranks
            self._store(op, op.ptr, state, missing)
            state.add(STORE, None, op)
        elif isinstance(op, ditron.LLGetOp):
            self._store(op, op.dst, state, missing)
        elif isinstance(op, tt.ReturnOp):
            if self._at_end:
                self._end(op, state, missing)
        elif not isinstance(op, _NO_ACCESS) and not op.is_memory_effect_free:
            self._opaque(op, state, missing)  # an operation that this analysis does not know
        if acquires(op):
            state.add(WAITED, None, op)

    def order(
        self,
        what: str,
        pending: PendingEffect,
        needed_by: ir.Operation,
        state: MemoryOrderState,
        missing: list[MissingOrder] | None,
        place: ir.Operation | None = None,
    ) -> None:
        """``what`` is missing before ``place``, by default ``needed_by``; continue as if it were there."""
        if missing is not None:
            place = self._convergent_place(place or needed_by, pending.op)
            missing.append(MissingOrder(place, what, pending, needed_by))
        state.drop(FENCED if what == "fence" else FENCED + INCOMPLETE)

    def _convergent_place(self, place: ir.Operation, after: ir.Operation) -> ir.Operation | None:
        """``place``, or the operation around it that all threads reach, if that is after ``after``."""
        if self._is_warp_specialized:
            return None
        while (control := divergent_control(place, self._divergent)) is not None:
            if not isinstance(control, (scf.IfOp, scf.ForOp, scf.WhileOp)) or control.is_ancestor(after):
                return None
            place = control
        return place

    def _need(
        self,
        op: ir.Operation,
        what: str,
        kinds: Iterable[str],
        state: MemoryOrderState,
        missing: list[MissingOrder] | None,
    ) -> None:
        """``op`` needs ``what`` before it if an effect of ``kinds`` may be pending."""
        pending = state.first(kinds)
        if pending is not None:
            self.order(what, pending, op, state, missing)

    def _need_unused(
        self,
        op: ir.Operation,
        kinds: Iterable[str],
        pointer: ir.Value,
        state: MemoryOrderState,
        missing: list[MissingOrder] | None,
    ) -> None:
        """``op`` needs a quiet before it if ``pointer`` may alias what a transfer of this rank uses."""
        roots = {
            origin.root
            for origin in underlying_objects(pointer)
            if origin.rank is None or not is_other_rank(origin.rank)
        }
        for kind in kinds:
            for root, causes in state.of(kind).items():
                if may_alias(root, roots):
                    self.order("quiet", PendingEffect.of(kind, causes), op, state, missing)
                    return

    def _add_objects(self, kind: str, pointer: ir.Value, op: ir.Operation, state: MemoryOrderState) -> None:
        for origin in underlying_objects(pointer):
            state.add(kind, origin.root, op)

    def _store(
        self, op: ir.Operation, pointer: ir.Value, state: MemoryOrderState, missing: list[MissingOrder] | None
    ) -> None:
        self._need_unused(op, (SOURCE, DESTINATION), pointer, state, missing)
        for origin in underlying_objects(pointer):
            if origin.rank is not None or not is_function_argument(origin.root):  # a loaded pointer may lead anywhere
                state.add(STORE, origin.rank, op)
            if origin.rank is None:
                state.add(LOCAL_STORE, None, op)

    def _load(
        self, op: ir.Operation, pointer: ir.Value, state: MemoryOrderState, missing: list[MissingOrder] | None
    ) -> None:
        self._need_unused(op, (DESTINATION,), pointer, state, missing)
        if state.of(WAITED):
            state.add(LOAD, None, op)

    def _opaque(self, op: ir.Operation, state: MemoryOrderState, missing: list[MissingOrder] | None) -> None:
        """A call, or code in another language: does with each pointer all that it does with any."""
        summary = self._summary(op)
        if summary.communicates:
            self._need(op, "quiet", FENCED + INCOMPLETE, state, missing)
        for pointer in pointer_operands(op):
            if summary.stores:
                self._store(op, pointer, state, missing)
            if summary.loads:
                self._load(op, pointer, state, missing)
        if summary.stores:  # through a pointer that is not an operand
            state.add(LOCAL_STORE, None, op)
        if summary.communicates:
            for kind in (PUT, STORE, *INCOMPLETE, WAITED):
                state.add(kind, None, op)
            state.add_update(SignalUpdate(None, is_set=True), op)

    def _atomic(
        self, op: ditron.AtomicOpInterface, state: MemoryOrderState, missing: list[MissingOrder] | None
    ) -> None:
        if not op.writes_memory:
            if not self._is_flag(op.ptr):
                self._load(op, op.ptr, state, missing)
        elif self._is_flag(op.ptr):
            self._need(op, "quiet", (PUT,), state, missing)
            self._need(op, "fence", () if op.releases else PUBLISHED, state, missing)
        else:
            self._store(op, op.ptr, state, missing)

    def _is_flag(self, pointer: ir.Value) -> bool:
        """Whether an atomic access is of a signal of this kernel, or of an i64 of another rank."""
        if ir.RankedTensorType.isinstance(pointer.type):
            return False
        is_i64 = str(pointer.type).startswith("!tt.ptr<i64")
        return any(
            origin.root in self._signal_objects or origin.rank is not None and is_i64
            for origin in underlying_objects(pointer)
        )

    def _remote_access(
        self, op: ditron.RemoteAccessOpInterface, state: MemoryOrderState, missing: list[MissingOrder] | None
    ) -> None:
        if isinstance(op, ditron.NotifyOp):
            self._notify(op, state)
        elif isinstance(op, ditron.MemoryTransferOpInterface):
            self._transfer(op, state, missing)
        elif isinstance(op, ditron.SignalUpdateOpInterface):
            self._need(op, "fence", PUBLISHED, state, missing)
            self._update(op, state, missing)
        elif isinstance(op, ditron.LLPutOp):
            self._load(op, op.src, state, missing)
        else:
            self._opaque(op, state, missing)  # an operation that this analysis does not know

    def _transfer(
        self, op: ditron.MemoryTransferOpInterface, state: MemoryOrderState, missing: list[MissingOrder] | None
    ) -> None:
        if not op.is_put:
            self._need_unused(op, (SOURCE,), op.dst, state, missing)
            if op.is_nbi:
                self._add_objects(DESTINATION, op.dst, op, state)
            return
        self._need_unused(op, (DESTINATION,), op.src, state, missing)
        if isinstance(op, ditron.SignalUpdateOpInterface):
            self._need(op, "fence", (PUT, STORE), state, missing)
            self._update(op, state, missing)
        else:
            state.add(PUT, op.rank, op)
        if op.is_nbi:
            self._add_objects(SOURCE, op.src, op, state)

    def _notify(self, op: ditron.NotifyOp, state: MemoryOrderState) -> None:
        """Releases to its rank by itself; to this rank perhaps with the scope of this GPU only."""
        rank = op.rank
        state.drop((PUT, STORE), lambda key: key == rank)
        state.drop((UPDATE,), lambda update: update.rank == rank)
        if rank_scope(rank, op) is not ditron.Scope.GPU:
            state.drop((LOCAL_STORE, LOAD))
        for update in SignalUpdate.of(op):
            state.add_update(update, op)
        state.add(SIGNAL, None, op)

    def _update(
        self, op: ditron.SignalUpdateOpInterface, state: MemoryOrderState, missing: list[MissingOrder] | None
    ) -> None:
        """Updates of a signal must be ordered if one of them sets it to another value."""
        updates = list(SignalUpdate.of(op))
        for earlier, causes in state.of(UPDATE).items():
            if any(earlier.may_conflict(update, causes == {op}) for update in updates):
                self.order("fence", PendingEffect.of(UPDATE, causes), op, state, missing)
                break
        for update in updates:
            state.add_update(update, op)
        state.add(SIGNAL, None, op)

    def _end(self, op: tt.ReturnOp, state: MemoryOrderState, missing: list[MissingOrder] | None) -> None:
        """Complete transfers; if one branch of an if has all of them, at its end, so that the others do not pay."""
        incomplete = {op: kind for kind in INCOMPLETE for causes in state.of(kind).values() for op in causes}
        if not incomplete:
            return
        place = op
        while True:
            branches = {_branch_in(place.block, cause) for cause in incomplete}
            block = branches.pop() if len(branches) == 1 else None
            if block is None or divergent_control(block.terminator, self._divergent) is not None:
                break
            place = block.terminator
        transfers = {op: kind for op, kind in incomplete.items() if kind != SIGNAL}
        first = first_by_location(transfers or incomplete)
        self.order("quiet", PendingEffect(incomplete[first], first), place, state, missing)


def _address(op: ir.Operation) -> ir.Value:
    """The pointer, pointers or descriptor of a load or store."""
    return op.desc if isinstance(op, _DESCRIPTOR_OPS) else op.ptr


def _branch_in(block: ir.Block, op: ir.Operation) -> ir.Block | None:
    """The branch of an if in ``block`` that ``op`` is nested in."""
    inner = op
    while (outer := inner.parent) is not None and outer.block != block:
        inner = outer
    return inner.block if isinstance(outer, scf.IfOp) else None
