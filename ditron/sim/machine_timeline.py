"""A picture of a run on a machine with a clock: what SMs, streams, links and NICs of each rank do, and what decides.

Of the last call of a host program, or of the whole run where there is none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ditron.sim.timeline import COPIES, ITEM, SIGNAL, STREAM_WAITS, WAITING, WAITS, require_kind
from ditron.sim.trace import FIRST_STREAM

if TYPE_CHECKING:
    from ditron.sim.trace import Recording

__all__ = ["draw"]

MOST_RANKS = 4  # of a picture: those of the critical path first
PRODUCTS, MOVES, PATH = "#2f6db5", "#8fb8de", SIGNAL
_US = 1e-3
#: What programs are doing, by the name of an activity (runtime/sim/timing/clock.cpp).
_STATES = {"compute": "products", "arithmetic": "products"} | dict.fromkeys(
    ("memory", "store", "load"), "loads and stores"
)
_COLORS = {"products": PRODUCTS, "loads and stores": MOVES, "waits": WAITING, "others": "#d9dee4"}


class Bar(NamedTuple):
    start: float
    end: float
    color: str


class Steps:
    """A number that changes at times: its changes, in any order."""

    def __init__(self) -> None:
        self.changes: dict[float, float] = defaultdict(float)

    def add(self, start: float, end: float, amount: float = 1) -> None:
        self.changes[start] += amount
        self.changes[end] -= amount


def draw(recording: Recording, path: str | Path) -> None:
    """Draw the recording, which has a prediction, into a file. Raises what :func:`require_kind` raises, and OSError."""
    require_kind(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    prediction = recording.prediction
    assert prediction is not None
    start, end = prediction.window(prediction.shown_call)
    critical = prediction.critical_activities(prediction.shown_call)
    ranks = _shown(recording.ranks, [one.rank for one in critical])
    programs, streams = _programs(recording, ranks), _streams(recording, ranks)
    usages = _usages(prediction.usages(), ranks)
    resources = [
        [
            pair
            for pair in (("link out", "link in"), ("nic out", "nic in"))
            if any((rank, one) in usages for one in pair)
        ]
        for rank in ranks
    ]
    heights = [
        part
        for rank, pairs in zip(ranks, resources, strict=True)
        for part in (0.22, 1.0, 0.16 * max(len(streams[rank]), 1), *[0.6] * len(pairs), 0.28)
    ]
    figure = Figure(figsize=(14, 1.9 + sum(heights)))
    FigureCanvasAgg(figure)
    inches = figure.get_figheight()
    grid = figure.add_gridspec(
        len(heights),
        1,
        height_ratios=heights,
        hspace=0.06,
        left=0.13,
        right=0.985,
        top=1 - 0.85 / inches,
        bottom=0.95 / inches,
    )
    row, first, paths = 0, None, {}
    for rank, pairs in zip(ranks, resources, strict=True):
        axes = []
        for _ in range(3 + len(pairs)):
            first = figure.add_subplot(grid[row], sharex=first)
            axes.append(first)
            row += 1
        row += 1  # the gap to the next rank
        paths[rank] = axes[0]
        _critical(axes[0], [one for one in critical if one.rank == rank], start, end, rank)
        _sms(axes[1], programs[rank], start, end)
        _stream_rows(axes[2], streams[rank], start)
        for axis, pair in zip(axes[3:], pairs, strict=True):
            _transfers(axis, pair, [usages.get((rank, one), []) for one in pair], start, end)
        for axis in axes[:-1]:
            axis.tick_params(axis="x", labelbottom=False, length=0)
        if rank != ranks[-1]:
            axes[-1].tick_params(axis="x", labelbottom=False)
    assert first is not None
    first.set_xlim(0, max((end - start) * _US, 1e-3))
    first.set_xlabel(f"us, predicted for {prediction.machine}", fontsize=10)
    _connect(figure, paths, critical, start)
    _words(figure, recording, ranks, end - start)
    figure.savefig(path, dpi=110)


def _shown(count: int, critical: Sequence[int]) -> list[int]:
    """The ranks of a picture, in order: all, or those where the critical path is longest, then the first."""
    if count <= MOST_RANKS:
        return list(range(count))
    on_path = list(dict.fromkeys(reversed(critical)))  # the last ones decide
    others = [rank for rank in range(count) if rank not in on_path]
    return sorted([*on_path, *others][:MOST_RANKS])


def _programs(recording: Recording, ranks: Iterable[int]) -> dict[int, dict[str, Steps]]:
    """How many programs of each rank compute, move bytes, wait, and are there at all."""
    counts: dict[int, dict[str, Steps]] = {rank: defaultdict(Steps) for rank in ranks}
    begun: dict[tuple[int, int], float] = {}
    calls: dict[tuple[int, int], list[tuple[str, float]]] = defaultdict(list)
    for e in recording.events:
        place = e.rank, e.slot
        if e.rank not in counts or e.slot >= FIRST_STREAM or e.slot < 0:
            continue
        state = "waits" if e.name in WAITS else _STATES.get(e.name)
        if e.kind == "begin":
            begun[place] = e.time
        elif e.kind == "end" and place in begun:
            counts[e.rank]["resident"].add(begun.pop(place), e.time)
        elif e.kind == "call" and state:
            calls[place].append((state, e.time))
        elif e.kind == "call end" and state and calls[place]:
            counts[e.rank][calls[place][-1][0]].add(calls[place].pop()[1], e.time)
    for (rank, _), since in begun.items():  # the run ended before they did
        counts[rank]["resident"].add(since, recording.end)
    for (rank, _), open_ones in calls.items():
        for state, since in open_ones:
            counts[rank][state].add(since, recording.end)
    return counts


def _streams(recording: Recording, ranks: Iterable[int]) -> dict[int, dict[str, list[Bar]]]:
    """What each rank's streams did, by their names."""
    bars: dict[int, dict[str, list[Bar]]] = {rank: {name: [] for name in recording.streams(rank)} for rank in ranks}
    begun: dict[tuple[int, int], Any] = {}
    for e in recording.events:
        if e.rank not in bars or e.slot < FIRST_STREAM:
            continue
        if e.kind == "op":
            begun[e.rank, e.slot] = e
        elif e.kind == "op end" and (op := begun.pop((e.rank, e.slot), None)):
            what = op.what.split()[0]
            color = COPIES if "copy" in what else WAITING if what in STREAM_WAITS else ITEM
            name = recording.streams(e.rank)[e.slot - FIRST_STREAM]
            bars[e.rank][name].append(Bar(op.time, e.time, color))
    return bars


