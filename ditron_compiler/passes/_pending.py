"""What a kernel has done that nothing has ordered or completed yet, along every path: the analysis of insert-fences."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.lowering import gpu_checks
from ditron_compiler.lowering.enums import keyword
from ditron_compiler.passes._pointers import defined_in, origins

__all__ = ["Pending", "scan"]

# Kinds of what can be pending. The first five are ordered by a fence, all are complete after a quiet.
PUT, STORE, LOCAL_STORE, LOAD, UPDATE = "put", "store", "local store", "load", "update"
SIGNAL, SOURCE, DESTINATION = "signal", "source", "destination"
WAITED = "waited"  # not pending, but known along the path: a wait is over
_PUBLISHED = (PUT, STORE, LOCAL_STORE, LOAD)
_FENCED = (*_PUBLISHED, UPDATE)
_INCOMPLETE = (SIGNAL, SOURCE, DESTINATION)

_WORDS = {PUT: "a put", STORE: "a store to another rank", LOCAL_STORE: "a store", LOAD: "a load after a wait",
          UPDATE: "an earlier update of this signal",
          SIGNAL: "a signal on its way", SOURCE: "a non-blocking put", DESTINATION: "a non-blocking get"}


@dataclass(frozen=True)
class Pending:
    """One thing that is pending: its kind in words, and the operation that began it."""

    what: str
    op: ir.Operation


# (kind, of which rank, or from which origin in memory, of a signal pointer and rank; None is any) -> who began it.
What = ir.Value | tuple[ir.Value, ir.Value] | None
Key = tuple[str, What]
State = dict[Key, frozenset[ir.Operation]]


@dataclass(frozen=True)
class Finding:
    """``what`` ("fence" or "quiet") is missing right before ``place``, for ``pending``, which ``needed_by`` relies on.

    ``place`` is None where it cannot go, since not all threads of the program come by.
    """

    place: ir.Operation | None
    what: str
    pending: Pending
    needed_by: ir.Operation


_STORES = {"tt.store", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce", "tt.atomic_rmw",
           "tt.atomic_cas", "ditron.multimem_st", "ditron.multimem_red"}
_LOADS = {"tt.load", "tt.descriptor_load", "tt.descriptor_gather"}
_SENDERS = {f"ditron.{name}" for name in (
    "notify", "signal_op", "putmem", "getmem", "putmem_signal", "sync_all", "st", "red", "atomic_add", "atomic_cas")}
_CELLS = {"ditron.st", "ditron.red", "ditron.atomic_add", "ditron.atomic_cas"}
_SIGNALS = {"ditron.wait": 0, "ditron.signal_wait_until": 0, "ditron.notify": 0, "ditron.signal_op": 0,
            "ditron.putmem_signal": 3}


def scan(function: ir.Operation, at_end: bool) -> list[Finding]:
    """Everything that is missing in ``function``; with ``at_end``, also at its end."""
    scanner = _Scanner(function, at_end)
    findings: list[Finding] = []
    if scanner.communicates:
        scanner.region(function.regions[0], {}, findings)
    return findings


class _Scanner:
    def __init__(self, function: ir.Operation, at_end: bool):
        self.at_end = at_end
        self.loops: dict[tuple[ir.Operation, frozenset], tuple[State, list[Finding]]] = {}
        everything: list[tuple[str, ir.Operation]] = []
        function.walk(lambda op: everything.append((op.name, op)))
        ours = [op for name, op in everything if name.startswith("ditron.")]
        self.communicates = any(op.name in _SENDERS for op in ours)
        if not self.communicates:
            return
        pointers = [op.operands[_SIGNALS[op.name]] for op in ours if op.name in _SIGNALS]
        pointers += [op.operands[0] for op in ours if op.name == "ditron.ld" and _semantic(op) == "acquire"]
        self.flags = {origin.root for pointer in pointers for origin in origins(pointer)}
        self.varying = gpu_checks.thread_varying(function, ours)
        self.specialized = any(name == "scf.for" and "tt.warp_specialize" in op.attributes for name, op in everything)
        self.relevant = _with_parents(op for name, op in everything
                                      if name in _STORES or name in _LOADS or name.startswith("ditron.")
                                      or name == "tt.return")

    # Paths ----------------------------------------------------------------------------------------------------------

    def region(self, region: ir.Region, entry: State, findings: list[Finding] | None) -> State:
        """The state at the end of a region; what is missing goes to ``findings`` if given."""
        blocks = list(region)
        if len(blocks) == 1:
            return self.block(blocks[0], dict(entry), findings)
        before: dict[ir.Block, State] = {block: {} for block in blocks} | {blocks[0]: dict(entry)}
        changed = True
        while changed:
            changed = False
            for block in blocks:
                after = self.block(block, dict(before[block]), None)
                for successor in block.successors:
                    changed |= _merge(before[successor], after)
        ends: State = {}
        for block in blocks:
            after = self.block(block, dict(before[block]), findings)
            if not block.successors:
                _merge(ends, after)
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
        after: State = {} if all(len(region) for region in op.regions) else dict(state)
        for region in op.regions:
            if len(region):
                _merge(after, _leaving(op, self.region(region, state, findings)))
        return after

    def loop(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> State:
        entry = op, frozenset(state.items())
        if entry not in self.loops:  # a loop in a loop is come to with the same state again and again
            self.loops[entry] = self.enter(op, dict(state))
        after, found = self.loops[entry]
        if findings is not None:
            findings += found
        return dict(after)

    def enter(self, op: ir.Operation, state: State) -> tuple[State, list[Finding]]:
        """The state behind a loop, and what is missing in it or in front of it."""
        inside: list[Finding] = []
        after = self.turns(op, state, inside)
        if inside:
            own: list[Finding] = []
            self.turns(op, {key: began for key, began in state.items() if key[0] == WAITED}, own)
            if not own:  # all of it comes from before the loop, and can be ordered there once
                strongest = min(inside, key=lambda finding: finding.what == "fence")
                before: list[Finding] = []
                self.order(strongest.what, strongest.pending, strongest.needed_by, state, before, place=op)
                inside.clear()
                after = self.turns(op, state, inside)
                inside = before + inside
        return after, inside

    def turns(self, op: ir.Operation, entry: State, findings: list[Finding]) -> State:
        """Behind a loop: what comes round is known no more by name, since ranks and pointers change at each turn."""
        around = dict(entry)
        while _merge(around, self.turn(op, around, None)):
            pass
        after = self.turn(op, around, findings)
        _merge(after, entry)  # no turn at all
        return after

    def turn(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> State:
        left: State = {}
        for region in op.regions:  # of a while both: it may end in either
            state = _leaving(op, self.region(region, state, findings))
            _merge(left, state)
        return left

    # Operations -----------------------------------------------------------------------------------------------------

    def order(self, what: str, pending: Pending, needed_by: ir.Operation, state: State,
              findings: list[Finding] | None, place: ir.Operation | None = None) -> None:
        """``what`` is missing before ``place``, by default ``needed_by``; go on as if it were there."""
        if findings is not None:
            findings.append(Finding(self.reachable(place or needed_by, pending.op), what, pending, needed_by))
        _drop(state, _FENCED if what == "fence" else _FENCED + _INCOMPLETE)

    def reachable(self, place: ir.Operation, after: ir.Operation) -> ir.Operation | None:
        """``place``, or what is around it that all threads reach and that comes behind ``after``."""
        if self.specialized:
            return None
        while (decides := gpu_checks.under_varying_control(place, self.varying)) is not None:
            if not decides.name.startswith("scf.") or decides.is_ancestor(after):
                return None
            place = decides
        return place

    def need(self, op: ir.Operation, what: str, kinds: Iterable[str], state: State, findings: list[Finding] | None,
             at: What = None) -> None:
        """``op`` needs ``what`` before it if something of ``kinds`` is pending (at a pointer ``at``, if given)."""
        for (kind, key), began in state.items():
            if kind in kinds and (at is None or key is not None and key == at):
                self.order(what, Pending(_WORDS[kind], _first(began)), op, state, findings)
                return

    def in_use(self, kind: str, pointer: ir.Value, op: ir.Operation, state: State) -> None:
        """``op`` uses what ``pointer`` is computed from; which part of it is not asked."""
        for origin in origins(pointer):
            _add(state, kind, origin.root, op)

    def need_free(self, op: ir.Operation, kinds: Iterable[str], pointer: ir.Value, state: State,
                  findings: list[Finding] | None) -> None:
        """``op`` needs a quiet before it if ``pointer`` may lead into what is in use; no name is any."""
        roots = {origin.root for origin in origins(pointer) if origin.rank is None}
        for (kind, key), began in state.items():
            if roots and kind in kinds and (key is None or key in roots):
                self.order("quiet", Pending(_WORDS[kind], _first(began)), op, state, findings)
                return

    def operation(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> None:
        name = op.name
        if name in _STORES:
            self.need_free(op, (SOURCE, DESTINATION), op.operands[0], state, findings)
            self.store(op, state)
        elif name in _LOADS:
            self.need_free(op, (DESTINATION,), op.operands[0], state, findings)
            if (WAITED, None) in state:
                _add(state, LOAD, None, op)
        elif name in _CELLS:
            if self.is_flag(op):
                released = _semantic(op) in ("release", "acq_rel")
                self.need(op, "quiet", (PUT,), state, findings)
                self.need(op, "fence", () if released else _PUBLISHED, state, findings)
            else:
                self.store(op, state)
        elif name.startswith("ditron."):
            self.communication(op, state, findings)
        elif name == "tt.return" and self.at_end:
            self.end(op, state, findings)

    def communication(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> None:
        mnemonic = op.name.removeprefix("ditron.")
        if mnemonic == "signal_op":
            self.need(op, "fence", _PUBLISHED, state, findings)
            self.update(op, op.operands[0], op.operands[2], state, findings)
        elif mnemonic == "putmem_signal":
            self.need_free(op, (DESTINATION,), op.operands[1], state, findings)
            self.need(op, "fence", (PUT, STORE), state, findings)
            self.update(op, op.operands[3], op.operands[5], state, findings)
            if "nbi" in op.attributes:
                self.in_use(SOURCE, op.operands[1], op, state)
        elif mnemonic == "putmem":
            self.need_free(op, (DESTINATION,), op.operands[1], state, findings)
            _add(state, PUT, op.operands[3], op)
            if "nbi" in op.attributes:
                self.in_use(SOURCE, op.operands[1], op, state)
        elif mnemonic == "getmem" and "nbi" in op.attributes:
            self.in_use(DESTINATION, op.operands[0], op, state)
        elif mnemonic == "notify":
            signal, _, rank = op.operands
            for key in [(PUT, rank), (STORE, rank), (LOCAL_STORE, None), (LOAD, None), (UPDATE, (signal, rank))]:
                state.pop(key, None)
            self.update(op, signal, rank, state, findings)
        elif mnemonic == "fence":
            _drop(state, _FENCED)
        elif mnemonic in ("quiet", "barrier", "barrier_all"):
            _drop(state, _FENCED + _INCOMPLETE)
        elif mnemonic == "sync_all":
            self.need(op, "quiet", (PUT,), state, findings)
            _drop(state, (STORE, LOCAL_STORE, LOAD))
        elif mnemonic in ("wait", "signal_wait_until"):
            _add(state, WAITED, None, op)

    def update(self, op: ir.Operation, signal: ir.Value, rank: ir.Value, state: State,
               findings: list[Finding] | None) -> None:
        """Two updates of a signal, of which one sets it, must not overtake each other."""
        earlier = state.get((UPDATE, (signal, rank)), frozenset())
        if any(keyword(o.attributes["op"]) == "set" for o in [op, *earlier]):
            self.need(op, "fence", (UPDATE,), state, findings, (signal, rank))
        _add(state, UPDATE, (signal, rank), op)
        _add(state, SIGNAL, None, op)

    def store(self, op: ir.Operation, state: State) -> None:
        for origin in origins(op.operands[0]):
            _add(state, LOCAL_STORE if origin.rank is None else STORE, origin.rank, op)

    def is_flag(self, op: ir.Operation) -> bool:
        if ir.RankedTensorType.isinstance(op.operands[0].type):
            return False
        return any(origin.root in self.flags or origin.rank is not None and str(op.operands[1].type) == "i64"
                   for origin in origins(op.operands[0]))

    def end(self, op: ir.Operation, state: State, findings: list[Finding] | None) -> None:
        """Completes what is not; in the branch of an if that alone began it, so that the others do not pay."""
        incomplete = {began: kind for (kind, _), all_began in state.items() if kind in _INCOMPLETE
                      for began in all_began}
        if not incomplete:
            return
        place = op
        while True:
            branches = {_branch_in(place.block, began) for began in incomplete}
            block = branches.pop() if len(branches) == 1 else None
            if block is None or gpu_checks.under_varying_control(block.terminator, self.varying) is not None:
                break
            place = block.terminator
        began = _first(incomplete)
        self.order("quiet", Pending(_WORDS[incomplete[began]], began), place, state, findings)


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


def _first(operations: Iterable[ir.Operation]) -> ir.Operation:
    """Any, but in every run the same: the first by its location."""
    return min(operations, key=lambda op: str(op.location))


def _add(state: State, kind: str, key: What, op: ir.Operation) -> None:
    state[kind, key] = state.get((kind, key), frozenset()) | {op}


def _semantic(op: ir.Operation) -> str:
    return keyword(op.attributes["semantic"])


def _merge(into: State, other: State) -> bool:
    """Add what may be pending on another path; whether that is more."""
    more = False
    for key, began in other.items():
        if not began <= into.get(key, frozenset()):
            into[key] = into.get(key, frozenset()) | began
            more = True
    return more


def _drop(state: State, kinds: Iterable[str]) -> None:
    for key in [key for key in state if key[0] in kinds]:
        del state[key]


def _leaving(op: ir.Operation, state: State) -> State:
    """``state`` behind a region of ``op``, where the values that it makes have no name."""
    left: State = {}
    for (kind, key), began in state.items():
        values = key if isinstance(key, tuple) else (key,)
        known = None if any(value is not None and defined_in(value, op) for value in values) else key
        left[kind, known] = left.get((kind, known), frozenset()) | began
    return left
