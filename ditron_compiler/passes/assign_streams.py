"""Put copies between ranks on streams of their own, with events where a dependence crosses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.buffer_effects import Accesses
from ditron_compiler.analysis.dependence import Dependences, is_queued
from ditron_compiler.ir.dialects import arith, ditron
from ditron_compiler.ir.host_builders import programs, with_stream
from ditron_compiler.ir.pass_base import Pass, option

__all__ = ["AssignStreams"]

_BEGIN = -1  # before the first operation of a block


@dataclass(frozen=True)
class AssignStreams(Pass):
    """Put copies between ranks on streams of their own, with events where a dependence crosses.

    Only what has no stream is assigned. A ``ditron.rank_copy`` goes to the copy stream; with it go a signal write
    right after it to the same peer, and a signal wait right before it. All else stays on the stream of the program.
    Where an operation needs what another stream did before, by the order of the text, that stream records an event
    after it and this one awaits it; an event that an earlier one implies is not made. Needed is: memory that one of
    the two writes, as far as parts are not known to be apart; for a signal write, everything before it, which it may
    publish; and a signal wait, for all that may touch symmetric memory after it. A signal that stands for one copy
    alone, which all-gathers are decomposed into (``ditron.with_copy``), orders that copy only; with ``adjacent``,
    every signal right beside a copy does.

    With ``streams`` above 1, the turns of a loop are dealt out to that many copy streams, unless a turn needs what
    another one copied.

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

    streams: int = option(1, "copy streams that the turns of a loop are dealt out to", least=1)
    adjacent: bool = option(False, "a signal right beside a copy is for that copy only")

    def run(self, op: ir.Operation) -> None:
        for program in programs(op):
            _Assignment(self, program).run()


@dataclass(frozen=True)
class _Lane:
    """The program's stream, the first copy stream, or all of them, one for each turn of a loop."""

    copies: bool
    loop: ir.Operation | None = None


_MAIN = _Lane(False)


