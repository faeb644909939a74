"""Put copies between ranks on streams of their own, with events where a dependence crosses streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ditron_compiler import ir
from ditron_compiler.analysis.buffer_effects import ProgramAccesses
from ditron_compiler.analysis.dependence import Dependences, is_queued
from ditron_compiler.ir.dialects import arith, ditron, scf
from ditron_compiler.ir.host_builders import programs, with_stream
from ditron_compiler.ir.pass_base import Pass, option

__all__ = ["AssignStreams"]

_BEGIN = -1  # before the first operation of a block


@dataclass(frozen=True)
class AssignStreams(Pass):
    """Put copies between ranks on streams of their own, with events where a dependence crosses streams.

    Only operations without a stream are assigned. A ``ditron.rank_copy`` goes to the copy stream, together with a
    signal write right after it to the same peer, and a signal wait right before it. Everything else stays on the
    stream of the program. Where an operation depends on an earlier one, in program order, of another stream, that
    stream records an event after it and this one awaits it; an event that an earlier one implies is not created.
    Dependences are: memory that one of the two writes, where the parts are not known to be disjoint; for a signal
    write, everything before it, which it may publish; and a signal wait, for all later accesses of symmetric memory. A
    signal that is marked ``ditron.with_copy``, as those of a decomposed all-gather, orders the copy next to it only;
    with ``adjacent``, so does every signal next to a copy.

    With ``streams`` above 1, the iterations of a loop are distributed round-robin over that many copy streams, unless
    the loop carries a dependence between its copies.

    Before::

        scf.for %step = %c1 to %num_ranks step %c1 : i64 {
          ditron.rank_copy %a to %own on %peer : <?xf32> to <?xf32, symmetric>
          ditron.signal_write %arrived[%rank] set %epoch on %peer {ditron.with_copy} : <?xi64, symmetric>
        }
        ditron.launch @scale grid(8) (%a) : (!ditron.buffer<?xf32>)  // writes %a

    After::

        %copy = ditron.stream "copy"
        scf.for %step = %c1 to %num_ranks step %c1 : i64 {
          ditron.rank_copy %a to %own on %peer stream %copy : <?xf32> to <?xf32, symmetric>
          ditron.signal_write %arrived[%rank] set %epoch on %peer stream %copy {ditron.with_copy} : <?xi64, symmetric>
        }
        %event = ditron.record stream %copy
        ditron.await %event
        ditron.launch @scale grid(8) (%a) : (!ditron.buffer<?xf32>)
    """

    name: ClassVar[str] = "assign-streams"

    streams: int = option(1, "copy streams over which the iterations of a loop are distributed", least=1)
    adjacent: bool = option(False, "a signal next to a copy orders that copy only")

    def run(self, op: ir.Operation) -> None:
        for program in programs(op):
            _Assignment(self, program).run()


@dataclass(frozen=True)
class _Assigned:
    """The program's stream, the first copy stream, or all of them, by iteration of a loop."""

    copies: bool
    loop: scf.ForOp | None = None


_PROGRAM_STREAM = _Assigned(False)


class _Event(NamedTuple):
    """An event in ``block``: recorded on a stream after item ``after``, awaited by another before item ``before``."""

    block: ir.Block
    after: int
    recorded_on: _Assigned
    before: int
    awaited_on: _Assigned


