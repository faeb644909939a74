"""A picture of a host program: a column per rank and stream, a box per step, arrows for events and signals.

It shows one call in a small group, evaluated as for execution. A box is below all the boxes that it waits for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditron_compiler import host

if TYPE_CHECKING:
    from ditron._program.execute.executable import Executable

__all__ = ["MAX_RANKS", "draw"]

MAX_RANKS = 8
KINDS = (".png", ".svg", ".pdf")
_COLORS = {
    host.Launch: "#cfe0f3",
    host.RankCopy: "#cfe8d5",
    host.Call: "#cfe0f3",
    host.Copy: "#e4ddd0",
    host.Fill: "#e4ddd0",
    host.SignalWrite: "#ead3e2",
    host.SignalWait: "#fbe3bb",
    host.StreamBarrier: "#fbe3bb",
}
_EDGES = {"event": "#555555", "signal": "#8e2f6b"}
_COMPARE = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!="}


@dataclass(eq=False)
class _Box:
    """One step of one rank."""

    rank: int
    step: Any
    before: list[_Box] = field(default_factory=list)
    level: int = -1

    @property
    def column(self) -> tuple[int, str, int]:
        return self.rank, self.step.stream.name, self.step.stream.index


def draw(executable: Executable, arguments: list, path: str | Path, ranks: int = 2, epoch: int = 2) -> None:
    """Draw call ``epoch`` of a program on ``ranks`` ranks into a file.

    ``arguments`` are tensors, or descriptions of them (``Program.module``). Raises ValueError for an unsupported file
    or number of ranks, ImportError without matplotlib, what evaluating raises, and OSError.
    """
    if Path(path).suffix.lower() not in KINDS:
        raise ValueError(f"graph {path}: expected a file that ends in {', '.join(KINDS)}")
    if not 1 <= ranks <= MAX_RANKS:
        raise ValueError(f"a picture of a program shows 1 to {MAX_RANKS} ranks, not {ranks}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("a picture needs matplotlib: pip install 'ditron[plot]'") from None
    boxes, edges = _boxes([executable.steps(arguments, rank, ranks, epoch) for rank in range(ranks)])
    _paint(executable.name, boxes, edges, ranks, epoch, path)


def _boxes(programs: list[list]) -> tuple[list[_Box], list[tuple[_Box, _Box, str]]]:
    """The boxes of all ranks, and the edges between columns."""
    boxes: list[_Box] = []
    edges: list[tuple[_Box, _Box, str]] = []
    writes: dict[Any, list[_Box]] = {}
    for rank, steps in enumerate(programs):
        last: dict[Any, _Box] = {}
        events: dict[Any, _Box | None] = {}
        awaited: dict[Any, list[_Box]] = {}
        for step in steps:
            where = (rank, step.stream.name, step.stream.index)
            if isinstance(step, host.Record):
                events[step.event] = last.get(where)
            elif isinstance(step, host.Await):
                if (source := events[step.event]) is not None:
                    awaited.setdefault(where, []).append(source)
            else:
                box = _Box(rank, step)
                sources = awaited.pop(where, [])
                edges += [(source, box, "event") for source in sources if source.column != where]
                box.before = sources + ([last[where]] if where in last else [])
                last[where] = box
                boxes.append(box)
                if isinstance(step, host.SignalWrite):
                    writes.setdefault((step.peer, step.signal.storage.name, step.signal.offset), []).append(box)
    for box in boxes:
        if isinstance(box.step, host.SignalWait):
            signal = box.step.signal
            for source in writes.get((box.rank, signal.storage.name, signal.offset), []):
                if source.step.value == box.step.value:
                    box.before.append(source)
                    edges.append((source, box, "signal"))
    for box in boxes:
        _level(box, set())
    return boxes, edges


def _level(box: _Box, above: set[_Box]) -> int:
    """One more than the level of what comes before; a cycle, which would be a deadlock, is broken."""
    if box.level < 0 and box not in above:
        box.level = 1 + max((_level(other, above | {box}) for other in box.before), default=-1)
    return max(box.level, 0)


def _text(step: Any) -> str:
    """What stands in a step's box."""
    if isinstance(step, host.Launch):
        extents = [str(extent) for extent in step.grid if extent > 1]
        return f"{step.kernel}\n{' x '.join(extents) or '1'} program{'s' * bool(extents)}"
    if isinstance(step, host.Call):
        return f"call {step.callee}\nto {', '.join(map(_name, step.writes))}"
    if isinstance(step, host.RankCopy):
        if step.push:
            return f"push {_name(step.src)}\nto {_name(step.dst)} of rank {step.peer}"
        return f"pull {_name(step.src)} of rank {step.peer}\nto {_name(step.dst)}"
    if isinstance(step, host.Copy):
        return f"copy {_name(step.src)}\nto {_name(step.dst)}"
    if isinstance(step, host.Fill):
        return f"fill {_name(step.dst)}\nwith {step.value}"
    if isinstance(step, host.SignalWrite):
        sign = "=" if step.op == "set" else "+="
        return f"{step.signal.storage.name}[{step.signal.offset}] {sign} {step.value}\non rank {step.peer}"
    if isinstance(step, host.SignalWait):
        return f"wait for {step.signal.storage.name}[{step.signal.offset}]\n{_COMPARE[step.cmp]} {step.value}"
    return "barrier of all ranks"


