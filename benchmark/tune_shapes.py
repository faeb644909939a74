"""The shapes of the shipped tables, for ``ditron tune --shapes``: ``python benchmark/tune_shapes.py 2 >shapes.txt``.

MLPs of LLaMA, Qwen, Seed-OSS and GPT-3 models (*strong*: divided among the ranks; *tp8slice*: the eighth of a rank
among eight), those of few rows, the products of decoding, collectives, and mixtures of experts. What matters most comes
first: ``ditron tune --total`` may end before the last. ``tune_shapes.py 2 experts`` prints the last kind alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from grouped_gemm import MODELS  # noqa: E402
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


def experts(ranks: int, tokens: int) -> list[str]:
    """``tokens`` of each rank: both products, and the layer."""
    found = []
    for model in MODELS.values():
        routed = f"{model.experts} {model.top_k}"
        first, second = f"{2 * model.intermediate} {model.hidden}", f"{model.hidden} {model.intermediate}"
        for operator, matrix in (("ep_moe", first), ("ag_moe", first), ("moe_rs", second)):
            found.append(f"{operator} {ranks * tokens} {matrix} {routed}")
    return found


def of_experts(ranks: int) -> list[str]:
    return [line for tokens in (128, 4096, 1024) for line in experts(ranks, tokens)]


def shapes(ranks: int) -> list[str]:
    lines = [line for rows in (128, 64, 32, 16, 8, 512, 2048, 8192) for line in products_and_sums(rows)]
    lines += [line for rows in (1024, 2048, 512, 256, 128, 64, 32, 16) for line in small(rows)]
    lines += [f"all_reduce {1 << k}" for k in range(12, 28)]
    lines += [f"{operator} {1 << k}" for k in range(12, 28, 2) for operator in ("all_gather", "reduce_scatter")]
    lines += [line for rows in (4096, 8192, 2048, 16384, 1024, 512) for line in mlps(ranks, rows)]
    return list(dict.fromkeys(lines + of_experts(ranks)))


if __name__ == "__main__":
    print("\n".join((of_experts if sys.argv[2:] == ["experts"] else shapes)(int(sys.argv[1]))))