class _Assignment:
    """The assignment of one program."""

    def __init__(self, pass_: AssignStreams, program: ditron.ProgramOp):
        self.pass_, self.program = pass_, program
        self.dependences = Dependences(ProgramAccesses(program), pass_.adjacent)
        self.assigned: dict[ir.Operation, _Assigned] = {}
        self._static: dict[int, ir.Value] = {}
        self._dynamic: dict[scf.ForOp, ir.Value] = {}
        self._events: list[_Event] = []

    def run(self) -> None:
        queued: list[ir.Operation] = []
        self.program.walk(lambda op: queued.append(op) if is_queued(op) else None, ir.WalkOrder.PRE_ORDER)
        for op in queued:
            self.assigned[op] = _Assigned(True) if self.dependences.goes_with_copies(op) else _PROGRAM_STREAM
        if not any(stream.copies for stream in self.assigned.values()):
            return
        if self.pass_.streams > 1:
            self._distribute_iterations()
        self._find_events(self.program.block)
        insertions = self._prepare_events()
        for op, stream in self.assigned.items():
            if stream.copies:
                with_stream(op, self._stream(stream, op))
                self.pass_.count("operations put on copy streams")
        for insert in insertions:
            insert()

    def _distribute_iterations(self) -> None:
        """Assign the copies of a loop, the innermost, to a stream by iteration."""
        for op, stream in list(self.assigned.items()):
            loop = op.parent
            if not stream.copies or not isinstance(loop, scf.ForOp) or len(loop.initArgs):
                continue
            copies = [o for o in loop.body.operations if o in self.assigned and self.assigned[o].copies]
            pairs = ((a, b) for a in copies for b in copies)
            dependence = next((pair for pair in pairs if self.dependences.loop_carried(*pair, loop)), None)
            if dependence is None:
                self.assigned |= {o: _Assigned(True, loop) for o in copies}
            elif op is copies[0]:
                op.emit_remark(
                    "the copies of this loop stay on one stream: an iteration depends on an earlier one",
                    [(dependence[0], "the earlier operation")],
                )

    # --- which events ---------------------------------------------------------------------------------------------

    def _find_events(self, block: ir.Block) -> None:
        """Find the events that the operations of a block, and of blocks inside, need."""
        items = list(block.operations)
        queued = [self._queued_in(item) for item in items]
        loop = block.owner if isinstance(block.owner, scf.ForOp) else None
        awaited: dict[tuple[_Assigned, _Assigned], int] = {}
        for index, item in enumerate(items):
            for op in queued[index]:
                self._await_earlier(block, op, index, queued, loop, awaited)
            for region in item.regions:
                for inner in region.blocks:
                    self._find_events(inner)

    def _await_earlier(
        self,
        block: ir.Block,
        op: ir.Operation,
        index: int,
        queued: list[list[ir.Operation]],
        loop: scf.ForOp | None,
        awaited: dict[tuple[_Assigned, _Assigned], int],
    ) -> None:
        mine = self.assigned[op]
        last: dict[_Assigned, int] = {}  # stream -> the last item on it that ``op`` depends on
        if loop is not None:
            for other in (other for item in queued for other in item):
                if not self._in_order(other, op, loop) and self.dependences.loop_carried(other, op, loop):
                    last[self.assigned[other]] = _BEGIN
        for at in range(index):
            for other in queued[at]:
                if not self._in_order(other, op, None) and self.dependences.depends(op, other):
                    last[self.assigned[other]] = at
        for theirs, at in last.items():
            if awaited.get((mine, theirs), _BEGIN - 1) < at:
                awaited[mine, theirs] = at
                self._events.append(_Event(block, at, theirs, index, mine))

    def _in_order(self, earlier: ir.Operation, later: ir.Operation, loop: scf.ForOp | None) -> bool:
        """Whether both are on one stream; ``loop``: in different iterations of it."""
        stream = self.assigned[earlier]
        if stream != self.assigned[later]:
            return False
        return stream.loop is None or loop is None and earlier.block == later.block

    def _queued_in(self, item: ir.Operation) -> list[ir.Operation]:
        """``item``, or the operations in its regions that are put on a stream."""
        if item in self.assigned:
            return [item]
        found: list[ir.Operation] = []
        if len(item.regions):
            item.walk(lambda op: found.append(op) if op in self.assigned else None, ir.WalkOrder.PRE_ORDER)
        return found

    # --- building -------------------------------------------------------------------------------------------------

    def _prepare_events(self) -> list[Callable[[], None]]:
        """The insertion of each event, to be called after operations have been replaced by ones with a stream.

        Operations that are replaced keep their neighbors: a placeholder marks where each record and await goes.
        """
        planned = []
        for event in self._events:
            items = list(event.block.operations)
            planned.append((event, None if event.after == _BEGIN else items[event.after], items[event.before]))
        insertions = []
        for event, after, before in planned:
            self.pass_.count("events")
            begin = ir.InsertionPoint.at_block_begin(event.block) if after is None else ir.InsertionPoint.after(after)
            record_at = self._placeholder(begin, before)
            await_at = self._placeholder(ir.InsertionPoint(before), before)
            insertions.append(lambda e=event, r=record_at, a=await_at: self._insert_event(e, r, a))
        return insertions

    @staticmethod
    def _placeholder(where: ir.InsertionPoint, like: ir.Operation) -> ir.Operation:
        i64 = ir.IntegerType.get_signless(64, context=like.context)
        return arith.ConstantOp(i64, 0, loc=like.location, ip=where)

    def _insert_event(self, event: _Event, record_at: ir.Operation, await_at: ir.Operation) -> None:
        for source in self._streams(event.recorded_on, record_at):
            recorded = ditron.RecordOp(stream=source, loc=await_at.location, ip=ir.InsertionPoint(record_at)).result
            for stream in self._streams(event.awaited_on, await_at):
                ditron.AwaitOp(recorded, stream=stream, loc=await_at.location, ip=ir.InsertionPoint(await_at))
        record_at.erase()
        await_at.erase()

    def _streams(self, assigned: _Assigned, at: ir.Operation) -> list[ir.Value | None]:
        """The streams that operations are assigned to, as of ``at``: outside of their loop all copy streams."""
        if assigned.loop is None or assigned.loop.is_ancestor(at):
            return [self._stream(assigned, at)]
        return [self._copy_stream(number) for number in range(self.pass_.streams)]

    def _stream(self, assigned: _Assigned, at: ir.Operation) -> ir.Value | None:
        if not assigned.copies:
            return None
        if assigned.loop is None:
            return self._copy_stream(0)
        if assigned.loop not in self._dynamic:
            where = {"loc": at.location, "ip": ir.InsertionPoint.at_block_begin(assigned.loop.body)}
            index = assigned.loop.induction_variable
            count = arith.ConstantOp(index.type, self.pass_.streams, **where).result
            number = arith.RemSIOp(index, count, **where).result
            self._dynamic[assigned.loop] = ditron.StreamOp(label="copy", index=number, **where).result
        return self._dynamic[assigned.loop]

    def _copy_stream(self, number: int) -> ir.Value:
        """A copy stream by its number, created at the beginning of the program."""
        if number not in self._static:
            where = {"loc": self.program.location, "ip": ir.InsertionPoint.at_block_begin(self.program.block)}
            index = None
            if self.pass_.streams > 1:
                i64 = ir.IntegerType.get_signless(64, context=self.program.context)
                index = arith.ConstantOp(i64, number, **where).result
                where["ip"] = ir.InsertionPoint.after(index.owner)
            self._static[number] = ditron.StreamOp(label="copy", index=index, **where).result
        return self._static[number]
