"""What a choice is made for: an operator, its dtype, and the sizes of its operands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["DTYPES", "OF_EXPERTS", "Options", "Problem", "bucket_of", "has_weight", "options_text"]

#: Keyword arguments of an operator's function: ``algorithm=`` and those of the schedule.
Options = dict[str, Any]

#: Bytes of an element, by the names of dtypes in tables and on the command line.
DTYPES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int8": 1}

#: Operators whose weights are those of experts, and how these are divided.
OF_EXPERTS = {"ag_moe", "moe_rs", "ep_moe"}


@dataclass(frozen=True)
class Problem:
    """One bucket of calls.

    Attributes:
        operator: its function's name. dtype: a name of ``DTYPES``. ranks: how many.
        rows: of A on a rank (``ag_gemm``), of the result on a rank (``gemm_rs``), of A (``gemm_ar``); of a rank's part
            of a sequence (``gemm_a2a``, ``a2a_gemm``); a rank's tokens (``OF_EXPERTS``); elements that a rank gives to
            each other one (collectives). In a table, those of a bucket.
        N, K: of the weight ``[N, K]`` of a rank, or of an expert on it, of ``ep_moe`` its first; 0 for collectives.
        experts, top_k, parallel: of ``OF_EXPERTS``: how many experts all ranks have together, and a token; ``"ep"``
            or ``"tp"``. 0 and empty for others.
        routing: which experts tokens choose (:class:`ditron.kernels.route_draws.RouteDistribution`), to predict with:
            calls do not know it, so that rules and tables are those of ``"uniform"``.
    """

    operator: str
    dtype: str
    ranks: int
    rows: int
    N: int = 0
    K: int = 0
    experts: int = 0
    top_k: int = 0
    parallel: str = ""
    routing: str = "uniform"

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype]

    @property
    def is_product(self) -> bool:
        return bool(self.N)

    @property
    def M(self) -> int:
        """Rows of the product on a rank; of experts, if all of them get as many."""
        if self.experts:
            return self.rows_of_expert * self.own_experts
        return self.rows if self.operator in ("gemm_ar", "gemm_a2a", "a2a_gemm") else self.ranks * self.rows

    @property
    def own_experts(self) -> int:
        """Of the rank that has most, or has a part of each."""
        return self.experts if self.parallel == "tp" else -(-self.experts // self.ranks)

    @property
    def rows_of_expert(self) -> int:
        """On average, one or more."""
        return max(1, self.ranks * self.rows * self.top_k // self.experts)

    @property
    def needing(self) -> float:
        """What part of the tokens has an expert on a given rank, if all choices of experts are equally likely."""
        others = self.experts - self.own_experts
        return 1.0 - math.comb(others, self.top_k) / math.comb(self.experts, self.top_k)

    @property
    def sent_bytes(self) -> int:
        """Bytes that a rank has to send to the others together; all-reduces send twice a part to each.

        Of experts: tokens to the ranks that need them, and sums of 16 bits of what these made of them.
        """
        if self.experts:
            return int(self.needing * self.rows * (self.ranks - 1)) * self.bytes_of_token
        columns = {"ag_gemm": self.K, "gemm_rs": self.N, "gemm_ar": self.N}
        columns |= {"gemm_a2a": self.N // self.ranks, "a2a_gemm": self.K // self.ranks}
        part = self.rows * columns.get(self.operator, 1) * self.itemsize
        if self.operator in ("gemm_ar", "all_reduce"):
            part = -(-2 * part // self.ranks)
        return part * (self.ranks - 1)

    @property
    def bytes_of_token(self) -> int:
        """Of experts: what goes between two ranks for a token, there and back."""
        wide = max(2, self.itemsize)
        of_token = {"ag_moe": self.K * self.itemsize, "moe_rs": self.N * wide}
        return (of_token | {"ep_moe": self.K * (self.itemsize + wide)})[self.operator]

    def __str__(self) -> str:
        ranks = f"{self.ranks} rank{'s' if self.ranks != 1 else ''}"
        if self.experts:
            sizes = f"{self.ranks * self.rows} tokens to {self.top_k} of {self.experts} experts N={self.N} K={self.K}"
            routing = f", {self.routing} routes" if self.routing != "uniform" else ""
            return f"{self.operator} {sizes} {self.dtype}, {ranks} {self.parallel}{routing}"
        sizes = f"M={self.M} N={self.N} K={self.K}" if self.is_product else f"{self.rows} x"
        return f"{self.operator} {sizes} {self.dtype}, {ranks}"


def has_weight(operator: str) -> bool:
    """Whether a product is a part of the operator: problems have ``N`` and ``K``."""
    return "gemm" in operator or operator in OF_EXPERTS


def bucket_of(rows: int) -> int:
    """``rows`` rounded up to a power of two, at least 8: calls of one bucket run the same."""
    return max(8, 1 << (rows - 1).bit_length())


def options_text(options: Options) -> str:
    """``algorithm="overlapped", block=(128, 256, 64)``: as they are passed."""
    return ", ".join(
        f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}" for name, value in options.items()
    )
