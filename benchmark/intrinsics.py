"""The table of communication intrinsics (ditron.cost_model.match) beside what was measured on two H200s.

    python benchmark/intrinsics.py     # needs no GPU; a second

Measured times are read from docs/results/links.md; the rules are those of the operators.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from pathlib import Path

from ditron import machines
from ditron.cost_model import Transfer, match
from ditron.kernels import schedules
from ditron.kernels.all_reduce import by_size as all_reduce_by_size

LINKS = Path(__file__).resolve().parents[1] / "docs" / "results" / "links.md"
MACHINE = "h200x2"
#: Algorithms of collectives, and the intrinsic that each is made of.
BY = {
    "ll": "LL",
    "ll128": "LL128",
    "data words": "data words",
    "one_shot": "stores",
    "stored": "stores",
    "copied": "copy engine",
}
#: What benchmark/links.py calls them.
WAYS = {
    "copy engine": "copy engine",
    "push, stores": "stores",
    "push, TMA store": "TMA",
    "push, ll packets": "LL",
    "push, ll128 packets": "LL128",
}
SIZES = {"1 MB": 1 << 20, "8 MB": 8 << 20, "64 MB": 64 << 20, "256 MB": 256 << 20}


def us_of(intrinsic: str, transfer: Transfer, machine: machines.Machine) -> float:
    """Of one intrinsic, which must be able to."""
    found = next(one for one in match(transfer, machine) if one.intrinsic.name == intrinsic)
    assert found.us is not None, found
    return found.us


def collective_us(algorithm: str, nbytes: int, machine: machines.Machine, ranks: int = 2) -> float:
    """Of an all-gather or all-reduce in a graph, of tensors of ``nbytes``; the sums are hidden under the stores."""
    unpacked = algorithm == "copied"
    if algorithm != "two_shot":
        return us_of(BY[algorithm], Transfer(nbytes, ranks - 1, captured=True, unpacked=unpacked), machine)
    half = us_of("stores", Transfer(-(-nbytes // ranks // 2) * 2, ranks - 1, captured=True), machine)
    return 2 * half - machine["latency.launch"]


def measured_collectives() -> Iterator[tuple[str, int, dict[str, float]]]:
    """Operator, bytes, and us in a graph by algorithm."""
    section = ""
    for line in LINKS.read_text().splitlines():
        section = line if line.startswith("#") else section
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if section == "## Small messages" and len(cells) > 8 and cells[1] == "graph":
            names = zip(("one_shot", "two_shot", "ll", "ll128"), cells[5:9], strict=True)
            yield "all_reduce", int(cells[0]), {name: float(cell) for name, cell in names if cell}
        elif section == "## Small messages" and (row := re.match(r"(all_gather|reduce_scatter), (\d+)$", cells[0])):
            yield row[1], int(row[2]), {"stored": float(cells[2]), "ll": float(cells[3])}


def measured_pushes() -> Iterator[tuple[str, str, dict[str, float]]]:
    """Size, SMs, and us by intrinsic, between two H200s: of several variants of a kernel the fastest."""
    size, columns, best = "", [], {}
    for line in [*LINKS.read_text().split("## GB/s of a link, four H200s")[0].splitlines(), "| end |"]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if head := re.match(r"(\d+ MB|end)(, GB/s by SMs)?$", cells[0]):
            for sms in columns[1:]:  # a copy engine takes no SM, and is in the first column
                found = {way: SIZES[size] / rate / 1e3 for (way, at), rate in best.items() if at in (sms, None)}
                yield size, sms, found
            size, columns, best = head[1], cells[1:], {}
        way = next((name for start, name in WAYS.items() if cells[0].startswith(start)), None)
        if way and size:
            for sms, cell in zip(columns, cells[1:], strict=True):
                if cell:
                    key = (way, None if way == "copy engine" else sms)
                    best[key] = max(best.get(key, 0.0), float(cell))


def main() -> None:
    machine = machines.load(MACHINE)
    compared = [
        (f"{operator}, {nbytes}", us, {name: collective_us(name, nbytes, machine) for name in us})
        for operator, nbytes, us in measured_collectives()
    ]
    _print("Collectives in graphs", "operator, bytes", compared, 1)
    compared = [
        (f"{size}, {sms}", us, {name: us_of(name, Transfer(SIZES[size], sms=int(sms)), machine) for name in us})
        for size, sms, us in measured_pushes()
    ]
    _print("Pushes", "size, SMs", compared, 0)
    print("## Rules\n\n| bytes sent by a rank | all_gather's rule | table | all_reduce's rule | table |")
    print("|---|---|---|---|---|")
    for bits in range(12, 31):
        cells = []
        for rule, table in rules(1 << bits, machine):
            best = min(table, key=table.__getitem__)
            cells += [rule, best if best == rule else f"**{best}** ({table[best] / table[rule] - 1:+.1%})"]
        print(f"| {1 << bits} | {' | '.join(cells)} |")


def rules(nbytes: int, machine: machines.Machine) -> Iterator[tuple[str, dict[str, float]]]:
    """What the rules of all_gather and all_reduce of two ranks say, and us by the table of what they choose from."""
    of_sum = all_reduce_by_size(nbytes, 2, True)
    for rule, names in (
        (schedules.by_size(nbytes, 2, True), ("ll", "ll128", "stored", "copied")),
        ("data words" if of_sum == "ll" else of_sum, ("data words", "one_shot", "two_shot")),
    ):
        yield rule, {name: collective_us(name, nbytes, machine) for name in names}


def _print(title: str, first: str, rows: list[tuple[str, dict[str, float], dict[str, float]]], digits: int) -> None:
    print(f"## {title}\n\n| {first} | measured, us | by the table, us | measured best | table's best |")
    print("|---|---|---|---|---|")
    for what, measured, table in rows:
        shown = [", ".join(f"{name} {us:.{digits}f}" for name, us in times.items()) for times in (measured, table)]
        best, ours = (min(times, key=times.__getitem__) for times in (measured, table))
        note = ours if ours == best else f"**{ours}** ({measured[ours] / measured[best] - 1:+.0%})"
        print(f"| {what} | {' | '.join(shown)} | {best} | {note} |")
    errors = [table[name] / us - 1 for _, measured, table in rows for name, us in measured.items()]
    print(f"\n{len(errors)} times: error {_spread(errors)}.\n")


def _spread(errors: list[float]) -> str:
    worst = max(errors, key=abs)
    return f"median {statistics.median(map(abs, errors)):.1%}, worst {worst:+.1%}"


if __name__ == "__main__":
    main()
