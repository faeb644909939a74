"""The shapes of the shipped tables, for ``ditron tune --shapes``: ``python benchmark/tune_shapes.py 2 >shapes.txt``.

MLPs of LLaMA and Qwen models (*strong*: divided among the ranks; *tp8slice*: the eighth of a rank among eight), those
of few rows, the products of decoding, and collectives. What matters most comes first: ``ditron tune --total`` may end
before the last.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import MLPS  # noqa: E402


def mlps(ranks: int, rows: int) -> list[str]:
    found = []
    for n, k in MLPS.values():
        for part in (n // 8, n // ranks):
            found.append(f"ag_gemm {rows} {part} {k} weight-per-rank")
            found.append(f"gemm_rs {rows} {k} {part} weight-per-rank")
    return found


def small(rows: int) -> list[str]:
    shapes = [("ag_gemm", 3584, 8192), ("ag_gemm", 1792, 4096), ("gemm_rs", 8192, 3584), ("gemm_rs", 4096, 1792)]
    return [f"{operator} {rows} {N} {K} weight-per-rank" for operator, N, K in shapes]


def products_and_sums(rows: int) -> list[str]:
    return [f"gemm_ar {rows} {N} {K} weight-per-rank" for N, K in ((8192, 3584), (5120, 3200))]


def shapes(ranks: int) -> list[str]:
    lines = products_and_sums(128) + small(1024) + mlps(ranks, 4096)
    lines += [f"all_reduce {1 << k}" for k in range(12, 28)] + products_and_sums(64) + small(2048) + mlps(ranks, 8192)
    lines += products_and_sums(512) + products_and_sums(2048) + products_and_sums(8192)
    lines += [f"{operator} {1 << k}" for k in range(12, 28, 3) for operator in ("all_gather", "reduce_scatter")]
    lines += small(512) + small(256) + small(128) + mlps(ranks, 2048) + mlps(ranks, 16384) + mlps(ranks, 1024)
    return list(dict.fromkeys(lines + mlps(ranks, 512)))


if __name__ == "__main__":
    print("\n".join(shapes(int(sys.argv[1]))))
