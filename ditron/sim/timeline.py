"""A picture of a run: a band per rank, in it a row per program, from left to right in the order things happened.

Of a run on a machine with a clock: machine_timeline.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ditron.sim.trace import FIRST_STREAM

if TYPE_CHECKING:
    from ditron._sim import TraceEvent
    from ditron.sim.trace import Recording, Release

__all__ = ["MAX_RANKS", "check", "draw", "require_kind"]

MAX_RANKS = 16
KINDS = (".png", ".svg", ".pdf")
WAITS = ("wait", "signal_wait_until", "quiet", "barrier", "sync_all", "spin", "getmem")
STREAM_WAITS = ("signal_wait", "wait_event", "barrier")
READY, RUNS, WAITING, COPIES, SIGNAL = "#d9dee4", "#2f6db5", "#f2b04c", "#4f9d69", "#8e2f6b"
ITEM = "#9fc1e6"
COLORS = {"ready": READY, "items": ITEM, "copies": COPIES, "waits": WAITING, "runs": RUNS}  # the later on top
ARROWS = 14  # of all ranks together: more hide what they explain


class Bar(NamedTuple):
    """A stretch of one row, in steps."""

    row: int
    start: int
    end: int


def check(ranks: int, path: str | Path, *, has_clock: bool = False) -> None:
    """Raise ValueError when such a picture cannot be made, ImportError when matplotlib is missing."""
    require_kind(path)
    if ranks > MAX_RANKS and not has_clock:
        raise ValueError(
            f"timeline {path}: a picture shows up to {MAX_RANKS} ranks, and there are {ranks}; write a "
            "trace (trace=, --trace FILE.json) and open it in ui.perfetto.dev"
        )


def require_kind(path: str | Path) -> None:
    """Raise ValueError for a file of another kind than a picture's, ImportError when matplotlib is missing."""
    if Path(path).suffix.lower() not in KINDS:
        raise ValueError(f"timeline {path}: expected a file that ends in {', '.join(KINDS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("a timeline needs matplotlib: pip install 'ditron[plot]'") from None


def draw(recording: Recording, path: str | Path) -> None:
    """Draw the recording into a file. Raises what :func:`check` raises, and OSError."""
    check(recording.ranks, path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [max(recording.places(rank), 1) + len(recording.streams(rank)) for rank in range(recording.ranks)]
    height = min(max(0.62, 9.0 / recording.ranks), 2.2)
    figure = Figure(figsize=(14, 1.9 + height * recording.ranks), layout="constrained")
    FigureCanvasAgg(figure)  # the file's kind picks another where it must
    axes = figure.subplots(recording.ranks, 1, sharex=True, squeeze=False)[:, 0]
    bars = _bars(recording)
    for rank, axis in enumerate(axes):
        _band(axis, recording, rank, rows[rank], bars[rank])
    axes[-1].set_xlim(-0.01 * recording.end, 1.01 * recording.end)
    axes[-1].set_xlabel("step of the simulator: the order in which things happened, not the time they take on a GPU")
    for release in _chosen(recording):
        _arrow(figure, axes, recording, release)
    figure.suptitle(_title(recording) + "\n", fontsize=14, x=0.01, ha="left")
    streams = any(map(recording.streams, range(recording.ranks)))
    figure.text(
        0.01,
        1 - 0.38 / figure.get_figheight(),
        "A row per program, program 0 on top"
        + (", then one per stream" if streams else "")
        + "; one program runs at a time. What a rank has put and is still under way is drawn above its programs.",
        fontsize=9.5,
        color="#444444",
        va="top",
    )
    _legend(figure, streams)
    figure.savefig(path, dpi=110)


def _title(recording: Recording) -> str:
    nodes = recording.ranks // recording.ranks_per_node
    return (
        f"{recording.title} on {recording.ranks} simulated rank{'s' * (recording.ranks > 1)}"
        + (f", {nodes} nodes" if nodes > 1 else "")
        + f", seed {recording.seed}"
        + ("" if recording.complete else " (the run goes on: this is its beginning)")
    )


def _bars(recording: Recording) -> list[dict[str, list[Bar]]]:
    """Per rank and kind (ready, runs, waits; of streams items, copies, waits): the bars of its programs."""
    bars: list[dict[str, list[Bar]]] = [defaultdict(list) for _ in range(recording.ranks)]
    items: dict[tuple[int, int], TraceEvent] = {}
    begun: dict[tuple[int, int], int] = {}
    waits: dict[tuple[int, int], int] = {}
    turn: TraceEvent | None = None

    def add_item(item: TraceEvent, end: int) -> None:
        what = item.what.split()[0]
        kind = "copies" if what == "rank_copy" else "waits" if what in STREAM_WAITS else "items"
        bars[item.rank][kind].append(Bar(_row(recording, item), item.time, end))

    for e in recording.events:
        place = e.rank, e.slot
        if e.kind == "op":
            items[place] = e
        elif e.kind == "op end" and place in items:
            add_item(items.pop(place), e.time)
        elif e.slot >= FIRST_STREAM:
            continue  # what a stream does inside its items
        elif e.kind == "begin":
            begun[place] = e.time
        elif e.kind == "end" and place in begun:
            bars[e.rank]["ready"].append(Bar(e.slot, begun.pop(place), e.time))
        elif e.kind == "run":
            turn = e
        elif e.kind == "run end" and turn is not None:
            bars[e.rank]["runs"].append(Bar(e.slot, turn.time, e.time))
        elif e.kind == "call" and e.name in WAITS:
            waits[place] = e.time
        elif e.kind == "call end" and e.name in WAITS and place in waits:
            bars[e.rank]["waits"].append(Bar(e.slot, waits.pop(place), e.time))
    for item in items.values():  # the run ended before they did
        add_item(item, recording.end)
    for kind, open_ones in (("ready", begun), ("waits", waits)):
        for (rank, place), start in open_ones.items():
            bars[rank][kind].append(Bar(place, start, recording.end))
    return bars


def _band(axis, recording: Recording, rank: int, rows: int, bars: dict[str, list[Bar]]) -> None:
    """One rank: what it has under way on top, its programs below, program place 0 first."""
    from matplotlib.collections import PolyCollection

    lane = max(rows * 0.22, 1.0)
    axis.set_ylim(rows + 0.3, -lane * 1.25)
    gap = 0.12 if rows <= 40 else 0.0
    for kind, color in COLORS.items():
        shapes = [
            ((b.start, b.row + gap), (b.end, b.row + gap), (b.end, b.row + 1 - gap), (b.start, b.row + 1 - gap))
            for b in bars[kind]
        ]
        axis.add_collection(PolyCollection(shapes, facecolors=color, edgecolors=color, linewidths=0.4))
    steps, counts = _under_way(recording, rank)
    most = max(counts)
    if most:
        axis.fill_between(
            steps,
            [-lane * 0.12 - lane * count / most for count in counts],
            -lane * 0.12,
            step="post",
            color=COPIES,
            linewidth=0,
        )
        axis.text(
            1.004,
            -lane * 0.6,
            f"up to {most} put{'s' * (most > 1)}\nunder way",
            transform=axis.get_yaxis_transform(),
            fontsize=8,
            color=COPIES,
            va="center",
        )
    for e in recording.events:
        if e.kind == "launch" and e.rank == rank:
            axis.axvline(e.time, color="#444444", linewidth=0.8, linestyle=(0, (2, 2)))
            if rank == 0:
                axis.annotate(
                    f" {e.what}: {e.value} program{'s' * (e.value != 1)}",
                    (e.time, 1),
                    xycoords=("data", "axes fraction"),
                    xytext=(0, 3),
                    textcoords="offset points",
                    fontsize=8,
                    color="#444444",
                    va="bottom",
                )
    axis.set_ylabel(f"rank {rank}", rotation=0, ha="right", va="center", fontsize=12, labelpad=12)
    streams = recording.streams(rank)
    places = rows - len(streams)
    ticks = [*(range(places) if places <= 10 else (0, places - 1)), *range(places, rows)]
    labels = [str(tick) if tick < places else streams[tick - places] for tick in ticks]
    axis.set_yticks([tick + 0.5 for tick in ticks], labels, fontsize=7)
    axis.tick_params(axis="y", length=2)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _row(recording: Recording, event: TraceEvent) -> int:
    """The row of a program, or below the programs that of a stream."""
    if event.slot < FIRST_STREAM:
        return event.slot
    return max(recording.places(event.rank), 1) + event.slot - FIRST_STREAM


def _under_way(recording: Recording, rank: int) -> tuple[list[int], list[int]]:
    """Steps, and how many transfers with data that the rank has sent (or asked for) are under way from there on."""
    steps, counts, pending = [0], [0], set()
    for e in recording.events:
        if e.kind == "send" and e.rank == rank and e.nbytes:
            pending.add(e.id)
        elif e.kind == "data" and e.id in pending:
            pending.remove(e.id)
        else:
            continue
        steps.append(e.time)
        counts.append(len(pending))
    return [*steps, recording.end], [*counts, counts[-1]]


def _chosen(recording: Recording) -> Iterator[Release]:
    """A few signals between ranks that ended a wait, spread over the receivers: for each the longest waits."""
    waited: dict[int, list[Release]] = defaultdict(list)
    for release in recording.releases:
        if release.sender.rank != release.call.rank:
            waited[release.call.rank].append(release)
    each = max(1, ARROWS // max(len(waited), 1))
    for releases in waited.values():
        seen: set[tuple[int, int]] = set()
        for release in sorted(releases, key=lambda r: r.call.time - r.end.time):
            link = release.sender.rank, release.call.launch
            if len(seen) < each and link not in seen:
                seen.add(link)
                yield release


def _arrow(figure, axes, recording: Recording, release: Release) -> None:
    from matplotlib.patches import ConnectionPatch

    figure.add_artist(
        ConnectionPatch(
            (release.sender.time, _row(recording, release.sender) + 0.5),
            (release.end.time, _row(recording, release.end) + 0.5),
            "data",
            "data",
            axesA=axes[release.sender.rank],
            axesB=axes[release.end.rank],
            arrowstyle="-|>",
            color=SIGNAL,
            linewidth=1.1,
            mutation_scale=11,
            alpha=0.9,
            connectionstyle="arc3,rad=0.08",
        )
    )


def _legend(figure, streams: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries = [
        Patch(color=RUNS, label="a program runs"),
        Patch(color=WAITING, label="waits (wait, quiet, barrier)"),
        Patch(color=READY, label="could run, waits for its turn"),
        Patch(color=COPIES, label="data this rank sent, under way"),
        Line2D([], [], color=SIGNAL, marker=">", label="a signal that ended a wait (a few of them)"),
        Line2D([], [], color="#444444", linestyle=(0, (2, 2)), label="launch"),
    ]
    if streams:
        entries.insert(3, Patch(color=ITEM, label="a stream's launch, copy within the rank, or signal"))
    figure.legend(
        handles=entries, loc="outside lower left", ncols=4 if streams else len(entries), frameon=False, fontsize=9
    )
