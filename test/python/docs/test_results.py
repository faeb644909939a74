"""docs/results: the index is what its generator writes, and tables are put where a page has a place for them."""

import csv
import subprocess
import sys

import paths
import pytest

sys.path.insert(0, str(paths.ROOT / "docs" / "results"))

import publish  # noqa: E402

SCRIPT = paths.ROOT / "docs" / "results" / "publish.py"


def test_index_is_not_stale():
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_new_date_makes_the_index_stale(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(publish, "HERE", tmp_path)
    page = tmp_path / "links.md"
    page.write_text("# Links\n\n2026-01-02, 2 x H200.\n\n## Puts\n")
    (tmp_path / "README.md").write_text(publish.index())
    assert "| [Links](links.md) | Puts | 2026-01-02 |" in publish.index()
    page.write_text(page.read_text().replace("2026-01-02", "2026-01-03"))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--check"])
    assert publish.main() == 1 and "stale" in capsys.readouterr().err


def test_publish_replaces_one_table_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "HERE", tmp_path)
    (tmp_path / "page.md").write_text("before\n<!-- table: a -->\nold\n<!-- end: a -->\nafter\n")
    publish.publish("page.md", "a", "new\n")
    assert (tmp_path / "page.md").read_text() == "before\n<!-- table: a -->\nnew\n<!-- end: a -->\nafter\n"
    with pytest.raises(ValueError, match="table: b"):
        publish.publish("page.md", "b", "new")


@pytest.mark.parametrize("path", sorted((paths.ROOT / "docs" / "results" / "data").glob("*.csv")), ids=lambda p: p.stem)
def test_every_row_has_its_columns(path):
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    assert rows and all(len(row) == len(head) for row in rows)
