"""Results pages: one per subject, with the latest table of each command, and an index of them.

    python docs/results/publish.py           write the index, docs/results/README.md
    python docs/results/publish.py --check   exit 1 when the index is stale

A script that measures puts its table into a page by ``publish(page, name, text)``: it replaces what stands between
``<!-- table: name -->`` and ``<!-- end: name -->``. History is data, in ``data/*.csv``.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

HEAD = """# Results

One page per subject, each with its latest tables and the command, machine and date of each; history as CSV in
[data](data/). Written by `python docs/results/publish.py`.

| subject | sections | latest |
| --- | --- | --- |
"""


def publish(page: str, name: str, text: str) -> None:
    """Replace the table ``name`` of ``page``; ValueError when the page has no place for it."""
    path = HERE / page
    begin, end = f"<!-- table: {name} -->", f"<!-- end: {name} -->"
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{path} has no '{begin}' ... '{end}'")
    path.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}")


def index() -> str:
    """The text of README.md: a row per page, with its sections and the date of its latest table."""
    rows = []
    for path in sorted(HERE.glob("*.md")):
        if path.name == "README.md":
            continue
        text = path.read_text()
        title = re.search(r"^# (.*)", text, re.M)[1]
        sections = ", ".join(re.findall(r"^## (.*)", text, re.M))
        dates = re.findall(r"\b20\d\d-\d\d-\d\d\b", text)
        rows.append(f"| [{title}]({path.name}) | {sections} | {max(dates, default='')} |\n")
    return HEAD + "".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="do not write; exit 1 when the index is stale")
    page = HERE / "README.md"
    if not parser.parse_args().check:
        page.write_text(index())
        return 0
    if page.read_text() == index():
        return 0
    print("docs/results/README.md is stale: run python docs/results/publish.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
