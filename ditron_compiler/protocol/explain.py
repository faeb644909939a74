"""Findings of a run: each race, with the wait or the signal that should have ordered it."""

from __future__ import annotations

from collections.abc import Iterator

from ditron_compiler.protocol.atomics import reaches
from ditron_compiler.protocol.edges import Reordering, add_wait_edges, overtaking
from ditron_compiler.protocol.finding import Finding
from ditron_compiler.protocol.hangs import cell_name, hangs
from ditron_compiler.protocol.induction import prove
from ditron_compiler.protocol.machine import Machine
from ditron_compiler.protocol.memory import describe, parts
from ditron_compiler.protocol.races import (
    Conflict,
    Pair,
    conflicts,
    missing_token_dependences,
    open_looks,
    unordered,
    unseen_beyond_gpu,
)
from ditron_compiler.protocol.records import AccessRecord, Task, UpdateEvent, WaitEvent, WordReuse
from ditron_compiler.protocol.unwritten import unwritten

__all__ = ["findings", "unordered_stores"]


def findings(machine: Machine) -> Iterator[Finding]:
    """All findings of a machine that has run."""
    for problem in machine.problems:
        yield Finding(problem.kind, problem.text, problem.loc, _where(machine, problem.task), problem.hint)
    pairs, passing, reuses = _ordered(machine)
    for note in open_looks(machine):
        machine.note(note)
    if machine.complete and not machine.doubts:
        yield from hangs(machine)
    yield from _signals(machine, [found for found in passing if _is_known(machine, found)])
    yield from _races(machine, pairs)
    for reuse in reuses:
        yield _early_word(machine, reuse)
    for write, put, signal in unseen_beyond_gpu(machine):
        if _is_followed(machine, Pair(write, put, 0, (write, put))):
            what, hint = (
                (f"{put.how} reads memory by itself", 'scope="node" of the signal, or copy when the kernel has ended')
                if put.task.pid is None
                else (
                    "this put goes to another node, by a NIC, which need not see what it reads",
                    'scope="world" of the signal, or dl.fence() before the put',
                )
            )
            yield Finding(
                "scope",
                f"{what}: the signal behind {write.how} to it has scope gpu, that of programs of this GPU",
                put.loc,
                _where(machine, put, write),
                hint,
                ((write.how, write.loc), ("the signal", signal.loc)),
            )
    for found in unwritten(machine):
        place, copy = f"{describe(found.root, found.offset)} of rank {found.rank}", found.copy
        yield Finding(
            "unwritten",
            f"{found.read.how} of {place}, {'a copy of ' * (copy is not None)}"
            f"{'what' if copy else 'which'} nobody has written",
            found.read.loc,
            _where(machine, found.read),
            "write it before, or mask the padding",
            ((copy.how, copy.loc),) if copy else (),
        )
    for wait, read, write in missing_token_dependences(machine):
        yield Finding(
            "token",
            "this load reads what a wait is for, and does not depend on the wait's token: Triton may fetch it before",
            read.loc,
            _where(machine, read),
            "load through dl.consume_token(pointer, token)",
            (("the wait", wait.loc), (write.how, write.loc)),
        )


def unordered_stores(machine: Machine) -> Iterator[Finding]:
    """Stores to other ranks that only a put with a signal behind them orders, of a machine in which it does not."""
    pairs, _, _ = _ordered(machine)
    yield from _races(
        machine,
        [pair for pair in pairs if pair.first.node in machine.unfenced_stores and pair.first.how == "a store"],
    )


def _ordered(machine: Machine) -> tuple[list[Pair], list[Reordering], list[WordReuse]]:
    """Accesses, updates of signals, and stores of data words after others that remain unordered after all proofs."""
    doubtful_cells = {pointer for pointer, cell in machine.cells.items() if cell.doubtful}
    machine.doubts += [wait.after for wait in machine.waits if not doubtful_cells.isdisjoint(wait.cells)]
    while True:
        add_wait_edges(machine)
        pairs = [pair for pair in unordered(machine) if _is_followed(machine, pair)]
        passing = list(overtaking(machine))
        reuses = [reuse for reuse in machine.word_reuses.values() if _is_early(machine, reuse)]
        doubted = {pair.first.node for pair in pairs} | {first.node for _, first, _, _ in passing}
        doubted |= {reuse.cleared for reuse in reuses}
        doubted |= {wait.after for *_, wait in passing if wait is not None}
        if not machine.complete or not prove(machine, doubted):
            return pairs, passing, reuses


