"""What a choice is made for: an operator, its dtype, and the sizes of its operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["DTYPES", "Options", "Problem", "bucket_of", "options_text"]

#: Keyword arguments of an operator's function: ``algorithm=`` and those of the schedule.
Options = dict[str, Any]

#: Bytes of an element, by the names of dtypes in tables and on the command line.
DTYPES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int8": 1}


@dataclass(frozen=True)
class Problem:
    """One bucket of calls.

    Attributes:
        operator: its function's name. dtype: a name of ``DTYPES``. ranks: how many.
        rows: of A on a rank (``ag_gemm``), of the result on a rank (``gemm_rs``), of A (``gemm_ar``); of a rank's part
            of a sequence (``gemm_a2a``, ``a2a_gemm``); elements that a rank gives to each other one (collectives). In
            a table, those of a bucket.
        N, K: of the weight ``[N, K]`` of a rank; 0 for collectives.
    """

    operator: str
    dtype: str
    ranks: int
    rows: int
    N: int = 0
    K: int = 0

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype]

    @property
    def is_product(self) -> bool:
        return bool(self.N)

    @property
    def M(self) -> int:
        """Rows of the product on a rank."""
        return self.rows if self.operator in ("gemm_ar", "gemm_a2a", "a2a_gemm") else self.ranks * self.rows

    @property
    def sent_bytes(self) -> int:
        """Bytes that a rank has to send to the others together; all-reduces send twice a part to each."""
        columns = {"ag_gemm": self.K, "gemm_rs": self.N, "gemm_ar": self.N}
        columns |= {"gemm_a2a": self.N // self.ranks, "a2a_gemm": self.K // self.ranks}
        part = self.rows * columns.get(self.operator, 1) * self.itemsize
        if self.operator in ("gemm_ar", "all_reduce"):
            part = -(-2 * part // self.ranks)
        return part * (self.ranks - 1)

    def __str__(self) -> str:
        sizes = f"M={self.M} N={self.N} K={self.K}" if self.is_product else f"{self.rows} x"
        return f"{self.operator} {sizes} {self.dtype}, {self.ranks} rank{'s' if self.ranks != 1 else ''}"


def bucket_of(rows: int) -> int:
    """``rows`` rounded up to a power of two, at least 8: calls of one bucket run the same."""
    return max(8, 1 << (rows - 1).bit_length())


def options_text(options: Options) -> str:
    """``algorithm="overlapped", block=(128, 256, 64)``: as they are passed."""
    return ", ".join(
        f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}" for name, value in options.items()
    )
