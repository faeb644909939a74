"""The record of a run, and the same as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.

Time is the simulator's step: each call of a program into the machine, each turn that the scheduler gives, and each
arrival is one, shown as one microsecond. It orders what happened; it does not say how long it takes on a GPU. With a
machine (ditron.machines) it is the time there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ditron._sim import TraceEvent
    from ditron.sim.prediction import Prediction

__all__ = ["Recording", "Release", "perfetto", "write"]

SCRIPT, ARRIVALS, CRITICAL, FIRST_PLACE = 0, 1, 2, 10  # tracks of a rank's process
FIRST_STREAM = 1 << 16  # places of streams, after those of programs (Trace::firstStream in runtime/sim/report/trace.h)
_TIME = (
    "1 us is one step of the simulator: a program's call into the machine, a turn that the scheduler gives, an "
    "arrival. Steps say in which order things happened, not how long they take on a GPU"
)


@dataclass(frozen=True)
class Release:
    """A signal that ended a program's wait: sent by ``sender`` (an event), landed by ``arrival``, seen at ``end``."""

    sender: TraceEvent
    arrival: TraceEvent
    call: TraceEvent
    end: TraceEvent


@dataclass
class Recording:
    """What a machine has recorded, in order, and of which run."""

    events: list[TraceEvent]
    title: str
    ranks: int
    ranks_per_node: int
    seed: int
    complete: bool = True  # False: the run was longer than what is kept
    prediction: Prediction | None = None  # of a run on a machine with a clock: events have the time there, in ns
    releases: list[Release] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.releases = list(self._releases())
        self._places: dict[int, int] = defaultdict(int)
        self._streams: dict[int, list[str]] = defaultdict(list)
        for e in self.events:
            if e.kind == "begin":
                self._places[e.rank] = max(self._places[e.rank], e.slot + 1)
            elif e.kind == "stream":
                self._streams[e.rank].append(e.what)

    @property
    def end(self) -> int:
        """The step after the last; on a machine the time of the last."""
        last = self.events[-1].time if self.events else 0
        return max(last, 1) if self.prediction else last + 1

    def places(self, rank: int) -> int:
        """How many programs of a rank were resident at the most."""
        return self._places[rank]

    def streams(self, rank: int) -> list[str]:
        """What a rank's streams are called, in the order of their places."""
        return self._streams[rank]

    def _releases(self) -> Iterator[Release]:
        """The last signal that landed in what a program waited for, for each wait that had to wait."""
        sends: dict[int, TraceEvent] = {}
        waiting: dict[int, dict[int, TraceEvent]] = defaultdict(dict)  # of each rank: its programs' calls, by slot
        last: dict[tuple[int, int], TraceEvent] = {}
        for event in self.events:
            place, of_rank = (event.rank, event.slot), waiting[event.rank]
            if event.kind == "send":
                sends[event.id] = event
            elif event.kind == "call" and event.slot >= 0 and event.address:
                of_rank[event.slot] = event
                last.pop(place, None)
            elif event.kind == "signal":
                for slot, call in of_rank.items():
                    if call.address <= event.address < call.address + call.nbytes:
                        last[event.rank, slot] = event
            elif event.kind == "call end" and event.slot in of_rank and of_rank[event.slot].name == event.name:
                call = of_rank.pop(event.slot)
                arrival = last.pop(place, None)
                if arrival is not None and arrival.id in sends:
                    yield Release(sends[arrival.id], arrival, call, event)


def write(recording: Recording, path: str | Path) -> None:
    """Write the trace as JSON. Raises OSError."""
    Path(path).write_text(json.dumps(perfetto(recording), separators=(",", ":")))  # as one text: 10 times as fast