def _is_early(machine: Machine, reuse: WordReuse) -> bool:
    """Whether a data word may be stored before the one there has been cleared, as far as all is followed."""
    graph = machine.graph
    return not graph.precedes(reuse.cleared, reuse.stored) and not any(
        graph.precedes(doubt, node) for doubt in machine.doubts for node in (reuse.cleared, reuse.stored)
    )


def _early_word(machine: Machine, reuse: WordReuse) -> Finding:
    _, number, offset = parts(reuse.pointer)
    place = describe(machine.scenario.roots[number], offset)
    return Finding(
        "reuse",
        f"a word is stored to {place}, and its reader is not known to have read the one of an earlier call there",
        reuse.loc,
        _where(machine, reuse.task, reuse.reader),
        "let each rank hear from all others in every call, by words or a signal, so that none is two calls ahead",
        (("the reader clears it", reuse.cleared_loc),),
    )


def _is_known(machine: Machine, reordering: Reordering) -> bool:
    """Whether it rests on nothing that was not followed."""
    _, first, second, wait = reordering
    nodes = [first.node, second.node] + ([wait.after] if wait is not None else [])
    return not any(machine.graph.precedes(doubt, node) for doubt in machine.doubts for node in nodes)


def _is_followed(machine: Machine, pair: Pair) -> bool:
    """Whether nothing that was not followed may order two accesses, or exclude that both happen."""
    first, second = pair.first, pair.second
    shorter = min(len(first.path), len(second.path))
    return first.path[:shorter] == second.path[:shorter] and not any(
        machine.graph.precedes(doubt, access.node) for doubt in machine.doubts for access in (first, second)
    )


def _races(machine: Machine, pairs: list[Pair]) -> list[Finding]:
    """One finding per pair of lines: a read too early is, from the other side, an overwrite too early."""
    found: dict[frozenset, Finding] = {}
    for conflict in conflicts(machine, pairs):
        finding = _Race(machine, conflict).finding()
        pair = frozenset((finding.loc, finding.others[0][1]))
        if pair not in found or _RANK.get(finding.kind, 0) < _RANK.get(found[pair].kind, 0):
            found[pair] = finding
    return sorted(found.values(), key=lambda finding: _RANK.get(finding.kind, 0))


_RANK = {"unordered": 1, "reuse": 2, "writers": 3}  # lower: more specific


def _where(machine: Machine, *events: AccessRecord | UpdateEvent | WaitEvent | Task) -> str:
    who = "; ".join(dict.fromkeys(f"{getattr(event, 'task', event)}, call {event.call}" for event in events))
    return f"with {machine.scenario.title}: {who}"


def _signals(machine: Machine, passing: list[Reordering]) -> Iterator[Finding]:
    for kind, first, second, wait in passing:
        name = f"{cell_name(machine, first.cell)} of rank {parts(first.cell)[0]}"
        where = _where(machine, first, second)
        others = (("the other one", second.loc),)
        if kind == "backwards":
            yield Finding(
                "overtaken",
                f"this sets {name} to {first.value} and may land after one that has set it to "
                f"{second.value}: the signal goes backwards",
                first.loc,
                where,
                "dl.quiet() at the end of the kernel that sends the first, or let the receiver's answer come "
                "between them",
                others,
            )
        elif kind == "untaken":
            yield Finding(
                "reuse",
                f"packets at {name} are overwritten, and nobody has taken the message before",
                second.loc,
                where,
                "take each message, by dl.ll_get",
                (("the message before", first.loc),),
            )
        elif kind == "mixed":
            yield Finding(
                "shared",
                f"{name} is set here and added to elsewhere: what it counts depends on the order",
                first.loc,
                where,
                "give each call site a signal of its own",
                others,
            )
        elif kind == "wraps":
            yield Finding(
                "count",
                f"{name} wraps: more is added than 64 bits hold",
                first.loc,
                where,
                "signals only grow: steps of one are enough",
                others,
            )
        elif wait is not None:
            yield Finding(
                "overtaken",
                f"waits for {name} to be exactly {wait.value}, and a later signal may have passed it",
                wait.loc,
                where,
                "wait for `ge` if the signal only grows; else let the later one wait for an acknowledgement",
                (("the signal", first.loc), ("the later one", second.loc)),
            )