def _usages(usages: Iterable[Any], ranks: Sequence[int]) -> dict[tuple[int, str], list[tuple[float, float]]]:
    """Times and parts of the capacity, of the shown ranks' resources that were used."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for usage in usages:
        if usage.rank in ranks:
            found[usage.rank, usage.resource].append((usage.at, usage.part))
    return found


def _critical(axis: Any, activities: Sequence[Any], start: float, end: float, rank: int) -> None:
    axis.set_ylim(0, 1)
    for one in activities:
        begin, width = (one.start - start) * _US, (one.end - one.start) * _US
        axis.barh(0.5, width, 0.9, begin, color=PATH, edgecolor="white", linewidth=0.4)
        name = one.kind + (f" to {one.peer}" if one.peer not in (-1, one.rank) else "")
        if one.end - one.start > 0.009 * len(name) * (end - start):  # it fits
            axis.text(begin + width / 2, 0.46, name, fontsize=7, color="white", ha="center", va="center")
    axis.set_yticks([0.5], [f"rank {rank}: critical path"], fontsize=8, color=PATH)
    _bare(axis)


def _sms(axis: Any, counts: dict[str, Steps], start: float, end: float) -> None:
    """Stacked: programs that compute, move bytes, wait, and do anything else."""
    times = sorted({start, end, *(at for steps in counts.values() for at in steps.changes if start < at < end)})
    at_times = {name: _values(counts[name], times) for name in (*_COLORS, "resident")}
    resident = at_times["resident"]
    most = max(resident, default=0) or 1
    x = [(at - start) * _US for at in times]
    below = [0.0] * len(times)
    for name, color in _COLORS.items():
        part = at_times[name]
        if name == "others":
            above = [max(low, there) for low, there in zip(below, resident, strict=True)]
        else:
            above = [low + value for low, value in zip(below, part, strict=True)]
        axis.fill_between(x, below, above, step="post", color=color, linewidth=0)
        below = above
    axis.set_ylim(0, most * 1.05)
    axis.set_yticks([0, most], ["0", f"{most:g} programs"], fontsize=8)
    _bare(axis)


def _values(steps: Steps, times: Sequence[float]) -> list[float]:
    """The number at each of the times."""
    changes = sorted(steps.changes.items())
    sums, total = [0.0], 0.0
    for _, change in changes:
        total += change
        sums.append(total)
    at = [time for time, _ in changes]
    return [sums[bisect_right(at, time)] for time in times]


def _stream_rows(axis: Any, streams: dict[str, list[Bar]], start: float) -> None:
    axis.set_ylim(max(len(streams), 1), 0)
    for number, bars in enumerate(streams.values()):
        spans = [((bar.start - start) * _US, (bar.end - bar.start) * _US) for bar in bars]
        axis.broken_barh(spans, (number + 0.15, 0.7), facecolors=[bar.color for bar in bars], linewidth=0)
    axis.set_yticks([number + 0.5 for number in range(len(streams))], list(streams), fontsize=8)
    _bare(axis)


def _transfers(
    axis: Any, names: tuple[str, str], usages: Sequence[Sequence[tuple[float, float]]], start: float, end: float
) -> None:
    """What leaves above the line, what comes below."""
    for name, usage, sign in zip(names, usages, (1, -1), strict=True):
        earlier = [part for at, part in usage if at <= start]
        steps = [(start, earlier[-1] if earlier else 0.0), *((at, part) for at, part in usage if start < at < end)]
        steps.append((end, steps[-1][1]))
        x, y = [(at - start) * _US for at, _ in steps], [100 * sign * part for _, part in steps]
        axis.fill_between(x, 0, y, step="post", color=COPIES if name.endswith("out") else "#a9d3b6", linewidth=0)
    axis.set_ylim(-105, 105)
    axis.axhline(0, color="#444444", linewidth=0.5)
    axis.set_yticks([50, -50], [f"{name}, to 100 %" for name in names], fontsize=8)
    _bare(axis)


def _bare(axis: Any) -> None:
    axis.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _connect(figure: Any, axes: dict[int, Any], critical: Sequence[Any], start: float) -> None:
    """Lines where the critical path goes on on another rank."""
    from matplotlib.patches import ConnectionPatch

    for one, other in zip(critical, critical[1:], strict=False):
        if one.rank != other.rank and one.rank in axes and other.rank in axes:
            ends = ((one.end - start) * _US, 0.5), ((other.start - start) * _US, 0.5)
            line = ConnectionPatch(
                *ends, "data", "data", axesA=axes[one.rank], axesB=axes[other.rank], color=PATH, linewidth=1.0
            )
            figure.add_artist(line)


def _words(figure: Any, recording: Recording, ranks: Sequence[int], ns: float) -> None:
    from matplotlib.patches import Patch

    prediction, inches = recording.prediction, figure.get_figheight()
    assert prediction is not None
    calls = len(prediction.calls)
    shown = prediction.shown_call % max(calls, 1)
    what = f"call {shown + 1} of {calls}, {prediction.calls[shown][0].name}" if calls else "the whole run"
    nodes = recording.ranks // recording.ranks_per_node
    figure.text(
        0.01,
        1 - 0.12 / inches,
        f"{recording.title}: {what}, {ns * _US:.1f} us"
        + ("" if recording.complete else " (the record ends before the run)"),
        fontsize=14,
        va="top",
    )
    some = "" if len(ranks) == recording.ranks else f"; {len(ranks)} of them shown, those of the critical path first"
    figure.text(
        0.01,
        1 - 0.45 / inches,
        f"{recording.ranks} ranks"
        + (f" on {nodes} nodes" if nodes > 1 else "")
        + some
        + ". Programs by what they do, streams, and what transfers take of a link's rate.",
        fontsize=9.5,
        color="#444444",
        va="top",
    )
    names = {"others": "other programs that are resident"}
    entries = [Patch(color=color, label=names.get(name, f"programs: {name}")) for name, color in _COLORS.items()]
    entries += [
        Patch(color=COPIES, label="copies; bytes that leave"),
        Patch(color="#a9d3b6", label="bytes that come"),
        Patch(color=ITEM, label="a stream's launch or signal"),
        Patch(color=PATH, label="critical path"),
    ]
    figure.legend(handles=entries, loc="lower left", ncols=len(entries) // 2, frameon=False, fontsize=9)
