"""Predicted against measured order of the candidates of measured tables; needs no GPU, some minutes.

    python benchmark/ranking.py                                  # the shipped table of two H200s
    python benchmark/ranking.py --table more.json --json rows.json   # of a table of benchmark/ranking_gpu.py, say
    python benchmark/ranking.py --table docs/results/data/ranking_seed1.json --problems   # such a one, in short

Of each problem: Spearman's rank correlation where it has at least four candidates with predictions, the place of the
fastest candidate in the predicted order, and how much slower the best of the predicted top K is than the fastest
(regret). Times of candidates that differ by less than ``--noise`` are one place.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import ditron.tuning.tables
from ditron import kernels, machines  # noqa: F401 (kernels declares the operators of tables)
from ditron.tuning.prediction import Predictor
from ditron.tuning.tables import Entry, Table

SHIPPED = Path(ditron.tuning.tables.__file__).parent / "tables" / "h200x2.json"
TOPS = (1, 2, 3, 4, 8)


def ranks_of(values: Sequence[float], noise: float = 0.0) -> list[float]:
    """Places of values, the least first; those within ``noise`` of the first of a run share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    places, at = [0.0] * len(values), 0
    while at < len(order):
        end = at
        while end < len(order) and values[order[end]] <= values[order[at]] * (1 + noise):
            end += 1
        for index in order[at:end]:
            places[index] = (at + end - 1) / 2
        at = end
    return places


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Of two lists of places; None where one of them has no order."""
    return statistics.correlation(a, b) if len(set(a)) > 1 and len(set(b)) > 1 else None


def compare(entry: Entry, predictor: Predictor, noise: float) -> dict:
    """What is said of one problem; without its candidates that have no time, or whose time is not predicted."""
    pairs = []
    for candidate in entry.candidates:
        if candidate.us is not None:
            predicted = predictor(entry.problem, candidate.options)
            if predicted.us is not None:
                pairs.append((candidate.us, predicted.us, candidate.options, predicted.library > 0))
    row: dict = {"problem": str(entry.problem), "operator": entry.problem.operator, "candidates": len(pairs)}
    if len(pairs) < 2:
        return row
    measured, times = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    order = sorted(range(len(pairs)), key=lambda index: (times[index], index))
    row["pairs"] = [{"measured": m, "predicted": p, "options": o, "library": lib} for m, p, o, lib in pairs]
    fastest = min(measured)
    row["regret"] = {top: min(measured[index] for index in order[:top]) / fastest - 1 for top in TOPS}
    if len(pairs) >= 4:
        row["spearman"] = spearman(ranks_of(measured, noise), ranks_of(times, 1e-6))
    row["spread"] = max(measured) / fastest - 1
    return row


def in_short(table: Table) -> str:
    """The times of a table, a line per problem; an option's name stands in front of all, once."""
    read = json.loads(table.to_text())
    names = sorted({name for entry in read["entries"] for one in entry["candidates"] for name in one["options"]})
    for entry in read["entries"]:
        known = [one for one in entry["candidates"] if "us" in one]
        entry["candidates"] = [[one["us"], *(one["options"].get(name) for name in names)] for one in known]
    entries = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in read.pop("entries"))
    return json.dumps(read | {"options": names})[:-1] + f', "entries": [\n{entries}]}}\n'


def table_of(path: Path) -> Table:
    """Of a file of ``ditron tune``, or one that is :func:`in_short`."""
    text = path.read_text()
    if isinstance(read := json.loads(text), dict) and "options" in read:
        for entry in read["entries"]:
            entry["candidates"] = [
                {"us": us, "options": {n: v for n, v in zip(read["options"], values, strict=True) if v is not None}}
                for us, *values in entry["candidates"]
            ]
        text = json.dumps(read)
    return Table.from_text(text, str(path))


def part_of(table: Path, machine: machines.Machine, noise: float, problems: list[int]) -> list[dict]:
    """The rows of some problems of a table, by their numbers; in a process of its own."""
    entries, predictor = list(table_of(table).entries.values()), Predictor(machine)
    return [compare(entries[number], predictor, noise) for number in problems]


def summary(rows: list[dict], title: str) -> str:
    """A line of the table of docs/results/clock.md."""
    compared = [row for row in rows if "regret" in row]
    ordered = [row["spearman"] for row in compared if row.get("spearman") is not None]
    correlation = f"{statistics.median(ordered):.2f}" if ordered else "-"
    enough = f"{100 * sum(value >= 0.85 for value in ordered) / len(ordered):.0f} %" if ordered else "-"
    cells = [title, len(compared), len(ordered), correlation, enough]
    for top in TOPS:
        close = sum(row["regret"][top] <= 0.03 for row in compared)
        cells.append(f"{100 * close / len(compared):.0f} %")
    worst = [max(row["regret"][top] for row in compared) for top in (1, 3)]
    cells += [f"{100 * value:.0f} %" for value in worst]
    return "| " + " | ".join(map(str, cells)) + " |"


def line(row: dict) -> str:
    """What is said of one problem."""
    order = row.get("spearman")
    cells = [row["problem"], row["candidates"], "-" if order is None else f"{order:.2f}", f"{1 + row['spread']:.2f}"]
    cells += [f"{100 * row['regret'][top]:.1f} %" for top in (1, 3, 8)]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, default=SHIPPED)
    parser.add_argument("--machine", default="h200x2")
    parser.add_argument("--set", action="append", default=[], metavar="NUMBER=VALUE", help="what if")
    parser.add_argument("--operator", help="only that one's problems")
    parser.add_argument("--noise", type=float, default=0.01, help="part of a time that is none (default 0.01)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--problems", action="store_true", help="print a line for each problem, too")
    parser.add_argument("--json", type=Path, help="what was compared, by problem")
    parser.add_argument("--short", type=Path, metavar="FILE", help="write the table's times there, and predict nothing")
    given = parser.parse_args()
    if given.short:
        given.short.write_text(in_short(table_of(given.table)))
        return
    machine = machines.load(given.machine).sustained().in_graph().with_changes(given.set)
    entries = list(table_of(given.table).entries.values())
    numbers = [n for n, e in enumerate(entries) if given.operator in (None, e.problem.operator)]
    chunks = [numbers[at : at + 8] for at in range(0, len(numbers), 8)]
    rows: list[dict] = []
    with ProcessPoolExecutor(given.jobs) as pool:
        started = [pool.submit(part_of, given.table, machine, given.noise, chunk) for chunk in chunks]
        for future in started:
            rows += future.result()
            print(f"{len(rows)} of {len(numbers)} problems", file=sys.stderr, flush=True)
    if not any("regret" in row for row in rows):
        of_operator = f" of {given.operator}" if given.operator else ""
        sys.exit(
            f"{given.table}: there is nothing to compare: none of its {len(rows)} problems{of_operator} has two "
            f"candidates that were measured and can be predicted for {given.machine}"
        )
    by_operator = defaultdict(list)
    for row in rows:
        by_operator[row["operator"]].append(row)
    tops = " | ".join(f"top {top}" for top in TOPS)
    print(f"| operator | problems | with an order | Spearman, median | >= .85 | {tops} | worst, top 1 | top 3 |")
    print("|---" * (7 + len(TOPS)) + "|")
    for operator, own in sorted(by_operator.items()):
        if any("regret" in row for row in own):
            print(summary(own, operator))
    print(summary(rows, "all"))
    if given.problems:
        print("\n| problem | candidates | Spearman | slowest / fastest | top 1 | top 3 | top 8 |")
        print("|---" * 7 + "|")
        print(*(line(row) for row in rows if "regret" in row), sep="\n")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
