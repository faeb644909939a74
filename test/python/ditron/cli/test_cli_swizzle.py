"""``ditron swizzle``: the views say what the order is, as text and as pictures."""

import re

import pytest

from ditron.cli import main
from ditron.cli.swizzling import TileOrder, draw, text
from ditron_compiler.lowering.tile_order import swizzled


def test_text_shows_every_rank_and_marks_tiles_that_straddle():
    assert (
        text(TileOrder(18, 4, 3, 1, "gather"))
        == """\
3 ranks on one node, 18 rows in tiles of 4, gather order
rank 0 | 0  2  1* 3  4
rank 1 | 2  3  4  0  1*
rank 2 | 3  4  0  2  1*

tiles of each rank (* straddles ranks and belongs to several):
rank 0 | 0 to 1
rank 1 | 1 to 2
rank 2 | 3 to 4
"""
    )


def test_text_parts_nodes_and_says_who_has_no_rows():
    lines = text(TileOrder(4, 2, 4, 2, "scatter")).splitlines()
    assert lines[:6] == [
        "4 ranks on 2 nodes, 4 rows in tiles of 2, scatter order",
        "rank 0 | 1* 0*",
        "rank 1 | 1* 0*",
        "",
        "rank 2 | 0* 1*",
        "rank 3 | 0* 1*",
    ]
    assert text(TileOrder(3, 2, 4, 1, "none")).endswith("rank 3 | none: it has no rows\n")


@pytest.mark.parametrize("mode", ["gather", "scatter", "none"])
def test_the_command_prints_the_order_of_the_closed_form(mode, capsys):
    assert main(["swizzle", "--ranks", "6", "--nodes", "3", "-M", "101", "--block", "8", "--mode", mode]) == 0
    rows = re.findall(r"^rank (\d) \|([ \d*]+)$", capsys.readouterr().out, re.MULTILINE)
    assert [int(rank) for rank, _ in rows] == list(range(6))
    for rank, cells in rows:
        order = [t if mode == "none" else swizzled(t, 101, 8, int(rank), 6, mode, 2) for t in range(13)]
        assert [int(cell.rstrip("*")) for cell in cells.split()] == order


def test_the_picture_has_a_cell_for_every_rank_and_tile(tmp_path):
    pytest.importorskip("matplotlib")
    view = TileOrder(8 * 997, 256, 8, 2, "scatter")
    draw(view, tmp_path / "order.svg")
    numbers = re.findall(r">\s*(\d+)\s*</text>", (tmp_path / "order.svg").read_text())
    drawn = sorted(map(int, numbers))
    for tile in range(view.tiles):
        assert drawn.count(tile) >= view.ranks, f"tile {tile} is not drawn on every rank"


@pytest.mark.parametrize("kind", ["png", "svg", "pdf", "txt"])
def test_files_of_every_kind(kind, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"order.{kind}"
    assert main(["swizzle", "--ranks", "4", "-M", "1000", "-o", str(path)]) == 0
    begin = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "txt": b"4 ranks on one node"}[kind]
    assert path.read_bytes().startswith(begin)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--ranks", "6", "--nodes", "4", "-M", "100"], "nodes must divide the 6 ranks, got 4"),
        (["-M", "0"], "size must be at least 1, got 0"),
        (["-M", "100", "--block", "-4"], "block must be at least 1, got -4"),
        (["-M", "1000000", "--block", "1"], "are more than can be shown; take larger blocks"),
        (["-M", "100", "-o", "order.docx"], "expected a file that ends in .txt, .png, .svg, .pdf"),
        (["-M", "100", "-o", "/no/such/folder/order.txt"], "No such file or directory"),
    ],
)
def test_wrong_arguments_are_told(arguments, message, capsys):
    assert main(["swizzle", *arguments]) == 2
    assert message in capsys.readouterr().err
