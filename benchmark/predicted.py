"""What the simulator's clock predicts for the operators of docs/results/tensor-parallel.md, beside what was measured.

    python benchmark/predicted.py                  # needs no GPU; some minutes, most for packets
    python benchmark/predicted.py --set link=200   # what if
    python benchmark/predicted.py --machine FILE   # as FILE of ditron calibrate says, two GPUs
    python benchmark/predicted.py --paper          # AG+GEMM on H800s, against the speed-ups of DITRON's paper
    python benchmark/predicted.py --paper h20      # the same on H20s

The measured times are read from that page. The machine's numbers come from rows of 7B and 70B alone (machines/*.toml).
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from measuring import MLPS
from paper_tables import paper

import ditron
from ditron import kernels, machines, sim  # noqa: F401 (kernels declares the operators of tables)
from ditron.sim.library_time import product_us
from ditron.tuning.problem import Problem
from ditron.tuning.registry import OPERATORS
from ditron.tuning.tables import Table, shipped_path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "tensor-parallel.md"
FEW_ROWS, LINKS = PAGE.with_name("tensor-parallel-collectives.md"), PAGE.with_name("links.md")
M = 8192
#: Measured on 4 x H200 in a loop, 2026-11-22, by the first versions of the operators: ms by shape.
FOUR = {
    "AG+GEMM": {
        "7B strong": 0.283, "8B strong": 0.359, "70B strong": 1.474, "72B strong": 1.575,
        "7B tp8slice": 0.236, "8B tp8slice": 0.254, "70B tp8slice": 0.698, "72B tp8slice": 0.836,
    },
    "GEMM+RS": {"7B strong": 0.290, "8B strong": 0.365, "70B strong": 1.478, "72B strong": 1.585},
}  # fmt: skip


NCCL_COLUMN = 5  # of the page's tables: torch + NCCL


def measured_on_two(column: int = 7) -> Iterator[tuple[str, str, str, float]]:
    """Operator, shape, form (call or graph) and ms, of a column, of the page's tables of both operators, M = 8192."""
    operator = ""
    for line in PAGE.read_text().splitlines():
        if header := re.match(r"### (AG\+GEMM|GEMM\+RS), M = 8192$", line):
            operator = header[1]
        elif line.startswith("#"):
            operator = ""
        elif operator and re.match(r"\| \d+B (strong|tp8slice) \|", line):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            yield operator, cells[0], cells[2], float(cells[column])


def larger_on_two() -> Iterator[tuple[str, str, str, float]]:
    """The same of the page's table of larger models, of which nothing was fitted."""
    names = {"ag_gemm": "AG+GEMM", "gemm_rs": "GEMM+RS"}
    for line in PAGE.read_text().split("### Larger models")[1].split("\n#")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in names:
            yield names[cells[0]], cells[1].rsplit(" ", 1)[0], cells[2], float(cells[5])


def predict_nccl(operator: str, shape: str, machine: machines.Machine) -> float:
    """ms of cuBLAS and NCCL, one after the other."""
    return predict(operator, shape, machine, algorithm="nccl")