class _Race:
    """A conflict, and the synchronization that was meant to order it."""

    def __init__(self, machine: Machine, conflict: Conflict):
        self.machine, self.graph, self.conflict = machine, machine.graph, conflict
        self.first, self.second = conflict.first, conflict.second
        self.place = f"{describe(conflict.root, conflict.offset)} of rank {conflict.rank}"

    def finding(self) -> Finding:
        first, second = self.first, self.second
        if first.task.rank == second.task.rank and first.step > second.step:  # by the host's program order
            self.first, self.second = first, second = second, first
        if first.write and second.write:
            return self._say(
                "writers",
                f"{second.how} and {first.how} write {self.place}, in no order",
                second,
                first,
                "give each writer a place of its own, or order them: dl.fence() or dl.quiet() within a "
                "program, a signal between ranks",
            )
        if first.write and first.call <= second.call:
            return (
                self._overwrites(first, second) if self._has_its_data(first, second) else self._unordered(first, second)
            )
        if first.write:  # of a later call, which the run executed first
            self.first, self.second = first, second = second, first
        if first.task is second.task or first.how.startswith("the source"):
            return self._reuse()
        answered = any(
            w.write and w.call == first.call and w is not second and self.graph.happens_before(w.node, first.node)
            for w in self.conflict.together
        )
        queued = first.task.rank == second.task.rank and first.step < second.step
        if first.call == second.call and not answered and not queued:
            return self._unordered(second, first)
        return self._reuse()

    def _has_its_data(self, write: AccessRecord, read: AccessRecord) -> bool:
        """Whether an earlier write of this call was published to the reader, so that this one overwrites its data."""
        return any(
            w.write
            and w is not write
            and w.call == read.call
            and w.task is write.task
            and self.graph.precedes(w.node, write.node)
            and self.graph.happens_before(w.node, read.node)
            for w in self.conflict.together
        )

    def _overwrites(self, write: AccessRecord, read: AccessRecord) -> Finding:
        self.first, self.second = read, write
        return self._reuse()

    def _reuse(self) -> Finding:
        if self.first.how == "the source of a put":
            return self._say(
                "reuse",
                f"{self.second.how} overwrites {self.place} while a put may still read it",
                self.second,
                self.first,
                "dl.quiet() before the source is used again",
            )
        return self._say(
            "reuse",
            f"{self.second.how} overwrites {self.place}, and its reader is not known to be done",
            self.second,
            self.first,
            "wait for the reader's signal before (a credit), use another buffer "
            "by the parity of the call, or put a barrier between",
        )

    def _unordered(self, write: AccessRecord, read: AccessRecord) -> Finding:
        """The write should have been published to the reader."""
        if read.how == "an atomic load" and read.task.kernel.sites[read.site].get("repeats", ""):
            return self._say(
                "too-early",
                f"{read.how} of {self.place}: the loop around it also ends with what an earlier call has stored, "
                f"before {write.how} of this one",
                read,
                write,
                "store there what is no data, to be overwritten, before the place is used again; or wait for a signal",
            )
        waits = [w for w in self.machine.waits if w.task.rank == read.task.rank]
        before = [w for w in waits if self.graph.precedes(w.after, read.node)]
        signals = [
            w
            for cell in self.machine.cells.values()
            for w in cell.writers
            if w.task is write.task and (w.loc != write.loc or write.how != "an atomic store")
        ]
        pairs = [
            (wait, signal)
            for wait in before
            for signal in signals
            if signal.cell in wait.cells and signal.call == write.call <= wait.call
        ]
        published = [
            s
            for s in signals
            if s.release
            and parts(s.cell)[0] == read.task.rank
            and s.call == write.call
            and self.graph.happens_before(write.node, s.node)
        ]
        early = [pair for pair in pairs if pair[1].issued <= write.node]
        if early and not self._publishes_all(write, read, signals):
            wait, signal = max(early, key=lambda pair: pair[1].issued)
            if self.graph.happens_before(signal.node, wait.after):
                return self._unpublished(write, read, wait, signal)
        if published:  # prefer the signals that the writer sends between the write and the first that publishes it
            published = [min(published, key=lambda signal: signal.issued)]
            pairs = [pair for pair in pairs if write.node <= pair[1].issued < published[0].issued] or [
                pair for pair in pairs if pair[1] is published[0]
            ]
        for wait, signal in reversed(pairs):
            if self.graph.happens_before(signal.node, wait.after):
                return self._unpublished(write, read, wait, signal)
        for wait, signal in reversed(pairs):
            if self.graph.precedes(signal.node, wait.after):
                return self._weak(write, read, wait, signal)
        if pairs:
            return self._too_early(write, read, *pairs[-1])
        late = [
            w
            for w in waits
            if self.graph.precedes(read.node, w.before)
            and w.call == read.call
            and any(s.cell in w.cells for s in published or signals)
        ]
        text = f"{read.how} of {self.place}, and nothing says that {write.how} to it is done"
        if late:
            return self._say(
                "unordered",
                text + ": the wait for it comes later",
                read,
                write,
                "load after the wait, through dl.consume_token",
                ("the wait", late[0].loc),
            )
        own = [w for w in before if w.task is read.task] or before
        extra = [("waits, but for other signals", own[-1].loc)] if own else []
        sent = published or [signal for signal in signals if signal.release or signal.how != "st"][-1:]
        extra += [("a signal of the writer", signal.loc) for signal in sent[:1]]
        return self._say(
            "unordered",
            text,
            read,
            write,
            "dl.quiet() behind the get, before what it brings is read"
            if write.how == "a get"
            else "wait for that signal before"
            if published
            else "let the writer send a signal behind it (dl.notify, dl.putmem_signal) and wait for that",
            *extra,
        )

    def _publishes_all(self, write: AccessRecord, read: AccessRecord, signals: list[UpdateEvent]) -> bool:
        """Whether a signal to the reader comes behind the last of what the writer writes there at this line."""
        last = max(
            access.node
            for (rank, _), accesses in self.machine.accesses.items()
            for access in accesses
            if rank == self.conflict.rank and access.write and access.task is write.task and access.loc == write.loc
        )
        return any(
            signal.call == write.call
            and parts(signal.cell)[0] == read.task.rank
            and self.graph.precedes(last, signal.node)
            for signal in signals
        )

    def _unpublished(self, write: AccessRecord, read: AccessRecord, wait: WaitEvent, signal: UpdateEvent) -> Finding:
        text = f"{read.how} of {self.place}: the signal that is waited for does not say that {write.how} is done"
        hint = (
            "send the signal after it"
            if write.node > signal.issued and "put" not in write.how
            else "dl.notify, or dl.fence() between the two: a signal alone orders no put before it"
        )
        return self._say("unpublished", text, read, write, hint, ("the signal", signal.loc), ("the wait", wait.loc))

    def _weak(self, write: AccessRecord, read: AccessRecord, wait: WaitEvent, signal: UpdateEvent) -> Finding:
        others = (("the signal", signal.loc), ("the wait", wait.loc))
        if not reaches(self.machine, signal, wait.task.rank, wait.scope):
            low = (
                signal
                if signal.scope != "world" and not reaches(self.machine, signal, wait.task.rank, "world")
                else wait
            )
            return self._say(
                "scope",
                f"{read.how} of {self.place}: the {'signal' if low is signal else 'wait'} has "
                f"scope {low.scope}, and comes from rank {signal.task.rank}",
                read,
                write,
                'scope="node" for ranks of this node, "world" for those of others',
                *others,
            )
        low = "wait" if not wait.acquire else "signal"
        return self._say(
            "semantic",
            f"{read.how} of {self.place}: the {low} is relaxed, so it orders nothing",
            read,
            write,
            "acquire where it is waited, release where it is sent",
            *others,
        )

    def _too_early(self, write: AccessRecord, read: AccessRecord, wait: WaitEvent, signal: UpdateEvent) -> Finding:
        cell = self.machine.cell(signal.cell)
        instead = [
            w
            for w in cell.writers
            if w is not signal
            and not self.graph.precedes(wait.after, w.node)
            and not self.graph.precedes(signal.node, w.node)
        ]
        name = f"{cell_name(self.machine, signal.cell)} {wait.cmp} {wait.value}"
        others = [("the wait", wait.loc), ("the signal of it", signal.loc)]
        foreign = [
            w
            for w in instead
            if w.loc != signal.loc
            and w.call == signal.call
            and (w.op == signal.op == "set" or w.task.kernel is not signal.task.kernel)
        ]
        if foreign:
            return self._say(
                "shared",
                f"{read.how} of {self.place}: the wait for {name} also ends by the signal of another call site",
                read,
                write,
                "give each call site a signal of its own",
                *others,
                ("the other signal", foreign[0].loc),
            )
        if not instead:
            text = "is satisfied from the beginning"
        else:
            text = "also ends by other signals"
            others += [("another signal", loc) for loc in dict.fromkeys(w.loc for w in instead) if loc != signal.loc][
                :2
            ]
        return self._say(
            "too-early",
            f"{read.how} of {self.place}: the wait for {name} {text}, before {write.how} is done",
            read,
            write,
            "wait for the value that only the last of them brings; a signal that may "
            "land after the next call's needs dl.quiet() behind it",
            *others,
        )

    def _say(
        self, kind: str, message: str, at: AccessRecord, other: AccessRecord, hint: str, *others: tuple[str, str]
    ) -> Finding:
        return Finding(kind, message, at.loc, _where(self.machine, at, other), hint, ((other.how, other.loc), *others))