def _name(buffer: Any) -> str:
    """``workspace[128:256]`` in elements of the first dimension, as far as rows tell."""
    storage = buffer.storage
    row = 1
    for extent in storage.shape[1:]:
        row *= extent
    if not storage.shape or buffer.offset == 0 and tuple(buffer.shape) == tuple(storage.shape):
        return storage.name
    first, within = divmod(buffer.offset, row) if row else (0, 0)
    count = 1
    for extent in buffer.shape:
        count *= extent
    rows = -(-count // row) if row else 0
    return f"{storage.name}[{first}{f':{first + rows}' if rows > 1 else ''}{', ...' if within else ''}]"


def _paint(name: str, boxes: list[_Box], edges: list, ranks: int, epoch: int, path: str | Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

    columns = sorted({box.column for box in boxes})
    rows = 1 + max((box.level for box in boxes), default=0)
    width, height, wide, high = 2.5, 0.74, 1.95, 0.46
    figure = Figure(figsize=(max(0.6 + width * len(columns), 6.5), 1.5 + height * rows))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    across, down = figure.get_size_inches()
    axes.set_xlim(0, across)
    axes.set_ylim(down, 0)
    top = 1.3
    left = (across - width * len(columns)) / 2
    middle = {column: left + width * (index + 0.5) for index, column in enumerate(columns)}
    for rank in range(ranks):
        mine = [middle[column] for column in columns if column[0] == rank]
        if not mine:
            continue
        start, end = min(mine) - width / 2 + 0.06, max(mine) + width / 2 - 0.06
        axes.add_patch(
            Rectangle((start, 0.62), end - start, down - 0.74, facecolor="#f6f7f9", edgecolor="#d5d9de", zorder=0)
        )
        axes.text(start + 0.1, 0.84, f"rank {rank}", fontsize=11, weight="bold", va="center")
    for column, x in middle.items():
        several = any(other[1] == column[1] and other[2] for other in columns)
        stream = column[1] + (f"[{column[2]}]" if several else "")
        axes.text(
            x,
            1.07,
            f"stream {stream!r}" if stream else "the stream of the call",
            fontsize=8.5,
            ha="center",
            va="center",
            color="#444444",
        )
        axes.plot([x, x], [top - 0.06, top + height * (rows - 1) + 0.3], color="#c3c9d0", linewidth=1.2, zorder=1)
    place = {box: (middle[box.column], top + height * box.level + 0.15) for box in boxes}
    for box, (x, y) in place.items():
        axes.add_patch(
            FancyBboxPatch(
                (x - wide / 2, y - high / 2),
                wide,
                high,
                boxstyle="round,pad=0.02,rounding_size=0.06",
                edgecolor="#7a828c",
                linewidth=0.8,
                facecolor=_COLORS.get(type(box.step), "#ffffff"),
                zorder=3,
            )
        )
        axes.text(x, y, _text(box.step), fontsize=7.6, ha="center", va="center", zorder=4, linespacing=1.15)
    for source, target, kind in edges:
        (x0, y0), (x1, y1) = place[source], place[target]
        side = 1 if x1 > x0 else -1 if x1 < x0 else 0
        if side:
            ends = (x0 + side * (wide / 2 + 0.03), y0), (x1 - side * (wide / 2 + 0.03), y1)
        else:
            ends = (x0 + wide / 2 + 0.03, y0), (x1 + wide / 2 + 0.03, y1)
        axes.add_patch(
            FancyArrowPatch(
                *ends,
                arrowstyle="-|>",
                mutation_scale=10,
                color=_EDGES[kind],
                linewidth=1.1,
                linestyle="-" if kind == "signal" else (0, (4, 2)),
                zorder=2,
                connectionstyle=f"arc3,rad={0 if side else -0.35}",
            )
        )
    axes.text(
        left if left > 0.2 else 0.2,
        0.3,
        f"{name}: call {epoch} on {ranks} rank{'s' * (ranks > 1)}",
        fontsize=13,
        va="center",
    )
    axes.text(
        across - 0.2,
        0.3,
        "solid: a signal is seen      dashed: an event is awaited",
        fontsize=8,
        ha="right",
        va="center",
        color="#555555",
    )
    figure.savefig(path, dpi=130)
