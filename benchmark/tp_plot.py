"""A picture of what ``tp.py --json`` has written: time over the floor, by shape and contender.

python benchmark/tp_plot.py tp.json docs/images/tensor_parallel.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

COLORS = {"torch + NCCL": "#9aa0a6", "async-TP": "#e8a33d", "ditron": "#2f6fde"}
TITLES = {"ag_gemm": "all-gather + GEMM", "gemm_rs": "GEMM + reduce-scatter"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--form", choices=("call", "graph"), default="call")
    parser.add_argument("--title", default="M = 8192, bf16")
    args = parser.parse_args()
    cases = json.loads(args.json.read_text())
    operators = [name for name in TITLES if any(case["operator"] == name for case in cases)]
    figure, axes = plt.subplots(1, len(operators), figsize=(5.6 * len(operators), 3.4), sharey=True, squeeze=False)
    for operator, axis in zip(operators, axes[0], strict=True):
        shown = [case for case in cases if case["operator"] == operator]
        for offset, (name, color) in enumerate(COLORS.items()):
            ratios = [
                case[args.form][name] / max(case[args.form]["cuBLAS alone"], case[args.form]["copies alone"])
                for case in shown
            ]
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
    figure.suptitle(args.title, fontsize=10)
    figure.tight_layout()
    figure.savefig(args.picture, dpi=150)


if __name__ == "__main__":
    main()
