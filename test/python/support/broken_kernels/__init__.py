"""Kernels that are wrong, each in one way, with what the simulator has to say about it.

A kernel gets `data` [4, N] fp32 and `flags` [8] i64 in symmetric memory, `out` [4, N] fp32 of its own, and the number
of the call. The lines that a report must name, and may name, end in `# <-`.
"""

from broken_kernels import memory, signals, waiting  # noqa: F401  (they enter their kernels)
from broken_kernels.catalogue import CASES, Case, N

__all__ = ["CASES", "Case", "N"]
