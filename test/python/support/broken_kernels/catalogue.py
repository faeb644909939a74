"""The catalogue of wrong kernels: what it says of each, and how they are entered."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import ditron

N = 32
CASES: dict[str, Case] = {}


@dataclass(frozen=True)
class Case:
    """`kind` and, when it is not enough, `says`: part of the message."""

    name: str
    kernel: Any
    kind: str
    file: Path
    lines: frozenset[int]
    says: str = ""
    ranks: int = 2
    calls: int = 1
    grid: int = 1
    resident: int = 132
    ranks_per_node: int | None = None
    host: Callable | None = None

    def main(self) -> None:
        """What a rank runs."""
        ditron.init()
        data = ditron.symm_empty(4, N, dtype=torch.float32, name="data")
        if self.kind != "unwritten":
            data.zero_()
        flags = ditron.symm_zeros(8, dtype=torch.int64, name="flags")
        out = torch.zeros(4, N)
        if self.host is not None:
            self.host(self.kernel, data, flags, out)
            return
        for epoch in range(1, self.calls + 1):
            self.kernel[(self.grid,)](data, flags, out, epoch, N=N)

    def lines_in(self, error: Any) -> list[int]:
        """Numbers of lines of its file that a report names, the first access first."""
        places = [place.split(":") for place in (error.location, *error.others) if place]
        return [int(line) for file, line, *_ in places if Path(file) == self.file]


def marked(function: Callable) -> set[int]:
    """The numbers of its marked lines."""
    source, first = inspect.getsourcelines(function)
    return {first + i for i, text in enumerate(source) if text.rstrip().endswith("# <-")}


def broken(kind: str, **facts: Any) -> Callable:
    """Put a kernel, or the host function of the kernel above it, in the catalogue."""

    def add(made: Any) -> Any:
        kernel, host = (made, None) if hasattr(made, "fn") else (facts.pop("kernel"), made)
        lines = marked(kernel.fn) | (marked(host) if host else set())
        name = (host or kernel).__name__
        assert lines, f"{name} marks no line"
        file = Path(inspect.getsourcefile(host or kernel.fn))
        CASES[name] = Case(name, kernel, kind, file, frozenset(lines), host=host, **facts)
        return made

    return add
