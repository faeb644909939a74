"""What ``tp.py --json`` has written, as a table and as a picture: time over the floor, by shape and contender.

python benchmark/tp_report.py tp.json --table out.md
python benchmark/tp_report.py tp.json --picture docs/images/tensor_parallel.png --title "2 x H200, M = 8192, bf16"
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

MICROSECONDS = (
    "plan",
    "all_to_all",
    "all_to_all_v",
    "ep_exchange",
    "all_reduce",
    "all_reduce_norm",
    "all_gather",
    "reduce_scatter",
    "gemm_ar",
    "ag_small",
    "rs_small",
)
FLOORS = ("cuBLAS alone", "grouped alone", "copies alone", "copy", "no communication")
_TITLE = (
    "| operator | shape | form | floors | peers | ditron | / floor | NCCL / ditron | best peer / ditron | fastest |"
)
HEADER = (_TITLE, "|---" * (_TITLE.count("|") - 1) + "|")
COLORS = {"torch + NCCL": "#9aa0a6", "async-TP": "#e8a33d", "ditron": "#2f6fde"}
TITLES = {"ag_gemm": "all-gather + GEMM", "gemm_rs": "GEMM + reduce-scatter"}


def table_rows(case: dict) -> list[str]:
    """A row per form: times of floors and peers, ours, and ratios to the floor, and of the peers to ours."""
    return [_row(case, form) for form in ("call", "graph") if form in case]


def _row(case: dict, form: str) -> str:
    times = case[form]
    ours = times["ditron"]
    peers = {n: t for n, t in times.items() if n not in FLOORS and not n.startswith("ditron")}
    best = min(peers, key=peers.get, default="")
    fastest = min((n for n in times if n.startswith("ditron")), key=times.get)
    floors = [times[n] for n in FLOORS if n in times]
    roof = max(floors, default=math.nan)
    unit = 1e3 if case["operator"] in MICROSECONDS else 1
    digits = 1 if unit > 1 else 3
    nccl = peers.get("torch + NCCL", peers.get("torch TP", math.nan))
    return (
        f"| {case['operator']} | {case['shape']} | {form} | {' / '.join(f'{t * unit:.{digits}f}' for t in floors)} | "
        f"{' / '.join(f'{n} {t * unit:.{digits}f}' for n, t in peers.items())} | {ours * unit:.{digits}f} | "
        f"{ours / roof:.2f} | {nccl / ours:.2f} | {best}: {peers.get(best, math.nan) / ours:.2f} | "
        f"{fastest.removeprefix('ditron, ')} {times[fastest] * unit:.{digits}f} |"
    )


def plot(cases: list[dict], picture: Path, form: str, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    operators = [name for name in TITLES if any(case["operator"] == name for case in cases)]
    figure, axes = plt.subplots(1, len(operators), figsize=(5.6 * len(operators), 3.4), sharey=True, squeeze=False)
    for operator, axis in zip(operators, axes[0], strict=True):
        shown = [case for case in cases if case["operator"] == operator]
        for offset, (name, color) in enumerate(COLORS.items()):
            ratios = [case[form][name] / max(case[form]["cuBLAS alone"], case[form]["copies alone"]) for case in shown]
            positions = [index + 0.26 * (offset - 1) for index in range(len(shown))]
            axis.bar(positions, ratios, 0.25, color=color, label=name)
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set_title(TITLES[operator], fontsize=10)
        axis.set_xticks(range(len(shown)))
        axis.set_xticklabels([case["shape"].rsplit(" ", 1)[0].replace(" ", "\n") for case in shown], fontsize=8)
        axis.set_ylim(0.8, None)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("time / floor (cuBLAS or copies alone)", fontsize=8)
    axes[0][-1].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(picture, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", type=Path, nargs="+")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--picture", type=Path, help="draw AG+GEMM and GEMM+RS")
    parser.add_argument("--form", choices=("call", "graph"), default="call")
    parser.add_argument("--title", default="M = 8192, bf16")
    args = parser.parse_args()
    cases = [case for file in args.json for case in json.loads(file.read_text())]
    if args.table:
        with args.table.open("a") as file:
            file.write("\n".join([*HEADER, *(row for case in cases for row in table_rows(case))]) + "\n")
    if args.picture:
        plot(cases, args.picture, args.form, args.title)


if __name__ == "__main__":
    main()