def perfetto(recording: Recording) -> dict[str, Any]:
    """The recording in the Trace Event Format: a process per rank, in it a track per resident program and per stream,
    one for what arrives and one for the script; a last process shows the scheduler's turns. Arrows (flows) lead from a
    put or a notify to its arrival, and from a signal's arrival to the wait that it ended. On a machine with a clock
    the critical path of the last call has tracks too, and counters say what links, NICs and memories transfer."""
    builder = _Builder(recording)
    for event in recording.events:
        getattr(builder, "on_" + event.kind.replace(" ", "_"))(event)
    builder.close()
    other = {
        "time": f"us on {recording.prediction.machine}" if recording.prediction else _TIME,
        "title": recording.title,
        "ranks": recording.ranks,
        "ranks_per_node": recording.ranks_per_node,
        "seed": recording.seed,
        "complete": recording.complete,
    }
    return {"traceEvents": builder.metadata() + builder.lines, "displayTimeUnit": "ms", "otherData": other}


class _Builder:
    """Turns events into lines; slices that are open when the record ends are closed there."""

    def __init__(self, recording: Recording):
        self.recording = recording
        self.lines: list[dict[str, Any]] = []
        self.tracks: dict[tuple[int, int], str] = {}
        self.open: dict[tuple[int, int], list[str]] = defaultdict(list)
        self.launches: dict[int, TraceEvent] = {}
        self.programs: dict[tuple[int, int], str] = {}
        self.turn: TraceEvent | None = None
        landed = {e.id for e in recording.events if e.kind == "data"}
        signalled = {e.id for e in recording.events if e.kind == "signal"}
        self.arrive = {"data": landed, "signal": signalled}
        self.released_by = {id(release.end): release for release in recording.releases}

    def line(self, phase: str, rank: int, track: int, time: float, name: str, **more: Any) -> None:
        self.lines.append({"ph": phase, "pid": rank, "tid": track, "ts": time, "name": name, **more})

    def begin(self, rank: int, track: int, time: float, name: str, category: str, args: dict | None = None) -> None:
        self.open[rank, track].append(name)
        self.line("B", rank, track, time, name, cat=category, **({"args": args} if args else {}))

    def finish(self, rank: int, track: int, time: float, args: dict | None = None) -> None:
        if self.open[rank, track]:
            name = self.open[rank, track].pop()
            self.line("E", rank, track, time, name, **({"args": args} if args else {}))

    def flow(self, phase: str, kind: str, ident: str, rank: int, track: int, time: float) -> None:
        more = {"bp": "e"} if phase == "f" else {}
        self.line(phase, rank, track, time, kind, cat="transfer", id=ident, **more)

    # --- one method per kind of event (runtime/sim/report/trace.h) --------------------------------------------------

    def on_launch(self, e: TraceEvent) -> None:
        self.launches[e.id] = e
        self.line("b", e.rank, SCRIPT, e.time, e.what, cat="launch", id=e.id, args={"programs": e.value})

    def on_launch_end(self, e: TraceEvent) -> None:
        if self.launches.pop(e.id, None):
            self.line("e", e.rank, SCRIPT, e.time, e.what, cat="launch", id=e.id)

    def on_begin(self, e: TraceEvent) -> None:
        self.tracks[e.rank, FIRST_PLACE + e.slot] = f"program place {e.slot}"
        self.programs[e.rank, e.slot] = e.what
        self.begin(e.rank, FIRST_PLACE + e.slot, e.time, e.what, "program", {"launch": e.launch})

    def on_end(self, e: TraceEvent) -> None:
        self.finish(e.rank, FIRST_PLACE + e.slot, e.time)

    def on_run(self, e: TraceEvent) -> None:
        self.turn = e

    def on_run_end(self, e: TraceEvent) -> None:
        if self.turn is not None:
            name = f"rank {e.rank}: {self.programs.get((e.rank, e.slot), 'a program')}"
            scheduler = self.recording.ranks
            self.tracks[scheduler, 0] = "turns: one program runs at a time"
            self.line("X", scheduler, 0, self.turn.time, name, cat="turn", dur=e.time - self.turn.time)

    def on_stream(self, e: TraceEvent) -> None:
        self.tracks[e.rank, FIRST_PLACE + e.slot] = self.programs[e.rank, e.slot] = e.what

    def on_op(self, e: TraceEvent) -> None:
        self.begin(e.rank, FIRST_PLACE + e.slot, e.time, e.what, e.what.split()[0], {"line": e.location})

    def on_op_end(self, e: TraceEvent) -> None:
        self.finish(e.rank, FIRST_PLACE + e.slot, e.time)

    def on_call(self, e: TraceEvent) -> None:
        if e.slot < 0:
            self.tracks[e.rank, SCRIPT] = "script"
            self.begin(e.rank, SCRIPT, e.time, e.what, "script")
            return
        args = {"line": e.location} if e.location else {}
        self.begin(e.rank, FIRST_PLACE + e.slot, e.time, f"{e.name} {e.what}".rstrip(), e.name, args)

    def on_call_end(self, e: TraceEvent) -> None:
        if e.slot < 0:
            self.finish(e.rank, SCRIPT, e.time)
            return
        release = self.released_by.get(id(e))
        track = FIRST_PLACE + e.slot
        if release is not None:
            ident = f"release {release.arrival.id}-{e.time}"
            self.flow("s", "releases", ident, e.rank, ARRIVALS, release.arrival.time)
            self.flow("f", "releases", ident, e.rank, track, e.time - 0.5)
        waits = e.name in ("wait", "signal_wait_until")
        self.finish(e.rank, track, e.time, {"found": e.value} if waits else None)

    def on_send(self, e: TraceEvent) -> None:
        for kind, wanted in (("data", e.nbytes), ("signal", e.address)):
            if wanted and e.id in self.arrive[kind]:
                self.flow("s", kind, f"{kind} {e.id}", e.rank, FIRST_PLACE + e.slot, e.time)

    def on_data(self, e: TraceEvent) -> None:
        self._arrival(e, f"{e.nbytes} bytes of rank {e.peer} in {e.what}")

    def on_signal(self, e: TraceEvent) -> None:
        self._arrival(e, f"{e.what} = {e.value} by rank {e.peer}")

    def _arrival(self, e: TraceEvent, name: str) -> None:
        self.tracks[e.rank, ARRIVALS] = "arrivals"
        self.line("X", e.rank, ARRIVALS, e.time, name, cat=e.kind, dur=1)
        self.flow("f", e.kind, f"{e.kind} {e.id}", e.rank, ARRIVALS, e.time)

    # ---------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        end = self.recording.end
        for (rank, track), names in self.open.items():
            while names:
                self.finish(rank, track, end, {"note": "still open when the record ends"})
        for launch in self.launches.values():
            self.line("e", launch.rank, SCRIPT, end, launch.what, cat="launch", id=launch.id)
        if self.recording.prediction:
            self._add_prediction(self.recording.prediction)
            # ns, of which the format takes 1000 for 1
            for line in self.lines:
                line |= {key: line[key] / 1000 for key in ("ts", "dur") if key in line}
        # Flows begin where the arrival lies, which is earlier than where they were written.
        self.lines.sort(key=lambda line: line["ts"])

    def _add_prediction(self, prediction: Prediction) -> None:
        """What transfers take of links and memories, and on which rank the critical path of the last call is."""
        for usage in prediction.usages():
            name = f"{usage.resource}, %"
            self.line("C", usage.rank, SCRIPT, usage.at, name, args={"of its rate": round(100 * usage.part, 1)})
        for one in prediction.critical_activities(prediction.shown_call):
            self.tracks[one.rank, CRITICAL] = "critical path"
            to = f" to rank {one.peer}" if one.peer not in (-1, one.rank) else ""
            self.line("X", one.rank, CRITICAL, one.start, one.kind + to, cat="critical path", dur=one.end - one.start)

    def metadata(self) -> list[dict[str, Any]]:
        ranks, per_node = self.recording.ranks, self.recording.ranks_per_node
        lines = []

        def tell(kind: str, process: int, track: int, **args: Any) -> None:
            lines.append({"ph": "M", "pid": process, "tid": track, "ts": 0, "name": kind, "args": args})

        for rank in range(ranks + 1):
            where = f" (node {rank // per_node})" if per_node < ranks else ""
            tell("process_name", rank, 0, name=f"rank {rank}{where}" if rank < ranks else "scheduler")
            tell("process_sort_index", rank, 0, sort_index=rank)
        for (rank, track), name in sorted(self.tracks.items()):
            tell("thread_name", rank, track, name=name)
            tell("thread_sort_index", rank, track, sort_index=track)
        return lines
