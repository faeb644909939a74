"""``ditron swizzle``: which tile each rank works on in each step, as text or as a picture."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ditron.cli.kernels import UsageError
from ditron_compiler.lowering.tile_order import swizzled

__all__ = ["TileOrder", "draw", "swizzle_command", "text"]

KINDS = (".png", ".svg", ".pdf")
_MAPS = ("Blues", "Oranges", "Greens", "Purples", "Reds", "Greys")  # a node each
_MAX_CELLS = 100_000


@dataclass(frozen=True)
class TileOrder:
    """The order of tiles on every rank: ``size`` rows in tiles of ``block``, ``mode`` is gather, scatter or none."""

    size: int
    block: int
    ranks: int
    nodes: int
    mode: str

    def __post_init__(self) -> None:
        for name in ("size", "block", "ranks", "nodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.ranks % self.nodes:
            raise ValueError(f"nodes must divide the {self.ranks} ranks, got {self.nodes}")
        if self.ranks * self.tiles > _MAX_CELLS:
            raise ValueError(
                f"{self.ranks} ranks times {self.tiles} tiles are more than can be shown; take larger blocks"
            )

    @property
    def tiles(self) -> int:
        return -(-self.size // self.block)

    @property
    def per_node(self) -> int:
        return self.ranks // self.nodes

    @cached_property
    def rows(self) -> list[list[int]]:
        """Per rank: the tiles in the order of execution."""
        if self.mode == "none":
            return [list(range(self.tiles))] * self.ranks
        return [
            [swizzled(t, self.size, self.block, rank, self.ranks, self.mode, self.per_node) for t in range(self.tiles)]
            for rank in range(self.ranks)
        ]

    def owners(self, tile: int) -> tuple[int, int]:
        """The first and the last rank that have rows of a tile; they differ when it straddles ranks."""
        shard = -(-self.size // self.ranks)
        return tile * self.block // shard, (min((tile + 1) * self.block, self.size) - 1) // shard

    @property
    def title(self) -> str:
        ranks = f"{self.ranks} ranks" + (f" on {self.nodes} nodes" if self.nodes > 1 else " on one node")
        order = {"none": "without swizzle"}.get(self.mode, f"{self.mode} order")
        return f"{ranks}, {self.size} rows in tiles of {self.block}, {order}"


def text(view: TileOrder) -> str:
    """A line per rank: its tiles in the order of execution; a star marks those that straddle ranks."""
    width = len(str(view.tiles - 1)) + 1
    lines = [view.title]
    for rank, row in enumerate(view.rows):
        if rank and rank % view.per_node == 0:
            lines.append("")
        cells = "".join(f"{tile:{width}}{'*' if len(set(view.owners(tile))) > 1 else ' '}" for tile in row)
        lines.append(f"rank {rank:{len(str(view.ranks - 1))}} |{cells.rstrip()}")
    lines.append("")
    lines += ["tiles of each rank (* straddles ranks and belongs to several):"]
    for rank in range(view.ranks):
        own = [tile for tile in range(view.tiles) if view.owners(tile)[0] <= rank <= view.owners(tile)[1]]
        shown = f"{own[0]} to {own[-1]}" if len(own) > 1 else str(*own) if own else "none: it has no rows"
        lines.append(f"rank {rank:{len(str(view.ranks - 1))}} |{shown:>{max(width, len(shown) + 1)}}")
    return "\n".join(lines) + "\n"


def draw(view: TileOrder, path: str | Path) -> None:
    """Draw a row of cells per rank, coloured by the rank that owns the tile, split in two where several do.

    ImportError when matplotlib is missing, OSError when the file cannot be written.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.collections import PolyCollection
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("a picture needs matplotlib: pip install 'ditron[plot]'") from None

    cell = 0.25 if view.tiles <= 80 else 0.2  # inches
    figure = Figure(figsize=(max(view.tiles * cell, 7) + 1.2, view.ranks * cell + 1.9), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    colors = [_color(view, rank) for rank in range(view.ranks)]
    shapes, faces, outlines = [], [], []
    for y, row in enumerate(view.rows):
        for x, tile in enumerate(row):
            first, last = view.owners(tile)
            corners = (x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)
            if first == last:
                shapes.append(corners)
                faces.append(colors[first])
            else:
                shapes += [(corners[0], corners[1], corners[3]), (corners[1], corners[2], corners[3])]
                faces += [colors[first], colors[last]]
                outlines.append(corners)
            dark = sum(colors[first][:3]) < 1.5
            axis.text(
                x + 0.5,
                y + 0.52,
                str(tile),
                ha="center",
                va="center",
                fontsize=cell * 24,
                color="white" if dark and first == last else "black",
                fontweight="bold" if first != last else "normal",
            )
    axis.add_collection(PolyCollection(shapes, facecolors=faces, edgecolors="white", linewidths=0.3))
    axis.add_collection(PolyCollection(outlines, facecolors="none", edgecolors="black", linewidths=1.1))
    for rank in range(view.per_node, view.ranks, view.per_node):
        axis.axhline(rank, color="black", linewidth=1.6)
    axis.set(
        xlim=(0, view.tiles),
        ylim=(view.ranks, 0),
        aspect="equal",
        xlabel="step: each rank processes its tiles from left to right",
    )
    axis.set_yticks(
        [rank + 0.5 for rank in range(view.ranks)], [f"rank {rank}" for rank in range(view.ranks)], fontsize=7
    )
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    axis.set_title(view.title, loc="left", fontsize=11)
    _legend(figure, view, colors)
    with rc_context({"svg.fonttype": "none"}):  # numbers stay text
        figure.savefig(path, dpi=110)


def _color(view: TileOrder, rank: int):
    """A hue for the node, from light to dark within it."""
    from matplotlib import colormaps

    node, local = divmod(rank, view.per_node)
    if view.nodes == 1:
        return colormaps["turbo"](0.06 + 0.88 * rank / max(view.ranks - 1, 1))
    return colormaps[_MAPS[node % len(_MAPS)]](0.25 + 0.65 * local / max(view.per_node - 1, 1))


def _legend(figure, view: TileOrder, colors: list) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=color, label=str(rank)) for rank, color in enumerate(colors)]
    straddling = any(len(set(view.owners(tile))) > 1 for tile in range(view.tiles))
    if straddling:
        handles.append(Patch(facecolor="none", edgecolor="black", label="straddles ranks"))
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=min(len(handles), 17),
        frameon=False,
        fontsize=7,
        title="cells show the tile's number; the colour is the rank that owns it",
        title_fontsize=8,
        alignment="left",
    )


def swizzle_command(args: argparse.Namespace) -> int:
    """Print the view, or write it to a file of the kind that its name says."""
    try:
        view = TileOrder(args.size, args.block, args.ranks, args.nodes, args.mode)
    except ValueError as error:
        raise UsageError(error) from error
    suffix = Path(args.output).suffix.lower() if args.output else ""
    if suffix not in ("", ".txt", *KINDS):
        raise UsageError(f"{args.output}: expected a file that ends in .txt, {', '.join(KINDS)}")
    try:
        if suffix in KINDS:
            draw(view, args.output)
        elif args.output:
            Path(args.output).write_text(text(view))
        else:
            print(text(view), end="")
    except (ImportError, OSError) as error:
        raise UsageError(error) from error
    return 0
