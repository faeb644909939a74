"""What is mutated, and the groups of ranks that run it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import ditron

__all__ = ["GROUPS", "NODES", "ONE_NODE", "Call", "Subject", "data", "error", "operator", "right"]

Call = Callable[[int, int, int], float]

#: (ranks, ranks per node) that the checker looks at, and that the simulator runs.
GROUPS = ((2, None), (3, None), (4, 2))
ONE_NODE = ((2, None), (3, None))
NODES = ((2, 1), (4, 2))


@dataclass(frozen=True)
class Subject:
    """``run()`` on each rank returns the largest error; what is above ``tolerance`` is wrong. ``program``: what it
    calls, when the checker is to look at that."""

    name: str
    run: Callable[[], float]
    tolerance: float = 0.0
    groups: tuple[tuple[int, int | None], ...] = GROUPS
    program: Any = None


def operator(name: str, program: str, call: Call, groups: tuple = ONE_NODE) -> Subject:
    """``call(number, rank, ranks)`` three times on every rank, with other data for each number.

    ``name``: begins with that of a module of ditron.kernels. ``program``: what it calls, of that module, or one of
    SCALED_PROGRAMS or SCHEDULE_PROGRAMS, which the checker looks at.
    """
    from scaled_programs import SCALED_PROGRAMS
    from schedule_programs import SCHEDULE_PROGRAMS

    def run() -> float:
        ditron.init()
        return max(call(number, ditron.rank(), ditron.num_ranks()) for number in range(3))

    module = importlib.import_module(f"ditron.kernels.{name.partition(',')[0]}")
    checked = (SCALED_PROGRAMS | SCHEDULE_PROGRAMS).get(program) or getattr(module, program)
    return Subject(f"kernels.{name}", run, 1.5e-2, groups, checked)


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    """Of all elements the largest difference, as a part of the largest."""
    return ((got.float() - exact).abs().max() / exact.abs().max()).item()


def right(check: Callable[[], None]) -> float:
    """0.0, or 1.0 when a test's ``check`` finds its assertion not to hold."""
    try:
        check()
    except AssertionError:
        return 1.0
    return 0.0


def data(*shape: int, seed: int) -> torch.Tensor:
    """bfloat16, drawn."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()
