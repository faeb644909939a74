"""Where fences and quiets are missing in a kernel, along every path: the analysis of insert-fences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ditron_compiler import ir
from ditron_compiler.analysis import divergence as gpu_checks
from ditron_compiler.analysis.alias import may_alias, underlying_objects
from ditron_compiler.analysis.call_graph import OPAQUE, pointers, reached
from ditron_compiler.analysis.memory_order_state import (
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
    Pending,
    State,
    first,
)
from ditron_compiler.analysis.rank_variance import Place, is_other, place
from ditron_compiler.analysis.signal_updates import Earlier, Update
from ditron_compiler.analysis.slicing import is_defined_in
from ditron_compiler.ir.dialects.enums import keyword
from ditron_compiler.ir.matchers import is_function_argument

__all__ = ["Finding", "scan"]


@dataclass(frozen=True)
class Finding:
    """``what`` ("fence" or "quiet") is missing right before ``place``, for ``pending``, which ``needed_by`` relies on.

    ``place`` is None where it cannot go, since not all threads of the program come by.
    """

    place: ir.Operation | None
    what: str
    pending: Pending
    needed_by: ir.Operation


_STORES = {
    "tt.store",
    "tt.descriptor_store",
    "tt.descriptor_scatter",
    "tt.descriptor_reduce",
    "tt.atomic_rmw",
    "tt.atomic_cas",
}
_STORES_TO_ALL = {"ditron.multimem_st", "ditron.multimem_red"}
_LOADS = {"tt.load", "tt.descriptor_load", "tt.descriptor_gather", "ditron.multimem_ld_reduce"}
_SENDERS = {
    f"ditron.{name}"
    for name in (
        "notify",
        "signal_op",
        "putmem",
        "getmem",
        "putmem_signal",
        "sync_all",
        "st",
        "red",
        "atomic_add",
        "atomic_cas",
    )
}
_CELLS = {"ditron.st", "ditron.red", "ditron.atomic_add", "ditron.atomic_cas"}
_SIGNALS = {
    "ditron.wait": 0,
    "ditron.signal_wait_until": 0,
    "ditron.notify": 0,
    "ditron.signal_op": 0,
    "ditron.putmem_signal": 3,
}
_RELEVANT = _STORES | _LOADS | {*OPAQUE, "tt.return"}  # beside all of ditron


def scan(function: ir.Operation, at_end: bool) -> list[Finding]:
    """Everything that is missing in ``function``; with ``at_end``, also at its end if it is a kernel."""
    scanner = _Scanner(function, at_end)
    findings: list[Finding] = []
    if scanner.communicates:
        scanner.region(function.regions[0], State(), findings)
    return findings


@dataclass(frozen=True)
class _Does:
    """What code that is not looked into may do with the pointers it gets."""

    stores: bool
    loads: bool
    communicates: bool = False

    @staticmethod
    def of(op: ir.Operation) -> _Does:
        if op.name != "tt.call":
            return _Does(not op.is_memory_effect_free, not op.is_memory_effect_free)
        found = [o for o in reached(op) if not o.is_memory_effect_free]
        names = {o.name for o in found}
        return _Does(
            bool(names & {*_STORES, *OPAQUE}),
            bool(names & {*_LOADS, *OPAQUE}),
            "tt.call" in names or any(name.startswith("ditron.") for name in names),
        )


class _Scanner:
    def __init__(self, function: ir.Operation, at_end: bool):
        visibility = function.attributes.get("sym_visibility")
        self.at_end = at_end and (visibility is None or ir.StringAttr(visibility).value != "private")
        self.loops: dict[tuple[ir.Operation, frozenset], tuple[State, list[Finding]]] = {}
        self.does = cache(_Does.of)
        everything: list[tuple[str, ir.Operation]] = []
        function.walk(lambda op: everything.append((op.name, op)))
        ours = [op for name, op in everything if name.startswith("ditron.")]
        self.communicates = any(op.name in _SENDERS for op in ours) or any(
            self.does(op).communicates for name, op in everything if name == "tt.call"
        )
        if not self.communicates:
            return
        signals = [op.operands[_SIGNALS[op.name]] for op in ours if op.name in _SIGNALS]
        signals += [op.operands[0] for op in ours if op.name == "ditron.ld" and _semantic(op) == "acquire"]
        self.flags = {origin.root for signal in signals for origin in underlying_objects(signal)}
        self.varying = gpu_checks.thread_varying(function, ours)
        self.specialized = any(name == "scf.for" and "tt.warp_specialize" in op.attributes for name, op in everything)
        self.relevant = _with_parents(op for name, op in everything if name in _RELEVANT or name.startswith("ditron."))

    # Paths ----------------------------------------------------------------------------------------------------------

    def region(self, region: ir.Region, entry: State, findings: list[Finding] | None) -> State:
        """The state at the end of a region; what is missing goes to ``findings`` if given."""
        blocks = list(region)
        if len(blocks) == 1:
            return self.block(blocks[0], entry.copy(), findings)
        before = {block: State() for block in blocks} | {blocks[0]: entry.copy()}

        def rename(key: Any) -> Any:  # another block may come round again, with other values
            return key if not isinstance(key, ir.Value) or _is_made_first(key, region) else None

        changed = True
        while changed:
            changed = False
            for block in blocks:
                after = self.block(block, before[block].copy(), None)
                for successor in block.successors:
                    changed |= before[successor].merge(after.renamed(rename))
        ends = State()
        for block in blocks:
            after = self.block(block, before[block].copy(), findings)
            if not block.successors:
                ends.merge(after)
        return ends

    def block(self, block: ir.Block, state: State, findings: list[Finding] | None) -> State:
        for op in self.relevant.get(block, ()):
            if op.name in ("scf.for", "scf.while"):
                state = self.loop(op, state, findings)
            elif op.name == "scf.if":
                state = self.branches(op, state, findings)
            else:
                self.operation(op, state, findings)
        return state

    def branches(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> State:
        after = State() if all(len(region) for region in op.regions) else state.copy()
        for region in op.regions:
            if len(region):
                after.merge(self.region(region, state, findings).renamed(_outside(op)))
        return after

    def loop(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> State:
        entry = op, state.frozen()
        if entry not in self.loops:  # a loop in a loop is come to with the same state again and again
            self.loops[entry] = self.enter(op, state.copy())
        after, found = self.loops[entry]
        if findings is not None:
            findings += found
        return after.copy()

    def enter(self, op: ir.Operation, state: State) -> tuple[State, list[Finding]]:
        """The state behind a loop, and what is missing in it or in front of it."""
        inside: list[Finding] = []
        after = self.turns(op, state, inside)
        if inside:
            own: list[Finding] = []
            self.turns(op, state.only(WAITED), own)
            if not own:  # all of it comes from before the loop, and can be ordered there once
                strongest = min(inside, key=lambda finding: finding.what == "fence")
                before: list[Finding] = []
                self.order(strongest.what, strongest.pending, strongest.needed_by, state, before, place=op)
                inside.clear()
                after = self.turns(op, state, inside)
                inside = before + inside
        return after, inside

    def turns(self, op: ir.Operation, entry: State, findings: list[Finding]) -> State:
        """Behind a loop: what its turns leave has no name there."""
        around = entry.copy()
        while around.merge(self.turn(op, around, None)):
            pass
        after = self.turn(op, around, findings).renamed(_outside(op))
        after.merge(entry)  # no turn at all
        return after

    def turn(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> State:
        """Before the next turn: what comes round is known by what it was in an earlier one."""
        left = State()
        for region in op.regions:  # of a while both: it may end in either
            state = self.region(region, state, findings).renamed(_around(op))
            left.merge(state)
        return left

    # Operations -----------------------------------------------------------------------------------------------------

    def order(
        self,
        what: str,
        pending: Pending,
        needed_by: ir.Operation,
        state: State,
        findings: list[Finding] | None,
        place: ir.Operation | None = None,
    ) -> None:
        """``what`` is missing before ``place``, by default ``needed_by``; go on as if it were there."""
        if findings is not None:
            findings.append(Finding(self.reachable(place or needed_by, pending.op), what, pending, needed_by))
        state.drop(FENCED if what == "fence" else FENCED + INCOMPLETE)

    def reachable(self, place: ir.Operation, after: ir.Operation) -> ir.Operation | None:
        """``place``, or what is around it that all threads reach and that comes behind ``after``."""
        if self.specialized:
            return None
        while (decides := gpu_checks.under_varying_control(place, self.varying)) is not None:
            if not decides.name.startswith("scf.") or decides.is_ancestor(after):
                return None
            place = decides
        return place

    def need(
        self, op: ir.Operation, what: str, kinds: Iterable[str], state: State, findings: list[Finding] | None
    ) -> None:
        """``op`` needs ``what`` before it if something of ``kinds`` is pending."""
        pending = state.first(kinds)
        if pending is not None:
            self.order(what, pending, op, state, findings)

    def need_free(
        self, op: ir.Operation, kinds: Iterable[str], pointer: ir.Value, state: State, findings: list[Finding] | None
    ) -> None:
        """``op`` needs a quiet before it if ``pointer`` may lead into what is in use on this rank."""
        roots = {
            origin.root for origin in underlying_objects(pointer) if origin.rank is None or not is_other(origin.rank)
        }
        for kind in kinds:
            for root, began in state.of(kind).items():
                if may_alias(root, roots):
                    self.order("quiet", Pending.of(kind, began), op, state, findings)
                    return

    def in_use(self, kind: str, pointer: ir.Value, op: ir.Operation, state: State) -> None:
        """``op`` uses what ``pointer`` is computed from; which part of it is not asked."""
        for origin in underlying_objects(pointer):
            state.add(kind, origin.root, op)

    def operation(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> None:
        name = op.name
        if name in _STORES:
            self.store(op, op.operands[0], state, findings)
        elif name in _LOADS or name == "ditron.ld" and not self.is_flag(op):
            self.load(op, op.operands[0], state, findings)
        elif name in OPAQUE:
            self.opaque(op, state, findings)
        elif name in _CELLS:
            if self.is_flag(op):
                released = _semantic(op) in ("release", "acq_rel")
                self.need(op, "quiet", (PUT,), state, findings)
                self.need(op, "fence", () if released else PUBLISHED, state, findings)
            else:
                self.store(op, op.operands[0], state, findings)
        elif name.startswith("ditron."):
            self.communication(op, state, findings)
        elif name == "tt.return" and self.at_end:
            self.end(op, state, findings)
        if gpu_checks.acquires(op):
            state.add(WAITED, None, op)

    def communication(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> None:
        mnemonic = op.name.removeprefix("ditron.")
        if mnemonic == "signal_op":
            self.need(op, "fence", PUBLISHED, state, findings)
            self.update(op, state, findings)
        elif mnemonic == "putmem_signal":
            self.need_free(op, (DESTINATION,), op.operands[1], state, findings)
            self.need(op, "fence", (PUT, STORE), state, findings)
            self.update(op, state, findings)
            if "nbi" in op.attributes:
                self.in_use(SOURCE, op.operands[1], op, state)
        elif mnemonic == "putmem":
            self.need_free(op, (DESTINATION,), op.operands[1], state, findings)
            state.add(PUT, op.operands[3], op)
            if "nbi" in op.attributes:
                self.in_use(SOURCE, op.operands[1], op, state)
        elif mnemonic == "getmem":
            self.need_free(op, (SOURCE,), op.operands[0], state, findings)
            if "nbi" in op.attributes:
                self.in_use(DESTINATION, op.operands[0], op, state)
        elif mnemonic == "notify":
            self.notify(op, op.operands[2], state)
        elif mnemonic == "fence":
            state.drop(FENCED)
        elif mnemonic in ("quiet", "barrier", "barrier_all"):
            state.drop(FENCED + INCOMPLETE)
        elif mnemonic == "sync_all":
            self.need(op, "quiet", (PUT,), state, findings)
            state.drop((STORE, LOCAL_STORE, LOAD))
        elif op.name in _STORES_TO_ALL:
            self.store(op, op.operands[0], state, findings)
            state.add(STORE, None, op)
        elif mnemonic == "ll_put":
            self.load(op, op.operands[1], state, findings)
        elif mnemonic == "ll_get":
            self.store(op, op.operands[0], state, findings)

    def notify(self, op: ir.Operation, rank: ir.Value, state: State) -> None:
        """Orders what goes to its rank by itself; to this one, it may do so for this GPU only."""
        state.drop((PUT, STORE), lambda key: key == rank)
        state.drop((UPDATE,), lambda update: update.rank == rank)
        if place(rank, op) != Place.SELF:
            state.drop((LOCAL_STORE, LOAD))
        for update in Update.of(op):
            state.add_update(update, op)
        state.add(SIGNAL, None, op)

    def update(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> None:
        """Two updates of a signal, of which one sets it to something else, must not overtake each other."""
        updates = list(Update.of(op))
        for earlier, began in state.of(UPDATE).items():
            if any(earlier.disturbs(update, began == {op}) for update in updates):
                self.order("fence", Pending.of(UPDATE, began), op, state, findings)
                break
        for update in updates:
            state.add_update(update, op)
        state.add(SIGNAL, None, op)

    def store(self, op: ir.Operation, pointer: ir.Value, state: State, findings: list[Finding] | None) -> None:
        self.need_free(op, (SOURCE, DESTINATION), pointer, state, findings)
        for origin in underlying_objects(pointer):
            if origin.rank is not None or not is_function_argument(origin.root):  # a loaded pointer may lead anywhere
                state.add(STORE, origin.rank, op)
            if origin.rank is None:
                state.add(LOCAL_STORE, None, op)

    def load(self, op: ir.Operation, pointer: ir.Value, state: State, findings: list[Finding] | None) -> None:
        self.need_free(op, (DESTINATION,), pointer, state, findings)
        if state.of(WAITED):
            state.add(LOAD, None, op)

    def opaque(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> None:
        """A function that is called, or code in another language: with each pointer it does all that it does at all."""
        does = self.does(op)
        if does.communicates:
            self.need(op, "quiet", FENCED + INCOMPLETE, state, findings)
        for pointer in pointers(op):
            if does.stores:
                self.store(op, pointer, state, findings)
            if does.loads:
                self.load(op, pointer, state, findings)
        if does.stores:  # where it has a pointer from that is no operand is not known
            state.add(LOCAL_STORE, None, op)
        if does.communicates:
            for kind in (PUT, STORE, *INCOMPLETE, WAITED):
                state.add(kind, None, op)
            state.add_update(Update(None, sets=True), op)

    def is_flag(self, op: ir.Operation) -> bool:
        if ir.RankedTensorType.isinstance(op.operands[0].type):
            return False
        value = op.results[0] if op.name == "ditron.ld" else op.operands[1]
        return any(
            origin.root in self.flags or origin.rank is not None and str(value.type) == "i64"
            for origin in underlying_objects(op.operands[0])
        )

    def end(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> None:
        """Completes what is not; in the branch of an if that alone began it, so that the others do not pay."""
        incomplete = {op: kind for kind in INCOMPLETE for began in state.of(kind).values() for op in began}
        if not incomplete:
            return
        place = op
        while True:
            branches = {_branch_in(place.block, began) for began in incomplete}
            block = branches.pop() if len(branches) == 1 else None
            if block is None or gpu_checks.under_varying_control(block.terminator, self.varying) is not None:
                break
            place = block.terminator
        began = first(incomplete)
        self.order("quiet", Pending(incomplete[began], began), place, state, findings)


def _branch_in(block: ir.Block, op: ir.Operation) -> ir.Block | None:
    """The branch of an if of ``block`` that ``op`` is in, at any depth."""
    inner = op
    while (outer := inner.parent) is not None and outer.block != block:
        inner = outer
    return inner.block if outer is not None and outer.name == "scf.if" else None


def _with_parents(operations: Iterable[ir.Operation]) -> dict[ir.Block, list[ir.Operation]]:
    """``operations`` and all that they are nested in, by block, in order."""
    wanted: set[ir.Operation] = set()
    for op in operations:
        while op not in wanted and op.name != "tt.func":
            wanted.add(op)
            op = op.parent
    blocks = {op.block for op in wanted}
    return {block: [op for op in block if op in wanted] for block in blocks}


def _semantic(op: ir.Operation) -> str:
    return keyword(op.attributes["semantic"])


# Names --------------------------------------------------------------------------------------------------------------


def _is_made_first(value: ir.Value, region: ir.Region) -> bool:
    """Whether ``value`` is made before any branch of ``region``, and so once."""
    block = value.owner.block if isinstance(value, ir.OpResult) else value.owner
    while block.region != region:
        if block.owner is None or block.owner.block is None:
            return True
        block = block.owner.block
    return block == region.blocks[0]


def _outside(op: ir.Operation) -> Callable[[Any], Any]:
    """Names behind ``op``: what it made in its regions has none."""

    def rename(key: Any) -> Any:
        value = key.value if isinstance(key, Earlier) else key
        return None if value is not None and is_defined_in(value, op) else key

    return rename


def _around(loop: ir.Operation) -> Callable[[Any], Any]:
    """Names in the next turn of a loop."""

    def rename(key: Any) -> Any:
        if isinstance(key, Earlier):
            return key if key.loop == loop else None
        return Earlier(key, loop) if key is not None and is_defined_in(key, loop) else key

    return rename