class _Assignment:
    """The assignment of one program."""

    def __init__(self, pass_: AssignStreams, program: ir.Operation):
        self.pass_, self.program = pass_, program
        self.dependences = Dependences(Accesses(program), pass_.adjacent)
        self.lanes: dict[ir.Operation, _Lane] = {}
        self._static: dict[int, ir.Value] = {}
        self._dynamic: dict[ir.Operation, ir.Value] = {}
        self._events: list[tuple[ir.Block, int, _Lane, int, _Lane]] = []

    def run(self) -> None:
        queued: list[ir.Operation] = []
        self.program.walk(lambda op: queued.append(op) if is_queued(op) else None, ir.WalkOrder.PRE_ORDER)
        for op in queued:
            self.lanes[op] = _Lane(True) if self.dependences.goes_with_copies(op) else _MAIN
        if not any(lane.copies for lane in self.lanes.values()):
            return
        if self.pass_.streams > 1:
            self._deal_out()
        self._order(self.program.regions[0].blocks[0])
        insertions = self._prepare_events()
        for op, lane in self.lanes.items():
            if lane.copies:
                with_stream(op, self._stream(lane, op))
                self.pass_.count("operations put on copy streams")
        for make in insertions:
            make()

    def _deal_out(self) -> None:
        """Give the copies of a loop, the innermost, a stream by turn."""
        for op, lane in list(self.lanes.items()):
            loop = op.parent
            if not lane.copies or loop.name != "scf.for" or len(loop.operands) != 3:
                continue
            copies = [o for o in loop.regions[0].blocks[0].operations if o in self.lanes and self.lanes[o].copies]
            needed = next(((a, b) for a in copies for b in copies if self.dependences.carried(a, b, loop)), None)
            if needed is None:
                self.lanes |= {o: _Lane(True, loop) for o in copies}
            elif op is copies[0]:
                op.emit_remark(
                    "the copies of this loop stay on one stream: a turn needs what an earlier one did",
                    [(needed[0], "the earlier one")],
                )

    # --- which events ---------------------------------------------------------------------------------------------

    def _order(self, block: ir.Block) -> None:
        """Find the events that the operations of a block, and of blocks inside, need."""
        items = list(block.operations)
        leaves = [self._leaves(item) for item in items]
        loop = block.owner if block.owner.name == "scf.for" else None
        awaited: dict[tuple[_Lane, _Lane], int] = {}
        for index, item in enumerate(items):
            for op in leaves[index]:
                self._await_earlier(block, op, index, leaves, loop, awaited)
            for region in item.regions:
                for inner in region.blocks:
                    self._order(inner)

    def _await_earlier(
        self,
        block: ir.Block,
        op: ir.Operation,
        index: int,
        leaves: list[list[ir.Operation]],
        loop: ir.Operation | None,
        awaited: dict[tuple[_Lane, _Lane], int],
    ) -> None:
        mine = self.lanes[op]
        needs: dict[_Lane, int] = {}
        if loop is not None:
            for other in (leaf for item in leaves for leaf in item):
                if not self._in_order(other, op, loop) and self.dependences.carried(other, op, loop):
                    needs[self.lanes[other]] = _BEGIN
        for at in range(index):
            for other in leaves[at]:
                if not self._in_order(other, op, None) and self.dependences.needs(op, other):
                    needs[self.lanes[other]] = at
        for theirs, at in needs.items():
            if awaited.get((mine, theirs), _BEGIN - 1) < at:
                awaited[mine, theirs] = at
                self._events.append((block, at, theirs, index, mine))

    def _in_order(self, earlier: ir.Operation, later: ir.Operation, loop: ir.Operation | None) -> bool:
        """Whether both are on one stream; ``loop``: in different turns of it."""
        lane = self.lanes[earlier]
        return lane == self.lanes[later] and (lane.loop is None or loop is None and earlier.block == later.block)

    def _leaves(self, item: ir.Operation) -> list[ir.Operation]:
        if item in self.lanes:
            return [item]
        found: list[ir.Operation] = []
        if len(item.regions):
            item.walk(lambda op: found.append(op) if op in self.lanes else None, ir.WalkOrder.PRE_ORDER)
        return found

    # --- building -------------------------------------------------------------------------------------------------

    def _prepare_events(self) -> list:
        """What makes the records and awaits: places are looked up now, before operations are replaced."""
        planned = []
        for block, at, theirs, index, mine in self._events:
            items = list(block.operations)
            begin = ir.InsertionPoint.at_block_begin(block) if at == _BEGIN else None
            planned.append((block, None if begin else items[at], theirs, items[index], mine))
        # Replaced operations keep their neighbours: a marker stands where each event goes.
        made = []
        for block, after, theirs, before, mine in planned:
            self.pass_.count("events")
            where = ir.InsertionPoint.after(after) if after is not None else ir.InsertionPoint.at_block_begin(block)
            made.append((self._marker(where, before), theirs, self._marker(ir.InsertionPoint(before), before), mine))
        return [lambda entry=entry: self._make_event(*entry) for entry in made]

    @staticmethod
    def _marker(where: ir.InsertionPoint, like: ir.Operation) -> ir.Operation:
        i64 = ir.IntegerType.get_signless(64, context=like.context)
        return arith.ConstantOp(i64, 0, loc=like.location, ip=where)

    def _make_event(self, record_at: ir.Operation, theirs: _Lane, await_at: ir.Operation, mine: _Lane) -> None:
        for source in self._streams(theirs, record_at):
            event = ditron.RecordOp(stream=source, loc=await_at.location, ip=ir.InsertionPoint(record_at)).result
            for stream in self._streams(mine, await_at):
                ditron.AwaitOp(event, stream=stream, loc=await_at.location, ip=ir.InsertionPoint(await_at))
        record_at.erase()
        await_at.erase()

    def _streams(self, lane: _Lane, at: ir.Operation) -> list[ir.Value | None]:
        """The streams of a lane as they are known at a place: all of them outside of its loop."""
        if lane.loop is None or lane.loop.is_ancestor(at):
            return [self._stream(lane, at)]
        return [self._numbered(number) for number in range(self.pass_.streams)]

    def _stream(self, lane: _Lane, at: ir.Operation) -> ir.Value | None:
        if not lane.copies:
            return None
        if lane.loop is None:
            return self._numbered(0)
        if lane.loop not in self._dynamic:
            block = lane.loop.regions[0].blocks[0]
            where = {"loc": at.location, "ip": ir.InsertionPoint.at_block_begin(block)}
            index = block.arguments[0]
            count = arith.ConstantOp(index.type, self.pass_.streams, **where).result
            number = arith.RemSIOp(index, count, **where).result
            self._dynamic[lane.loop] = ditron.StreamOp(label="copy", index=number, **where).result
        return self._dynamic[lane.loop]

    def _numbered(self, number: int) -> ir.Value:
        """A copy stream by its number, made at the beginning of the program."""
        if number not in self._static:
            where = {
                "loc": self.program.location,
                "ip": ir.InsertionPoint.at_block_begin(self.program.regions[0].blocks[0]),
            }
            index = None
            if self.pass_.streams > 1:
                i64 = ir.IntegerType.get_signless(64, context=self.program.context)
                index = arith.ConstantOp(i64, number, **where).result
                where["ip"] = ir.InsertionPoint.after(index.owner)
            self._static[number] = ditron.StreamOp(label="copy", index=index, **where).result
        return self._static[number]