def predict_measured(operator: str, shape: str, machine: machines.Machine) -> float:
    """ms of the schedule that calls on two H200s take, as the shipped table says."""
    name, sizes = ("ag_gemm", (0, 1)) if operator == "AG+GEMM" else ("gemm_rs", (1, 0))
    weight = weight_of(shape, 2)
    table = Table.from_text(shipped_path("h200", 2).read_text())
    entry = table.entries.get(Problem(name, "bf16", 2, M // 2, *(weight[size] for size in sizes)))
    best = entry and entry.best(None, OPERATORS[name].named_only)
    return predict(operator, shape, machine, **(best.options if best else {}))


def weight_of(shape: str, ranks: int) -> tuple[int, int]:
    """Extents of a rank's part of a weight, the divided one first."""
    name, mode = shape.split()
    divided, other = MLPS[name]
    return divided // (ranks if mode == "strong" else 8), other


def predict(operator: str, shape: str, machine: machines.Machine, **schedule: Any) -> float:
    """ms of the second call, on the slowest rank."""
    ranks = machine.size
    divided, other = weight_of(shape, ranks)

    def main() -> None:
        ditron.init()
        for _ in range(2):
            if operator == "AG+GEMM":
                a, b = (torch.empty(*size, dtype=torch.bfloat16) for size in ((M // ranks, other), (divided, other)))
                ditron.kernels.ag_gemm(a, b, **schedule)
            else:
                a, b = (torch.empty(*size, dtype=torch.bfloat16) for size in ((M, divided), (other, divided)))
                ditron.kernels.gemm_rs(a, b, **schedule)

    calls = sim.predict(main, machine).calls
    first = {call.rank: call.start for call in calls[len(calls) // 2]}  # of the steps of the second call
    return max(call.end - first[call.rank] for call in calls[-1]) / 1e6


def collectives_on_two() -> Iterator[tuple[str, str, float]]:
    """Operator, bytes and algorithm, us of the collectives in graphs that the page of links has."""
    section = ""
    for line in LINKS.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        section = line if line.startswith("#") else section
        if section == "## Small messages" and len(cells) > 2 and cells[1] == "graph":
            for algorithm, cell in zip(("one_shot", "two_shot"), cells[5:7], strict=True):
                if cell:
                    yield "all_reduce", f"{cells[0]} {algorithm}", float(cell)


def cublas_alone() -> Iterator[tuple[str, str, float]]:
    """ "product", page and shape, us of cuBLAS alone in graphs, up to 2048 rows."""
    for page in (FEW_ROWS, LINKS):
        for M, shape, us in re.findall(r"^\| (\d+), (\d+ x \d+) \| graph \| ([\d.]+) \|", page.read_text(), re.M):
            if int(M) <= 2048:
                yield "product", f"{page.stem}: {M}, {shape}", float(us)


def predict_product(_: str, what: str, machine: machines.Machine) -> float:
    """us of cuBLAS."""
    M, N, K = map(int, re.findall(r"\d+", what))
    return product_us(machine, 1, M, N, K, 2)


def nccl_alone_on_two() -> Iterator[tuple[str, str, float]]:
    """The same of NCCL's collectives, which the tuned table has of a rank's tensor of so many bytes."""
    for problem, entry in Table.from_text(shipped_path("h200", 2).read_text()).entries.items():
        nccl = entry.best("nccl")
        if nccl is not None and nccl.us is not None and not problem.is_product:
            yield problem.operator, f"{problem.rows * problem.itemsize} nccl", nccl.us


def predict_collective(operator: str, what: str, machine: machines.Machine) -> float:
    """us of the third call."""
    nbytes, algorithm, *block = what.split()
    schedule = {"algorithm": algorithm} | ({"block": int(block[0])} if block else {})

    def main() -> None:
        ditron.init()
        elements = int(nbytes) // 2 * (machine.size if operator == "reduce_scatter" else 1)
        x = torch.zeros(elements, dtype=torch.bfloat16)
        for _ in range(3):
            getattr(ditron.kernels, operator)(x if operator == "all_reduce" else x.view(-1, 8), **schedule)

    return max(call.us for call in sim.predict(main, machine).calls[-1])


def table(
    title: str,
    machine: machines.Machine,
    rows: Iterator[tuple[str, str, float]],
    predict: Callable[[str, str, machines.Machine], float] = predict,
    unit: str = "ms",
) -> None:
    """Print a table of operator, shape and measured ms, with what is predicted."""
    print(
        f"\n{title}: {machine}\n\n| operator | shape | measured, {unit} | predicted, {unit} | error |\n"
        "|---|---|---|---|---|"
    )
    errors = []
    for operator, shape, measured in rows:
        predicted = predict(operator, shape, machine)
        errors.append(predicted / measured - 1)
        print(f"| {operator} | {shape} | {measured:.3f} | {predicted:.3f} | {100 * errors[-1]:+.1f} % |", flush=True)
    worst, median = max(map(abs, errors)), statistics.median(map(abs, errors))
    print(f"\nError at most {100 * worst:.1f} %, median {100 * median:.1f} %.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", action="append", default=[], metavar="NUMBER=VALUE", help="what if")
    parser.add_argument("--machine", default="h200x2", help="of the tables of two GPUs (default h200x2)")
    parser.add_argument("--paper", nargs="?", const="h800", choices=("h800", "h20"), help="one to four nodes")
    given = parser.parse_args()
    if given.paper:
        return paper(given.paper)
    changes = given.set
    two, four = (machines.load(name).with_changes(changes) for name in (given.machine, "h200x4"))
    for title, every, how in (
        ("2 x H200", list(measured_on_two()), predict_measured),
        ("2 x H200, larger models", list(larger_on_two()), predict),
    ):
        for form, machine in (("call", two), ("graph", two.sustained().in_graph())):
            table(f"{title}, {form}", machine, ((o, s, ms) for o, s, f, ms in every if f == form), how)
    for form, machine in (("call", two), ("graph", two.sustained().in_graph())):
        rows = ((o, s, ms) for o, s, f, ms in measured_on_two(NCCL_COLUMN) if f == form)
        table(f"cuBLAS and NCCL, 2 x H200, {form}", machine, rows, predict_nccl)
    table("cuBLAS of few rows, in graphs", two.in_graph(), cublas_alone(), predict_product, "us")
    table("NCCL alone in graphs, 2 x H200", two.in_graph(), nccl_alone_on_two(), predict_collective, "us")
    rows = ((operator, shape, ms) for operator, shapes in FOUR.items() for shape, ms in shapes.items())
    table("4 x H200, in a loop", four.sustained(), rows)
    table("Collectives in graphs, 2 x H200", two.in_graph(), collectives_on_two(), predict_collective, "us")


if __name__ == "__main__":
    main()
